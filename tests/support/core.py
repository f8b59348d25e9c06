"""The core of a deliverer over a recorded folder: a real journal and a real delivery service, on
time that is moved by hand, with workers that do one thing when they are told to.

Whatever happens is an event of a history, with the number of operations that the folder had seen by
then: a crash at an operation knows what the world had been told.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import ListenerDestination, Ordering, RetryPolicy
from pillion_sidecar.config.schema.service import Durability, IndicationService
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult
from pillion_sidecar.delivery.service import DeliveryService
from pillion_sidecar.indication import DiscardReason, Indication, Selection, Target
from pillion_sidecar.journal.disk import DiskJournal, open_journal
from pillion_sidecar.journal.limits import JournalSettings
from pillion_sidecar.journal.ports import LogFollower, Recovered, Worker
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.identity import identity_digest
from pillion_sidecar.testing import FakeTime
from support.crashing_files import RecordingFiles
from support.delivery import NoObserver, destination, subscription
from support.history import Published
from support.stepped import SteppedWorker

SOURCE = "script"
JOURNAL_ID = bytes(range(16))
#: In order; in order within each group; in order and failing; failing, small, and given up on.
NORTH, SOUTH, EAST, WEST = "north", "south", "east", "west"
RETRY = RetryPolicy(attempts=1000, interval_seconds=5.0)
DESTINATIONS: dict[str, ListenerDestination] = {
    NORTH: destination(NORTH, retry=RETRY),
    SOUTH: destination(SOUTH, retry=RETRY, ordering=Ordering.GROUP, max_in_flight=3),
    EAST: destination(EAST, retry=RETRY),
    WEST: destination(
        WEST,
        retry=RetryPolicy(attempts=2, interval_seconds=5.0),
        queue_size=12,
        queue_full_policy=QueueFullPolicy.DISCARD_OLDEST,
    ),
}
SUBSCRIPTIONS = {name: subscription(name, name) for name in DESTINATIONS}


def configuration(revision: int) -> Configuration:
    """One in which the east's listener is at one of two places."""
    east = replace(DESTINATIONS[EAST], destination=f"http://east{revision % 2}.example:5988/")
    return Configuration(
        revision=str(revision),
        service=IndicationService(),
        destinations={**DESTINATIONS, EAST: east},
        subscriptions=SUBSCRIPTIONS,
    )


SETTINGS = JournalSettings(durability=Durability.DISK, segment_bytes=6 << 10)
#: Seconds in which a settlement is on disk, however little else happens.
SETTLED_WITHIN = 1.0

#: Retries after which what is still pending never will be delivered.
MOST_ROUNDS = 200

SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)
ERROR = DeliveryOutcome(DeliveryResult.ERROR, "refused")
UNCERTAIN = DeliveryOutcome(DeliveryResult.POST_DELIVERY_ERROR, "no answer")
FATAL = DeliveryOutcome(DeliveryResult.FATAL_ERROR, "never")


def line_of(name: str, published: Published) -> str | None:
    """In which order a destination gets what (:class:`support.history.History`).

    The west's full queue discards its oldest, delivers what is next, and may crash before any of
    that is told or on disk: then the oldest comes all the same, and late.
    """
    if name == WEST:
        return None
    return published.group if name == SOUTH else name


class Event(NamedTuple):
    """Something that the world was told: a method of ``History``, and what it is called with."""

    #: Operations that the folder had seen by then.
    after: int
    what: str
    given: tuple[Any, ...]


class Attempt(NamedTuple):
    """An attempt that has no outcome yet."""

    destination: str
    delivery: Delivery
    done: Callable[[DeliveryOutcome], None]
    #: Whether the listener has taken it already.
    taken: bool


