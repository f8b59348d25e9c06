"""Replays, without a disk and without listeners (S0.11)."""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pillion_sidecar.config.schema.history import HistoryBodies, HistoryPolicy
from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.config.schema.replay import IndicationReplay
from pillion_sidecar.delivery import replay as engine
from pillion_sidecar.delivery.repeating import Room
from pillion_sidecar.delivery.replay import (
    LAST_NEWS_SECONDS,
    MOST_TROUBLES,
    RENEWAL_SECONDS,
    TROUBLE_SECONDS,
    Replays,
)
from pillion_sidecar.direct import direct_target
from pillion_sidecar.history.outcome import Outcome, OutcomeQuery
from pillion_sidecar.history.recorder import History
from pillion_sidecar.history.replays import OfReplays
from pillion_sidecar.indication import DiscardReason, Indication, Refusal, Target
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.testing import FakeTime
from pillion_sidecar.wire.queues import ReplayStatus
from support.outcomes import BEGAN, outcome

BODY = b'{"class":"C","properties":{}}'


async def at_once(function: Callable[..., Any], *given: Any, **more: Any) -> Any:
    return function(*given, **more)


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "to_thread", at_once)


class Queues:
    """Takes what it has room for."""

    def __init__(self) -> None:
        self.room = Room(1000)
        self.refusals: list[Refusal] = []
        self.taken: list[Indication] = []
        self.targets: list[Target] = []
        self.barriers: list[Callable[[], None]] = []
        self.is_safe = True

    def offer(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        if self.refusals:
            return self.refusals.pop()
        indication.unsettled = len(targets)
        self.taken.append(indication)
        self.targets += targets
        self.room = Room(self.room.places - 1, "it is half full")
        return None

    def barrier(self, done: Callable[[], None]) -> None:
        if self.is_safe:
            done()
        else:
            self.barriers.append(done)

    def direct_target(self, destination: str) -> Target | None:
        return direct_target(destination)

    def room_to_repeat(self, destination: str) -> Room:
        return self.room

    def is_empty(self, destination: str) -> bool:
        return self.room.places >= 1000


def replay(name: str = "afternoon", **fields: Any) -> IndicationReplay:
    settings = {"uid": f"uid-{name}", "destination_name": "new", "since": BEGAN, **fields}
    return IndicationReplay(name=name, **settings)


class Setting:
    def __init__(self, time: FakeTime) -> None:
        self.time = time
        self.history = History(clock=time, timers=time)
        self.history.configure(HistoryPolicy(bodies=HistoryBodies.ALL), size=1 << 20)
        self.queues = Queues()
        self.is_durable = True
        self.memory = DuplicateMemory(clock=time, window_seconds=3600, capacity=1000)
        self.replays = self.started()

    def started(self) -> Replays:
        """As another process does."""
        return Replays(
            history=self.history,
            targets=self.queues,
            identities=self.memory,
            clock=self.time,
            timers=self.time,
            is_durable=lambda: self.is_durable,
        )

    def restart(self) -> None:
        self.queues.taken.clear()
        self.replays = self.started()

    def keep(self, *numbers: int, **fields: Any) -> None:
        for number in numbers:
            self.history.add(outcome(number, **{"body": BODY, **fields}))

    def apply(self, *replays: IndicationReplay, **selects: Any) -> None:
        self.replays.configure({one.name: one for one in replays}, selects=selects)

    @asynccontextmanager
    async def running(self, *replays: IndicationReplay, **selects: Any) -> AsyncIterator[None]:
        self.apply(*replays, **selects)
        task = asyncio.create_task(self.replays.run())
        try:
            await self.turns()
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    async def turns(self, seconds: float = 0.0) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        if seconds:
            self.time.advance(seconds)
            await self.turns()

    def settle(self, result: str = "delivered", **fields: Any) -> None:
        """Settle everything that was taken."""
        for one in self.queues.taken:
            settled = outcome(
                one.redrives, result=result, redrives=one.redrives, replay=one.replay, **fields
            )
            self.history.add(settled)
            self.replays.settled(settled)

    @property
    def taken(self) -> list[str | None]:
        return [one.identifier for one in self.queues.taken]

    def status(self, name: str = "afternoon") -> ReplayStatus:
        return next(one for one in self.replays.statuses() if one.name == name)

    def notes(self, uid: str = "uid-afternoon") -> list[str]:
        every = self.history.every(OfReplays(uids=frozenset((uid,))), after=0)()
        return [one.outcome.detail or "" for one in every if one.outcome.result == "replay"]


@pytest.fixture
def setting(fake_time: FakeTime) -> Setting:
    return Setting(fake_time)


async def test_an_edited_replay_goes_on_as_it_began(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.keep(*range(1, 300))
    begun = replay()
    setting.apply(begun)
    async with setting.running(dataclasses.replace(begun, since=begun.since + 150.0)):
        setting.settle()
        await setting.turns(10.0)
    assert setting.status().selected == 299
    told = [one.getMessage() for one in caplog.records if "can be changed" in one.getMessage()]
    assert told[0].startswith("IndicationReplay/afternoon: only rateLimit, suspended and ttl")


async def test_each_indication_is_offered_once_in_the_order_of_acceptance(setting: Setting) -> None:
    setting.keep(2, 1)
    # The same indication at another destination, and what only the count of the journal tells.
    setting.keep(1, destination="noc", result="delivered", number=7)
    setting.keep(1, identifier="later", sequence_context="default#journal-2#siem#1")
    async with setting.running(replay()):
        assert setting.taken == ["i1", "i2", "later"]
        assert set(setting.queues.targets) == {direct_target("new")}
        first = setting.queues.taken[0]
        assert (first.redrives, first.replay, first.body) == (2, "uid-afternoon", BODY)
        assert (first.digest, first.accepted_at) == (None, setting.time.monotonic())
        assert setting.status().state == "Running"
        setting.settle()
        await setting.turns()
        found = setting.status()
    assert (found.state, found.selected, found.replayed, found.delivered) == ("Complete", 4, 3, 3)
    assert found.left_out == {"repeated": 1}
    assert setting.replays.totals == {"queued": 3, "delivered": 3, "discarded": 0}


@pytest.mark.parametrize(("destination", "is_gone"), [("siem", False), ("new", True)])
async def test_what_comes_to_the_target_that_missed_it_is_not_accepted_anew(
    setting: Setting, destination: str, is_gone: bool
) -> None:
    digest = b"a" * 16
    setting.memory.add(digest, setting.time.monotonic(), expires_at=None, pending=True)
    lost = Indication(body=BODY, class_name="C", accepted_at=0.0, digest=digest)
    setting.memory.settled(lost, "siem", DiscardReason.FATAL_ERROR)
    setting.keep(1, digest=digest)
    async with setting.running(replay(destination_name=destination)):
        (one,) = setting.queues.taken
        one.unsettled = 0
        for tracker in one.trackers:
            tracker.settled(one, destination, None)
    original = setting.memory.find(digest)
    assert original is not None
    assert original.is_gone is is_gone


async def test_what_is_left_out_is_counted_by_reason(setting: Setting) -> None:
    setting.keep(1, body=None)
    # Kept by its second outcome.
    setting.keep(1, destination="noc", result="delivered")
    setting.keep(2, 3)
    setting.keep(4, redrives=2)
    setting.keep(5, redrives=2, replay="another")
    setting.keep(6, result="relayed")
    setting.keep(7, time=BEGAN - 1)

    def select(body: bytes) -> bytes | None:
        return None if b"3" in body else b"short"

    setting.keep(8, body=b"3")
    async with setting.running(replay(filter_name="some"), some=select):
        assert setting.taken == ["i1", "i2", "i3"]
        assert {one.body for one in setting.queues.taken} == {b"short"}
        assert setting.status().left_out == {"not-kept": 1, "filtered": 1}
        assert setting.status().selected == 5


async def test_only_the_results_and_destinations_that_it_names_are_replayed(
    setting: Setting,
) -> None:
    setting.keep(1)
    setting.keep(2, result="delivered")
    setting.keep(3, result="delivered", destination="noc")
    setting.keep(4, result="delivered", time=BEGAN + 90)
    asked = replay(results=("Delivered",), destinations=("siem", "gone"), until=BEGAN + 90)
    async with setting.running(asked):
        assert setting.taken == ["i2"]
    async with setting.running(replay("two", results=("Discarded",), destinations=("siem",))):
        assert setting.taken == ["i2", "i1"]


async def test_what_comes_after_it_is_first_seen_is_not_replayed(setting: Setting) -> None:
    setting.keep(1)
    setting.queues.room = Room(0, "destination new is suspended")
    async with setting.running(replay(), replay("z")):
        setting.keep(2)
    setting.restart()
    setting.queues.room = Room(1000)
    async with setting.running(replay(), replay("z")):
        setting.settle()
        await setting.turns()
        assert setting.taken == ["i1", "i1"]


async def test_it_waits_for_room_and_says_so(setting: Setting) -> None:
    setting.keep(*range(1, 6))
    setting.queues.room = Room(2)
    async with setting.running(replay()):
        assert setting.taken == ["i1", "i2"]
        assert (setting.status().state, setting.status().detail) == ("Running", "it is half full")
        setting.queues.room = Room(2)
        setting.queues.refusals = [Refusal(7.0, "the journal is full")]
        await setting.turns(1.0)
        assert (setting.taken, setting.status().detail) == (["i1", "i2"], "the journal is full")
        await setting.turns(7.0)
        assert setting.taken == ["i1", "i2", "i3", "i4"]


async def test_it_keeps_to_its_rate(setting: Setting) -> None:
    setting.keep(*range(1, 9))
    slow = RateLimit(per_second=0.5, burst=3)
    async with setting.running(replay(rate_limit=slow)):
        assert len(setting.taken) == 3
        await setting.turns(2.0)
        assert len(setting.taken) == 4
        setting.apply(replay())
        await setting.turns()
        assert len(setting.taken) == 8


async def test_they_run_one_at_a_time_in_the_order_of_creation(setting: Setting) -> None:
    setting.keep(1, 2)
    setting.queues.room = Room(1)
    second, first = replay("a", created_at=BEGAN + 60), replay("b", created_at=BEGAN + 50)
    async with setting.running(second, first):
        assert [one.name for one in setting.replays.statuses()] == ["b", "a"]
        assert [one.state for one in setting.replays.statuses()] == ["Running", "Waiting"]
        assert setting.status("a").detail == "waits for replay b"
        # One that is suspended steps aside, and goes on where it stopped.
        setting.apply(second, replay("b", created_at=BEGAN + 50, suspended=True))
        setting.queues.room = Room(2)
        await setting.turns()
        assert [one.state for one in setting.replays.statuses()] == ["Suspended", "Running"]
        setting.queues.room = Room(9)
        setting.apply(second, first)
        await setting.turns()
    assert [(one.replay, one.identifier) for one in setting.queues.taken] == [
        ("uid-b", "i1"),
        ("uid-a", "i1"),
        ("uid-a", "i2"),
        ("uid-b", "i2"),
    ]


async def test_one_that_waits_for_another_has_its_end_already(setting: Setting) -> None:
    setting.keep(1)
    setting.queues.room = Room(0, "it is full")
    async with setting.running(replay()):
        setting.apply(replay(), replay("z"))
        await setting.turns()
        assert len(setting.notes("uid-z")) == 1
        setting.keep(2)
        setting.queues.room = Room(9)
        await setting.turns(1.0)
        assert setting.taken == ["i1", "i1"]


async def test_a_page_is_noted_once_it_is_safe(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PAGE", 2)
    setting.keep(*range(1, 6))
    async with setting.running(replay(suspended=True)):
        await setting.turns()
        setting.queues.is_safe = False
        setting.apply(replay())
        await setting.turns()
        begun = len(setting.notes())
        assert setting.taken == ["i1", "i2"]
        setting.queues.barriers.pop()()
        await setting.turns()
        assert (len(setting.notes()), len(setting.taken)) == (begun + 1, 4)
    # Killed: the page that was not noted comes again.
    setting.queues.is_safe = True
    setting.restart()
    async with setting.running(replay()):
        assert setting.taken == ["i3", "i4", "i5"]
        assert setting.status().replayed == 5


async def test_what_was_dealt_with_before_a_restart_is_not_replayed_again(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PAGE", 2)
    setting.keep(1, 2)
    setting.queues.room = Room(2)
    setting.keep(1, destination="noc")
    setting.keep(3)
    async with setting.running(replay()):
        assert len(setting.taken) == 2
    setting.restart()
    setting.queues.room = Room(9)
    async with setting.running(replay()):
        assert setting.taken == ["i3"]
        assert setting.status().left_out == {"repeated": 1}


async def test_a_finished_one_is_never_run_again(setting: Setting) -> None:
    setting.keep(1, 2)
    async with setting.running(replay()):
        setting.settle("discarded")
        await setting.turns()
        before = setting.status()
        assert (before.state, before.discarded) == ("Complete", 2)
        setting.apply()
        setting.apply(replay())
        await setting.turns()
    setting.restart()
    async with setting.running(replay()):
        assert setting.taken == []
        assert setting.status() == before


async def test_counts_go_on_over_restarts_and_count_each_once(setting: Setting) -> None:
    setting.keep(1, 2)
    async with setting.running(replay()):
        setting.settle("discarded")
        # Sent twice after a crash: delivered at last.
        setting.replays.settled(outcome(1, result="delivered", redrives=1, replay="uid-afternoon"))
        assert (setting.status().delivered, setting.status().discarded) == (1, 1)
    setting.restart()
    async with setting.running(replay()):
        assert (setting.status().state, setting.status().discarded) == ("Complete", 2)


async def test_what_the_history_knows_no_outcome_of_does_not_last_for_ever(
    setting: Setting,
) -> None:
    setting.keep(1, 2)
    async with setting.running(replay()):
        setting.queues.room = Room(1000)
        await setting.turns(LAST_NEWS_SECONDS - 1)
        assert setting.status().state == "Running"
        await setting.turns(LAST_NEWS_SECONDS)
        found = setting.status()
    assert (found.state, found.detail) == ("Complete", "what became of 2 is not known")


async def test_a_history_that_cannot_be_read_fails_it_for_good(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setting.keep(1)

    def broken(*_: Any, **__: Any) -> Callable[[], Any]:
        def read() -> Any:
            raise OSError(5, "Input/output error")

        return read

    with monkeypatch.context() as patch:
        patch.setattr(History, "page", broken)
        async with setting.running(replay(), replay("next")):
            waits = setting.status()
            for _ in range(2 * MOST_TROUBLES):
                await setting.turns(TROUBLE_SECONDS)
            found = setting.status()
    told = "the history: Input/output error; it is tried again"
    assert (waits.state, waits.detail) == ("Running", told)
    assert (found.state, found.detail) == ("Failed", "the history: Input/output error")
    assert [vars(one)["event"] for one in caplog.records if one.levelno == logging.ERROR] == [
        "replay-failed",
        "replay-failed",
    ]
    setting.restart()
    async with setting.running(replay()):
        assert (setting.taken, setting.status().state) == ([], "Failed")


async def test_a_trouble_of_the_history_that_passes_ends_no_replay(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting.keep(1)

    def broken(*_: Any, **__: Any) -> Callable[[], Any]:
        def read() -> Any:
            raise OSError(24, "Too many open files")

        return read

    async with setting.running():
        with monkeypatch.context() as patch:
            patch.setattr(History, "every", broken)
            setting.apply(replay())
            for _ in range(MOST_TROUBLES - 2):
                await setting.turns(TROUBLE_SECONDS)
            assert setting.taken == []
        await setting.turns(TROUBLE_SECONDS)
        assert setting.taken == ["i1"]


async def test_a_removed_one_is_cancelled_and_goes_on_if_it_is_applied_again(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    setting.keep(1, 2, 3)
    setting.queues.room = Room(1)
    async with setting.running(replay()):
        setting.apply()
        await setting.turns()
        assert setting.replays.statuses() == []
        setting.queues.room = Room(9)
        await setting.turns(5.0)
        assert setting.taken == ["i1"]
        setting.apply(replay())
        await setting.turns()
    # The page that was not done is offered once more.
    assert setting.taken == ["i1", "i1", "i2", "i3"]
    events = [vars(one).get("event") for one in caplog.records]
    assert events == ["replay-started", "replay-cancelled"]


async def test_what_memory_alone_has_is_noted_once_it_is_settled(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PAGE", 2)
    setting.is_durable = False
    setting.keep(1, 2, 3)
    async with setting.running(replay()):
        begun = len(setting.notes())
        assert setting.taken == ["i1", "i2"]
        setting.settle()
        await setting.turns()
        assert (len(setting.notes()), setting.taken) == (begun + 1, ["i1", "i2", "i3"])


async def test_notes_are_renewed_before_the_history_removes_them(setting: Setting) -> None:
    setting.keep(1)
    async with setting.running(replay()):
        setting.settle()
        await setting.turns()
        before = setting.notes()
        await setting.turns(RENEWAL_SECONDS)
        assert setting.notes() == before
        setting.keep(*range(1000, 1100))
        await setting.turns(RENEWAL_SECONDS)
        assert setting.notes() == [*before, before[-1]]
        await setting.turns(setting.history.maximum_age_seconds / 2)
        await setting.turns(RENEWAL_SECONDS)
        assert len(setting.notes()) == len(before) + 2


async def test_it_says_where_the_history_does_not_go_back_far_enough(
    fake_time: FakeTime,
) -> None:
    setting = Setting(fake_time)
    setting.history = History(clock=fake_time, timers=fake_time, memory_bytes=20_000)
    setting.history.configure(HistoryPolicy(bodies=HistoryBodies.ALL), size=1 << 20)
    setting.restart()
    setting.keep(*range(1, 300))
    oldest = setting.history.oldest()()
    assert oldest is not None
    assert oldest.number > 1
    late = replay("late", since=oldest.time)
    async with setting.running(replay(), late):
        found = setting.status()
        assert setting.status("late").covers_from
    assert not found.covers_from
    assert found.oldest_outcome_time == oldest.time


async def test_notes_are_no_outcomes(setting: Setting) -> None:
    setting.keep(1)
    async with setting.running(replay()):
        assert setting.notes()
    page = setting.history.page(OutcomeQuery(), after=0, limit=99)()
    assert [one.outcome.result for one in page.found] == ["discarded"]


async def test_a_note_of_a_later_version_is_passed_over(setting: Setting) -> None:
    setting.keep(1)
    note = Outcome(
        time=BEGAN,
        result="replay",
        destination="new",
        subscription="",
        class_name="",
        detail="?",
        accepted=BEGAN,
        queue=0,
        id=0,
        replay="uid-afternoon",
    )
    setting.history.add(note)
    async with setting.running(replay()):
        assert setting.taken == ["i1"]
