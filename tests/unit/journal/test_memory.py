"""The journal that keeps nothing."""

import pytest

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal.memory import MemoryJournal
from pillion_sidecar.journal.ports import Journal, Place
from pillion_sidecar.testing import FakeTime


def memory_journal() -> Journal:
    return MemoryJournal(clock=FakeTime(now=10.0, epoch=1000.0))


def indication() -> Indication:
    return Indication(body=b"{}", class_name="CIM_AlertIndication", accepted_at=10.0)


def test_ids_grow_by_one_with_everything_that_is_taken() -> None:
    journal = memory_journal()
    first, second, third = indication(), indication(), indication()
    journal.append(first, ())
    journal.hold(second, [Place(0, 0, 0)])
    journal.append(third, [Place(0, 0, 0)])
    held_under = second.id
    journal.append(second, [Place(0, 0, 1)], held=held_under)
    assert (first.id, held_under, third.id, second.id) == (1, 2, 3, 4)


def test_settling_tells_how_many_places_are_left() -> None:
    journal = memory_journal()
    one = indication()
    places = [Place(0, 0, 0), Place(1, 0, 0)]
    journal.append(one, places)
    # Whoever delivers counts; a journal in memory has nothing else to go by.
    one.unsettled = 2
    assert journal.settle(places[1], one, None, through=True) == 1
    one.unsettled = 1
    assert journal.settle(places[0], one, DiscardReason.PURGED, through=True) == 0


def test_everything_is_as_safe_at_once_as_it_will_ever_be() -> None:
    journal = memory_journal()
    journal.append(indication(), [Place(0, 0, 0)])
    called: list[bool] = []
    journal.barrier(lambda: called.append(True))
    assert called == [True]
    assert journal.durability is Durability.MEMORY


def test_indexes_belong_to_uids() -> None:
    journal = memory_journal()
    first = journal.destination(uid="a", name="same")
    assert journal.destination(uid="b", name="same") != first
    assert journal.destination(uid="a", name="renamed") == first
    subscription = journal.subscription(uid="a", name="s", filter_name="f")
    assert journal.subscription(uid="b", name="s", filter_name="f") != subscription


def test_each_run_has_an_id_of_its_own_and_takes_everything() -> None:
    journal = memory_journal()
    assert journal.id != memory_journal().id
    assert journal.offset == 990.0
    assert journal.refusal(1 << 40) is None
    assert not journal.is_over_bytes(1 << 40)
    with pytest.raises(LookupError, match="17"):
        journal.load([17], lambda loaded: None)
