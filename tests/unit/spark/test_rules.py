"""The tasks of ``transitions()``, without Spark: rows to transitions."""

import datetime
import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import TimerValues

from pillion_rules import Reading, Rule
from pillion_rules.durations import MINUTE
from pyspark_pillion import stepping
from pyspark_pillion.judging import grouped, texts_of
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
    (group,) = grouped(RULES)
    rows: list[Any] = [
        (json.dumps([group, key]), at * MINUTE, [level] * len(RULES), [])
        for key, readings in sorted(keys.items())
        for at, level in sorted(readings, key=lambda pair: pair[0])
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepping, "_PART", 3)
        groups = stepping.RuleGroups(RULES)
        found = list(stepping.batch_transitions(groups, iter(rows), until=until))
    for rule, (key, readings) in product(RULES, keys.items()):
        told = [
            (one.transition.value, one.level, one.at, one.since, one.count, one.raised_at)
            for one in found
            if (one.rule, one.key) == (rule.name, (key,))
        ]
        given_now = [Reading(at * MINUTE, level) for at, level in readings if at <= cut]
        assert sorted(told) == sorted(expected(rule, given_now, until=until))


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
    (group,) = grouped([rule])
    processor, handle = stepping.Processor([rule], ()), Handle()
    processor.init(handle)
    given_rows = [Row(at=at * MINUTE, levels=[level], texts=[]) for at, level in rows]
    values = TimerValues(0, watermark * 60_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepping, "_PART", 3)
        key = (json.dumps([group, "x"]),)
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
