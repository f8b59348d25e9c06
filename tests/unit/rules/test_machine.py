"""The step function: what its properties do not show."""

import pickle
from dataclasses import replace
from typing import Any

import pytest

from pillion_rules import (
    CLEAR,
    Reading,
    Reason,
    Rule,
    StateError,
    Step,
    Transition,
    machine,
    removed,
    step,
)
from pillion_rules.durations import MINUTE
from pillion_rules.state import NEVER, VERSION

MAJOR, CRITICAL = 5, 6
KEY = ("3",)


def rule(**changed: Any) -> Rule:
    values: dict[str, Any] = {"keys": ["fan"], "event_time": "time", "severity": {"Major": "a"}}
    if "silent" in changed:
        values["severity"] = "Major"
    return Rule("hot", **(values | changed))


def read(*readings: tuple[int, int | None]) -> list[Reading]:
    return [Reading(at * MINUTE, level) for at, level in readings]


def steps(one: Rule, readings: list[Reading], until: int, state: bytes | None = None) -> Step:
    first = step(one, KEY, state, readings, watermark=NEVER)
    second = step(one, KEY, first.state, [], watermark=until * MINUTE)
    return replace(second, transitions=first.transitions + second.transitions, late=first.late)


def told(found: Step | tuple[Transition, ...]) -> list[tuple[str, str, int]]:
    transitions = found.transitions if isinstance(found, Step) else found
    return [(one.transition.value, one.level, one.at // MINUTE) for one in transitions]


# ---------------------------------------------------------------------- bounds of time


def test_a_severity_counts_for_the_whole_of_max_gap() -> None:
    one = rule(hold="10 minutes", max_gap="4 minutes")
    held = steps(one, read((0, MAJOR), (3, MAJOR), (6, MAJOR)), 20)
    assert told(held) == [("raised", "Major", 10)]
    assert told(steps(one, read((0, MAJOR), (3, MAJOR), (5, MAJOR)), 20)) == []


def test_a_clear_reading_at_the_end_of_hold_prevents_the_alert() -> None:
    one = rule(hold="10 minutes")
    assert told(steps(one, read((0, MAJOR), (10, CLEAR)), 20)) == []
    assert told(steps(one, read((0, MAJOR), (11, CLEAR)), 10)) == [("raised", "Major", 10)]


def test_a_reading_at_the_end_of_silent_is_in_time() -> None:
    assert told(steps(rule(silent="10 minutes"), read((0, None), (10, None)), 15)) == []


def test_a_clear_at_the_time_of_a_repeat_comes_before_it() -> None:
    one = rule(keep="10 minutes", repeat="10 minutes")
    found = steps(one, read((0, MAJOR), (0, CLEAR), (1, None)), 9)
    assert told(found) == [("raised", "Major", 0)]
    found = steps(one, read((0, MAJOR), (1, CLEAR)), 11)
    assert told(found) == [
        ("raised", "Major", 0),
        ("repeated", "Major", 10),
        ("cleared", "Major", 11),
    ]
    edited = rule(keep="9 minutes", repeat="10 minutes")
    assert told(steps(edited, read((0, MAJOR), (1, CLEAR)), 11))[1:] == [("cleared", "Major", 10)]


def test_a_severity_ends_the_time_of_keep_and_a_clear_reading_does_not_begin_it_again() -> None:
    one = rule(keep="5 minutes")
    back = steps(one, read((0, MAJOR), (1, CLEAR), (4, MAJOR), (7, CLEAR)), 11)
    assert told(back) == [("raised", "Major", 0)]
    clear = steps(one, read((0, MAJOR), (1, CLEAR), (4, CLEAR), (5, None)), 11)
    assert told(clear) == [("raised", "Major", 0), ("cleared", "Major", 6)]


def test_a_clear_reading_counts_before_one_with_neither_at_the_same_time() -> None:
    for given in ((2, None), (2, CLEAR)), ((2, CLEAR), (2, None)):
        found = steps(rule(), read((0, MAJOR), *given), 5)
        assert told(found)[1:] == [("cleared", "Major", 2)]


def test_the_most_severe_of_one_time_counts() -> None:
    one = rule(severity={"Major": "a", "Critical": "b"})
    found = steps(one, read((1, MAJOR), (1, CRITICAL), (1, CLEAR), (1, None)), 5)
    assert told(found) == [("raised", "Critical", 1)]


def test_due_is_the_next_watermark_that_matters() -> None:
    one = rule(hold="10 minutes", forget="1 day")
    first = step(one, KEY, None, read((3, MAJOR)), watermark=NEVER)
    assert first.due == 3 * MINUTE
    second = step(one, KEY, first.state, [], watermark=first.due)
    assert second.due == 13 * MINUTE
    third = step(one, KEY, second.state, [], watermark=second.due)
    assert (told(third), third.due) == ([("raised", "Major", 13)], (24 * 60 + 3) * MINUTE)
    last = step(one, KEY, third.state, [], watermark=third.due)
    assert (last.state, last.due) == (None, None)
    assert last.transitions[0].reason is Reason.FORGOTTEN


# ---------------------------------------------------------------------- late readings and bounds


def test_a_reading_at_the_watermark_is_late_also_with_a_new_key() -> None:
    found = step(rule(), KEY, None, read((5, MAJOR), (6, MAJOR)), watermark=5 * MINUTE)
    assert (found.late, found.due) == (1, 6 * MINUTE)


def test_too_many_waiting_readings_are_taken_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MOST_PENDING", 2)
    found = step(rule(), KEY, None, read((3, CLEAR), (1, MAJOR), (2, None)), watermark=NEVER)
    assert told(found) == [("raised", "Major", 1)]
    after = step(rule(), KEY, found.state, read((1, CLEAR)), watermark=NEVER)
    assert after.late == 1


def test_a_state_keeps_the_columns_of_the_message_alone() -> None:
    values = {"celsius": "8" * 300, "other": "secret"}
    given = [Reading(0, MAJOR, values)]
    found = step(rule(message="{celsius}"), KEY, None, given, watermark=NEVER)
    assert found.state is not None
    assert b"8" * 200 in found.state
    assert b"8" * 201 not in found.state
    assert b"secret" not in found.state


# ---------------------------------------------------------------------- silence by the clock


def by_clock(one: Rule, state: bytes | None, readings: list[Reading], clock: int) -> Step:
    return step(one, KEY, state, readings, watermark=NEVER, clock=clock * MINUTE)


def test_by_the_clock_a_silent_alert_is_the_same_as_by_the_watermark() -> None:
    one = rule(silent="10 minutes")
    by_watermark = steps(one, read((0, None), (2, None)), 15)
    assert told(by_watermark) == [("raised", "Major", 12)]
    assert (
        by_clock(one, None, read((0, None), (2, None)), 15).transitions == by_watermark.transitions
    )
    assert by_clock(one, None, read((0, None), (2, None)), 11).transitions == ()


def test_a_reading_after_the_clock_clears_and_time_does_not_go_back() -> None:
    one = rule(silent="10 minutes")
    raised = by_clock(one, None, read((0, None)), 15)
    cleared = steps(one, read((4, None)), 20, raised.state)
    assert told(cleared) == [("cleared", "Major", 10), ("raised", "Major", 14)]


def test_readings_that_are_not_old_by_the_clock_still_wait_for_others() -> None:
    one = rule(silent="10 minutes")
    found = by_clock(one, None, read((2, None)), 11)
    assert step(one, KEY, found.state, read((1, None)), watermark=NEVER).late == 0


def test_the_clock_moves_no_other_rule() -> None:
    assert by_clock(rule(hold="5 minutes"), None, read((0, MAJOR)), 60).transitions == ()


# ---------------------------------------------------------------------- edits


def test_an_edited_rule_keeps_level_and_since() -> None:
    before = steps(rule(hold="2 minutes"), read((0, MAJOR)), 5)
    edited = rule(hold="5 minutes", severity={"Critical": "b"}, message="now {fan}")
    found = steps(edited, read((6, None), (7, CRITICAL), (8, CLEAR)), 9, before.state)
    assert told(found) == [("changed", "Critical", 7), ("cleared", "Critical", 8)]
    assert {one.since for one in found.transitions} == {0}
    assert {one.text for one in found.transitions} == {"now 3"}
    raised = before.transitions[0]
    assert {one.raise_identity("s") for one in found.transitions} == {raised.identity("s")}
    assert {one.alert for one in found.transitions} == {raised.alert}


def test_what_an_edit_makes_due_in_the_past_is_told_at_the_watermark() -> None:
    before = steps(rule(hold="1 hour"), read((0, MAJOR)), 30)
    assert told(steps(rule(hold="5 minutes"), [], 31, before.state)) == [("raised", "Major", 30)]


def test_a_rule_may_become_silent_and_back() -> None:
    one, silent = rule(hold="5 minutes"), rule(silent="10 minutes")
    waiting = steps(one, read((0, MAJOR)), 1)
    assert told(steps(silent, [], 12, waiting.state)) == [("raised", "Major", 10)]
    raised = steps(silent, read((0, None)), 12)
    assert told(steps(rule(), read((13, CLEAR)), 14, raised.state)) == [("cleared", "Major", 13)]


def test_a_removed_rule_clears_and_says_why() -> None:
    before = steps(rule(), read((1, MAJOR)), 5)
    (found,) = removed("hot", KEY, before.state)
    assert (told((found,)), found.reason) == ([("cleared", "Major", 5)], Reason.REMOVED)
    assert found.text == "hot (cleared because the rule was removed)"
    assert found.raise_identity("s") == before.transitions[0].identity("s")
    assert removed("hot", KEY, steps(rule(), read((1, CLEAR)), 5).state) == ()
    assert removed("hot", KEY, None) == ()


# ---------------------------------------------------------------------- texts, identities, states


def test_a_text_has_columns_before_the_names_of_the_transition() -> None:
    one = rule(message="{{{fan}}} {rule} {level} {transition} {count} {since} {at} {celsius}")
    given = [Reading(0, MAJOR, {"level": "high"})]
    (found,) = steps(one, given, 5).transitions
    assert found.text == "{3} hot high raised 1 1970-01-01T00:00:00Z 1970-01-01T00:00:00Z null"


def test_an_identity_depends_on_each_of_its_parts_and_on_no_other() -> None:
    (found,) = steps(rule(), read((0, MAJOR)), 5).transitions
    same = replace(found, text="other", count=7, since=-1)
    assert same.identity("s") == found.identity("s")
    others = [
        replace(found, rule="other"),
        replace(found, key=("4",)),
        replace(found, level="Minor"),
        replace(found, at=1),
    ]
    assert len({one.identity("s") for one in (found, *others)} | {found.identity("t")}) == 6


# Stored in checkpoints: a change of it makes every alert a new one.
def test_the_identity_of_this_version() -> None:
    (found,) = steps(rule(), read((0, MAJOR)), 5).transitions
    expected = "967f4fafedfce125"
    assert found.identity("source").startswith(expected)


# Stored in checkpoints: another form needs another version.
def test_the_state_of_version_1_is_read() -> None:
    stored = (
        b"\x01\xf7P&\xa8[120000000,120000000,null,[5,120000000,1,120000000,5,120000000,null],{},[]]"
    )
    assert steps(rule(), read((2, MAJOR)), 2).state == stored
    assert told(steps(rule(), read((3, CLEAR)), 3, stored)) == [("cleared", "Major", 3)]


def test_a_state_of_a_later_version_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        StateError, match=r"has version 4, and this Pillion reads versions up to 3; "
    ):
        step(rule(), KEY, bytes([VERSION + 1, 0]), [], watermark=0)


@pytest.mark.parametrize("state", [b"", b"\x00", b"\x01", b"\x01\0\0\0\0", b"\x01\0\0\0\0[]"])
def test_a_damaged_state_is_refused(state: bytes) -> None:
    with pytest.raises(StateError, match="damaged; start from another checkpoint"):
        step(rule(), KEY, state, [], watermark=0)


def test_rules_and_transitions_can_be_sent_to_other_processes() -> None:
    one = rule(hold="5 minutes")
    assert pickle.loads(pickle.dumps(one)) == one
    found = steps(one, read((0, MAJOR)), 9).transitions
    assert pickle.loads(pickle.dumps(found)) == found
