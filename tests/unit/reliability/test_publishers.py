"""Publishers' counts and flush barriers, and receipts in their rarer turns."""

import asyncio

from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import DiscardReason, GroupMember, Indication
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.identity import identity_digest
from pillion_sidecar.reliability.publishers import Publisher, Publishers
from pillion_sidecar.reliability.receipts import Receipt, Receipts
from pillion_sidecar.testing import FakeTime
from support.intake import target

A, B = target("a", "one"), target("b", "two")


def memory_of(time: FakeTime) -> DuplicateMemory:
    return DuplicateMemory(clock=time, window_seconds=100, capacity=100)


def publisher_of(time: FakeTime) -> Publisher:
    return Publisher(memory=memory_of(time), timers=time)


def offered(publisher: Publisher | Receipt, *targets: object, unsettled: int) -> Indication:
    indication = Indication(body=b"{}", class_name="C", accepted_at=0.0)
    publisher.offering(indication, targets, 0)  # type: ignore[arg-type]
    indication.unsettled = unsettled
    if unsettled != len(targets):
        publisher.reduced(indication, targets)  # type: ignore[arg-type]
    return indication


def settle(
    follower: Publisher | Receipt,
    indication: Indication,
    destination: str,
    discarded: DiscardReason | None = None,
) -> None:
    indication.unsettled -= 1
    follower.settled(indication, destination, discarded)


async def test_a_flush_waits_for_what_came_before_it_and_not_for_what_comes_later(
    fake_time: FakeTime,
) -> None:
    publisher = publisher_of(fake_time)
    before = offered(publisher, A, unsettled=1)
    flush = asyncio.create_task(publisher.flush(60))
    await asyncio.sleep(0)
    offered(publisher, B, unsettled=1)
    settle(publisher, before, "a")
    assert await flush
    assert publisher.destinations["b"].pending == 1


async def test_a_flush_ends_when_its_time_is_over(fake_time: FakeTime) -> None:
    publisher = publisher_of(fake_time)
    offered(publisher, A, unsettled=1)
    flush = asyncio.create_task(publisher.flush(60))
    await asyncio.sleep(0)
    fake_time.advance(60)
    assert not await flush
    assert not publisher.idle


async def test_a_flush_waits_for_the_originals_of_duplicates(fake_time: FakeTime) -> None:
    memory = memory_of(fake_time)
    publisher = Publisher(memory=memory, timers=fake_time)
    digest = identity_digest("s", "1")
    assert digest is not None
    memory.add(digest, fake_time.monotonic(), expires_at=None, pending=True)
    original = memory.find(digest)
    assert original is not None
    publisher.repeated(digest, original, 0)
    flush = asyncio.create_task(publisher.flush(60))
    await asyncio.sleep(0)
    assert publisher.pending_originals == 1
    ended = Indication(body=b"", class_name="CIM_AlertIndication", accepted_at=0.0, digest=digest)
    memory.settled(ended, "siem", DiscardReason.LIFETIME_EXPIRED)
    assert await flush
    assert publisher.destinations["siem"].discarded == {DiscardReason.LIFETIME_EXPIRED: 1}


def test_targets_that_were_not_queued_are_not_pending_once_the_others_are_settled(
    fake_time: FakeTime,
) -> None:
    publisher = publisher_of(fake_time)
    offered(publisher, A, B, unsettled=0)
    assert publisher.idle
    indication = offered(publisher, A, B, unsettled=1)
    settle(publisher, indication, "a")
    assert publisher.idle
    assert publisher.destinations["a"].delivered == 1
    assert publisher.destinations["b"].delivered == 0


def test_a_target_that_is_discarded_while_it_is_offered_is_counted_once(
    fake_time: FakeTime,
) -> None:
    publisher = publisher_of(fake_time)
    indication = Indication(body=b"{}", class_name="C", accepted_at=0.0)
    publisher.offering(indication, (A, A), 0)
    indication.unsettled = 2
    settle(publisher, indication, "a", DiscardReason.QUEUE_FULL)
    publisher.reduced(indication, (A, A))
    settle(publisher, indication, "a")
    counts = publisher.destinations["a"]
    assert (counts.pending, counts.delivered, counts.discarded.total()) == (0, 1, 1)
    assert publisher.accepted == 1


def test_a_withdrawn_line_is_not_pending(fake_time: FakeTime) -> None:
    publisher = publisher_of(fake_time)
    indication = Indication(body=b"{}", class_name="C", accepted_at=0.0)
    publisher.offering(indication, (A, B), 0)
    assert publisher.accepted == 1
    publisher.withdrawn(indication, (A, B))
    assert publisher.idle
    assert publisher.accepted == 0


def test_the_publisher_heard_of_least_recently_gives_way_if_it_waits_for_nothing(
    fake_time: FakeTime,
) -> None:
    publishers = Publishers(
        memory=memory_of(fake_time),
        timers=fake_time,
        clock=fake_time,
        history=History(clock=fake_time, timers=fake_time),
        maximum=2,
    )
    offered(publishers.meet("busy"), A, unsettled=1)
    publishers.meet("idle")
    publishers.meet("new")
    assert publishers.find("idle") is None
    assert publishers.find("busy") is not None
    offered(publishers.meet("new"), A, unsettled=1)
    publishers.meet("newest")
    assert publishers.find("busy") is None
    assert len(publishers) == 2


