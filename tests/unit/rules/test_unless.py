"""Rules that are judged before others: what they hide, when it is told, and edits between steps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillion_rules import (
    CLEAR,
    JudgedReading,
    KeyStep,
    MaintenanceWindow,
    Reading,
    Rule,
    RuleError,
    RuleSet,
    Step,
    Transition,
    Untold,
    step,
)
from pillion_rules.durations import MINUTE
from pillion_rules.state import FIRST_VERSION, NEVER, VERSION
from pillion_rules.unless import judging_order, named_by, spans_of, turns_after
from support.rules_reference import HELD, PLAIN, SILENT, expected, hidden, raised_spans

MINOR, MAJOR, CRITICAL = 4, 5, 6
KEY = ("EWR",)


def rule(name: str, *unless: str, **changed: Any) -> Rule:
    values: dict[str, Any] = {
        **{"keys": ["k"], "event_time": "t", "forget": "5 hours", "unless": unless or None},
        "severity": "Major" if "silent" in changed else {"Major": "a", "Critical": "b"},
    }
    return Rule(name, **(values | changed))


STORM, GALE = rule("storm"), rule("gale", "storm")
#: The storm comes last: its place is not its turn.
BOTH = RuleSet((GALE, STORM))


def read(*readings: tuple[int, int | None, int | None]) -> list[JudgedReading]:
    """Minute, level of the gale, level of the storm."""
    return [(at * MINUTE, levels, {}) for at, *levels in readings]


def told(found: Sequence[Transition]) -> list[tuple[str, str, str, int]]:
    return [(one.rule, one.transition.value, one.level, one.at // MINUTE) for one in found]


def gales(found: KeyStep | Sequence[Transition]) -> list[tuple[str, str, int]]:
    transitions = found.transitions if isinstance(found, KeyStep) else found
    return [one[1:] for one in told(transitions) if one[0] == "gale"]


def taken(
    rules: RuleSet, *readings: tuple[int, int | None, int | None], until: int
) -> list[tuple[str, str, int]]:
    return gales(rules.step(KEY, None, read(*readings), watermark=until * MINUTE))


# ---------------------------------------------------------------------- what is told


def test_a_gale_in_a_storm_is_raised_when_the_storm_is_over() -> None:
    given_readings = read(
        (1, MAJOR, MAJOR), (3, CRITICAL, None), (6, None, CLEAR), (8, CLEAR, None)
    )
    made = BOTH.step(KEY, None, given_readings, watermark=9 * MINUTE)
    assert told(made.transitions) == [
        ("storm", "raised", "Major", 1),
        ("storm", "cleared", "Major", 6),
        ("gale", "raised", "Critical", 6),
        ("gale", "cleared", "Critical", 8),
    ]
    raised, cleared = made.transitions[2:]
    assert (raised.since, raised.count) == (1 * MINUTE, 2)
    assert cleared.raise_identity("s") == raised.identity("s")
    assert [one.untold for one in made.untold] == [Untold.UNLESS, Untold.UNLESS]


def test_a_gale_that_is_over_before_the_storm_is_not_told() -> None:
    for end in (3, 5):
        readings = [(1, MAJOR, MAJOR), (3, CLEAR, None), (5, None, CLEAR)]
        readings = [one for one in readings if one[0] != end] + [(end, CLEAR, CLEAR)]
        assert taken(BOTH, *sorted(readings), until=9) == []


def test_a_gale_that_was_told_goes_on_in_the_storm_and_its_clear_is_told() -> None:
    before, storm = (1, MAJOR, None), (3, None, MAJOR)
    assert taken(BOTH, before, storm, (5, CLEAR, None), until=9) == [
        ("raised", "Major", 1),
        ("cleared", "Major", 5),
    ]
    worse = (before, storm, (4, CRITICAL, None))
    assert taken(BOTH, *worse, (6, None, CLEAR), until=9)[1:] == [("changed", "Critical", 6)]
    assert taken(BOTH, *worse, (5, MAJOR, None), (6, None, CLEAR), until=9)[1:] == []


def test_at_one_time_the_storm_counts_first() -> None:
    assert taken(BOTH, (1, MAJOR, MAJOR), until=9) == []
    assert taken(BOTH, (1, None, MAJOR), (3, MAJOR, CLEAR), until=9) == [("raised", "Major", 3)]
    assert taken(BOTH, (1, MAJOR, MAJOR), (3, CLEAR, CLEAR), until=9) == []


def test_repeats_in_a_storm_are_not_told_and_go_on_as_before() -> None:
    again = RuleSet((replace(GALE, repeat="2 minutes"), STORM))
    found = taken(again, (1, MAJOR, None), (4, None, MAJOR), (6, None, CLEAR), until=9)
    repeats = [("repeated", "Major", at) for at in (3, 7, 9)]
    assert found == [("raised", "Major", 1), *repeats]


def test_one_of_several_rules_is_enough_and_they_may_meet() -> None:
    squall = rule("squall", silent="3 minutes")
    rules = RuleSet((rule("gale", "storm", "squall"), STORM, squall))
    given_readings: list[JudgedReading] = [
        (1 * MINUTE, [MAJOR, MAJOR, CLEAR], {}),
        (2 * MINUTE, [None, None, CLEAR], {}),
        # The squall is raised at 5, and the storm is cleared.
        (9 * MINUTE, [None, CLEAR, CLEAR], {}),
        (12 * MINUTE, [None, MAJOR, CLEAR], {}),
    ]
    made = rules.step(KEY, None, given_readings, watermark=12 * MINUTE)
    assert gales(made) == [("raised", "Major", 9)]


def test_a_rule_that_is_hidden_itself_hides_others() -> None:
    hurricane, storm = rule("hurricane"), rule("storm", "hurricane")
    rules = RuleSet((GALE, storm, hurricane), maintenance=[window(0, 60, "hurricane")])
    given_readings: list[JudgedReading] = [
        (1 * MINUTE, [None, None, MAJOR], {}),
        (2 * MINUTE, [None, MAJOR, None], {}),
        (3 * MINUTE, [MAJOR, None, None], {}),
        (5 * MINUTE, [None, CLEAR, None], {}),
    ]
    made = rules.step(KEY, None, given_readings, watermark=9 * MINUTE)
    assert told(made.transitions) == [("gale", "raised", "Major", 5)]


def window(start: int, end: int, name: str | None = None) -> MaintenanceWindow:
    return MaintenanceWindow(start=start * MINUTE, end=end * MINUTE, rule=name)


def test_maintenance_and_a_storm_that_meet_are_one() -> None:
    rules = RuleSet((GALE, STORM), maintenance=[window(0, 4, "gale"), window(6, 8, "gale")])
    readings = [(1, MAJOR, None), (3, None, MAJOR), (6, None, CLEAR)]
    assert taken(rules, *readings, until=9) == [("raised", "Major", 8)]
    state = None
    for at in range(9):
        now = [one for one in readings if one[0] == at]
        made = rules.step(KEY, state, read(*now), watermark=at * MINUTE)
        state = made.state
    assert gales(made) == [("raised", "Major", 8)]


def test_without_a_set_the_caller_gives_the_times_of_the_other_rules() -> None:
    spans = [[(0, 5 * MINUTE)]]
    readings = [Reading(1 * MINUTE, MAJOR)]
    found: Step = step(GALE, KEY, None, readings, watermark=9 * MINUTE, done=NEVER, unless=spans)
    assert gales(found.transitions) == [("raised", "Major", 5)]


# ---------------------------------------------------------------------- steps, states and edits


def test_the_end_of_a_storm_is_noticed_without_a_reading() -> None:
    # The clear that comes is due by keep.
    rules = RuleSet((GALE, replace(STORM, keep="4 minutes")))
    made = rules.step(KEY, None, read((1, MAJOR, MAJOR), (3, None, CLEAR)), watermark=4 * MINUTE)
    assert (gales(made), made.due, made.is_raised) == ([], 7 * MINUTE, True)
    after = rules.step(KEY, made.state, [], watermark=8 * MINUTE)
    assert gales(after) == [("raised", "Major", 7)]


# Stored in checkpoints: another form needs another version.
def test_a_state_has_another_version_only_while_a_rule_hides_something() -> None:
    span = [[(0, 7 * MINUTE)]]
    given_readings = [Reading(1 * MINUTE, MAJOR)]
    found = step(GALE, KEY, None, given_readings, watermark=5 * MINUTE, done=NEVER, unless=span)
    assert found.state is not None
    assert found.state[5:] == (
        b"[300000000,60000000,null,[5,60000000,1,60000000,5,60000000,null,0,true],{},[]]"
    )
    seen = step(GALE, KEY, found.state, [], watermark=7 * MINUTE, done=NEVER, unless=span)
    assert gales(seen.transitions) == [("raised", "Major", 7)]
    assert seen.state is not None
    assert (found.state[0], seen.state[0]) == (VERSION, FIRST_VERSION)


def test_a_rule_without_unless_has_the_state_that_it_had() -> None:
    assert "unless" not in repr(STORM)
    states = [
        rules.step(KEY, None, [(MINUTE, [MAJOR], {})], watermark=2 * MINUTE).state
        for rules in (RuleSet((STORM,)), RuleSet((replace(STORM, unless=None),)))
    ]
    assert states[0] == states[1]


def test_an_edit_of_unless_counts_from_then_on() -> None:
    alone = RuleSet((replace(GALE, unless=None), STORM))
    readings = read((1, MAJOR, MAJOR))
    # Named later: what was told stays.
    before = alone.step(KEY, None, readings, watermark=2 * MINUTE)
    worse = BOTH.step(KEY, before.state, read((3, CRITICAL, None)), watermark=3 * MINUTE)
    assert (gales(before), gales(worse)) == ([("raised", "Major", 1)], [])
    over = BOTH.step(KEY, worse.state, read((5, None, CLEAR)), watermark=5 * MINUTE)
    assert gales(over) == [("changed", "Critical", 5)]
    # Named no more, or removed: what was hidden is told at the time that was reached.
    before = BOTH.step(KEY, None, readings, watermark=2 * MINUTE)
    for rules in (alone, RuleSet((replace(GALE, unless=None),))):
        after = rules.step(KEY, before.state, [], watermark=4 * MINUTE)
        assert gales(after) == [("raised", "Major", 2)]
    assert told(after.transitions)[1:] == [("storm", "cleared", "Major", 2)]


def test_nothing_is_told_of_a_removed_rule_whose_alert_was_hidden() -> None:
    before = BOTH.step(KEY, None, read((1, MAJOR, MAJOR)), watermark=2 * MINUTE)
    after = RuleSet((STORM,)).step(KEY, before.state, [], watermark=4 * MINUTE)
    assert after.transitions == ()


# ---------------------------------------------------------------------- too old


def old(
    *readings: tuple[int, int | None, int | None], told_from: int
) -> list[tuple[str, str, int]]:
    """One step for each reading, and one at the end."""
    rules = RuleSet((GALE, STORM), told_from=dict.fromkeys(("gale", "storm"), told_from * MINUTE))
    state, found = None, []
    for at, *levels in [*readings, (30, None, None)]:
        made = rules.step(KEY, state, [(at * MINUTE, levels, {})], watermark=at * MINUTE)
        state, found = made.state, [*found, *gales(made)]
    return found


def test_an_old_gale_is_told_with_the_end_of_its_storm_whenever_the_job_starts() -> None:
    storm, over, gale = (1, None, MAJOR), (5, None, CLEAR), (3, MAJOR, None)
    for told_from in (0, 4, 5, 9):
        assert old(storm, gale, over, told_from=told_from) == [("raised", "Major", 5)]
    after = (7, CRITICAL, None)
    assert old(storm, gale, over, after, told_from=9) == [
        ("raised", "Major", 5),
        ("changed", "Critical", 7),
    ]
    # Raised before the storm, changed in it or by its end, and told after it.
    before, storm = (1, MAJOR, None), (3, None, MAJOR)
    for rest in ([(6, CRITICAL, None), (12, None, CLEAR)], [(12, CRITICAL, CLEAR)]):
        for told_from in (0, 2, 9, 14):
            assert old(before, storm, *rest, told_from=told_from) == [
                ("raised", "Major", 1),
                ("changed", "Critical", 12),
            ]
    assert old((1, MAJOR, None), (3, None, MAJOR), (12, None, CLEAR), told_from=9) == [
        ("raised", "Major", 1)
    ]


# ---------------------------------------------------------------------- by the clock


def test_by_the_clock_silence_hides_what_is_due_after_it_and_not_before() -> None:
    silent = rule("silent", silent="3 minutes", forget="10 minutes")
    gale = rule("gale", "silent", hold="1 minute")
    for hold, expected_gales in ((1, [("raised", "Major", 3)]), (5, [])):
        rules = RuleSet((replace(gale, hold=f"{hold} minutes"), silent))
        made = rules.step(KEY, None, read((2, MAJOR, CLEAR)), watermark=NEVER, clock=9 * MINUTE)
        assert told(made.transitions) == [("silent", "raised", "Major", 5)]
        # Forgotten by the clock, before the watermark comes.
        gone = rules.step(KEY, made.state, [], watermark=NEVER, clock=12 * MINUTE)
        assert told(gone.transitions) == [("silent", "cleared", "Major", 12)]
        assert gone.due is not None
        after = rules.step(KEY, gone.state, [], watermark=11 * MINUTE)
        assert gales(after) == expected_gales
        last = rules.step(KEY, after.state, [], watermark=20 * MINUTE)
        assert gales(last) == ([] if expected_gales else [("raised", "Major", 12)])


def test_what_is_known_of_alerts_ahead_of_the_readings_goes_when_they_have_come_so_far() -> None:
    for turns, left in (
        ([1, 3], []),
        ([1], []),
        ([7], [7]),
        ([1, 3, 4, 6], [4, 6]),
        ([1, 9, 4], [1, 9, 4]),
    ):
        assert turns_after(turns, 5) == left
    silent = rule("silent", silent="3 minutes", forget="10 minutes")
    rules = RuleSet((rule("gale", "silent"), silent))
    made = rules.step(KEY, None, read((2, None, CLEAR)), watermark=2 * MINUTE, clock=12 * MINUTE)
    assert (len(made.transitions), made.due) == (2, 12 * MINUTE)
    assert rules.step(KEY, made.state, [], watermark=12 * MINUTE).state is None


def test_spans_are_in_order_and_not_empty() -> None:
    assert spans_of([]) == []
    assert spans_of([1, 3, 3, 3, 5]) == [(1, 3), (5, 2**63)]
    assert spans_of([10, 16, 12, 14, 2, 3]) == [(2, 3), (10, 16)]


# ---------------------------------------------------------------------- any cut, any order


ONE = st.tuples(st.integers(0, 90), *[st.sampled_from([None, None, CLEAR, MINOR, MAJOR])] * 4)
SPANS = st.lists(st.tuples(st.integers(0, 120), st.integers(1, 60)), max_size=2)


@st.composite
def connected(draw: st.DrawFn) -> tuple[Rule, ...]:
    """Rules of each sort, of which each names some of those before it, in any order."""
    held, late = replace(HELD, repeat=None), replace(PLAIN, name="late", keep="9 minutes")
    names: list[str] = []
    made = []
    for one in draw(st.permutations((held, PLAIN, SILENT, late))):
        chosen = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
        made.append(replace(one, unless=chosen or None))
        names.append(one.name)
    return tuple(draw(st.permutations(made)))


def fed(
    rules: RuleSet, readings: list[tuple[int, ...]], data: st.DataObject, *, until: int
) -> dict[str, list[Transition]]:
    """All transitions by rule, after readings in any cut and in any order within a delay."""
    delay = data.draw(st.integers(1, 30))
    left = sorted(readings, key=lambda one: one[0] + data.draw(st.integers(0, delay - 1)))
    state, newest, found = None, NEVER, []
    while left:
        size = data.draw(st.integers(1, len(left)))
        batch, left = left[:size], left[size:]
        watermark = NEVER if newest == NEVER else newest - delay * MINUTE
        given_readings = [(at * MINUTE, levels, {}) for at, *levels in batch]
        made = rules.step(KEY, state, given_readings, watermark=watermark)
        assert made.due is None or made.due > watermark
        state, found = made.state, [*found, *made.all_transitions]
        newest = max([newest, *(at * MINUTE for at, *_ in batch)])
    for watermark in [*sorted(data.draw(st.lists(st.integers(0, until), max_size=5))), until]:
        made = rules.step(KEY, state, [], watermark=watermark * MINUTE)
        state, found = made.state, [*found, *made.all_transitions]
    return by_rule(found)


def by_rule(found: Sequence[Transition]) -> dict[str, list[Transition]]:
    return {
        name: [one for one in found if one.rule == name] for name in {one.rule for one in found}
    }


def model(
    rules: Sequence[Rule], readings: list[tuple[int, ...]], *, until: int
) -> Mapping[str, Any]:
    """What a model without state tells: when rules are raised does not depend on what is told."""
    alone = {
        one.name: expected(
            replace(one, unless=None),
            [Reading(at * MINUTE, levels[place]) for at, *levels in readings],
            until=until * MINUTE,
        )
        for place, one in enumerate(rules)
    }
    spans = {name: raised_spans(found) for name, found in alone.items()}
    return {
        one.name: hidden(
            alone[one.name],
            [span for name in one.unless or () for span in spans[name]],
            until=until * MINUTE,
        )
        for one in rules
    }


def tells(found: Mapping[str, list[Transition]], name: str) -> list[tuple[Any, ...]]:
    return [
        (one.transition.value, one.level, one.at, one.since, 0, one.raised_at)
        for one in found.get(name, [])
        if one.untold is None
    ]


@settings(max_examples=100)
@given(connected(), st.lists(ONE, min_size=1, max_size=30), st.data())
def test_any_cut_gives_what_a_model_without_state_tells(
    rules: tuple[Rule, ...], readings: list[tuple[int, ...]], data: st.DataObject
) -> None:
    found = fed(RuleSet(rules), readings, data, until=200)
    wanted = model(rules, readings, until=200)
    for name, of_rule in wanted.items():
        assert tells(found, name) == [(*one[:4], 0, one[5]) for one in of_rule]


@settings(max_examples=100)
@given(
    connected(),
    st.lists(ONE, min_size=1, max_size=30),
    SPANS,
    st.dictionaries(st.sampled_from(["held", "plain", "silent", "late"]), st.integers(0, 120)),
    st.data(),
)
def test_any_cut_tells_and_hides_the_same(
    rules: tuple[Rule, ...],
    readings: list[tuple[int, ...]],
    spans: list[tuple[int, int]],
    told_from: dict[str, int],
    data: st.DataObject,
) -> None:
    together = RuleSet(
        [replace(one, repeat="7 minutes") for one in rules],
        maintenance=[window(start, start + length) for start, length in spans],
        told_from={name: at * MINUTE for name, at in told_from.items()},
    )
    once = together.step(
        *(KEY, None, [(at * MINUTE, levels, {}) for at, *levels in readings]),
        watermark=200 * MINUTE,
    )
    found = fed(together, readings, data, until=200)
    for name, of_rule in by_rule(once.all_transitions).items():
        assert kinds(found[name]) == kinds(of_rule)
    assert found.keys() == by_rule(once.all_transitions).keys()


def kinds(found: Sequence[Transition]) -> list[Transition]:
    """Those that are told in order, and the others."""
    told_ones = [one for one in found if one.untold is None]
    return [*told_ones, *(one for one in found if one.untold is not None)]


# ---------------------------------------------------------------------- wrong names


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (
            (rule("gale", "strom"), STORM),
            "rule gale: unless: no rule has the name 'strom'; did you",
        ),
        ((GALE,), "no rule has the name 'storm'; give this rule, too, or remove it"),
        (
            (rule("a", "b"), rule("b", "c"), rule("c", "a")),
            "unless: a cycle: a names b, b names c, c names a; remove one of these names",
        ),
        (
            (GALE, rule("storm", keys=["k", "l"])),
            "rule gale: unless: storm has another keys; give both the same, or remove it",
        ),
        ((GALE, rule("storm", input="sea")), "unless: storm has another input; give both"),
        ((GALE, rule("storm", event_time="at")), "unless: storm has another event_time; give"),
    ],
)
def test_an_error_names_the_rules_and_the_remedy(rules: tuple[Rule, ...], text: str) -> None:
    with pytest.raises(RuleError) as raised:
        RuleSet(rules)
    assert text in str(raised.value)
    assert len(raised.value.problems) == 1


def test_rules_that_others_name_come_first_and_the_rest_as_they_are() -> None:
    rules = [rule("z", "y"), rule("a"), rule("y", "b"), rule("b"), rule("c", "b", "a")]
    assert [rules[place].name for place in judging_order(rules)] == ["a", "b", "y", "c", "z"]
    known = {one.name: one for one in rules}
    assert [one.name for one in named_by(known["z"], known)] == ["y", "b"]
    assert named_by(rule("d", "nobody"), known) == []
