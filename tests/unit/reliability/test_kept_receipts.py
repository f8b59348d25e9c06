"""Receipts and callbacks of an earlier run, made of notes and outcomes (S1.9, S0.11)."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from pillion_sidecar.history.outcome import NoteResult, OutcomeQuery, lacked_note
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import DiscardReason, GroupMember, Indication, Unreached
from pillion_sidecar.reliability.callbacks import Callbacks
from pillion_sidecar.reliability.duplicates import DELIVERED, IN_DELIVERY, DuplicateMemory
from pillion_sidecar.reliability.kept_receipts import (
    LOOK_SECONDS,
    NOTE_SECONDS,
    KeptReceipts,
    ReceiptGone,
)
from pillion_sidecar.reliability.receipt_notes import (
    MOST_RUNS,
    EarlierReceipt,
    Followed,
    encode_note,
    note_of,
    read_note,
)
from pillion_sidecar.reliability.receipts import Receipt, ReceiptView
from pillion_sidecar.testing import FakeTime
from pillion_sidecar.wire.submission import DiscardedLine
from support.intake import Counted, FakePoster, settled_outcome, target
from support.outcomes import outcome

A, B = target("a", "first"), target("b", "second")
#: A digest of an identity.
ORIGINAL = b"o" * 16
URL = "http://hooks.example:8080/pillion/7?token=secret"
ALLOWED = ("http://hooks.example:8080/pillion",)


def body(receipt: ReceiptView) -> bytes:
    return f'{{"delivered": {receipt.delivered}, "pending": {receipt.pending}}}'.encode()


class World:
    """A receipt of this run, and what keeps it; ``again`` is the next run."""

    def __init__(self, time: FakeTime, history: History | None = None) -> None:
        self.time = time
        self.history = history or History(clock=time, timers=time)
        self.memory = DuplicateMemory(clock=time, window_seconds=3600, capacity=100)
        self.barriers: list[Callable[[], None]] = []
        #: What waits for stores.
        self.unstable: list[Callable[[], None]] = []
        self.kept = KeptReceipts(
            history=self.history,
            memory=self.memory,
            clock=time,
            timers=time,
            barrier=self.barriers.append,
            journal=lambda: "journal-1",
            stable=lambda: self.unstable.append,
        )
        self.poster, self.observer = FakePoster(), Counted()
        self.callbacks = Callbacks(poster=self.poster, timers=time, observer=self.observer)
        self.receipt = Receipt(memory=self.memory, timers=time)

    def again(self) -> "World":
        self.kept.close()
        return World(self.time, self.history)

    def offer(
        self, line: int, *targets: Any, number: int, member: GroupMember | None = None
    ) -> Indication:
        indication = Indication(
            body=b"{}",
            class_name="C",
            accepted_at=0.0,
            source="s",
            group=None if member is None else "g",
            member=member,
            digest=None if member is None else b"m%015d" % number,
        )
        self.receipt.offering(indication, targets, line)
        indication.id, indication.unsettled = number, len(targets)
        return indication

    def settle(
        self, indication: Indication, destination: str, reason: DiscardReason | None = None
    ) -> None:
        self.history.add(settled_outcome(indication, destination, reason))
        indication.unsettled -= 1
        self.receipt.settled(indication, destination, reason)

    async def keep(self, **given: Any) -> None:
        self.receipt.completed()
        settings: dict[str, Any] = {"publisher": None, "callback": None, "seconds": 60.0, **given}
        keeping = asyncio.create_task(self.kept.keep(self.receipt, **settings))
        await turns(until=lambda: bool(self.barriers))
        self.barriers.pop()()
        await keeping

    async def found(self) -> EarlierReceipt:
        found = await self.kept.find(self.receipt.id, namespace=None)
        assert found is not None
        return found


def told(receipt: ReceiptView) -> tuple[Any, ...]:
    return (
        receipt.delivered,
        receipt.discarded,
        receipt.discarded_beyond,
        receipt.pending,
        +receipt.unreached_lines,
        receipt.settled_all.given,
    )


async def test_the_next_run_answers_as_this_one(fake_time: FakeTime) -> None:
    world = World(fake_time)
    both, one, lost = (
        world.offer(0, A, B, number=1),
        world.offer(1, A, number=2),
        world.offer(3, A, B, number=3),
    )
    world.settle(one, "a")
    world.settle(lost, "b", DiscardReason.PURGED)
    world.receipt.offering(both, (), 4)
    world.receipt.unreached(Unreached.UNROUTED)
    world.receipt.repeated(ORIGINAL, IN_DELIVERY, 5)
    await world.keep()
    world.settle(both, "a")
    before = told(world.receipt)
    assert before == (
        1,
        [DiscardedLine(3, "b", "purged")],
        0,
        3,
        {Unreached.UNROUTED: 1},
        False,
    )
    after = world.again()
    found = await world.found()
    assert not await after.kept.follow(found, 0.0)
    assert told(found) == before
    # And so it goes on: a line is delivered with its last target.
    for indication, destination in ((both, "b"), (lost, "a")):
        world.settle(indication, destination)
        await after.kept.follow(found, 0.0)
    assert (found.delivered, found.pending) == (2, 1)
    after.memory.add(ORIGINAL, fake_time.monotonic(), expires_at=None, pending=False)
    world.receipt.original_settled(ORIGINAL, DELIVERED)


async def test_a_duplicate_is_concluded_by_its_original(fake_time: FakeTime) -> None:
    world = World(fake_time)
    world.receipt.repeated(ORIGINAL, IN_DELIVERY, 0)
    await world.keep()
    again = world.again()
    again.receipt = world.receipt
    found = await again.found()
    # Forgotten: how it ended is not known, so it is not called delivered.
    assert not await again.kept.follow(found, 0.0)
    assert (found.delivered, found.pending) == (0, 1)
    again.memory.add(ORIGINAL, fake_time.monotonic(), expires_at=None, pending=False)
    assert await again.kept.follow(found, 0.0)
    assert (found.delivered, found.pending) == (1, 0)


async def test_a_member_of_a_group_is_found_by_its_place(fake_time: FakeTime) -> None:
    world = World(fake_time)
    members = [
        world.offer(line, A, number=line + 1, member=GroupMember(sequence=line, ordered=True))
        for line in range(2)
    ]
    await world.keep()
    again = world.again()
    again.receipt = world.receipt
    found = await again.found()
    for member, reason in zip(members, (None, DiscardReason.OUT_OF_ORDER), strict=True):
        # It was held, and has got another id with its release.
        member.id += 100
        world.settle(member, "a", reason)
    assert await again.kept.follow(found, 0.0)
    assert (found.delivered, found.discarded) == (1, [DiscardedLine(1, "a", "out-of-order")])


def pending_one(time: FakeTime) -> EarlierReceipt:
    world = World(time)
    world.offer(0, A, B, number=7)
    world.receipt.completed()
    note, pending = note_of(world.receipt, journal="journal-1", after=10, callback=None)
    data = encode_note(note, pending)
    read = read_note(outcome(1, note=data))
    assert read is not None
    return EarlierReceipt(read, memory=world.memory, timers=time)


def test_only_outcomes_of_its_own_lines_count(fake_time: FakeTime) -> None:
    receipt = pending_one(fake_time)
    delivered = {"id": 7, "result": "delivered", "reason": None}
    others = [
        (10, outcome(1, **delivered)),
        (11, outcome(1, **{**delivered, "id": 8})),
        (12, outcome(1, **delivered, sequence_context="default#journal-2#siem#1")),
        (13, outcome(1, **delivered, sequence_context=None)),
        (14, outcome(1, **{**delivered, "result": "redriven"})),
    ]
    Followed([receipt]).feed(_numbered(others), through=14)
    assert (receipt.delivered, receipt.pending, receipt.through) == (0, 1, 14)
    own = [(number, outcome(1, **delivered)) for number in (15, 16, 17)]
    Followed([receipt]).feed(_numbered(own[:1]), through=15)
    assert receipt.pending == 1
    Followed([receipt]).feed(_numbered(own[1:]), through=17)
    assert (receipt.delivered, receipt.pending) == (1, 0)


def _numbered(given: list[tuple[int, Any]]) -> Any:
    return iter(given)


async def test_the_note_waits_for_the_lines_and_the_answer_waits_a_while(
    fake_time: FakeTime,
) -> None:
    world = World(fake_time)
    world.offer(0, A, number=1)
    world.receipt.completed()
    keeping = asyncio.create_task(
        world.kept.keep(world.receipt, publisher=None, callback=None, seconds=1.0)
    )
    await turns(until=lambda: bool(world.barriers))
    assert world.history.last == 0
    fake_time.advance(NOTE_SECONDS)
    await keeping
    assert world.history.last == 0
    world.barriers.pop()()
    await turns(until=lambda: bool(world.history.last))
    assert await world.again().kept.find(world.receipt.id, namespace=None) is not None


async def test_a_receipt_is_its_namespaces_own_and_an_unknown_one_is_none(
    fake_time: FakeTime,
) -> None:
    world = World(fake_time)
    world.receipt.namespace = "team"
    await world.keep()
    again = world.again()
    for receipt, namespace in ((world.receipt.id, None), (world.receipt.id, "x"), ("no", "team")):
        assert await again.kept.find(receipt, namespace=namespace) is None
    assert await again.kept.find(world.receipt.id, namespace="team") is not None


async def test_a_receipt_of_an_earlier_run_becomes_stable(fake_time: FakeTime) -> None:
    world = World(fake_time)
    world.receipt.is_for_durable = world.receipt.is_for_stable = True
    world.offer(0, A, number=1)
    await world.keep()
    await turns(until=lambda: bool(world.history.last))
    again = world.again()
    again.receipt = world.receipt
    found = await again.found()
    assert (found.secured.given, found.reached.given) == (True, False)
    assert await again.found() is found
    (stable,) = again.unstable
    stable()
    assert found.reached is found.stable
    assert found.stable.given


@pytest.mark.parametrize("is_for_durable", [True, False])
async def test_a_receipt_of_less_asks_no_store(fake_time: FakeTime, is_for_durable: bool) -> None:
    world = World(fake_time)
    world.receipt.is_for_durable = is_for_durable
    world.offer(0, A, number=1)
    await world.keep()
    await turns(until=lambda: bool(world.history.last))
    again = world.again()
    again.receipt = world.receipt
    assert not (await again.found()).is_for_stable
    assert not again.unstable


async def test_what_the_journal_may_lack_has_no_receipt(fake_time: FakeTime) -> None:
    """Its lines are another writer's, or nobody's: they are neither durable nor stable."""
    world = World(fake_time)
    await world.keep()
    world.history.add(lacked_note(at=fake_time.time()))
    later = world.again()
    await later.keep()
    for again in (later.again(), World(fake_time, world.history)):
        assert await again.kept.find(world.receipt.id, namespace=None) is None
        assert await again.kept.find(later.receipt.id, namespace=None) is not None


async def test_a_receipt_whose_outcomes_have_left_the_history_says_so(fake_time: FakeTime) -> None:
    history = History(clock=fake_time, timers=fake_time, memory_bytes=20_000)
    world = World(fake_time, history)
    line = world.offer(0, A, number=1)
    await world.keep()
    again = world.again()
    again.receipt = world.receipt
    found = await again.found()
    world.settle(line, "a", DiscardReason.PURGED)
    for order in range(500):
        history.add(outcome(order))
    with pytest.raises(ReceiptGone):
        await again.kept.follow(found, 0.0)
    assert (found.delivered, found.pending) == (0, 1)


async def test_a_receipt_of_too_many_parts_lives_in_its_process(fake_time: FakeTime) -> None:
    world = World(fake_time)
    for line in range(MOST_RUNS + 1):
        world.offer(2 * line, A, number=line + 1)
    world.receipt.completed()
    note, pending = note_of(world.receipt, journal="journal-1", after=0, callback=None)
    assert encode_note(note, pending) is None


async def test_a_callback_is_sent_by_the_next_run_once(fake_time: FakeTime) -> None:
    world = World(fake_time)
    line = world.offer(0, A, number=1)
    await world.keep(callback=URL)
    again = world.again()
    again.kept.resume(again.callbacks, prefixes=lambda: ALLOWED, render=body)
    await turns()
    fake_time.advance(0)
    assert not again.poster.posted
    world.settle(line, "a")
    await turns()
    fake_time.advance(LOOK_SECONDS)
    await turns(until=lambda: bool(again.poster.posted) or bool(fake_time.advance(0)))
    assert again.poster.posted == [(URL, {"delivered": 1, "pending": 0})]
    again.poster.answer()
    third = again.again()
    third.kept.resume(third.callbacks, prefixes=lambda: ALLOWED, render=body)
    await turns()
    fake_time.advance(3600)
    assert not third.poster.posted
    third.kept.close()


async def turns(*, until: Callable[[], bool] = bool) -> None:
    """Let tasks and their threads go on; a busy machine runs a thread late."""
    for _ in range(20 if until is bool else 5_000):
        if until():
            return
        await asyncio.to_thread(int)
        await asyncio.sleep(0)


async def test_a_callback_that_is_due_says_what_is_pending(fake_time: FakeTime) -> None:
    world = World(fake_time)
    world.offer(0, A, number=1)
    await world.keep(callback=URL, seconds=5.0)
    fake_time.advance(6)
    again = world.again()
    again.kept.resume(again.callbacks, prefixes=lambda: ALLOWED, render=body)
    await turns()
    fake_time.advance(0)
    assert again.poster.posted == [(URL, {"delivered": 0, "pending": 1})]
    again.kept.close()


async def test_a_callback_that_is_not_allowed_any_more_is_dropped(fake_time: FakeTime) -> None:
    world = World(fake_time)
    await world.keep(callback=URL)
    again = world.again()
    again.kept.resume(again.callbacks, prefixes=lambda: ("https://x.example/",), render=body)
    await turns()
    assert (again.poster.posted, again.observer.callbacks) == ([], {False: 1})
    ended = again.history.page(OutcomeQuery(result=NoteResult.CALLED_BACK), after=0, limit=9)()
    assert [one.outcome.identifier for one in ended.found] == [world.receipt.id]
    again.kept.close()


async def test_a_history_that_cannot_be_read_ends_no_deliverer(
    fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(fake_time)

    def unreadable(*_: object, **__: object) -> Callable[[], Any]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(world.history, "every", unreadable)
    world.kept.resume(world.callbacks, prefixes=lambda: ALLOWED, render=body)
    await turns()
    assert "Input/output error; callbacks of earlier runs may not be sent" in caplog.text
    with pytest.raises(OSError, match="Input/output"):
        await world.kept.find("receipt", namespace=None)
    world.kept.close()
