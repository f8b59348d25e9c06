"""Redrive: what was discarded is offered again, each indication only to the target that missed it,
in the order of acceptance. An administrator asks for it, or the publisher of a duplicate.

A note in the history says which discards were redriven, once their indications are as safe as the
journal makes them. A crash before that note may redrive them once more; each is marked as repeated.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.repeating import (
    OFFERED_PER_TURN,
    Repeats,
    RepeatTargets,
    in_order,
    offer_again,
)
from pillion_sidecar.history.outcome import Numbered, Outcome, OutcomeQuery, redrive_note
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import (
    DiscardReason,
    Identities,
    Lost,
    Refusal,
    Target,
)
from pillion_sidecar.wire.outcomes import RedriveAnswer

#: Seconds after which a redelivery does not wait for what the history has not written yet.
CATCH_UP_SECONDS = 1.0
#: What the publisher of a duplicate is not given again: its end was asked for.
NOT_REDELIVERED = (DiscardReason.PURGED, DiscardReason.SUBSCRIPTION_NOT_ACTIVE)
#: Why a discard is not redriven.
REDRIVEN, NOT_KEPT, NOT_SUBSCRIBED = "redriven", "not-kept", "not-subscribed"


class RedriveUnderWay(Exception): ...


class RedriveTargets(RepeatTargets, Protocol):
    def target_of(self, outcome: Outcome) -> Target | None:
        """Return the target that missed an indication; None if it is subscribed no more."""


class Redriver:
    def __init__(
        self,
        *,
        history: History,
        targets: RedriveTargets,
        identities: Identities,
        clock: Clock,
        is_durable: Callable[[], bool],
    ) -> None:
        """``is_durable``: whether the journal keeps the indications."""
        self._history = history
        self._targets = targets
        self._identities = identities
        self._clock = clock
        self._repeats = Repeats(history=history, targets=targets, clock=clock)
        self._is_durable = is_durable
        #: Those of this run without a note so far. In memory they are noted once they are settled.
        self._under_way: set[int] = set()
        self._is_under_way = False
        # Redrives and redeliveries, one at a time: none offers what another has not noted yet.
        self._lock = asyncio.Lock()

    async def redrive(
        self, query: OutcomeQuery, *, after: int, through: int | None, limit: int, dry_run: bool
    ) -> RedriveAnswer:
        """Redrive the discards of a query with numbers above ``after``, up to ``through``, at most
        ``limit``. Raises RedriveUnderWay, and OSError if the history cannot be read."""
        if self._is_under_way:
            raise RedriveUnderWay
        self._is_under_way = True
        try:
            async with self._lock:
                return await self._redrive(query, after, through, limit, dry_run)
        finally:
            self._is_under_way = False

    async def _redrive(
        self, query: OutcomeQuery, after: int, through: int | None, limit: int, dry_run: bool
    ) -> RedriveAnswer:
        last = min(self._history.settled if through is None else through, self._history.settled)
        page = await asyncio.to_thread(self._history.page(query, after=after, limit=limit))
        found = [one for one in page.found if one.number <= last]
        numbers = {one.number for one in found}
        done = {*self._under_way, *await asyncio.to_thread(self._history.redriven(numbers))}
        left_out: list[tuple[int, str]] = []
        wanted: list[tuple[Numbered, Target]] = []
        for one in found:
            target = self._targets.target_of(one.outcome)
            if one.number in done:
                left_out.append((one.number, REDRIVEN))
            elif not one.outcome.body:
                left_out.append((one.number, NOT_KEPT))
            elif target is None:
                left_out.append((one.number, NOT_SUBSCRIBED))
            else:
                wanted.append((one, target))
        wanted = in_order(wanted)
        newer = await asyncio.to_thread(self._history.newer([one for one, _ in wanted]))
        redriven, refusal = (len(wanted), None) if dry_run else await self._offer(wanted)
        following = min(page.through, last)
        if refusal is not None:
            # Those taken behind it are left out the next time, as redriven.
            following = min(one.number for one, _ in wanted[redriven:]) - 1
        return RedriveAnswer(
            redriven=redriven,
            # Those behind a refused one are asked for again.
            skipped=dict(Counter(reason for number, reason in left_out if number <= following)),
            newer=sum(one.number in newer for one, _ in wanted[:redriven]),
            next=max(after, following),
            through=last,
            more=refusal is not None or (page.has_more and following < last),
            refusal=None if refusal is None else refusal.reason,
            retry_after=None if refusal is None else refusal.retry_after,
            history=self._history.id,
        )

    async def _offer(self, wanted: Sequence[tuple[Numbered, Target]]) -> tuple[int, Refusal | None]:
        """Return how many were taken, and why the next one was not."""
        taken, refusal = 0, None
        for one, target in wanted:
            again = self._repeats.indication(one)
            refusal = offer_again(again, one, target, self._targets, self._identities)
            if refusal is not None:
                break
            taken += 1
            self._under_way.add(one.number)
            if not taken % OFFERED_PER_TURN:
                await asyncio.sleep(0)
        await self._secure([one for one, _ in wanted[:taken]])
        return taken, refusal

    async def _secure(self, redriven: Sequence[Numbered]) -> None:
        """Note what was offered again, once it is safe."""
        if redriven:
            await self._repeats.are_safe()
            await self._note(redriven)

    async def redeliver(self, lost: Sequence[Lost], *, since: float | None) -> None:
        """See ``Redelivery``."""
        async with self._lock:
            await self._catch_up()
            digests = {one.digest for one in lost}
            missed = await asyncio.to_thread(self._history.missed(digests, since=since))
            numbers = {one.number for discards in missed.values() for one in discards}
            if not numbers:
                return
            done = {*self._under_way, *await asyncio.to_thread(self._history.redriven(numbers))}
            done &= numbers
            reached: Collection[int] = ()
            if done:
                reached = await asyncio.to_thread(self._history.repeated(done))
            missing = _Missing(self._targets, done=done, reached=reached)
            wanted: dict[int, _Wanted] = {}
            for one in lost:
                for each in missing.of(one, missed.get(one.digest, ())):
                    wanted[each.numbered.number] = each
            await self._offer_lost(wanted)

    async def _catch_up(self) -> None:
        """Wait until what was discarded so far is written: a publisher may repeat it at once."""
        last = self._history.last
        if self._history.settled < last:
            self._history.commit()
            await self._history.show(last, seconds=CATCH_UP_SECONDS)

    async def _offer_lost(self, wanted: Mapping[int, "_Wanted"]) -> None:
        taken: list[Numbered] = []
        # Why nothing more is offered, by destination; None: to any.
        closed: dict[str | None, Refusal] = {}
        ordered = in_order([(one.numbered, one.target) for one in wanted.values()])
        for count, (numbered, target) in enumerate(ordered, 1):
            lost = wanted[numbered.number].lost
            refusal = closed.get(None) or closed.get(target.destination)
            if refusal is None:
                indication = msgspec.structs.replace(lost.indication, redrives=numbered.number)
                # It counts first: a queue may settle it at once.
                lost.offered += 1
                refusal = self._targets.offer(indication, (target,))
                if refusal is None and indication.unsettled:
                    taken.append(numbered)
                    self._under_way.add(numbered.number)
                else:
                    lost.offered -= 1
                    _misses_still(lost, numbered)
            if refusal is not None:
                closed[refusal.destination] = lost.refusal = refusal
                _misses_still(lost, numbered)
            if not count % OFFERED_PER_TURN:
                await asyncio.sleep(0)
        await self._secure(taken)

    async def _note(self, redriven: Sequence[Numbered]) -> None:
        if not self._is_durable():
            # They may be lost with the process, and then they are to be redriven again.
            return
        await self._repeats.note(self._notes(redriven))

    def _notes(self, redriven: Sequence[Numbered]) -> Iterator[Outcome]:
        at = self._clock.time()
        for one in redriven:
            yield redrive_note(one.outcome, one.number, at=at)
            self._under_way.discard(one.number)


class _Wanted(NamedTuple):
    numbered: Numbered
    target: Target
    lost: Lost


class _Missing:
    """Which targets of an indication are offered it again."""

    def __init__(
        self, targets: RedriveTargets, *, done: Collection[int], reached: Collection[int]
    ) -> None:
        """``done``: the numbers of the discards that were redriven; ``reached``: of those that came
        to their targets."""
        self._targets = targets
        self._done = done
        self._reached = reached

    def of(self, lost: Lost, discards: Sequence[Numbered]) -> Iterator[_Wanted]:
        """Yield the targets of ``lost``, and note in it whether others miss it still."""
        if lost.still not in [(one.outcome.destination, one.outcome.reason) for one in discards]:
            # The history has lost some of them.
            return
        lost.still = None
        # The latest of each target: it may have been redriven in vain.
        latest = {(one.outcome.subscription, one.outcome.destination): one for one in discards}
        for one in latest.values():
            target = self._targets.target_of(one.outcome)
            if one.number in self._reached:
                continue
            if target is None or one.number in self._done or one.outcome.reason in NOT_REDELIVERED:
                _misses_still(lost, one)
            else:
                yield _Wanted(one, target, lost)


def _misses_still(lost: Lost, numbered: Numbered) -> None:
    outcome = numbered.outcome
    if lost.still is None and outcome.reason is not None:
        # A later version may know others.
        known = outcome.reason in list(DiscardReason)
        reason = DiscardReason(outcome.reason) if known else DiscardReason.FATAL_ERROR
        lost.still = outcome.destination, reason
