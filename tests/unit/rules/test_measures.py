"""What rules measure of several readings: windows and rates, however the readings are cut."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillion_rules import JudgedReading, Reading, Rule, RuleError, RuleSet, StateError, step
from pillion_rules.durations import MINUTE
from pillion_rules.formulas import Formula, Literal, Name, Operation
from pillion_rules.machine import MOST_PENDING
from pillion_rules.measures import Aggregate, Measured, text_of
from pillion_rules.names import levels
from pillion_rules.state import NEVER, SECOND_VERSION

KEY = ("UA",)
MAJOR, MINOR = levels()["Major"], levels()["Minor"]


def late_rule(**changes: Any) -> Rule:
    """On average more than 30, of more than 2 readings, in windows of 6 minutes each 4."""
    given = {
        "severity": {"Major": "late > 30 and n > 2"},
        "window": "6 minutes",
        "slide": "4 minutes",
        "measure": {"late": "avg(delay)", "n": "count(*)"},
        "forget": "2 hours",
        "message": "{late} of {n}",
    }
    return Rule("late", keys=["k"], event_time="t", **{**given, **changes})


def over(name: str, value: float) -> Operation:
    return Operation("GreaterThan", (Name(name), Literal(value)))


def windows(rule: Rule) -> Measured:
    total, count = Name("sum delay"), Name("count delay")
    return Measured(
        rule=rule,
        aggregates=(Aggregate.SUM, Aggregate.COUNT, Aggregate.COUNT),
        numbers=("sum delay", "count delay", "count 1"),
        values={"late": Operation("Divide", (total, count)), "n": Name("count 1")},
        severities=((MAJOR, Operation("And", (over("late", 30), over("n", 2)))),),
    )


def falls_rule(**changes: Any) -> Rule:
    given = {
        "severity": {"Major": "drop < -3"},
        "rate": {"drop": "pressure"},
        "per": "2 minutes",
        "forget": "30 minutes",
    }
    return Rule("falls", keys=["k"], event_time="t", **{**given, **changes})


def rates(rule: Rule) -> Measured:
    drop = Name("drop")
    return Measured(
        rule=rule,
        numbers=("drop",),
        values={"drop": drop},
        severities=((MAJOR, Operation("LessThan", (drop, Literal(-3)))),),
    )


LATE, FALLS = late_rule(), falls_rule()
PLAIN = Rule("plain", keys=["k"], event_time="t", severity={"Minor": "a"}, forget="1 hour")
BOTH = RuleSet((LATE, PLAIN, FALLS), {"late": windows(LATE), "falls": rates(FALLS)})

#: Minute, delay, pressure.
Given = tuple[int, float | None, float | None]


def judged(readings: Sequence[Given]) -> list[JudgedReading]:
    return [
        (
            at * MINUTE,
            [
                [delay, None if delay is None else 1.0, 1.0],
                MINOR if (delay or 0) > 50 else 0,
                [pressure],
            ],
            {},
        )
        for at, delay, pressure in readings
    ]


def windows_by_hand(readings: Sequence[Given], until: int) -> list[Reading]:
    """Each window with a reading, and the first without behind it, in exact arithmetic."""
    length, slide = 6, 4
    found = []
    for end in range(length - 100 * slide, until // MINUTE + 1):
        if (end - length) % slide:
            continue
        inside = [one for one in readings if end - length <= one[0] < end]
        before = [one for one in readings if end - length - slide <= one[0] < end - slide]
        if not inside and not before:
            continue
        delays = [Fraction(one[1]) for one in inside if one[1] is not None]
        average = sum(delays) / len(delays) if delays else None
        if average is None:
            # Null AND false is false, and null AND true is null.
            level = 0 if len(inside) <= 2 else None
        else:
            level = MAJOR if average > 30 and len(inside) > 2 else 0
        found.append(Reading(end * MINUTE, level))
    return found


def rates_by_hand(readings: Sequence[Given]) -> list[Reading]:
    greatest: dict[int, float | None] = {}
    for at, _, pressure in readings:
        before = greatest.get(at)
        greatest[at] = max((one for one in (before, pressure) if one is not None), default=None)
    found, last = [], None
    for at, pressure in sorted(greatest.items()):
        level = None
        if pressure is not None:
            if last is not None and at - last[0] <= 30:
                level = MAJOR if (pressure - last[1]) / (at - last[0]) * 2 < -3 else 0
            last = (at, pressure)
        found.append(Reading(at * MINUTE, level))
    return found


NUMBER = st.none() | st.sampled_from([0.1, 0.2, 0.3, 30.0, 59.9, 1e16, -1e16, 90.0])
ONE = st.tuples(st.integers(0, 90), NUMBER, NUMBER)


def all_of(rule: Rule, readings: list[Reading], until: int) -> list[tuple[Any, ...]]:
    made = step(rule, KEY, None, readings, watermark=until, done=NEVER)
    return [parts(one) for one in made.transitions]


def parts(one: Any) -> tuple[Any, ...]:
    return (one.transition.value, one.level, one.at, one.since, one.count, one.raised_at)


@settings(max_examples=150)
@given(st.lists(ONE, min_size=1, max_size=30), st.data())
def test_any_cut_gives_what_whole_readings_give(readings: list[Given], data: st.DataObject) -> None:
    until, delay = 200 * MINUTE, data.draw(st.integers(1, 30))
    arriving = sorted(readings, key=lambda one: one[0] + data.draw(st.integers(0, delay - 1)))
    state, newest, left = None, NEVER, arriving
    found: list[Any] = []
    while left:
        size = data.draw(st.integers(1, len(left)))
        batch, left = left[:size], left[size:]
        watermark = NEVER if newest == NEVER else newest - delay * MINUTE
        made = BOTH.step(KEY, state, judged(batch), watermark=watermark)
        assert made.due is None or made.due > watermark
        assert made.late == 0
        # A step at which nothing is due changes nothing.
        if made.due is not None and data.draw(st.booleans()):
            idle = BOTH.step(KEY, made.state, [], watermark=min(made.due - 1, newest))
            assert idle.transitions == ()
            made = idle if watermark == newest else made
        state, found = made.state, [*found, *made.transitions]
        newest = max([newest, *(at * MINUTE for at, *_ in batch)])
    found += BOTH.step(KEY, state, [], watermark=until).transitions
    of = {name: [parts(one) for one in found if one.rule == name] for name in ("late", "falls")}
    assert of["late"] == all_of(LATE, windows_by_hand(readings, until), until)
    assert of["falls"] == all_of(FALLS, rates_by_hand(readings), until)


def test_a_window_is_judged_at_its_end_and_an_empty_one_clears() -> None:
    given = judged([(1, 40.0, None), (2, 50.0, None), (3, 31.5, None)])
    made = BOTH.step(KEY, None, given, watermark=3 * MINUTE)
    assert (made.transitions, made.due) == ((), 6 * MINUTE)
    made = BOTH.step(KEY, made.state, [], watermark=6 * MINUTE)
    (one,) = [one for one in made.transitions if one.rule == "late"]
    assert (one.transition, one.at, one.text) == ("raised", 6 * MINUTE, "40.5 of 3")
    made = BOTH.step(KEY, made.state, [], watermark=60 * MINUTE)
    (one,) = [one for one in made.transitions if one.rule == "late"]
    assert (one.transition, one.at, one.text) == ("cleared", 10 * MINUTE, "null of 0")


def test_nothing_is_kept_when_all_windows_have_ended() -> None:
    only = RuleSet((LATE,), {"late": windows(LATE)})
    given = [(at, judged_by[:1], texts) for at, judged_by, texts in judged([(1, 5.0, None)])]
    made = only.step(KEY, None, given, watermark=0)
    assert made.state is not None
    assert made.state[0] == SECOND_VERSION
    made = only.step(KEY, made.state, [], watermark=10 * MINUTE)
    assert (made.state, made.due, made.transitions) == (None, None, ())


def test_an_edited_window_begins_anew_and_its_alert_stays() -> None:
    given = judged([(at, 40.0, None) for at in (1, 2, 3, 5)])
    made = BOTH.step(KEY, None, given, watermark=6 * MINUTE)
    assert [one.rule for one in made.transitions] == ["late"]
    longer = late_rule(window="20 minutes", slide="20 minutes")
    edited = RuleSet((longer,), {"late": windows(longer)})
    made = edited.step(KEY, made.state, [], watermark=50 * MINUTE)
    assert made.transitions == ()
    assert made.is_raised


def test_an_edited_rate_does_not_take_the_numbers_of_the_old_one() -> None:
    made = BOTH.step(KEY, None, judged([(1, None, 900.0), (2, None, 1.0)]), watermark=0)
    other = falls_rule(rate={"drop": "humidity"})
    edited = RuleSet((other,), {"falls": rates(other)})
    made = edited.step(KEY, made.state, [(3 * MINUTE, [[1.0]], {})], watermark=5 * MINUTE)
    assert [one.rule for one in made.transitions] == []


def test_more_panes_than_may_wait_are_judged_early() -> None:
    only = RuleSet((LATE,), {"late": windows(LATE)})
    many = [(at * 6 * MINUTE, [[40.0, 1.0, 1.0]], {}) for at in range(MOST_PENDING + 2)]
    made = only.step(KEY, None, many, watermark=NEVER)
    assert made.due is not None
    assert only.step(KEY, made.state, many[:1], watermark=NEVER).late == 1


def test_a_state_with_measures_is_not_for_an_older_version() -> None:
    made = BOTH.step(KEY, None, judged([(1, 5.0, 3.0)]), watermark=0)
    assert made.state is not None
    assert made.state[0] == SECOND_VERSION
    with pytest.raises(StateError, match="damaged"):
        BOTH.step(KEY, made.state[:-1], [], watermark=0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, None), (3, "3"), (3.0, "3"), (-0.0, "0"), (1 / 3, "0.333333")),
        *((1234567.8, "1234568"), (True, "true"), (1e300, f"{1e300:.0f}")),
    ],
)
def test_a_measured_number_is_short_in_a_message(value: float | None, text: str | None) -> None:
    assert text_of(value) == text


A, B = Name("a"), Name("b")


@pytest.mark.parametrize(
    ("name", "operands", "value"),
    [
        *(("And", (Literal(None), Literal(False)), False), ("And", (A, Literal(None)), None)),
        *(("Or", (Literal(None), Literal(True)), True), ("Or", (B, Literal(None)), None)),
        *(("Not", (Literal(None),), None), ("Not", (B,), True)),
        *(("In", (A, B, Literal(None)), None), ("In", (A, B, A), True), ("In", (A, B), False)),
        *(("Divide", (A, B), None), ("Divide", (B, A), 0.0), ("Remainder", (A, B), None)),
        *(("Multiply", (Literal(1e200), Literal(1e200)), None), ("sqrt", (Literal(-1.0),), None)),
        *(("EqualNullSafe", (Literal(None), Literal(None)), True), ("IsNull", (A,), False)),
        *(("coalesce", (Literal(None), B), 0.0), ("coalesce", (Literal(None),), None)),
        *(("greatest", (A, Literal(None), B), 2.0), ("least", (Literal(None),), None)),
        *(("between", (A, B, A), True), ("between", (A, B, Literal(None)), None)),
        *(("UnaryMinus", (A,), -2.0), ("abs", (Literal(-4),), 4), ("Add", (A, B), 2.0)),
    ],
)
def test_formulas_have_the_rules_of_sql(
    name: str, operands: tuple[Formula, ...], value: float | None
) -> None:
    found = Operation(name, operands).of({"a": 2.0, "b": 0.0})
    assert found is value or found == value


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"slide": "7 minutes"}, "slide: longer than window"),
        ({"slide": "1 second", "window": "1 hour"}, "more than 1,440 parts"),
        ({"slide": "61 seconds", "window": "1 hour"}, "more than 1,440 parts"),
        ({"window": "3 hours"}, "window: must be shorter than forget"),
        ({"measure": None}, "window: only with measure"),
        ({"rate": {"x": "a"}, "per": "1 hour"}, "rate: not with window"),
        ({"measure": {"k": "count(*)"}}, "k is one of keys"),
    ],
)
def test_wrong_windows_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RuleError, match=problem):
        late_rule(**changes)
