"""All rules of a key with one state, and rules that come, change and go."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillion_rules import (
    CLEAR,
    JudgedReading,
    MaintenanceWindow,
    Reading,
    Rule,
    RuleSet,
    StateError,
    Transition,
)
from pillion_rules.durations import MINUTE
from pillion_rules.machine import MOST_PENDING
from pillion_rules.state import NEVER, opened
from support.rules_reference import HELD, PLAIN, RULES, SILENT, expected

KEY = ("EWR",)
MAJOR, MINOR = 5, 4


def read(*readings: tuple[int, int | None], rules: int = 1) -> list[JudgedReading]:
    """Minute and level by every rule."""
    return [(at * MINUTE, [level] * rules, {}) for at, level in readings]


def told(found: tuple[Transition, ...]) -> list[tuple[str, str, int]]:
    return [(one.rule, one.transition.value, one.at // MINUTE) for one in found]


ONE = st.tuples(st.integers(0, 90), st.sampled_from([None, CLEAR, MINOR, MAJOR]))


def fed(
    rules: RuleSet, given_readings: list[tuple[int, int | None]], data: st.DataObject
) -> tuple[bytes | None, list[Transition]]:
    """The state, and what is told, after readings in any cut and in any order within a delay."""
    delay = data.draw(st.integers(1, 30))
    arriving = sorted(given_readings, key=lambda one: one[0] + data.draw(st.integers(0, delay - 1)))
    state, newest = None, NEVER
    found: list[Transition] = []
    left = arriving
    while left:
        size = data.draw(st.integers(1, len(left)))
        batch, left = left[:size], left[size:]
        watermark = NEVER if newest == NEVER else newest - delay * MINUTE
        made = rules.step(KEY, state, read(*batch, rules=len(RULES)), watermark=watermark)
        assert made.due is None or made.due > watermark
        state, found = made.state, [*found, *made.transitions]
        newest = max([newest, *(at * MINUTE for at, _ in batch)])
    return state, found


def tells(
    found: list[Transition], rule: Rule, readings: list[tuple[int, int | None]], *, until: int
) -> bool:
    """Whether a rule tells what the model tells of all readings up to a minute."""
    of_rule = [
        (one.transition.value, one.level, one.at, one.since, one.count, one.raised_at)
        for one in found
        if one.rule == rule.name
    ]
    all_readings = [Reading(at * MINUTE, level) for at, level in readings]
    return of_rule == expected(rule, all_readings, until=until * MINUTE)


@settings(max_examples=150)
@given(st.lists(ONE, min_size=1, max_size=30), st.data())
def test_any_cut_gives_what_the_model_without_state_tells(
    given_readings: list[tuple[int, int | None]], data: st.DataObject
) -> None:
    rules = RuleSet(RULES)
    state, found = fed(rules, given_readings, data)
    found += rules.step(KEY, state, [], watermark=200 * MINUTE).transitions
    assert all(tells(found, rule, given_readings, until=200) for rule in RULES)


@settings(max_examples=150)
@given(
    st.lists(ONE, min_size=1, max_size=30),
    st.lists(st.integers(0, 200), max_size=5),
    st.data(),
)
def test_by_the_clock_silence_is_told_as_by_the_watermark_and_nothing_twice(
    given_readings: list[tuple[int, int | None]], clocks: list[int], data: st.DataObject
) -> None:
    rules = RuleSet(RULES)
    state, found = fed(rules, given_readings, data)
    newest = max(at for at, _ in given_readings)
    for clock in (*sorted(newest + clock for clock in clocks), newest + 100):
        made = rules.step(KEY, state, [], watermark=NEVER, clock=clock * MINUTE)
        state, found = made.state, [*found, *made.transitions]
    last = max(newest + clock for clock in (*clocks, 100))
    assert tells(found, SILENT, given_readings, until=last)
    # The readings that waited were taken, and the clock moves no other rule further.
    assert all(tells(found, rule, given_readings, until=newest) for rule in (HELD, PLAIN))
    found += rules.step(KEY, state, [], watermark=400 * MINUTE).transitions
    assert all(tells(found, rule, given_readings, until=400) for rule in RULES)


def test_by_the_clock_readings_wait_until_the_newest_is_older_than_the_shortest_silent() -> None:
    other = replace(SILENT, name="other", silent="20 minutes")
    rules = RuleSet((other, SILENT))
    given_readings = read((1, CLEAR), (3, CLEAR), rules=2)
    made = rules.step(KEY, None, given_readings, watermark=NEVER, clock=8 * MINUTE)
    assert told(made.transitions) == []
    before = rules.step(KEY, made.state, read((2, CLEAR), rules=2), watermark=NEVER)
    assert before.late == 0
    made = rules.step(KEY, before.state, [], watermark=NEVER, clock=9 * MINUTE)
    assert told(made.transitions) == [("silent", "raised", 9)]
    made = rules.step(KEY, made.state, [], watermark=NEVER, clock=23 * MINUTE)
    assert told(made.transitions) == [("other", "raised", 23)]


def test_a_reading_that_comes_after_an_alert_by_the_clock_clears_it() -> None:
    rules = RuleSet((SILENT,))
    made = rules.step(KEY, None, read((1, CLEAR)), watermark=NEVER, clock=9 * MINUTE)
    assert told(made.transitions) == [("silent", "raised", 7)]
    late = rules.step(KEY, made.state, read((1, MAJOR), (4, CLEAR)), watermark=NEVER)
    assert (late.late, late.transitions) == (1, ())
    found = rules.step(KEY, late.state, [], watermark=8 * MINUTE)
    assert told(found.transitions) == [("silent", "cleared", 7)]


@pytest.mark.parametrize("windows", [(), ((5, 12),)])
def test_late_readings_after_repeats_by_the_clock_make_no_identity_twice(
    windows: tuple[tuple[int, int], ...],
) -> None:
    maintenance = [MaintenanceWindow(start=a * MINUTE, end=b * MINUTE) for a, b in windows]
    rules = RuleSet([replace(SILENT, repeat="1 minute")], maintenance=maintenance)
    state, found = None, list[Transition]()
    for at in (1, 2, 3, 4):
        made = rules.step(KEY, state, read((at, CLEAR)), watermark=NEVER, clock=20 * MINUTE)
        state, found = made.state, [*found, *made.transitions]
    assert [one.transition for one in found].count("cleared") == 3
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert len({one.identity("source") for one in found}) == len(found)


def test_without_a_silent_rule_the_clock_says_nothing() -> None:
    rules = RuleSet((HELD, PLAIN))
    made = rules.step(
        *(KEY, None, read((1, MAJOR), rules=2)), watermark=NEVER, clock=5_000 * MINUTE
    )
    assert (rules.silent, made.transitions, made.due) == (None, (), 1 * MINUTE)


def test_a_reading_behind_the_watermark_counts_while_its_key_has_not_passed_it() -> None:
    made = RuleSet((PLAIN,)).step(KEY, None, read((1, MAJOR)), watermark=5 * MINUTE)
    assert told(made.transitions) == [("plain", "raised", 1)]
    again = RuleSet((PLAIN,)).step(KEY, made.state, read((4, CLEAR)), watermark=6 * MINUTE)
    assert told(again.transitions) == []


def test_a_rule_that_was_removed_clears_and_says_why() -> None:
    made = RuleSet((PLAIN, SILENT)).step(KEY, None, read((1, MAJOR), rules=2), watermark=2 * MINUTE)
    assert (told(made.transitions), made.is_raised) == ([("plain", "raised", 1)], True)
    after = RuleSet((SILENT,)).step(KEY, made.state, [], watermark=3 * MINUTE)
    assert told(after.transitions) == [("plain", "cleared", 2)]
    assert after.transitions[0].reason == "rule-removed"
    assert (after.is_raised, after.due) == (False, 7 * MINUTE)
    last = RuleSet(()).step(KEY, after.state, [], watermark=3 * MINUTE)
    assert (last.transitions, last.state, last.due) == ((), None, None)


def test_a_rule_that_was_edited_keeps_level_and_begin() -> None:
    made = RuleSet((PLAIN,)).step(KEY, None, read((1, MAJOR), (2, MAJOR)), watermark=3 * MINUTE)
    edited = Rule(
        *("plain",),
        keys=["k"],
        event_time="t",
        severity={"Critical": "c", "Major": "a"},
        repeat="5 minutes",
        forget="1 hour",
    )
    after = RuleSet((SILENT, edited)).step(KEY, made.state, [], watermark=6 * MINUTE)
    (one,) = after.transitions
    assert (one.transition, one.level, one.at, one.since, one.count) == (
        *("repeated", "Major"),
        6 * MINUTE,
        1 * MINUTE,
        2,
    )


def test_a_rule_that_was_added_begins_with_the_next_reading() -> None:
    made = RuleSet((PLAIN,)).step(KEY, None, read((1, CLEAR)), watermark=3 * MINUTE)
    both = RuleSet((SILENT, PLAIN))
    after = both.step(KEY, made.state, read((4, MAJOR), rules=2), watermark=10 * MINUTE)
    assert told(after.transitions) == [("silent", "raised", 10), ("plain", "raised", 4)]


def test_a_state_of_a_later_version_and_damaged_ones_are_refused() -> None:
    state = RuleSet(RULES).step(KEY, None, read((1, MAJOR), rules=3), watermark=0).state
    assert state is not None
    for wrong in (state[:-1], state + b"x", b"", state[:9] + b"?" + state[10:]):
        with pytest.raises(StateError, match="damaged; start from another checkpoint"):
            RuleSet(RULES).step(KEY, wrong, [], watermark=0)
    with pytest.raises(StateError, match="has version 4, and this Pillion reads versions up to 3"):
        RuleSet(RULES).step(KEY, b"\x04" + state[1:], [], watermark=0)


@given(st.binary(max_size=60))
def test_any_bytes_raise_nothing_but_a_state_error(content: bytes) -> None:
    with suppress(StateError):
        RuleSet(RULES).step(KEY, content, [], watermark=0)


@pytest.mark.parametrize("levels", [(MAJOR, None, CLEAR), [MAJOR, None, CLEAR]])
def test_readings_that_wait_are_in_the_state_as_its_first_version_has_them(
    levels: Sequence[int | None],
) -> None:
    rules = tuple(replace(PLAIN, name=name, message="{v}") for name in ("a", "b", "c"))
    readings: list[JudgedReading] = [
        (1, levels, {"v": "é" * 300}),
        (2, levels, {"v": "\ud800"}),
        (2, (None, MAJOR, None), {"v": "x"}),
    ]
    state = RuleSet(rules).step(KEY, None, readings, watermark=0).state
    assert state is not None
    content = opened(state, of="rules")
    text = (
        '[0,["a","b","c"],[[1,[5,null,0],[0,0,0],[{"v":"' + "é" * 200 + '"}]],'
        '[2,[5,5,0],[0,1,0],[{"v":"\ud800"},{"v":"x"}]]]]'
    ).encode("utf-8", "surrogatepass")
    assert (state[0], content) == (1, len(text).to_bytes(4) + text)
    one, two = RuleSet(rules).step(KEY, state, [], watermark=2).transitions
    assert [(each.rule, each.at) for each in (one, two)] == [("a", 1), ("b", 2)]


# ---------------------------------------------------------------------- many readings


def one_of_many(count: int, *, at: int, first: bool) -> list[JudgedReading]:
    """So many different readings of one time, of which one is major."""
    levels = [MAJOR, *[CLEAR] * (count - 1)] if first else [*[CLEAR] * (count - 1), MAJOR]
    return [(at * MINUTE, [level], {"v": str(number)}) for number, level in enumerate(levels)]


@pytest.mark.parametrize("first", [True, False])
def test_any_number_of_readings_of_one_time_is_one_that_waits(first: bool) -> None:
    rules = RuleSet((PLAIN,))
    state = None
    for part in range(2):
        given_readings = one_of_many(12_000, at=1, first=first) if part == 1 else read((1, CLEAR))
        made = rules.step(KEY, state, given_readings, watermark=0)
        state = made.state
        assert (made.transitions, made.late) == ((), 0)
    assert state is not None
    assert len(state) < 300
    found = rules.step(KEY, state, [], watermark=2 * MINUTE)
    assert told(found.transitions) == [("plain", "raised", 1)]


def test_what_was_taken_early_is_late_until_the_watermark_passes_it() -> None:
    rules = RuleSet((PLAIN,))
    many: list[JudgedReading] = [(number + 100, [CLEAR], {}) for number in range(MOST_PENDING + 1)]
    made = rules.step(KEY, None, many, watermark=0)
    after = rules.step(KEY, made.state, [(100, [MAJOR], {})], watermark=0)
    assert after.late == 1
    last = rules.step(KEY, after.state, [], watermark=100_000)
    assert (told(last.transitions), last.state, last.due) == ([], None, None)
    alone = rules.step(KEY, rules.step(KEY, None, many, watermark=0).state, [], watermark=0)
    assert alone.due is not None


def test_what_waits_has_a_bound_of_bytes_beyond_which_the_earliest_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pillion_rules.rule_set.MOST_BYTES", 10_000)
    rules = RuleSet((replace(PLAIN, message="{v}"),))
    state, late, taken = None, 0, 0
    for minute in range(1, 201):
        given_readings: list[JudgedReading] = [(minute * MINUTE, [MAJOR], {"v": "é" * 150})]
        made = rules.step(KEY, state, given_readings, watermark=0)
        state, late, taken = made.state, late + made.late, taken + len(made.transitions)
        assert state is not None
        assert len(state) <= 10_000
    assert (late, taken) == (0, 1)
    assert rules.step(KEY, state, read((5, MAJOR)), watermark=0).late == 1
    (raised,) = rules.step(KEY, None, read((1, MAJOR)), watermark=MINUTE).transitions
    (cleared,) = rules.step(KEY, state, read((201, CLEAR)), watermark=201 * MINUTE).transitions
    assert (raised.at, cleared.raised_at, cleared.count) == (MINUTE, MINUTE, 200)


@pytest.mark.parametrize("looks", [0, 7])
def test_an_edit_does_not_depend_on_how_often_the_key_was_looked_at(looks: int) -> None:
    long = replace(PLAIN, forget="10 days")
    before = RuleSet((long,))
    state = before.step(KEY, None, read((1, MAJOR)), watermark=2 * MINUTE).state
    for look in range(looks):
        state = before.step(KEY, state, [], watermark=(100 + look) * MINUTE).state
    state = before.step(KEY, state, [], watermark=3_000 * MINUTE).state
    (gone,) = RuleSet(()).step(KEY, state, [], watermark=3_001 * MINUTE).transitions
    assert gone.at == 3_000 * MINUTE
    repeated = RuleSet((replace(long, repeat="5 minutes"),))
    found = repeated.step(KEY, state, [], watermark=3_001 * MINUTE).transitions
    assert told(found) == [("plain", "repeated", 3_000)]