class CoreHandler:
    """Hands each attempt to the core, which decides how it ends."""

    def __init__(self, core: "Core", resource: ListenerDestination) -> None:
        self._core = core
        self._name = resource.name

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        self._core.attempted(self._name, delivery, done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing is rendered."""

    def close(self) -> None:
        """Nothing is open."""


class Core:
    """One run of a deliverer's core. Nothing happens in it unless it is told to go on."""

    def __init__(
        self,
        files: RecordingFiles,
        *,
        draw: Random,
        time: FakeTime,
        following: Callable[[DiskJournal, Worker], LogFollower] | None = None,
    ) -> None:
        """Opens the journal in ``files``, and takes over what is pending there. ``following`` gets
        the journal and its reader."""
        self._following = following
        self.files = files
        self.time = time
        self.draw = draw
        self.events: list[Event] = []
        self.flying: list[Attempt] = []
        self.held: list[Indication] = []
        self._revision = draw.randrange(2)
        #: How the disk failed for good, once it has.
        self.failure: OSError | None = None
        #: Settled, but perhaps not on disk yet.
        self._loose: list[tuple[str, str]] = []
        self._soon: deque[Callable[[], None]] = deque()
        self._workers = (SteppedWorker(), SteppedWorker())
        self.memory = DuplicateMemory(clock=time, window_seconds=86_400.0, capacity=4096)
        self.service, self.recovered, self.journal = self._open()
        self.held += [indication for indication, _ in self.recovered.held]
        # The journal begins its first segment before the door is open.
        self.turn()

    def _open(self) -> tuple[DeliveryService, Recovered, DiskJournal]:
        journal, recovered = open_journal(
            self.files,
            clock=self.time,
            worker=self._workers[0],
            reader=self._workers[1],
            call_soon=self._soon.append,
            timers=self.time,
            settings=SETTINGS,
            identities=self.memory,
            journal_id=JOURNAL_ID,
        )
        service = DeliveryService(
            clock=self.time,
            timers=self.time,
            call_soon=self._soon.append,
            create_handler=lambda resource: CoreHandler(self, resource),
            observer=NoObserver(),
            followers=(self.memory, self),
            draw=Random(self.draw.random()).random,
        )
        for queue in recovered.queues.values():
            ids, numbers = list(queue.ids), list(queue.numbers)
            assert len(set(numbers)) == len(ids), f"{queue.name}: twice there: {ids} {numbers}"
            assert ids == sorted(ids), f"{queue.name}: not in the order of acceptance: {ids}"
        service.open(journal, recovered)
        service.apply(configuration(self._revision))
        if self._following is not None:
            journal.follow(self._following(journal, self._workers[1]))
        journal.attach(
            service.journal_listener(groups=bytes, identities=self._identities, failed=self._failed)
        )
        return service, recovered, journal

    def _identities(
        self, digests: Sequence[bytes]
    ) -> list[tuple[DiscardReason | None, str] | None]:
        known = [self.memory.find(digest) for digest in digests]
        return [
            None if found is None else (found.reason, found.destination or "") for found in known
        ]

    def _failed(self, error: OSError) -> None:
        self.failure = error

    def tell(self, what: str, *given: Any) -> None:
        """The world is told something."""
        self.events.append(Event(len(self.files.operations), what, given))

    # ------------------------------------------------------------------ going on

    def turn(self) -> None:
        """Let the event loop do all that is due now."""
        while self._soon:
            self._soon.popleft()()

    def disk(self, worker: int) -> bool:
        """Let one of the workers do one thing; False where it has none."""
        did = self._workers[worker].step()
        self.turn()
        return did

    def disks(self) -> None:
        """Let the workers do all that they have."""
        self.turn()
        while self.disk(0) or self.disk(1):
            pass

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end = self.time.monotonic() + seconds
        while (due := self.time.next_due()) is not None and due <= end:
            self.time.advance(max(0.0, due - self.time.monotonic()))
            self.turn()
        self.time.advance(end - self.time.monotonic())
        self.turn()

    def rest(self) -> None:
        """Let all that is settled come to the disk."""
        self.disks()
        loose = list(self._loose)
        self.advance(SETTLED_WITHIN)
        self.disks()
        if self.failure is None:
            for pair in loose:
                self._loose.remove(pair)
                self.tell("settle", *pair)

    def move(self) -> None:
        """Let the east's listener be at the other place."""
        self._revision += 1
        self.service.apply(configuration(self._revision))

    # ------------------------------------------------------------------ intake

    def publish(self, identifier: str, names: list[str], *, group: str | None, body: bytes) -> bool:
        """Accept an indication, and acknowledge it once it is safe; False where it is refused."""
        indication = self._indication(identifier, group, body)
        refusal = self.service.offer(indication, _targets(names))
        if refusal is not None:
            return False
        self._accepted(indication, names)
        return True

    def hold(self, identifier: str, names: list[str], *, body: bytes) -> bool:
        """The same for one that waits for its predecessors."""
        indication = self._indication(identifier, "held", body)
        if self.service.hold(indication, _targets(names)) is not None:
            return False
        self._accepted(indication, names)
        self.held.append(indication)
        return True

    def release(self) -> None:
        """Queue the one that is held longest."""
        indication = self.held.pop(0)
        self.tell("release", indication.identifier)
        self.service.release(indication)

    def end_hold(self) -> None:
        """Discard the one that was held last."""
        self.service.discard_held(self.held.pop(), DiscardReason.OUT_OF_ORDER)

    def _indication(self, identifier: str, group: str | None, body: bytes) -> Indication:
        return Indication(
            body=body,
            class_name="CIM_AlertIndication",
            accepted_at=self.time.monotonic(),
            source=SOURCE,
            identifier=identifier,
            group=group,
            digest=identity_digest(SOURCE, identifier),
            trackers=(self.memory, self),
        )

    def _accepted(self, indication: Indication, names: list[str]) -> None:
        digest = indication.digest
        assert digest is not None
        self.memory.add(
            digest, self.time.monotonic(), expires_at=None, pending=indication.unsettled > 0
        )
        self.tell("publish", indication.identifier, frozenset(names), indication.group)
        self.service.barrier(partial(self.tell, "acknowledge", indication.identifier))

    # ------------------------------------------------------------------ listeners

    def attempted(
        self, name: str, delivery: Delivery, done: Callable[[DeliveryOutcome], None]
    ) -> None:
        """A handler was asked to deliver."""
        taken = self.draw.random() < 0.5
        if taken:
            self._arrive(name, delivery)
        self.flying.append(Attempt(name, delivery, done, taken))

    def _arrive(self, name: str, delivery: Delivery) -> None:
        assert delivery.indication.body, "a body that was read back is empty"
        self.tell(
            "arrive",
            name,
            delivery.indication.identifier,
            delivery.sequence_context,
            delivery.sequence_number,
        )

    def answer(self, attempt: Attempt, outcome: DeliveryOutcome) -> None:
        """End an attempt. One that was taken can only have succeeded, or be uncertain."""
        self.flying.remove(attempt)
        if attempt.taken and outcome is not SUCCESS:
            outcome = UNCERTAIN
        elif outcome is SUCCESS and not attempt.taken:
            self._arrive(attempt.destination, attempt.delivery)
        attempt.done(outcome)
        self.turn()

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        """A ``Tracker``: whoever asked is told what became of an indication."""
        identifier = indication.identifier or ""
        if discarded is not None:
            self.tell("discard", destination, identifier)
        self._loose.append((destination, identifier))

    def accepts(self) -> bool:
        """Whether the journal takes indications now."""
        return self.journal.refusal(1000) is None

    def deliver_all(self) -> None:
        """Release what is held, and have everything delivered."""
        while self.held:
            self.release()
        for _ in range(MOST_ROUNDS):
            self.disks()
            while self.flying:
                self.answer(self.flying[0], SUCCESS)
                self.disks()
            if not self.service.pending:
                return
            self.advance(RETRY.interval_seconds)
        raise AssertionError(f"{self.service.pending} entries are never delivered")


def _targets(names: list[str]) -> list[Target]:
    return [
        Target(subscription=name, filter_name=SUBSCRIPTIONS[name].filter_name, destination=name)
        for name in names
    ]
