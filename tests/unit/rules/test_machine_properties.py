"""Properties of the step function: how readings are cut and ordered does not matter, a model
without state agrees, and the state may be stored after each step."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillion_rules import CLEAR, Reading, Rule, StateError, Transition, step
from pillion_rules.durations import MINUTE
from pillion_rules.maintenance import Span, joined, outside
from pillion_rules.state import NEVER, state_bytes, state_of
from support.rules_reference import Told, expected, hidden

KEY = ("EWR",)


def minutes(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(lambda number: f"{number} minutes")


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    optional = {
        "repeat": draw(st.none() | minutes(1, 30)),
        "forget": f"{draw(st.integers(25, 120))} minutes",
    }
    if draw(st.booleans()):
        optional |= {"silent": draw(minutes(1, 20))}
        return Rule(
            "r", keys=["k"], event_time="t", severity="Major", message="{k} {v}", **optional
        )
    optional |= {"keep": draw(st.none() | minutes(1, 20))}
    if hold := draw(st.integers(0, 20)):
        optional |= {"hold": f"{hold} minutes"}
    if hold > 1:
        optional |= {"max_gap": draw(st.none() | minutes(1, hold - 1))}
    severity = {"Major": "a", "Minor": "b", "Critical": "c"}
    return Rule(
        "r", keys=["k"], event_time="t", severity=severity, message="{k} {v} {count}", **optional
    )


def readings(most: int = 30) -> st.SearchStrategy[list[Reading]]:
    one = st.builds(
        lambda at, level, value: Reading(at * MINUTE, level, {"v": value, "other": "x"}),
        # Often one time after the other, sometimes a gap in which a key is forgotten.
        st.integers(0, 30) | st.integers(0, 60) | st.integers(0, 400),
        st.sampled_from([None, CLEAR, CLEAR, 4, 5, 6]),
        st.sampled_from("ab"),
    )
    return st.integers(0, most).flatmap(lambda size: st.lists(one, min_size=size, max_size=most))


SPANS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 60)).map(
        lambda one: (one[0] * MINUTE, sum(one) * MINUTE)
    ),
    max_size=5,
)


@dataclass
class Run:
    """Steps one after the other."""

    rule: Rule
    spans: Sequence[Span] = ()
    state: bytes | None = None
    late: int = 0

    def __post_init__(self) -> None:
        self.found: list[Transition] = []

    def take(self, given: list[Reading], watermark: int) -> None:
        made = step(
            *(self.rule, KEY, self.state, given),
            watermark=watermark,
            # Two lists, whose windows overlap.
            maintenance=[joined(self.spans[:2]), joined(self.spans[2:])],
        )
        if made.due is not None:
            assert made.due > watermark
        self.state = made.state
        self.late += made.late
        self.found += made.transitions


def at_once(
    rule: Rule, given: list[Reading], until: int, spans: Sequence[Span] = ()
) -> list[Transition]:
    run = Run(rule, spans)
    run.take(given, NEVER)
    run.take([], until)
    return run.found


def told(one: Transition) -> Told:
    return (one.transition.value, one.level, one.at, one.since, one.count, one.raised_at)


UNTIL = st.integers(0, 600).map(lambda number: number * MINUTE)


@settings(max_examples=200)
@given(rules(), readings(), UNTIL)
def test_a_model_without_state_agrees(rule: Rule, given: list[Reading], until: int) -> None:
    assert [told(one) for one in at_once(rule, given, until)] == expected(rule, given, until=until)


@settings(max_examples=150)
@given(rules(), readings(), SPANS, st.data())
def test_batches_and_order_within_the_watermark_do_not_matter(
    rule: Rule, given: list[Reading], spans: list[Span], data: st.DataObject
) -> None:
    until = 600 * MINUTE
    delay = data.draw(st.integers(1, 30)) * MINUTE
    arrival = st.integers(0, delay - 1)
    arriving = sorted(((one.at + data.draw(arrival), one) for one in given), key=lambda one: one[0])
    run, newest = Run(rule, spans), NEVER
    left = [one for _, one in arriving]
    while left:
        size = data.draw(st.integers(1, len(left)))
        batch, left = left[:size], left[size:]
        run.take(batch, NEVER if newest == NEVER else newest - delay)
        newest = max([newest, *(one.at for one in batch)])
    run.take([], until)
    assert run.late == 0
    assert run.found == at_once(rule, given, until, spans)


@settings(max_examples=200)
@given(rules(), readings(), SPANS, UNTIL)
def test_maintenance_hides_what_a_model_over_the_transitions_hides(
    rule: Rule, given: list[Reading], spans: list[Span], until: int
) -> None:
    once = replace(rule, repeat=None)
    all_of_it = [told(one) for one in at_once(once, given, until)]
    found = [told(replace(one, count=0)) for one in at_once(once, given, until, spans)]
    assert found == hidden(all_of_it, spans, until=until)


@given(rules(), readings(), UNTIL)
def test_a_reading_that_comes_twice_changes_nothing(
    rule: Rule, given: list[Reading], until: int
) -> None:
    assert at_once(rule, [*given, *reversed(given)], until) == at_once(rule, given, until)


@given(rules(), readings(), SPANS, UNTIL)
def test_identities_are_different_and_an_alert_goes_from_a_raise_to_a_clear(
    rule: Rule, given: list[Reading], spans: list[Span], until: int
) -> None:
    found = at_once(rule, given, until, spans)
    assert len({one.identity("s") for one in found}) == len(found)
    is_raised, raise_identity = False, ""
    for one in found:
        assert (one.transition == "raised") is not is_raised
        if one.transition == "raised":
            raise_identity = one.identity("s")
        assert one.raise_identity("s") == raise_identity
        is_raised = one.transition != "cleared"
        assert not is_raised or outside([joined(spans)], one.at) == one.at


@given(rules(), readings(), SPANS, st.lists(UNTIL, max_size=5))
def test_a_state_is_the_same_after_it_was_stored(
    rule: Rule, given: list[Reading], spans: list[Span], watermarks: list[int]
) -> None:
    run = Run(rule, spans)
    for watermark in [NEVER, *sorted(watermarks)]:
        run.take(given if watermark == NEVER else [], watermark)
        assert state_bytes(state_of(run.state)) == run.state


@given(rules(), readings(), UNTIL)
def test_bytes_that_are_no_state_are_a_state_error_or_a_state(
    rule: Rule, given: list[Reading], until: int
) -> None:
    run = Run(rule)
    run.take(given, NEVER)
    run.take([], until)
    if run.state is None:
        return
    for end in range(len(run.state)):
        with pytest.raises(StateError, match="damaged"):
            state_of(run.state[:end])


@given(st.binary(max_size=60))
def test_any_bytes_raise_nothing_but_a_state_error(content: bytes) -> None:
    with suppress(StateError):
        state_of(content)
