"""A record that goes bad under a running deliverer costs itself, and nothing else (S3.1)."""

import pytest

from pillion_sidecar.config.schema.destination import Ordering, RemovalPolicy, RetryPolicy
from pillion_sidecar.delivery.backlog import FRONT_ENTRIES
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.records import FRAME
from pillion_sidecar.journal.segments import segment_name, segment_numbers, segment_of
from support.delivery import ERROR, SUCCESS, destination
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk


def flip(files: MemoryFiles, position: int) -> None:
    number, at = segment_of(position)
    files.open(segment_name(number), writable=True).write(at + FRAME.size, b"\xff\xff\xff")


@pytest.mark.parametrize("at", [FRONT_ENTRIES + 10, 3])
def test_its_segment_is_removed_and_the_rest_is_delivered(at: int) -> None:
    """``at`` is behind the loaded front, and in it."""
    deliverer = OnDisk(MemoryFiles())
    deliverer.answer = ERROR
    deliverer.apply([destination("dead"), destination("well")])
    deliverer.handlers["well"].answer = SUCCESS
    bad = 0
    count = FRONT_ENTRIES + 20
    for number in range(count):
        indication = deliverer.indication(str(number))
        assert deliverer.service.offer(indication, deliverer.targets("dead")) is None
        deliverer.run()
        if number == at:
            bad = indication.position
    flip(deliverer.files, bad)
    segment = segment_name(bad >> 32)
    for number in range(2000):
        assert deliverer.give(f"w{number}", "well", body=b"x" * 100) is None
        deliverer.run()
        if segment not in deliverer.files.names():
            break
    assert segment not in deliverer.files.names()
    deliverer.handlers["dead"].answer = SUCCESS
    deliverer.handlers["dead"].attempts.clear()
    deliverer.advance(31.0)
    assert deliverer.failure is None
    assert deliverer.service.pending == 0
    expected = [str(number) for number in range(count) if number != at or at < FRONT_ENTRIES]
    assert deliverer.handlers["dead"].identifiers == expected


def test_an_older_segment_that_is_deleted_costs_what_is_read_back_from_it_and_ends_the_deliverer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deliverer = OnDisk(MemoryFiles())
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=None))])
    count = 0
    while len(segment_numbers(deliverer.files.names())) < 6:
        assert deliverer.give(f"{count}", body=b"x" * 200) is None
        deliverer.run()
        count += 1
    deliverer.rest()
    gone = segment_name(segment_numbers(deliverer.files.names())[-3])
    deliverer.files.remove(gone)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(31.0)
    delivered = len(deliverer.settlements.delivered)
    damaged = deliverer.queue("ops").statistics.discarded[DiscardReason.DAMAGED]
    assert 0 < damaged == count - delivered
    told = [one for one in caplog.records if getattr(one, "event", None) == "journal-damaged"]
    assert len(told) == damaged
    assert isinstance(deliverer.failure, FileNotFoundError)
    assert gone in str(deliverer.failure)


def backlog(deliverer: OnDisk, groups: list[str | None]) -> list[int]:
    """Entries behind a loaded front that is never delivered; return where they lie."""
    positions = []
    for number, group in enumerate(["g"] * FRONT_ENTRIES + groups):
        indication = deliverer.indication(str(number))
        indication.group = group
        assert deliverer.service.offer(indication, deliverer.targets()) is None
        deliverer.run()
        positions.append(indication.position)
    deliverer.rest()
    return positions[FRONT_ENTRIES:]


def test_it_is_never_attempted_where_order_lets_others_pass() -> None:
    deliverer = OnDisk(MemoryFiles())
    deliverer.answer = None
    ops = destination("ops", ordering=Ordering.GROUP, max_in_flight=2)
    deliverer.apply([ops])
    backlog(deliverer, ["g", None, None])
    again = deliverer.restart()
    queue_of = again.recovered.queues[0]
    flip(again.files, queue_of.positions[FRONT_ENTRIES + 1])
    again.answer = None
    again.apply([ops])
    assert again.handlers["ops"].identifiers == ["0", str(FRONT_ENTRIES + 2)]
    while again.handlers["ops"].held:
        again.answer_held("ops", SUCCESS)
    assert again.settlements.discarded(DiscardReason.DAMAGED) == [None]
    assert again.service.pending == 0


def test_it_is_told_as_damaged_and_not_as_expired() -> None:
    deliverer = OnDisk(MemoryFiles())
    deliverer.answer = None
    ops = destination("ops", indication_lifetime_seconds=100.0)
    deliverer.apply([ops])
    backlog(deliverer, [])
    deliverer.time.advance(101.0)
    again = deliverer.restart()
    flip(again.files, again.recovered.queues[0].positions[5])
    again.apply([ops])
    assert len(again.settlements.discarded(DiscardReason.LIFETIME_EXPIRED)) == FRONT_ENTRIES - 1
    assert again.settlements.discarded(DiscardReason.DAMAGED) == [None]


def test_a_queue_that_drains_ends_with_it() -> None:
    deliverer = OnDisk(MemoryFiles())
    deliverer.answer = None
    ops = destination("ops", removal_policy=RemovalPolicy.DRAIN)
    deliverer.apply([ops])
    backlog(deliverer, [])
    again = deliverer.restart()
    flip(again.files, again.recovered.queues[0].positions[-1])
    again.answer = None
    again.apply([ops])
    again.apply([])
    while again.handlers["ops"].held:
        again.answer_held("ops", SUCCESS)
    assert again.settlements.discarded(DiscardReason.DAMAGED) == [None]
    assert again.handlers["ops"].closed
    assert not list(again.service.all_queues())
