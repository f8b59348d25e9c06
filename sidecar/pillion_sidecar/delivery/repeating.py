"""What redrive and replay have in common: indications of the history are offered again, under the
same identity, and notes say so once they are as safe as the journal makes them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.history.outcome import Numbered, Outcome
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import DiscardReason, Identities, Indication, Refusal, Target

#: Indications offered in one turn of the event loop.
OFFERED_PER_TURN = 64
#: A replay fills at most one in so many places of a queue.
PARTS_OF_QUEUE = 2
_T = TypeVar("_T")


class RepeatTargets(Protocol):
    """The destination queues."""

    def offer(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None: ...

    def barrier(self, done: Callable[[], None]) -> None: ...


def in_order(wanted: Sequence[tuple[Numbered, _T]]) -> list[tuple[Numbered, _T]]:
    """Return them in the order of acceptance. What was being attempted when its queue was full is
    discarded after later ones."""
    journals: dict[str, int] = {}
    for one, _ in wanted:
        journals.setdefault(one.outcome.journal, len(journals))
    # Within a journal no sequence is used twice.
    return sorted(
        wanted, key=lambda given: (journals[given[0].outcome.journal], given[0].outcome.id)
    )


class Repeats:
    def __init__(self, *, history: History, targets: RepeatTargets, clock: Clock) -> None:
        self._history = history
        self._targets = targets
        self._clock = clock

    def indication(
        self, one: Numbered, *, body: bytes | None = None, replay: str = ""
    ) -> Indication:
        """``body``: instead of that of the outcome."""
        outcome = one.outcome
        return Indication(
            body=(outcome.body or b"") if body is None else body,
            class_name=outcome.class_name,
            # Its lifetime begins anew.
            accepted_at=self._clock.monotonic(),
            source=outcome.source,
            identifier=outcome.identifier,
            group=outcome.group,
            languages=outcome.languages,
            trace=outcome.trace,
            redrives=one.number,
            dead_letter=outcome.lost,
            replay=replay,
            # A replay is nothing that its publisher has asked for.
            publisher=None if replay else outcome.publisher,
        )

    async def are_safe(self) -> None:
        """Return once all that was offered is as safe as the journal makes it."""
        safe = asyncio.Event()
        self._targets.barrier(safe.set)
        await safe.wait()

    async def note(self, notes: Iterable[Outcome]) -> None:
        for one in notes:
            await self._history.wait_for_room()
            self._history.add(one)
        self._history.commit()


def offer_again(
    indication: Indication,
    original: Numbered,
    target: Target,
    targets: RepeatTargets,
    identities: Identities,
) -> Refusal | None:
    """Offer an indication of the history; to the target that missed it under the identity of its
    original."""
    outcome = original.outcome
    if outcome.digest is not None and outcome.destination == target.destination:
        identities.follow(indication, outcome.digest)
    refusal = targets.offer(indication, (target,))
    if indication.digest is not None and not indication.unsettled:
        # It is discarded still, and whether it was just discarded again makes no difference.
        identities.settled(indication, target.destination, DiscardReason.QUEUE_FULL)
    return refusal


class Room(NamedTuple):
    """How many more indications a replay may offer now; if none, why."""

    places: int
    reason: str = ""


def room_in(queue: DestinationQueue | None, destination: str) -> Room:
    """New indications keep their part of the queue, and what a dead listener would not take stays
    in the history, where it does not expire."""
    if queue is None or queue.draining:
        return Room(0, f"there is no destination {destination}")
    taken = queue.depth + queue.reserved - queue.held
    if queue.suspended:
        return Room(0, f"destination {destination} is suspended")
    health = queue.health
    if health.is_held:
        return Room(0, f"destination {destination} is held")
    untried = queue.statistics.last_success_at is None
    if untried or health.is_paused or health.failing_since is not None:
        # One shows whether it works.
        return Room(1 - taken, f"destination {destination} has not taken its last indication")
    most = max(1, queue.capacity // PARTS_OF_QUEUE)
    return Room(most - taken, f"the queue of destination {destination} is half full")
