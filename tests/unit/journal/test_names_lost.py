"""Damage that takes the names of subscriptions and destinations with it."""

import pytest

from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.records import FRAME, Kind
from pillion_sidecar.journal.segments import HEADER_SIZE, walk
from support.delivery import destination, subscription
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk


def test_entries_of_a_subscription_whose_name_is_lost_are_discarded() -> None:
    files = MemoryFiles()
    deliverer = OnDisk(files)
    deliverer.answer = None
    ops = destination("ops")
    deliverer.apply([ops])
    # Its name is in a record of its own, behind the segment's snapshot.
    deliverer.apply([ops], [subscription("ops", "ops"), subscription("late", "ops")])
    for identifier in "abc":
        assert deliverer.give(identifier, "late") is None
        deliverer.run()
    deliverer.rest()
    name = max(one for one in files.names() if one.endswith(".segment"))
    file = files.open(name, writable=True)
    data = file.read(0, files.size(name))
    damaged = [at for at, kind, *_ in walk(data, HEADER_SIZE, len(data)) if kind == Kind.NAMES]
    assert damaged
    for at in damaged:
        file.write(at + FRAME.size, b"\xff\xff\xff")
    again = deliverer.restart()
    assert again.recovered.queues[0].ids
    again.apply([ops], [subscription("ops", "ops"), subscription("late", "ops")])
    again.run()
    assert again.service.pending == 0
    discarded = again.settlements.discarded(DiscardReason.SUBSCRIPTION_NOT_ACTIVE)
    assert discarded == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("kinds", "delivered"), [({Kind.SNAPSHOT}, 3), ({Kind.SNAPSHOT, Kind.NAMES}, 0)]
)
def test_names_are_written_twice_and_what_damage_takes_is_told_as_damage(
    kinds: set[Kind], delivered: int
) -> None:
    files = MemoryFiles()
    deliverer = OnDisk(files)
    deliverer.answer = None
    ops = destination("ops")
    deliverer.apply([ops])
    for identifier in "abc":
        assert deliverer.give(identifier, "ops") is None
        deliverer.run()
    deliverer.rest()
    name = max(one for one in files.names() if one.endswith(".segment"))
    file = files.open(name, writable=True)
    data = file.read(0, files.size(name))
    for at, kind, *_ in walk(data, HEADER_SIZE, len(data)):
        if kind in kinds:
            file.write(at + FRAME.size, b"\xff\xff\xff")
    again = deliverer.restart()
    again.apply([ops])
    again.run()
    assert len(again.settlements.discarded(DiscardReason.DAMAGED)) == 3 - delivered
    assert again.settlements.discarded(DiscardReason.DESTINATION_REMOVED) == []
    queue = again.service.queue("ops")
    assert queue is not None
    assert (queue.statistics.delivered, again.service.pending) == (delivered, 0)
