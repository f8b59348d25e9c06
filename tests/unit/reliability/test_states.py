"""The states of a message and its transitions: the draft's diagram (S1.1)."""

import itertools
import re

import pytest

from pillion_sidecar.reliability.group_rules import Termination
from pillion_sidecar.reliability.states import TABLE, Guard, State, Transition, step
from support.house import ROOT

#: The draft's state diagram, as it names its transitions.
DIAGRAM = {
    (State.IN_TRANSFER, Transition.RECEIVE, State.READY),
    (State.READY, Transition.ACCEPT, State.IN_PROCESS),
    (State.READY, Transition.REJECT, State.DISCARDED),
    (State.IN_PROCESS, Transition.HOLD, State.OUT_OF_ORDER),
    (State.OUT_OF_ORDER, Transition.REPROCESS, State.IN_PROCESS),
    (State.IN_PROCESS, Transition.DISCARD, State.DISCARDED),
    (State.IN_PROCESS, Transition.DELIVER, State.AVAILABLE),
}


def test_the_table_has_the_drafts_transitions_and_no_other() -> None:
    assert {(row.state, row.transition, row.to) for row in TABLE} == DIAGRAM
    assert {row.transition for row in TABLE} == set(Transition)


@pytest.mark.parametrize(("state", "guard"), list(itertools.product(State, Guard)))
def test_each_state_and_guard_has_one_transition_or_none(state: State, guard: Guard) -> None:
    rows = [row for row in TABLE if row.state is state and row.guard is guard]
    if not rows:
        with pytest.raises(LookupError, match=state.name):
            step(state, guard)
        return
    (row,) = rows
    assert step(state, guard) is row


@pytest.mark.parametrize("state", [State.AVAILABLE, State.DISCARDED])
def test_what_is_available_or_discarded_stays_so(state: State) -> None:
    assert not [row for row in TABLE if row.state is state]


def test_each_guard_means_something_somewhere() -> None:
    assert {row.guard for row in TABLE} == set(Guard)


def test_every_way_through_the_table_ends() -> None:
    ends = set()
    ways = [State.IN_TRANSFER]
    while ways:
        state = ways.pop()
        rows = [row for row in TABLE if row.state is state]
        if not rows:
            ends.add(state)
        for row in rows:
            if row.transition is Transition.REPROCESS:
                # Reprocessed once: nothing is held twice.
                then = Guard.IN_SEQUENCE if row.guard is Guard.COMPLETED else Guard.HOPELESS
                ends.add(step(row.to, then).to)
            else:
                ways.append(row.to)
    assert ends == {State.AVAILABLE, State.DISCARDED}


def test_the_manual_shows_the_table() -> None:
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    section = page.partition("## The states of a message")[2].partition("\n## ")[0]
    shown = [
        tuple(cell.strip() for cell in line.strip("|").split(" | "))
        for line in re.findall(r"^\|.*\|$", section, re.MULTILINE)[2:]
    ]
    names = {state: state.name.lower().replace("_", "-") for state in State}
    assert shown == [
        (names[row.state], row.transition.value, row.meaning, names[row.to]) for row in TABLE
    ]


def test_the_manual_names_each_way_to_end() -> None:
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    for termination in Termination:
        assert f"| {termination} | " in page, termination
