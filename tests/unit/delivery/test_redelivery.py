"""Redelivery: a publisher's repeat goes to the targets that missed its original (S0.11)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pillion_sidecar.delivery.redrive import OFFERED_PER_TURN, Redriver
from pillion_sidecar.history.outcome import Outcome, OutcomeQuery
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import DiscardReason, Indication, Lost, Refusal, Target
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.testing import FakeTime
from support.outcomes import BEGAN, outcome

FULL = DiscardReason.QUEUE_FULL
DISCARDS = OutcomeQuery(result="discarded")
AT_SIEM = ("siem", FULL)


class Queues:
    """Takes what is not for a full destination."""

    def __init__(self) -> None:
        self.taken: list[Indication] = []
        self.places: list[str] = []
        self.full: set[str] = set()
        self.gone: set[str] = set()
        self.suppressed: set[str] = set()
        self.closed: Refusal | None = None
        self.barriers: list[Callable[[], None]] | None = None
        self.asked = asyncio.Event()

    def offer(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        (target,) = targets
        if self.closed is not None:
            return self.closed
        if target.destination in self.full:
            return Refusal(1.0, "full", target.destination)
        if target.destination in self.suppressed:
            return None
        indication.unsettled = 1
        self.taken.append(indication)
        self.places.append(target.destination)
        return None

    def barrier(self, done: Callable[[], None]) -> None:
        if self.barriers is None:
            done()
        else:
            self.barriers.append(done)
            self.asked.set()

    def target_of(self, outcome: Outcome) -> Target | None:
        if outcome.destination in self.gone:
            return None
        return Target(outcome.subscription, "filter", outcome.destination)


class Setting:
    def __init__(self, time: FakeTime) -> None:
        self.history = History(clock=time, timers=time)
        self.queues = Queues()
        self.is_durable = True
        self.redriver = Redriver(
            history=self.history,
            targets=self.queues,
            identities=DuplicateMemory(clock=time, window_seconds=3600, capacity=1000),
            clock=time,
            is_durable=lambda: self.is_durable,
        )

    def lose(self, name: str, *destinations: str, **fields: Any) -> None:
        for destination in destinations or ("siem",):
            order = self.history.last + 1
            given = {"id": ord(name), "digest": digest_of(name), "body": None, **fields}
            self.history.add(outcome(order, destination=destination, **given))

    async def repeat(self, *lost: Lost, since: float | None = None) -> None:
        await self.redriver.redeliver(lost, since=since)

    @property
    def taken(self) -> list[tuple[bytes, str, int]]:
        pairs = zip(self.queues.taken, self.queues.places, strict=True)
        return [(one.body, destination, one.redrives) for one, destination in pairs]


def digest_of(name: str) -> bytes:
    return name.encode() * 16


def lost(name: str, still: tuple[str, DiscardReason] = AT_SIEM) -> Lost:
    indication = Indication(
        body=name.encode(), class_name="C", accepted_at=0.0, source="test", identifier=name
    )
    return Lost(digest=digest_of(name), indication=indication, still=still)


@pytest.fixture
def setting(fake_time: FakeTime) -> Setting:
    return Setting(fake_time)


async def test_each_target_that_missed_it_gets_the_line_itself_once(setting: Setting) -> None:
    setting.lose("a", "siem", "noc")
    setting.lose("b")
    a, b = lost("a"), lost("b")
    await setting.repeat(b, a)
    # In the order of acceptance.
    assert setting.taken == [(b"a", "siem", 1), (b"a", "noc", 2), (b"b", "siem", 3)]
    assert (a.offered, a.still, a.refusal) == (2, None, None)
    assert (b.offered, b.still) == (1, None)
    again = lost("a")
    await setting.repeat(again)
    assert len(setting.taken) == 3
    # It is under way.
    assert (again.offered, again.still) == (0, AT_SIEM)


async def test_neither_redrive_nor_redelivery_repeats_the_other(setting: Setting) -> None:
    setting.lose("a", body=b"{}")
    setting.lose("b", body=b"{}")
    await setting.repeat(lost("a"))
    answer = await setting.redriver.redrive(DISCARDS, after=0, through=None, limit=9, dry_run=False)
    assert (answer.redriven, answer.skipped) == (1, {"redriven": 1})
    await setting.repeat(lost("b"))
    assert [number for *_, number in setting.taken] == [1, 2]


async def test_it_waits_for_a_redrive_that_is_under_way(setting: Setting) -> None:
    setting.lose("a", body=b"{}")
    setting.queues.barriers = []
    redriving = asyncio.create_task(
        setting.redriver.redrive(DISCARDS, after=0, through=None, limit=9, dry_run=False)
    )
    await setting.queues.asked.wait()
    repeating = asyncio.create_task(setting.repeat(one := lost("a")))
    await asyncio.sleep(0)
    setting.queues.barriers[0]()
    await asyncio.gather(redriving, repeating)
    assert (len(setting.taken), one.offered) == (1, 0)


@pytest.mark.parametrize("durable", [True, False])
async def test_what_came_since_is_missed_no_more(setting: Setting, durable: bool) -> None:
    setting.is_durable = durable
    setting.lose("a", "siem", "noc")
    await setting.repeat(lost("a"))
    for number, destination in ((1, "siem"), (2, "noc")):
        setting.history.add(
            outcome(9, result="delivered", destination=destination, redrives=number, reason=None)
        )
    again = lost("a")
    await setting.repeat(again)
    assert (again.offered, again.still) == (0, None)


async def test_what_is_lost_again_is_offered_again(setting: Setting) -> None:
    setting.lose("a")
    await setting.repeat(lost("a"))
    setting.lose("a", digest=None, redrives=1, id=90, reason="attempts-exceeded")
    again = lost("a", ("siem", DiscardReason.ATTEMPTS_EXCEEDED))
    await setting.repeat(again)
    assert [number for *_, number in setting.taken] == [1, 3]
    assert again.offered == 1


async def test_a_full_queue_refuses_its_lines_and_no_others(setting: Setting) -> None:
    for name in "abc":
        setting.lose(name, "siem")
    setting.lose("d", "noc")
    setting.queues.full = {"siem"}
    lines = [lost(name) for name in "abc"] + [lost("d", ("noc", FULL))]
    await setting.repeat(*lines)
    assert [one.refusal is not None for one in lines] == [True, True, True, False]
    assert [place for _, place, _ in setting.taken] == ["noc"]
    assert [one.still for one in lines] == [AT_SIEM] * 3 + [None]
    setting.queues.full.clear()
    await setting.repeat(*[lost(name) for name in "abc"])
    assert len(setting.taken) == 4


async def test_while_nothing_is_taken_every_line_is_refused(setting: Setting) -> None:
    setting.lose("a", "siem", "noc")
    setting.queues.closed = Refusal(1.0, "the deliverer is stopping")
    one = lost("a")
    await setting.repeat(one)
    assert (one.offered, one.refusal) == (0, setting.queues.closed)


@pytest.mark.parametrize("reason", [DiscardReason.PURGED, DiscardReason.SUBSCRIPTION_NOT_ACTIVE])
async def test_what_was_ended_on_purpose_is_not_offered(
    setting: Setting, reason: DiscardReason
) -> None:
    setting.lose("a", reason=reason.value)
    setting.lose("a", "noc")
    one = lost("a", ("siem", reason))
    await setting.repeat(one)
    assert [place for _, place, _ in setting.taken] == ["noc"]
    assert one.still == ("siem", reason)


async def test_what_is_not_subscribed_any_more_misses_it_still(setting: Setting) -> None:
    setting.lose("a", "siem", "noc")
    setting.queues.gone, setting.queues.suppressed = {"siem"}, {"noc"}
    one = lost("a")
    await setting.repeat(one)
    assert (one.offered, one.still, one.refusal) == (0, AT_SIEM, None)
    assert not (await asyncio.to_thread(setting.history.redriven({1, 2})))


async def test_what_the_history_has_no_more_is_not_guessed(setting: Setting) -> None:
    # An earlier indication of the identity: what the latest has missed is not known.
    setting.lose("a", "noc")
    one = lost("a")
    await setting.repeat(one, lost("unknown"))
    assert (setting.taken, one.still) == ([], AT_SIEM)


async def test_what_is_older_than_the_memory_is_not_read(setting: Setting) -> None:
    setting.lose("a")
    await setting.repeat(one := lost("a"), since=BEGAN + 500.0)
    assert (setting.taken, one.still) == ([], AT_SIEM)


async def test_many_leave_turns_to_others(setting: Setting) -> None:
    names = [chr(0x100 + at) for at in range(2 * OFFERED_PER_TURN + 1)]
    for name in names:
        setting.lose(name)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while len(setting.queues.taken) < len(names):
            await asyncio.sleep(0)
            turns += bool(setting.queues.taken)

    await asyncio.gather(setting.repeat(*map(lost, names)), other())
    assert turns >= 2


async def test_what_was_offered_is_not_offered_again_if_the_request_ends(setting: Setting) -> None:
    setting.lose("a", body=b"{}")
    setting.queues.barriers = []
    repeating = asyncio.create_task(setting.repeat(lost("a")))
    await setting.queues.asked.wait()
    repeating.cancel()
    await asyncio.wait([repeating])
    setting.queues.barriers = None
    await setting.repeat(again := lost("a"))
    answer = await setting.redriver.redrive(DISCARDS, after=0, through=None, limit=9, dry_run=False)
    assert (again.offered, answer.redriven, len(setting.taken)) == (0, 0, 1)
