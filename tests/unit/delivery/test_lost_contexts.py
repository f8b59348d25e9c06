"""Contexts that a run delivered under and crashed before its journal had them (D.2; a kill point
found it): the next run, which does not know of them, begins others."""

from pillion_sidecar.journal.ports import Recovered
from support.delivery import Deliverer, destination
from support.fake_journal import FakeJournal


def contexts(recovered: Recovered, *, draw: float) -> list[str]:
    """The contexts that a run begins for a listener, and for another in its place."""
    deliverer = Deliverer(journal=FakeJournal(), recovered=recovered, draw=draw)
    found = []
    for url in ("http://here.example/", "http://there.example/"):
        deliverer.apply([destination("ops", destination=url)])
        found.append(deliverer.queue("ops").sequence.context)
    return found


def test_two_runs_that_know_the_same_begin_no_context_twice() -> None:
    # One that crashed, and the one after it.
    first = contexts(Recovered(next_epoch=8), draw=0.25)
    second = contexts(Recovered(next_epoch=8), draw=0.75)
    assert len({*first, *second}) == 4


def test_a_journal_that_is_new_begins_with_the_first_context() -> None:
    # Its own id is new.
    assert contexts(Recovered(), draw=0.5)[0].endswith("#uid-ops#0")
