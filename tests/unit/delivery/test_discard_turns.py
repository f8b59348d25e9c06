"""What is being discarded, as the journal asks for it."""

from pathlib import Path

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.delivery.backlog import FRONT_ENTRIES
from pillion_sidecar.delivery.entries import QueueEntry
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal.ports import Place
from pillion_sidecar.testing import FakeTime
from support.delivery import Deliverer, destination
from support.fake_journal import FakeJournal
from support.outcomes import EVERY, Recording


def backlog(journal: FakeJournal, count: int) -> Deliverer:
    deliverer = Deliverer(journal=journal)
    deliverer.answer = None
    ops = destination("ops", queue_full_policy=QueueFullPolicy.DISCARD_OLDEST, suspended=True)
    deliverer.apply([ops])
    for number in range(count):
        assert deliverer.publish(str(number)) is None
    journal.commit()
    deliverer.run()
    return deliverer


def test_what_is_read_back_at_the_end_is_still_the_journals_to_ask_for() -> None:
    journal = FakeJournal()
    deliverer = backlog(journal, FRONT_ENTRIES + 3)
    index = journal.destinations["uid-ops"]
    place = Place(index, 0, FRONT_ENTRIES + 1)
    deliverer.service.purge("ops")
    deliverer.run()
    deliverer.service.close()
    listener = deliverer.journal_listener()
    # A commit that was under way brings copies of the compaction before the read comes back.
    assert listener.unsettled(place.number + 1, [place]) == [place]
    assert listener.lowest_pending(index) <= place.number
    listener.moved(place.number + 1, [place], 77, 10)
    journal.finish_loads()
    assert deliverer.service.pending == 0
    assert len(deliverer.settlements.discarded(DiscardReason.PURGED)) == FRONT_ENTRIES + 3


def test_a_queue_that_gives_up_one_by_one_is_read_back_in_large_pieces() -> None:
    journal = FakeJournal()
    deliverer = backlog(journal, FRONT_ENTRIES + 100)
    queue = deliverer.queue("ops")
    while queue.waiting.front:
        assert deliverer.service.skip("ops")
    for _ in range(50):
        assert deliverer.service.skip("ops")
    loads = 0
    deliverer.run()
    while journal.finish_loads():
        loads += 1
        deliverer.run()
    assert loads <= 4
    discarded = deliverer.settlements.discarded(DiscardReason.PURGED)
    assert discarded == [str(number) for number in range(FRONT_ENTRIES + 50)]
    assert queue.depth == 50


def test_a_mass_discard_waits_for_the_disk_of_the_history(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time, size=64 << 20)
    deliverer = Deliverer(history=run.history)
    deliverer.apply([destination("ops", suspended=True)])
    body = b'{"class":"C","properties":{"a":"' + b"x" * 100_000 + b'"}}'
    for number in range(100):
        deliverer.publish(str(number), body=body)
    deliverer.run()
    deliverer.service.purge("ops")
    deliverer.run()
    assert 0 < len(deliverer.settlements.discarded(DiscardReason.PURGED)) < 100
    while len(deliverer.settlements.discarded(DiscardReason.PURGED)) < 100:
        run.commit()
        deliverer.run()
    run.commit()
    kept = run.history.page(EVERY, after=0, limit=1000)().found
    while len(kept) < 100:
        kept += run.history.page(EVERY, after=kept[-1].number, limit=1000)().found
    assert [one.outcome.body for one in kept] == [body] * 100


def test_an_evicted_entry_waits_behind_older_ones_that_are_read_back() -> None:
    journal = FakeJournal()
    deliverer = backlog(journal, FRONT_ENTRIES + 10)
    queue = deliverer.queue("ops")
    while queue.waiting.front:
        assert deliverer.service.skip("ops")
    for _ in range(5):
        assert deliverer.service.skip("ops")
    deliverer.run()
    entry = QueueEntry(
        Indication(body=b"{}", class_name="C", accepted_at=0.0, identifier="late"),
        deliverer.service._table.subscriptions.active()[0],
        FRONT_ENTRIES + 20,
    )
    settlements = deliverer.service._settlements
    settlements.discard_evicted(queue, entry, DiscardReason.QUEUE_FULL)
    assert settlements.turns.contains(queue.index, entry.number)
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == []


def test_the_journal_is_told_below_which_number_all_is_settled() -> None:
    journal = FakeJournal()
    deliverer = backlog(journal, FRONT_ENTRIES + 3)
    listener, index = deliverer.journal_listener(), journal.destinations["uid-ops"]
    assert listener.lowest_pending(index) == 0
    for _ in range(2):
        assert deliverer.service.skip("ops")
    assert listener.lowest_pending(index) == 2
    assert deliverer.publish("uncommitted") is None
    deliverer.service.purge("ops")
    assert listener.lowest_pending(index) == 0
    deliverer.run()
    while journal.finish_loads():
        deliverer.run()
    assert listener.lowest_pending(index) == FRONT_ENTRIES + 3
    # Nobody knows of it.
    assert listener.lowest_pending(index + 1) == 0
