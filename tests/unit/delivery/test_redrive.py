"""Redrive, without a disk and without listeners (S0.11)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pillion_sidecar.config.schema.history import HistoryBodies, HistoryPolicy
from pillion_sidecar.delivery.redrive import (
    NOT_KEPT,
    NOT_SUBSCRIBED,
    OFFERED_PER_TURN,
    REDRIVEN,
    Redriver,
    RedriveUnderWay,
)
from pillion_sidecar.history.outcome import Outcome, OutcomeQuery
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import DiscardReason, Indication, Refusal, Target
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.testing import FakeTime
from pillion_sidecar.wire.outcomes import RedriveAnswer
from support.outcomes import outcome

LOST = OutcomeQuery(result="discarded")
BODY = b'{"class":"C","properties":{}}'


class Queues:
    """Takes so many indications, and says when they are safe."""

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.taken: list[Indication] = []
        self.targets: list[Target] = []
        self.is_subscribed = True
        self.barriers: list[Callable[[], None]] = []
        self.asked = asyncio.Event()
        self.is_safe = True

    def offer(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        if len(self.taken) >= self.room:
            return Refusal(2.0, "the queue of destination siem is full", "siem")
        indication.unsettled = len(targets)
        self.taken.append(indication)
        self.targets += targets
        return None

    def barrier(self, done: Callable[[], None]) -> None:
        if self.is_safe:
            done()
        else:
            self.barriers.append(done)
            self.asked.set()

    def target_of(self, outcome: Outcome) -> Target | None:
        if not self.is_subscribed:
            return None
        return Target(outcome.subscription, "filter", outcome.destination)


class CountingHistory(History):
    commits = 0

    def commit(self) -> None:
        self.commits += 1


class Setting:
    def __init__(self, time: FakeTime, room: int = 1000) -> None:
        self.history = CountingHistory(clock=time, timers=time)
        self.history.configure(HistoryPolicy(bodies=HistoryBodies.ALL), size=1 << 20)
        self.queues = Queues(room)
        self.is_durable = True
        self.memory = DuplicateMemory(clock=time, window_seconds=3600, capacity=1000)
        self.redriver = Redriver(
            history=self.history,
            targets=self.queues,
            identities=self.memory,
            clock=time,
            is_durable=lambda: self.is_durable,
        )

    def lose(self, *numbers: int, **fields: Any) -> None:
        for number in numbers:
            self.history.add(outcome(number, **{"body": BODY, **fields}))

    async def redrive(self, query: OutcomeQuery = LOST, **given: Any) -> RedriveAnswer:
        settings = {"after": 0, "through": None, "limit": 1000, "dry_run": False, **given}
        return await self.redriver.redrive(query, **settings)

    @property
    def taken(self) -> list[str | None]:
        return [one.identifier for one in self.queues.taken]


@pytest.fixture
def setting(fake_time: FakeTime) -> Setting:
    return Setting(fake_time)


async def test_each_discard_is_offered_once_to_the_target_that_missed_it(setting: Setting) -> None:
    setting.lose(1, 2)
    setting.history.add(outcome(3, result="delivered", body=BODY))
    setting.lose(4, destination="noc", languages=("de",), group="g")
    answer = await setting.redrive()
    assert setting.taken == ["i1", "i2", "i4"]
    assert [one.destination for one in setting.queues.targets] == ["siem", "siem", "noc"]
    assert (answer.redriven, answer.skipped, answer.more, answer.next) == (3, {}, False, 4)
    last = setting.queues.taken[-1]
    assert (last.body, last.languages, last.group, last.redrives) == (BODY, ("de",), "g", 4)
    assert (last.digest, last.member) == (None, None)
    assert setting.history.commits == 1


def gone(setting: Setting, digest: bytes) -> bool:
    original = setting.memory.find(digest)
    assert original is not None
    return original.is_gone


async def test_what_is_redriven_is_not_accepted_anew_unless_it_is_lost_again(
    setting: Setting, fake_time: FakeTime
) -> None:
    for name in (b"a", b"b"):
        digest = name * 16
        setting.memory.add(digest, fake_time.monotonic(), expires_at=None, pending=True)
        first = Indication(body=BODY, class_name="C", accepted_at=0.0, digest=digest)
        setting.memory.settled(first, "siem", DiscardReason.FATAL_ERROR)
        assert gone(setting, digest)
    setting.lose(1, digest=b"a" * 16)
    setting.lose(2, digest=b"b" * 16)
    await setting.redrive()
    assert not gone(setting, b"a" * 16)
    assert not gone(setting, b"b" * 16)
    for one, reason in zip(setting.queues.taken, (None, DiscardReason.QUEUE_FULL), strict=True):
        one.unsettled = 0
        for tracker in one.trackers:
            tracker.settled(one, "siem", reason)
    assert not gone(setting, b"a" * 16)
    assert gone(setting, b"b" * 16)


async def test_what_a_full_queue_refuses_to_redrive_may_be_accepted_anew(
    fake_time: FakeTime,
) -> None:
    setting, digest = Setting(fake_time, room=0), b"a" * 16
    setting.memory.add(digest, fake_time.monotonic(), expires_at=None, pending=True)
    first = Indication(body=BODY, class_name="C", accepted_at=0.0, digest=digest)
    setting.memory.settled(first, "siem", DiscardReason.FATAL_ERROR)
    setting.lose(1, digest=digest)
    assert (await setting.redrive()).redriven == 0
    assert gone(setting, digest)


async def test_a_second_redrive_finds_nothing_left(setting: Setting) -> None:
    setting.lose(1, 2)
    await setting.redrive()
    answer = await setting.redrive()
    assert (answer.redriven, answer.skipped) == (0, {REDRIVEN: 2})
    # What is lost again has another number.
    setting.lose(1)
    assert (await setting.redrive()).redriven == 1


async def test_a_dry_run_counts_and_changes_nothing(setting: Setting) -> None:
    setting.lose(1, 2)
    for _ in range(2):
        answer = await setting.redrive(dry_run=True)
        assert (answer.redriven, answer.skipped) == (2, {})
    assert (setting.taken, setting.history.commits, setting.history.settled) == ([], 0, 2)


async def test_what_cannot_be_redriven_is_counted_by_reason(setting: Setting) -> None:
    setting.lose(1, body=None)
    setting.lose(2)
    setting.queues.is_subscribed = False
    answer = await setting.redrive()
    assert answer.skipped == {NOT_KEPT: 1, NOT_SUBSCRIBED: 1}
    assert answer.redriven == 0


async def test_a_full_queue_ends_the_page_before_the_one_that_it_refused(
    fake_time: FakeTime,
) -> None:
    setting = Setting(fake_time, room=2)
    setting.lose(1, 2, 3, 4)
    answer = await setting.redrive()
    assert (answer.redriven, answer.next, answer.more) == (2, 2, True)
    assert (answer.refusal, answer.retry_after) == ("the queue of destination siem is full", 2.0)
    setting.queues.room = 10
    answer = await setting.redrive(after=answer.next)
    assert (answer.redriven, answer.more, answer.refusal) == (2, False, None)
    assert setting.taken == ["i1", "i2", "i3", "i4"]


async def test_pages_follow_each_other_up_to_a_number(setting: Setting) -> None:
    setting.lose(*range(1, 11))
    after, pages = 0, 0
    while True:
        answer = await setting.redrive(after=after, through=7, limit=3)
        after, pages = answer.next, pages + 1
        if not answer.more:
            break
    assert setting.taken == [f"i{number}" for number in range(1, 8)]
    assert (pages, after) == (3, 7)


async def test_the_note_comes_once_the_indications_are_safe(setting: Setting) -> None:
    setting.lose(1)
    setting.queues.is_safe = False
    running = asyncio.create_task(setting.redrive())
    await setting.queues.asked.wait()
    assert setting.history.settled == 1
    with pytest.raises(RedriveUnderWay):
        await setting.redrive()
    setting.queues.barriers[0]()
    assert (await running).redriven == 1
    (note,) = setting.history.page(OutcomeQuery(result="redriven"), after=0, limit=9)().found
    assert (note.outcome.redrives, note.outcome.body) == (1, None)


async def test_newer_indications_of_the_same_source_are_counted(setting: Setting) -> None:
    setting.lose(1, accepted=100.0)
    setting.lose(2, accepted=100.0, source="other")
    setting.lose(3, accepted=300.0)
    setting.history.add(outcome(4, result="delivered", accepted=200.0))
    answer = await setting.redrive(dry_run=True)
    assert (answer.redriven, answer.newer) == (3, 1)


async def test_they_are_offered_in_the_order_of_acceptance(fake_time: FakeTime) -> None:
    setting = Setting(fake_time, room=2)
    # The first was being attempted while later ones were discarded.
    setting.lose(2, 3, 1, 4)
    setting.lose(1, identifier="later", sequence_context="of another run")
    first = await setting.redrive()
    assert setting.taken == ["i1", "i2"]
    # 3 was discarded as the second.
    assert (first.redriven, first.next) == (2, 1)
    setting.queues.room = 10
    second = await setting.redrive(after=first.next)
    assert setting.taken == ["i1", "i2", "i3", "i4", "later"]
    assert (second.redriven, second.skipped) == (3, {REDRIVEN: 1})


async def test_what_was_redriven_is_newer_than_nothing(setting: Setting) -> None:
    setting.lose(1, 2, accepted=100.0)
    setting.history.add(outcome(3, result="delivered", accepted=900.0, redrives=1))
    assert (await setting.redrive(after=1)).newer == 0


async def test_what_a_full_queue_left_is_counted_once(fake_time: FakeTime) -> None:
    setting = Setting(fake_time, room=1)
    setting.lose(1, accepted=100.0)
    setting.lose(2, body=None)
    setting.lose(3, accepted=100.0)
    setting.lose(4, body=None)
    setting.history.add(outcome(5, result="delivered", accepted=200.0))
    first = await setting.redrive()
    setting.queues.room = 10
    second = await setting.redrive(after=first.next)
    assert (first.redriven, first.newer, first.skipped) == (1, 1, {NOT_KEPT: 1})
    assert (second.redriven, second.newer, second.skipped) == (1, 1, {NOT_KEPT: 1})


async def test_many_are_offered_in_turns_of_the_event_loop(setting: Setting) -> None:
    setting.lose(*range(1, 3 * OFFERED_PER_TURN))
    running = asyncio.create_task(setting.redrive())
    seen: set[int] = set()
    while not running.done():
        seen.add(len(setting.taken))
        await asyncio.sleep(0)
    assert {OFFERED_PER_TURN, 2 * OFFERED_PER_TURN} <= seen


async def test_what_memory_alone_has_is_noted_once_it_is_settled(setting: Setting) -> None:
    setting.is_durable = False
    setting.lose(1, 2)
    assert (await setting.redrive()).redriven == 2
    notes = setting.history.page(OutcomeQuery(result="redriven"), after=0, limit=9)().found
    assert notes == []
    # This run knows.
    assert (await setting.redrive()).skipped == {REDRIVEN: 2}
