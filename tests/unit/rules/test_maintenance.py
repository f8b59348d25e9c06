"""Maintenance windows: what they hide, when it is told, and windows that change between steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pillion_rules import (
    CLEAR,
    JudgedReading,
    MaintenanceWindow,
    Reading,
    Rule,
    RuleSet,
    Step,
    Transition,
    Untold,
    removed,
    step,
)
from pillion_rules.durations import MINUTE
from pillion_rules.maintenance import KeyedWindows, Span, joined, outside
from pillion_rules.state import FIRST_VERSION, NEVER, SECOND_VERSION
from support.rules_reference import PLAIN, SILENT

MINOR, MAJOR, CRITICAL = 4, 5, 6
KEY = ("3",)


def rule(**changed: Any) -> Rule:
    values: dict[str, Any] = {"keys": ["fan"], "event_time": "time", "severity": {"Major": "a"}}
    if "silent" in changed:
        values["severity"] = "Major"
    return Rule("hot", **(values | changed))


def read(*readings: tuple[int, int | None]) -> list[Reading]:
    return [Reading(at * MINUTE, level) for at, level in readings]


def minutes(*spans: Span) -> Sequence[Span]:
    return joined((start * MINUTE, end * MINUTE) for start, end in spans)


def steps(
    one: Rule, readings: list[Reading], until: int, *spans: Span, state: bytes | None = None
) -> Step:
    """All readings, up to a minute, with these windows."""
    return step(
        *(one, KEY, state, readings),
        watermark=until * MINUTE,
        done=NEVER,
        maintenance=[minutes(*spans)],
    )


def told(found: Step | Sequence[Transition]) -> list[tuple[str, str, int]]:
    transitions = found.transitions if isinstance(found, Step) else found
    return [(one.transition.value, one.level, one.at // MINUTE) for one in transitions]


# ---------------------------------------------------------------------- one window


def test_what_is_still_raised_at_the_end_is_raised_then_as_it_is_then() -> None:
    one = rule(message="{level} since {since}, {count} times, at {at}")
    given = read((1, MAJOR), (3, None), (4, MAJOR), (7, CLEAR))
    raised, cleared = steps(one, given, 9, (0, 6)).transitions
    assert (raised.transition, raised.level, raised.at) == ("raised", "Major", 6 * MINUTE)
    assert (raised.since, raised.count) == (1 * MINUTE, 2)
    assert raised.text == "Major since 1970-01-01T00:01:00Z, 2 times, at 1970-01-01T00:06:00Z"
    assert told([cleared]) == [("cleared", "Major", 7)]
    assert raised.identity("s") == raised.raise_identity("s") == cleared.raise_identity("s")
    assert raised.alert == cleared.alert


def test_what_is_cleared_by_the_end_and_was_never_told_is_not_told() -> None:
    for end in (3, 4):
        assert told(steps(rule(), read((1, MAJOR), (3, CLEAR)), 9, (0, end))) == []
    found = steps(rule(forget="5 minutes"), read((1, MAJOR)), 9, (0, 6))
    assert (told(found), found.state) == ([], None)


def test_the_clear_of_an_alert_that_was_told_is_told_at_once() -> None:
    found = steps(rule(), read((1, MAJOR), (5, CLEAR)), 9, (3, 8))
    assert told(found) == [("raised", "Major", 1), ("cleared", "Major", 5)]


def test_a_level_that_is_another_one_than_the_one_told_is_told_at_the_end() -> None:
    one = rule(severity={"Major": "a", "Critical": "b"})
    changes = read((1, MAJOR), (4, CRITICAL))
    assert told(steps(one, changes, 9, (3, 8)))[1:] == [("changed", "Critical", 8)]
    again = rule(severity=one.severity, repeat="2 minutes", forget="1 hour")
    assert told(steps(again, changes, 9, (3, 8)))[1:] == [("changed", "Critical", 8)]
    back = read((1, MAJOR), (4, CRITICAL), (5, MAJOR))
    assert told(steps(one, back, 9, (3, 8)))[1:] == []
    assert told(steps(one, [*changes, *read((8, MAJOR))], 9, (3, 8)))[1:] == []


def test_a_window_has_its_start_and_not_its_end() -> None:
    one = rule(severity={"Major": "a", "Critical": "b"})
    assert told(steps(one, read((3, MAJOR)), 7, (3, 8))) == []
    assert told(steps(one, read((8, MAJOR)), 9, (3, 8))) == [("raised", "Major", 8)]
    worse = steps(one, read((3, MAJOR), (8, CRITICAL)), 9, (3, 8))
    assert told(worse) == [("raised", "Critical", 8)]


def test_repeats_in_a_window_are_not_told_and_go_on_after_it_as_before() -> None:
    found = steps(rule(repeat="2 minutes", forget="1 hour"), read((1, MAJOR)), 9, (2, 6))
    assert told(found)[1:] == [("repeated", "Major", 7), ("repeated", "Major", 9)]
    late = steps(rule(repeat="2 minutes", forget="1 hour"), read((1, MAJOR)), 9, (0, 6))
    assert told(late) == [("raised", "Major", 6), ("repeated", "Major", 8)]


def test_the_next_step_is_due_at_the_end_of_the_window() -> None:
    found = steps(rule(), read((1, MAJOR)), 5, (0, 7))
    assert (told(found), found.due, found.is_raised) == ([], 7 * MINUTE, True)


def test_a_silent_alert_by_the_clock_is_hidden_too() -> None:
    one = rule(silent="10 minutes")
    windows = [minutes((11, 20))]
    for clock, expected in ((19, []), (20, [("raised", "Major", 20)])):
        found = step(
            *(one, KEY, None, read((2, None))),
            watermark=NEVER,
            clock=clock * MINUTE,
            maintenance=windows,
        )
        assert told(found) == expected


def test_nothing_is_told_of_a_removed_rule_whose_alert_was_not_told() -> None:
    hidden = steps(rule(), read((1, MAJOR)), 5, (0, 9))
    assert removed("hot", KEY, hidden.state) == ()
    seen = steps(rule(), read((1, MAJOR)), 5, (3, 9))
    assert told(removed("hot", KEY, seen.state)) == [("cleared", "Major", 5)]


# ---------------------------------------------------------------------- windows that change


def test_a_window_that_comes_later_hides_nothing_that_was_told() -> None:
    one = rule(severity={"Major": "a", "Critical": "b"})
    before = steps(one, read((2, MAJOR)), 4)
    assert told(before) == [("raised", "Major", 2)]
    after = steps(one, read((5, CRITICAL), (9, CLEAR)), 9, (0, 7), state=before.state)
    assert told(after) == [("changed", "Critical", 7), ("cleared", "Critical", 9)]
    assert after.transitions[0].raise_identity("s") == before.transitions[0].identity("s")


def test_without_its_window_an_alert_is_told_at_the_time_that_was_reached() -> None:
    before = steps(rule(), read((2, MAJOR)), 4, (0, 9))
    assert told(steps(rule(), [], 6, state=before.state)) == [("raised", "Major", 4)]
    shorter = steps(rule(), [], 6, (0, 3), state=before.state)
    assert told(shorter) == [("raised", "Major", 4)]
    other = steps(rule(), [], 8, (0, 3), (4, 7), state=before.state)
    assert told(other) == [("raised", "Major", 7)]


def test_a_longer_window_hides_longer() -> None:
    before = steps(rule(), read((2, MAJOR)), 4, (0, 5))
    after = steps(rule(), [], 9, (0, 8), state=before.state)
    assert told(after) == [("raised", "Major", 8)]


@pytest.mark.parametrize("spans", [[(0, 4), (3, 8)], [(0, 4), (4, 8)], [(0, 8), (2, 3)]])
def test_windows_that_overlap_or_meet_are_one(spans: list[Span]) -> None:
    lists = [minutes(one) for one in spans]
    for windows in ([minutes(*spans)], lists, lists[::-1]):
        assert outside(windows, 2 * MINUTE) == 8 * MINUTE
        assert outside(windows, 8 * MINUTE) == 8 * MINUTE
        found = step(
            *(rule(), KEY, None, read((1, MAJOR))),
            watermark=9 * MINUTE,
            done=NEVER,
            maintenance=windows,
        )
        assert told(found) == [("raised", "Major", 8)]


# ---------------------------------------------------------------------- states


# Stored in checkpoints: another form needs another version.
def test_a_state_has_another_version_only_while_something_is_hidden() -> None:
    hidden = steps(rule(), read((1, MAJOR)), 5, (0, 7))
    stored = (
        b'\x02\x8f"\xd0j[300000000,60000000,null,[5,60000000,1,60000000,5,60000000,null,0],{},[]]'
    )
    assert hidden.state == stored
    seen = steps(rule(), [], 7, (0, 7), state=stored)
    assert told(seen) == [("raised", "Major", 7)]
    assert seen.state is not None
    assert (stored[0], seen.state[0]) == (SECOND_VERSION, FIRST_VERSION)


# ---------------------------------------------------------------------- windows of a key


def window(start: int, end: int, rule: str | None = None, **key: str) -> MaintenanceWindow:
    return MaintenanceWindow(start=start * MINUTE, end=end * MINUTE, rule=rule, key=key)


def test_a_window_is_for_a_rule_and_for_values_of_its_keys() -> None:
    windows = [
        window(0, 1),
        window(2, 3, rule="hot"),
        window(4, 5, host="a"),
        window(6, 7, rule="hot", fan="3", host="a"),
        window(8, 9, rack="r"),
    ]
    found = KeyedWindows(windows, ["fan", "Host"])

    def starts(rule: str, *key: str) -> list[int]:
        return [start // MINUTE for spans in found.of(rule, key) for start, _ in spans]

    assert starts("hot", "3", "a") == [0, 4, 2, 6]
    assert starts("hot", "4", "a") == [0, 4, 2]
    assert starts("hot", "3", "b") == [0, 2]
    assert starts("cold", "3", "a") == [0, 4]
    assert KeyedWindows(windows[4:], ["fan"]).of("hot", KEY) == []


def test_a_rule_set_hides_the_keys_and_rules_of_the_windows() -> None:
    windows = [window(0, 6, k="x"), window(0, 8, rule="silent", k="x")]
    rules = RuleSet((PLAIN, SILENT), maintenance=windows)
    given: list[JudgedReading] = [(1 * MINUTE, [MAJOR, None], {})]
    for key, expected in (("x", [6, 8]), ("y", [1, 7])):
        made = rules.step((key,), None, given, watermark=9 * MINUTE)
        assert [one.at // MINUTE for one in made.transitions] == expected


@pytest.mark.parametrize(
    ("then", "at"), [([], 5), ([window(0, 7)], 7), ([window(0, 7, rule="plain", k="x")], 7)]
)
def test_a_rule_set_notices_other_windows_without_a_reading(
    then: list[MaintenanceWindow], at: int
) -> None:
    given: list[JudgedReading] = [(1 * MINUTE, [MAJOR], {})]
    before = RuleSet((PLAIN,), maintenance=[window(0, 60)]).step(
        ("x",), None, given, watermark=5 * MINUTE
    )
    assert (told(before.transitions), before.is_raised) == ([], True)
    made = RuleSet((PLAIN,), maintenance=then).step(("x",), before.state, [], watermark=9 * MINUTE)
    assert told(made.transitions) == [("raised", "Major", at)]


def test_rules_without_windows_are_the_same_as_before_there_were_any() -> None:
    given: list[JudgedReading] = [(1 * MINUTE, [MAJOR], {})]
    made = [
        RuleSet((PLAIN,), maintenance=windows).step(("x",), None, given, watermark=5 * MINUTE).state
        for windows in ([], [window(0, 60, rule="other")], [window(0, 60, rack="r")])
    ]
    assert made[0] == made[1] == made[2]


# ---------------------------------------------------------------------- too old


def old(state: bytes | None, *readings: Reading, until: int, told_from: int) -> Step:
    return step(
        *(PLAIN, KEY, state, readings),
        watermark=until * MINUTE,
        done=NEVER,
        told_from=told_from * MINUTE,
    )


def kinds(made: Step) -> list[tuple[str, str, int]]:
    return [(one.transition.value, one.level, one.at // MINUTE) for one in made.transitions]


def test_an_old_alert_that_still_lasts_is_told_as_it_was() -> None:
    given = [Reading(1 * MINUTE, MAJOR), Reading(20 * MINUTE, MAJOR)]
    made = old(None, *given, until=20, told_from=10)
    assert kinds(made) == [("raised", "Major", 1)]
    assert [(one.untold, one.at // MINUTE) for one in made.untold] == [(Untold.AGE, 1)]
    # A run that starts later gives it the same identity.
    later = old(None, *given, until=20, told_from=15)
    (one,), (other,) = made.transitions, later.transitions
    assert one.identity("s") == other.identity("s")
    # It was told, and so is its clear, however old that is.
    after = old(made.state, Reading(25 * MINUTE, CLEAR), until=25, told_from=90)
    assert kinds(after) == [("cleared", "Major", 25)]


def test_an_old_alert_that_is_over_is_not_told() -> None:
    given = [Reading(1 * MINUTE, MAJOR), Reading(2 * MINUTE, CLEAR), Reading(30 * MINUTE, MAJOR)]
    made = old(None, *given, until=30, told_from=10)
    assert kinds(made) == [("raised", "Major", 30)]
    assert [one.transition for one in made.untold] == ["raised", "cleared"]


def test_nothing_is_told_before_the_readings_have_come_so_far() -> None:
    made = old(None, Reading(1 * MINUTE, MAJOR), until=5, told_from=10)
    assert (kinds(made), made.due) == ([], 10 * MINUTE)
    assert kinds(old(made.state, until=9, told_from=10)) == []
    assert kinds(old(made.state, until=10, told_from=10)) == [("raised", "Major", 1)]


@pytest.mark.parametrize("looks", [[], [8], [3, 9], [10, 11]])
def test_repeats_of_an_old_alert_do_not_depend_on_how_often_it_was_looked_at(
    looks: list[int],
) -> None:
    often = replace(PLAIN, repeat="3 minutes")
    found: list[tuple[str, str, int]] = []
    state, given = None, [Reading(1 * MINUTE, MAJOR)]
    for look in [*looks, 17]:
        made = step(
            *(often, KEY, state, given),
            watermark=look * MINUTE,
            done=NEVER,
            told_from=10 * MINUTE,
        )
        state, given, found = made.state, [], [*found, *kinds(made)]
    repeats = [("repeated", "Major", at) for at in (10, 13, 16)]
    assert found == [("raised", "Major", 1), *repeats]


def test_an_old_change_of_an_alert_that_was_told_is_told_when_it_lasts() -> None:
    rule = Rule(
        "two",
        keys=["k"],
        event_time="t",
        severity={"Major": "a", "Minor": "b"},
        forget="2 hours",
    )
    state = step(rule, KEY, None, [Reading(1, MINOR)], watermark=2, done=NEVER).state
    given = [Reading(5 * MINUTE, MAJOR), Reading(20 * MINUTE, MAJOR)]
    made = step(
        *(rule, KEY, state, given),
        watermark=20 * MINUTE,
        done=2,
        told_from=10 * MINUTE,
    )
    assert kinds(made) == [("changed", "Major", 5)]
