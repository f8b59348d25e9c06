"""Damage that takes the names of subscriptions and destinations with it."""

from pillion_sidecar.delivery.reasons import DiscardReason
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
