"""The tasks of ``transitions()``, without Spark: rows to transitions."""

import datetime
import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from pillion_rules import Reading, Rule
from pillion_rules.durations import MINUTE
from pyspark_pillion import stepping
from pyspark_pillion.judging import Group, texts_of
from support.rules_reference import RULES, expected

READINGS = st.lists(
    st.tuples(st.integers(0, 90), st.sampled_from([None, 0, 4, 5])), min_size=1, max_size=25
)


@settings(max_examples=100)
@given(keys=st.dictionaries(st.sampled_from("xyz"), READINGS, min_size=1), cut=st.integers(0, 90))
def test_each_key_gives_what_the_model_without_state_tells(
    keys: dict[str, list[tuple[int, int | None]]], cut: int
) -> None:
    until = cut * MINUTE
    group = "of all"
    rows: list[Any] = [
        (json.dumps([group, key]), at * MINUTE, digits(level) * len(RULES), [], [])
        for key, readings in sorted(keys.items())
        for at, level in sorted(readings, key=lambda pair: pair[0])
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepping, "_PART", 3)
        groups = stepping.RuleGroups({group: Group(RULES, (), {}, {})})
        found = list(stepping.batch_transitions(groups, iter(rows), until=until))
    for rule, (key, readings) in product(RULES, keys.items()):
        told = [
            (one.transition.value, one.level, one.at, one.since, one.count, one.raised_at)
            for one in found
            if (one.rule, one.key) == (rule.name, (key,))
        ]
        given_now = [Reading(at * MINUTE, level) for at, level in readings if at <= cut]
        assert sorted(told) == sorted(expected(rule, given_now, until=until))


def digits(level: int | None) -> str:
    return "-" if level is None else str(level)


class Handle:
    """What Spark gives to a processor: one value, and timers."""

    def __init__(self) -> None:
        self.value: tuple[Any, ...] | None = None
        self.timers: set[int] = set()

    def getValueState(self, name: str, schema: str) -> "Handle":
        return self

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None

    def registerTimer(self, at: int) -> None:
        assert at not in self.timers
        self.timers.add(at)

    def deleteTimer(self, at: int) -> None:
        self.timers.remove(at)


def processed(
    rows: list[tuple[int, int | None]], *, watermark: int
) -> tuple[list[tuple[str, int]], Handle]:
    """What a micro-batch of minutes and levels makes with the watermark of this minute."""
    rule = RULES[1]
    processor, handle = stepping.Processor({"g": Group((rule,), (), {}, {})}), Handle()
    processor.init(handle)
    place = json.dumps(["g", "x"])
    given_rows = [
        # The columns that no rule needs are left out.
        Row(mark=None, levels=digits(level), place=place, at=at * MINUTE)
        for at, level in rows
    ]
    values = TimerValues(0, watermark * 60_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepping, "_PART", 3)
        key = (place,)
        found = list(processor.handleInputRows(key, iter(given_rows), values))
    return [(row["transition"], minutes(row["at"])) for row in found], handle


def minutes(time: datetime.datetime) -> int:
    return int((time - stepping.EPOCH).total_seconds()) // 60


@pytest.mark.parametrize("place", [0, 4, 9])
def test_a_micro_batch_is_taken_in_the_order_of_time_in_any_number_of_parts(place: int) -> None:
    others: list[tuple[int, int | None]] = [(at, 0) for at in range(1, 21) if at != 7]
    rows = [*others[:place], (7, 5), *others[place:]]
    found, handle = processed(rows, watermark=30)
    assert found == [("raised", 7), ("cleared", 8)]
    assert (handle.value, handle.timers) == (None, set())


def test_a_timer_is_due_when_the_watermark_reaches_what_waits() -> None:
    found, handle = processed([(8, 0), (7, 5)], watermark=3)
    assert found == []
    assert handle.timers == {7 * 60_000}
    assert handle.value is not None


def test_a_column_comes_before_a_built_in_name_of_a_message() -> None:
    rule = Rule(
        "r", keys=["k"], event_time="t", severity={"Major": "a"}, message="{level} {fuel} {count}"
    )
    assert texts_of([rule], ()) == ["fuel"]
    assert texts_of([rule], {"level"}) == ["fuel", "level"]


# -------------------------------------------------------------------------- by the clock


