"""All rules of a key with one state, and rules that come, change and go."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillion_rules import CLEAR, JudgedReading, Reading, Rule, RuleSet, StateError, Transition
from pillion_rules.durations import MINUTE
from pillion_rules.machine import MOST_PENDING
from pillion_rules.state import NEVER
from support.rules_reference import PLAIN, RULES, SILENT, expected

KEY = ("EWR",)
MAJOR, MINOR = 5, 4


def read(*readings: tuple[int, int | None], rules: int = 1) -> list[JudgedReading]:
    """Minute and level by every rule."""
    return [(at * MINUTE, [level] * rules, {}) for at, level in readings]


def told(found: tuple[Transition, ...]) -> list[tuple[str, str, int]]:
    return [(one.rule, one.transition.value, one.at // MINUTE) for one in found]


ONE = st.tuples(st.integers(0, 90), st.sampled_from([None, CLEAR, MINOR, MAJOR]))


@settings(max_examples=150)
@given(st.lists(ONE, min_size=1, max_size=30), st.data())
def test_any_cut_gives_what_the_model_without_state_tells(
    given_readings: list[tuple[int, int | None]], data: st.DataObject
) -> None:
    rules, until = RuleSet(RULES), 200 * MINUTE
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
    found += rules.step(KEY, state, [], watermark=until).transitions
    for rule in RULES:
        readings = [Reading(at * MINUTE, level) for at, level in given_readings]
        of_rule = [
            (one.transition.value, one.level, one.at, one.since, one.count, one.raised_at)
            for one in found
            if one.rule == rule.name
        ]
        assert of_rule == expected(rule, readings, until=until)


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
    with pytest.raises(StateError, match="has version 3, and this Pillion reads versions up to 2"):
        RuleSet(RULES).step(KEY, b"\x03" + state[1:], [], watermark=0)


@given(st.binary(max_size=60))
def test_any_bytes_raise_nothing_but_a_state_error(content: bytes) -> None:
    with suppress(StateError):
        RuleSet(RULES).step(KEY, content, [], watermark=0)


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
