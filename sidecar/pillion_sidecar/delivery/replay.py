"""Replay: what the history has of a time is offered again, to one destination.

A note in the history says how far a replay is, once what it offered is as safe as the journal makes
it. After a crash it goes on from there, so at most one page is offered twice; each is marked as
repeated.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.schema.replay import IndicationReplay, ReplayState
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.repeating import (
    OFFERED_PER_TURN,
    Repeats,
    RepeatTargets,
    Room,
    in_order,
    offer_again,
)
from pillion_sidecar.filewatch import pause
from pillion_sidecar.history.outcome import Numbered, Outcome, OutcomeResult
from pillion_sidecar.history.reading import Oldest, Page
from pillion_sidecar.history.recorder import History
from pillion_sidecar.history.replays import (
    Kept,
    OfReplays,
    Progress,
    ReplayQuery,
    Seen,
    Settled,
    read_replays,
    read_seen,
    replay_note,
)
from pillion_sidecar.indication import Identities, Select, Target
from pillion_sidecar.pacing import Pace, paced
from pillion_sidecar.wire.queues import MOST_ENTRIES, Moment, ReplayStatus

logger = logging.getLogger("pillion.history")

#: Outcomes of a page at most: a crash may repeat as many.
PAGE = 256
#: Seconds between two looks at a queue that has no room.
LOOK_SECONDS = 1.0
#: Seconds between two looks at the age of notes.
RENEWAL_SECONDS = 60.0
#: Seconds after the last news of a replay with an empty queue, after which what is missing has no
#: outcome.
LAST_NEWS_SECONDS = 10.0
#: Times in a row that the history cannot be read, after which a replay fails, and seconds between
#: them.
MOST_TROUBLES, TROUBLE_SECONDS = 5, 10.0
#: Replays that are not configured any more and are remembered.
MOST_REMEMBERED = 100
#: Why an outcome is not replayed.
NOT_KEPT, FILTERED, REPEATED = "not-kept", "filtered", "repeated"


class ReplayTargets(RepeatTargets, Protocol):
    def direct_target(self, destination: str) -> Target | None: ...

    def room_to_repeat(self, destination: str) -> Room: ...

    def is_empty(self, destination: str) -> bool: ...


@dataclass(slots=True)
class _Page:
    """A page that is being offered."""

    #: What is not offered yet.
    left: deque[tuple[Numbered, bytes]]
    through: int
    left_out: Counter[str]
    is_last: bool
    offered: int = 0


@dataclass(slots=True, eq=False)
class _Replay:
    resource: IndicationReplay
    progress: Progress
    #: Seconds since the epoch.
    first_seen: float
    settled: Settled = field(default_factory=Settled)
    #: What was settled before the history was asked: number, and whether it was discarded.
    early: list[tuple[int, bool]] = field(default_factory=list)
    #: What was dealt with; None: it is in the history.
    seen: Seen | None = None
    page: _Page | None = None
    pace: Pace | None = None
    #: What it waits for.
    detail: str = ""
    is_configured: bool = True
    #: Whether the history was asked for its notes.
    is_known: bool = False
    #: Whether everything was offered.
    is_walked: bool = False
    #: ``Clock.monotonic()`` of the last news.
    news_at: float = 0.0
    #: Of the last note.
    note_number: int = 0
    note_time: float = 0.0

    @property
    def uid(self) -> str:
        return self.resource.uid

    @property
    def replayed(self) -> int:
        return self.progress.replayed + (0 if self.page is None else self.page.offered)

    @property
    def is_settled(self) -> bool:
        return self.settled.delivered + self.settled.discarded >= self.replayed

    @property
    def is_over(self) -> bool:
        return bool(self.progress.ended)

    @property
    def goes_on(self) -> bool:
        return self.is_configured and not self.resource.suspended and not self.is_over

    @property
    def order(self) -> tuple[float, str]:
        created = self.resource.created_at
        return (self.first_seen if created is None else created), self.resource.name

    @property
    def query(self) -> ReplayQuery:
        one = self.resource
        results = frozenset(result.lower() for result in one.results)
        return ReplayQuery(
            results=results,
            # These allow a reader to pass over blocks.
            result=next(iter(results)) if len(results) == 1 else None,
            destination=one.destinations[0] if len(one.destinations) == 1 else None,
            destinations=frozenset(one.destinations),
            since=one.since,
            until=self.progress.until,
        )


class Replays:
    """Carries replays out, one at a time, in the order of their creation."""

    def __init__(
        self,
        *,
        history: History,
        targets: ReplayTargets,
        identities: Identities,
        clock: Clock,
        timers: Timers,
        is_durable: Callable[[], bool],
    ) -> None:
        """``is_durable``: whether the journal keeps the indications."""
        self._history = history
        self._targets = targets
        self._identities = identities
        self._clock = clock
        self._timers = timers
        self._is_durable = is_durable
        self._repeats = Repeats(history=history, targets=targets, clock=clock)
        self._all: dict[str, _Replay] = {}
        self._selects: Mapping[str, Select] = {}
        self._current: _Replay | None = None
        self._news = asyncio.Event()
        self._renew_at = 0.0
        # Times in a row that the history could not be read.
        self._troubles = 0
        #: Replayed indications of this process, by what became of them.
        self.totals = {"queued": 0, "delivered": 0, "discarded": 0}

    # ------------------------------------------------------------------ what others tell and ask

    def configure(
        self, resources: Mapping[str, IndicationReplay], *, selects: Mapping[str, Select]
    ) -> None:
        """Follow a revision. ``selects``: by the names of filters."""
        self._selects = selects
        now, given = self._clock.time(), {one.uid: one for one in resources.values()}
        for uid, resource in given.items():
            one = self._all.get(uid)
            if one is None:
                until = resource.created_at if resource.until is None else resource.until
                one = self._all[uid] = _Replay(resource, Progress(until=until), now)
            one.pace = paced(resource.rate_limit, before=one.pace)
            one.resource, one.is_configured = one.resource.changed_to(resource), True
            if one.resource != resource:
                events.replay_not_changed(resource.name)
        for uid in self._all.keys() - given.keys():
            self._forget(self._all[uid])
        gone = [uid for uid, one in self._all.items() if not one.is_configured]
        for uid in gone[: max(0, len(gone) - MOST_REMEMBERED)]:
            del self._all[uid]
        self._news.set()

    def _forget(self, one: _Replay) -> None:
        if one.is_configured and not one.is_over:
            _cancelled(one)
        one.is_configured = False
        if one is not self._current:
            # They take memory.
            one.page = one.seen = None

    def settled(self, outcome: Outcome) -> None:
        """Note an outcome of a replayed indication."""
        is_discarded = outcome.result == OutcomeResult.DISCARDED
        self.totals["discarded" if is_discarded else "delivered"] += 1
        one = self._all.get(outcome.replay or "")
        if one is None:
            return
        one.settled.note(outcome.redrives or 0, is_discarded=is_discarded)
        if not one.is_known:
            one.early.append((outcome.redrives or 0, is_discarded))
        one.news_at = self._clock.monotonic()
        self._news.set()

    def statuses(self) -> list[ReplayStatus]:
        """Return how far each is, in the order of creation."""
        return [self._status(one) for one in self._in_order()[:MOST_ENTRIES]]

    def _in_order(self) -> list[_Replay]:
        configured = [one for one in self._all.values() if one.is_configured]
        return sorted(configured, key=lambda one: one.order)

    def _status(self, one: _Replay) -> ReplayStatus:
        progress = one.progress
        left_out = Counter(progress.left_out)
        if one.page is not None:
            left_out.update(one.page.left_out)
        return ReplayStatus(
            name=one.resource.name,
            uid=one.uid,
            state=self._state(one).value,
            selected=one.replayed + left_out.total(),
            replayed=one.replayed,
            delivered=one.settled.delivered,
            discarded=one.settled.discarded,
            left_out=dict(left_out),
            covers_from=not progress.misses_begin,
            oldest_outcome_time=_moment(progress.oldest),
            started=_moment(progress.started),
            finished=_moment(progress.finished),
            detail=progress.detail or self._detail(one),
        )

    def _state(self, one: _Replay) -> ReplayState:
        if one.is_over:
            # A later version may know others.
            is_known = one.progress.ended in list(ReplayState)
            return ReplayState(one.progress.ended) if is_known else ReplayState.FAILED
        if one.resource.suspended and not one.is_walked:
            return ReplayState.SUSPENDED
        is_running = one is self._current or one.is_walked
        return ReplayState.RUNNING if is_running else ReplayState.WAITING

    def _detail(self, one: _Replay) -> str:
        if one.is_over or one.resource.suspended:
            return ""
        if one.is_walked:
            return f"waits until destination {one.resource.destination_name} has them"
        current = self._current
        if current is None or current is one:
            return one.detail
        return f"waits for replay {current.resource.name}"

    # ------------------------------------------------------------------ the task

    async def run(self) -> None:
        """Carry out what is configured, until it is cancelled."""
        while True:
            self._news.clear()
            await self._look_after()
            if not all(one.is_known for one in self._in_order()):
                # The history could not be asked, or they are new.
                continue
            first = next(
                (one for one in self._in_order() if one.goes_on and not one.is_walked), None
            )
            if first is None:
                await self._pause(self._idle_seconds())
                continue
            self._current = first
            try:
                await self._walk(first)
            except OSError as error:
                await self._wait_or_fail((first,), error)
            finally:
                self._current = None
                if not first.is_configured:
                    first.page = first.seen = None

    def _idle_seconds(self) -> float | None:
        known = self._in_order()
        if any(one.is_walked and not one.is_over for one in known):
            return LAST_NEWS_SECONDS
        return RENEWAL_SECONDS if known else None

    async def _wait_or_fail(self, replays: Sequence[_Replay], error: OSError) -> None:
        """A trouble that passes ends no replay."""
        self._troubles += 1
        text = f"the history: {error.strerror or error}"
        if self._troubles < MOST_TROUBLES:
            for one in replays:
                one.detail = f"{text}; it is tried again"
            await pause(self._timers, TROUBLE_SECONDS)
            return
        self._troubles = 0
        for one in replays:
            one.is_known = True
            await self._end(one, ReplayState.FAILED, text)

    async def _pause(self, seconds: float | None) -> None:
        """Wait for news, at most for so many seconds."""
        timer = None if seconds is None else self._timers.call_later(seconds, self._news.set)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _look_after(self) -> None:
        """Find what is new, end what is settled, and renew notes before the history removes
        them."""
        await self._find()
        for one in self._in_order():
            if one.is_walked and not one.is_over and self._has_all(one):
                missing = one.replayed - one.settled.delivered - one.settled.discarded
                told = f"what became of {missing} is not known" if missing > 0 else ""
                await self._end(one, ReplayState.COMPLETE, told)
        if self._clock.monotonic() >= self._renew_at:
            self._renew_at = self._clock.monotonic() + RENEWAL_SECONDS
            await self._renew()

    def _has_all(self, one: _Replay) -> bool:
        quiet = self._clock.monotonic() - one.news_at >= LAST_NEWS_SECONDS
        return one.is_settled or (quiet and self._targets.is_empty(one.resource.destination_name))

    async def _renew(self) -> None:
        noted = [one for one in self._in_order() if one.note_number]
        if not noted:
            return
        try:
            oldest = await asyncio.to_thread(self._history.oldest())
        except OSError:
            return
        middle = ((oldest.number if oldest else 0) + self._history.last) // 2
        before = self._clock.time() - self._history.maximum_age_seconds / 2
        for one in noted:
            if one.note_number < middle or one.note_time < before:
                await self._note(one)

    # ------------------------------------------------------------------ one replay

    async def _find(self) -> None:
        """Go on from what the history has of those that are new."""
        unknown = [one for one in self._in_order() if not one.is_known]
        if not unknown:
            return
        query = OfReplays(uids=frozenset(one.uid for one in unknown))
        try:
            every = self._history.every(query, after=0)
            found = await asyncio.to_thread(read_replays, every)
        except OSError as error:
            await self._wait_or_fail(unknown, error)
            return
        # What was settled before now is in the history then.
        await self._repeats.are_safe()
        for one in unknown:
            await self._continue(one, found.get(one.uid) or Kept())

    async def _continue(self, one: _Replay, kept: Kept) -> None:
        one.is_known = True
        # They may be missing there, and are counted once.
        for number, is_discarded in one.early:
            kept.settled.note(number, is_discarded=is_discarded)
        one.settled, one.early = kept.settled, []
        if kept.progress is None:
            one.progress.last = self._history.settled
            # So that the end stays the same after a restart.
            await self._note(one)
            return
        one.progress, one.note_number, one.note_time = kept.progress, kept.number, kept.time
        one.is_walked = one.is_over

    async def _walk(self, one: _Replay) -> None:
        """Offer all that is left, unless it is stopped. Raises OSError."""
        if one.progress.started is None:
            await self._begin(one)
        if one.seen is None:
            every = self._history.every(one.query, after=0)
            one.seen = await asyncio.to_thread(read_seen, every, through=one.progress.through)
        while one.goes_on and not one.is_walked:
            if one.page is None:
                one.page = await asyncio.to_thread(self._reading(one, one.seen))
            if await self._offer(one, one.page):
                await self._pass(one, one.page)
            await self._look_after()

    async def _begin(self, one: _Replay) -> None:
        one.progress.started = self._clock.time()
        await self._note(one)
        _started(one)

    def _reading(self, one: _Replay, seen: Seen) -> Callable[[], _Page]:
        """Return a function that reads the next page. It blocks, and raises OSError."""
        progress = one.progress
        page = self._history.page(one.query, after=progress.through, limit=PAGE)
        oldest, name = self._history.oldest(), one.resource.filter_name
        select = None if name is None else self._selects.get(name)

        def read() -> _Page:
            _look_at_begin(one, oldest())
            return _chosen(page(), last=progress.last, seen=seen, select=select)

        return read

    async def _offer(self, one: _Replay, page: _Page) -> bool:
        """Offer a page; return False where it was stopped."""
        name = one.resource.destination_name
        while page.left:
            if not await self._may_offer(one):
                return False
            numbered, body = page.left[0]
            target = self._targets.direct_target(name)
            # There is room, so there is a queue.
            assert target is not None
            again = self._repeats.indication(numbered, body=body, replay=one.uid)
            refusal = offer_again(again, numbered, target, self._targets, self._identities)
            if refusal is not None:
                one.detail = refusal.reason
                self._news.clear()
                await self._pause(refusal.retry_after)
                continue
            page.left.popleft()
            page.offered += 1
            self.totals["queued"] += 1
            if one.pace is not None:
                one.pace.spend(self._clock.monotonic())
            if not page.offered % OFFERED_PER_TURN:
                await asyncio.sleep(0)
        return True

    async def _may_offer(self, one: _Replay) -> bool:
        """Wait until the next one has room and is due; return False where it is stopped."""
        while True:
            self._news.clear()
            if not one.goes_on:
                return False
            room = self._targets.room_to_repeat(one.resource.destination_name)
            now = self._clock.monotonic()
            wait = 0.0 if one.pace is None else one.pace.due() - now
            if room.places > 0 and wait <= 0:
                one.detail = ""
                return True
            one.detail = "" if room.places > 0 else room.reason
            await self._look_after()
            await self._pause(max(wait, LOOK_SECONDS) if room.places <= 0 else wait)

    async def _pass(self, one: _Replay, page: _Page) -> None:
        """Note that a page is done, once it is safe."""
        await self._repeats.are_safe()
        if not self._is_durable() and page.offered:
            # They may be lost with the process, and then they are to be replayed again.
            while not self._has_all(one):
                if not one.is_configured:
                    return
                self._news.clear()
                await self._pause(LOOK_SECONDS)
        progress = one.progress
        progress.replayed += page.offered
        progress.left_out = dict(Counter(progress.left_out) + page.left_out)
        progress.through, one.page = page.through, None
        self._troubles = 0
        one.is_walked, one.news_at = page.is_last, self._clock.monotonic()
        await self._note(one)

    async def _note(self, one: _Replay) -> None:
        at = self._clock.time()
        note = replay_note(one.uid, one.resource.destination_name, one.progress, at=at)
        await self._repeats.note([note])
        one.note_number, one.note_time = self._history.last, at

    async def _end(self, one: _Replay, state: ReplayState, detail: str) -> None:
        one.progress.replayed, one.page = one.replayed, None
        one.progress.ended, one.progress.detail = state.value, detail
        one.progress.finished = self._clock.time()
        one.is_walked, one.seen = True, None
        await self._note(one)
        (_failed if state is ReplayState.FAILED else _complete)(one)


def _chosen(page: Page, *, last: int, seen: Seen, select: Select | None) -> _Page:
    """Return what is to be offered of a page, in the order of acceptance."""
    left_out, wanted = Counter[str](), list[tuple[Numbered, bytes]]()
    for one in page.found:
        outcome = one.outcome
        if one.number > last:
            break
        if outcome in seen:
            left_out[REPEATED] += 1
        elif not outcome.body:
            left_out[NOT_KEPT] += 1
        else:
            seen.add(outcome)
            body = outcome.body if select is None else select(outcome.body)
            if body is None:
                left_out[FILTERED] += 1
            else:
                wanted.append((one, body))
    return _Page(
        left=deque(in_order(wanted)),
        through=min(page.through, last),
        left_out=left_out,
        is_last=page.through >= last,
    )


def _look_at_begin(one: _Replay, oldest: Oldest | None) -> None:
    """Note whether the history has lost what was not reached yet."""
    if oldest is None or oldest.number <= one.progress.through + 1:
        return
    if oldest.time is None or oldest.time > one.resource.since:
        one.progress.misses_begin, one.progress.oldest = True, oldest.time


def _moment(seconds: float | None) -> Moment | None:
    return None if seconds is None else Moment(seconds)


def _started(one: _Replay) -> None:
    logger.info(
        "replay %s to %s begins",
        one.resource.name,
        one.resource.destination_name,
        extra={
            "event": "replay-started",
            "replay": one.resource.name,
            "destination": one.resource.destination_name,
        },
    )


def _complete(one: _Replay) -> None:
    left_out = sum(one.progress.left_out.values())
    logger.info(
        "replay %s is complete: %d delivered, %d discarded, %d left out",
        one.resource.name,
        one.settled.delivered,
        one.settled.discarded,
        left_out,
        extra={
            "event": "replay-complete",
            "replay": one.resource.name,
            "destination": one.resource.destination_name,
            "replayed": one.replayed,
            "delivered": one.settled.delivered,
            "discarded": one.settled.discarded,
            "left_out": left_out,
        },
    )


def _cancelled(one: _Replay) -> None:
    logger.info(
        "replay %s is cancelled, since its resource is gone; the %d that it has queued are still "
        "delivered",
        one.resource.name,
        one.replayed,
        extra={
            "event": "replay-cancelled",
            "replay": one.resource.name,
            "destination": one.resource.destination_name,
            "replayed": one.replayed,
        },
    )


def _failed(one: _Replay) -> None:
    logger.error(
        "replay %s has failed: %s",
        one.resource.name,
        one.progress.detail,
        extra={
            "event": "replay-failed",
            "replay": one.resource.name,
            "destination": one.resource.destination_name,
            "detail": one.progress.detail,
            "replayed": one.replayed,
        },
    )