class ByClock:
    """Micro-batches of one key and rule whose readings may come a minute late; times in minutes."""

    def __init__(self, rule: Rule) -> None:
        self._key = (json.dumps(["g", "x"]),)
        self._groups = {"g": Group((rule,), (), {}, {})}
        self.handle = Handle()

    def run(self, clock: float, watermark: int, *readings: int) -> list[tuple[str, int]]:
        processor = stepping.Processor(self._groups, delay=60_000)
        processor.init(self.handle)
        now = int(clock * 60_000)
        times = TimerValues(now, watermark * 60_000)
        found: list[Row] = []
        if readings:
            rows = [
                Row(place=self._key[0], at=at * MINUTE, levels="5", texts=[], numbers=[])
                for at in readings
            ]
            found += processor.handleInputRows(self._key, iter(rows), times)
        for timer in sorted(one for one in self.handle.timers if one <= now):
            found += processor.handleExpiredTimer(self._key, times, ExpiredTimerInfo(timer))
            self.handle.deleteTimer(timer)
        processor.close()
        return [(row["transition"], minutes(row["at"])) for row in found]


def test_silence_is_told_by_the_clock_once_the_watermark_stood_still_and_readings_were_read() -> (
    None
):
    stream = ByClock(RULES[2])
    assert stream.run(100, 0, 99, 100) == []
    looks = [stream.run(clock, 99) for clock in range(101, 110)]
    # At 108 all that came until 107 was read, and readings of 106 have come by then.
    assert looks == [[]] * 7 + [[("raised", 106)], []]
    assert stream.run(110, 99, 109) == []
    assert stream.run(111, 108) == []
    assert stream.run(112, 109) == [("cleared", 109)]


def test_the_clock_says_nothing_in_a_micro_batch_with_readings_of_the_key() -> None:
    stream = ByClock(RULES[2])
    told = [stream.run(100, 0, 100), *(stream.run(clock, 99) for clock in range(101, 113))]
    assert [one for one in told if one] == [[("raised", 106)]]
    assert stream.run(113, 99, 103) == []
    assert stream.run(114, 99) == [("cleared", 106), ("raised", 109)]


def test_a_backlog_is_told_by_the_watermark_alone() -> None:
    stream = ByClock(RULES[2])
    assert stream.run(1_000, 0, 1) == []
    assert [stream.run(1_000 + place, place) for place in range(1, 7)] == [[]] * 6
    assert stream.run(1_007, 7) == [("raised", 7)]


def test_without_silent_each_micro_batch_takes_what_the_watermark_has_passed() -> None:
    stream = ByClock(RULES[1])
    assert stream.run(100, 0, 99) == []
    assert [stream.run(100 + place, 98) for place in range(1, 20)] == [[]] * 19
    assert stream.run(120, 99) == [("raised", 99)]


def test_by_the_clock_a_key_has_one_timer_which_ends_with_its_state() -> None:
    stream = ByClock(RULES[1])
    stream.run(100, 0, 99)
    assert stream.handle.timers == {100 * 60_000 + 1}
    stream.run(101, 0, 100)
    assert stream.handle.timers == {101 * 60_000 + 1}
    # It is forgotten after an hour.
    stream.run(102, 160)
    assert (stream.handle.value, stream.handle.timers) == (None, set())


@pytest.mark.parametrize(
    ("rule", "told", "next_look"),
    [
        # Forgotten at 159, which a reading that is 5 minutes ahead may tell at 155.
        (RULES[1], [("raised", 99)], 155.0),
        # Silent at 159, and looked at four times until then.
        (replace(RULES[2], silent="1 hour", forget="1 day"), [], 116.0),
    ],
)
def test_by_the_clock_a_key_is_looked_at_when_something_can_be_due(
    rule: Rule, told: list[tuple[str, int]], next_look: float
) -> None:
    stream = ByClock(rule)
    stream.run(100, 0, 99)
    assert stream.run(101, 99) == told
    assert stream.handle.timers == {int(next_look * 60_000)}


def test_by_the_clock_late_readings_are_left_out_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = ByClock(RULES[1])
    assert stream.run(100, 50, 49, 50) == []
    assert stream.handle.value is None
    assert caplog.messages == ["2 readings were left out: they were late"]