def test_old_receipts_give_way(fake_time: FakeTime) -> None:
    receipts = Receipts(maximum=2)
    made = [Receipt(memory=memory_of(fake_time), timers=fake_time) for _ in range(3)]
    for receipt in made:
        receipts.keep(receipt)
    assert [receipts.find(receipt.id) for receipt in made] == [None, made[1], made[2]]


def test_a_receipt_counts_a_line_as_delivered_or_discarded_never_both(
    fake_time: FakeTime,
) -> None:
    receipt = Receipt(memory=memory_of(fake_time), timers=fake_time)
    indication = offered(receipt, A, B, unsettled=2)
    offered(receipt, A, unsettled=0)
    receipt.completed()
    settle(receipt, indication, "a", DiscardReason.PURGED)
    # Nobody knows yet what becomes of it at the other target.
    assert (receipt.delivered, len(receipt.discarded), receipt.pending) == (1, 1, 1)
    assert not receipt.settled_all.given
    settle(receipt, indication, "b")
    assert receipt.settled_all.given
    assert (receipt.delivered, len(receipt.discarded), receipt.pending) == (1, 1, 0)


def test_what_is_settled_may_be_read_back_from_the_journal(fake_time: FakeTime) -> None:
    """An indication that waited on disk is another object by the time that it is settled."""
    receipt = Receipt(memory=memory_of(fake_time), timers=fake_time)
    publisher = publisher_of(fake_time)
    accepted = Indication(body=b"{}", class_name="C", accepted_at=0.0)
    for follower in (receipt, publisher):
        follower.offering(accepted, (A, B, B), 3)
    accepted.id, accepted.unsettled = 17, 2
    for follower in (receipt, publisher):
        follower.reduced(accepted, (A, B, B))
    receipt.completed()
    assert receipt.pending == 1
    for unsettled, name in ((1, "a"), (0, "b")):
        again = Indication(body=b"{}", class_name="C", accepted_at=0.0, id=17, unsettled=unsettled)
        receipt.settled(again, name, None)
        publisher.settled(again, name, None)
    assert (receipt.delivered, receipt.pending, receipt.settled_all.given) == (1, 0, True)
    assert publisher.idle


def test_another_that_gives_way_to_a_line_before_it_has_its_id_confuses_nothing(
    fake_time: FakeTime,
) -> None:
    receipt = Receipt(memory=memory_of(fake_time), timers=fake_time)
    first = Indication(body=b"{}", class_name="C", accepted_at=0.0)
    receipt.offering(first, (A,), 0)
    first.id, first.unsettled = 1, 1
    second = Indication(body=b"{}", class_name="C", accepted_at=0.0)
    receipt.offering(second, (A,), 1)
    settle(receipt, first, "a", DiscardReason.QUEUE_FULL)
    second.id, second.unsettled = 2, 1
    receipt.completed()
    assert receipt.pending == 1
    settle(receipt, second, "a")
    assert (receipt.delivered, receipt.pending) == (1, 0)
    assert [one.line for one in receipt.discarded] == [0]


def test_a_receipt_that_is_called_back_is_followed_to_the_end(fake_time: FakeTime) -> None:
    receipts = Receipts(maximum=1)
    receipt = Receipt(memory=memory_of(fake_time), timers=fake_time)
    receipt.is_called_back = True
    indication = offered(receipt, A, unsettled=1)
    receipts.keep(receipt)
    receipts.keep(Receipt(memory=memory_of(fake_time), timers=fake_time))
    receipt.completed()
    settle(receipt, indication, "a")
    assert (receipt.delivered, receipt.settled_all.given) == (1, True)


def test_a_member_that_was_held_is_followed_under_the_id_that_it_gets_when_released(
    fake_time: FakeTime,
) -> None:
    receipt = Receipt(memory=memory_of(fake_time), timers=fake_time)
    publisher = publisher_of(fake_time)
    member = Indication(
        body=b"{}",
        class_name="C",
        accepted_at=0.0,
        group="g",
        member=GroupMember(sequence=1, ordered=True),
        digest=b"0123456789abcdef",
    )
    for follower in (receipt, publisher):
        follower.offering(member, (A,), 0)
    member.id, member.unsettled = 5, 1
    receipt.completed()
    assert receipt.pending == 1
    member.id = 9
    settle(receipt, member, "a")
    publisher.settled(member, "a", None)
    assert (receipt.delivered, receipt.settled_all.given) == (1, True)
    assert publisher.idle


def test_a_publisher_that_gave_way_and_comes_again_is_another_instance(
    fake_time: FakeTime,
) -> None:
    publishers = Publishers(
        memory=memory_of(fake_time),
        timers=fake_time,
        clock=fake_time,
        history=History(clock=fake_time, timers=fake_time),
        maximum=1,
    )
    first = publishers.meet("a")
    assert publishers.meet("a").instance == first.instance
    fake_time.advance(5)
    publishers.meet("b")
    again = publishers.meet("a")
    assert again.instance != first.instance
    assert again.since == first.since + 5
    # At the same moment, too.
    publishers.meet("b")
    assert publishers.meet("a").instance != again.instance
