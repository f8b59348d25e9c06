"""What a live journal stands on in tests: workers that work when they are told, and an owner that
remembers what it holds."""

from collections import deque
from collections.abc import Callable, Sequence

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal.disk import DiskJournal, open_journal
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.limits import MIB, JournalSettings
from pillion_sidecar.journal.ports import (
    NO_NUMBER,
    Place,
    PlainIdentity,
    QueueState,
    Recovered,
    SubscriptionRecord,
)
from pillion_sidecar.testing import FakeTime
from support.stepped import SteppedWorker


def restore_each(
    restore: Callable[..., None], identities: Sequence[PlainIdentity], *, offset: float
) -> None:
    """Do by ``restore`` of an ``IdentitySink`` what its ``restore_all`` does at once."""
    for digest, accepted_at, expires, pending in identities:
        restore(
            digest,
            accepted_at=accepted_at - offset,
            expires=expires or None,
            pending=pending,
            reason=None,
            destination="",
        )


class Owner:
    """Implements ``JournalOwner`` and ``IdentitySink``: knows all that is pending."""

    def __init__(self) -> None:
        #: By id: the places that are pending, and the indication.
        self.pending_places: dict[int, set[Place]] = {}
        self.indications: dict[int, Indication] = {}
        self.held: dict[int, tuple[Indication, tuple[Place, ...]]] = {}
        self.committed_through = 0
        self.errors: list[OSError] = []
        self.known: dict[bytes, tuple[DiscardReason | None, str]] = {}
        self.states: dict[int, QueueState] = {}
        self.blob = b""

    def committed(self, through: int) -> None:
        assert through > self.committed_through
        self.committed_through = through

    def unsettled(self, indication_id: int, places: Sequence[Place]) -> Sequence[Place]:
        if indication_id in self.held:
            return places
        left = self.pending_places.get(indication_id, set())
        return [place for place in places if place in left]

    def moved(self, indication_id: int, places: Sequence[Place], position: int, size: int) -> None:
        if indication_id in self.held:
            indication = self.held[indication_id][0]
        else:
            assert set(places) == self.pending_places[indication_id]
            indication = self.indications[indication_id]
        indication.position, indication.size = position, size

    def queue_states(self) -> Sequence[QueueState]:
        return list(self.states.values())

    def subscription_records(self) -> Sequence[SubscriptionRecord]:
        return ()

    def groups(self) -> bytes:
        return self.blob

    def lowest_pending(self, destination: int) -> int:
        pending = (place for places in self.pending_places.values() for place in places)
        numbers = [place.number for place in pending if place.destination == destination]
        return min(numbers, default=NO_NUMBER)

    def identities(
        self, digests: Sequence[bytes]
    ) -> Sequence[tuple[DiscardReason | None, str] | None]:
        return [self.known.get(digest) for digest in digests]

    def failed(self, error: OSError) -> None:
        self.errors.append(error)

    def restore_all(self, identities: Sequence[PlainIdentity], *, offset: float) -> None:
        restore_each(self.restore, identities, offset=offset)

    def restore(
        self,
        digest: bytes,
        *,
        accepted_at: float,
        expires: float | None,
        pending: bool,
        reason: DiscardReason | None,
        destination: str,
        delivered: bool = False,
        repeat: bool = False,
    ) -> None:
        self.known[digest] = (reason, destination)


class LiveJournal:
    """A disk journal on virtual time, its owner, and what drives both."""

    def __init__(
        self,
        files: Files,
        *,
        time: FakeTime | None = None,
        durability: Durability = Durability.DISK,
        maximum_bytes: int = 32 * MIB,
        segment_bytes: int | None = MIB,
        segment_seconds: float = 3600.0,
        begun: bool = True,
    ) -> None:
        self.time = time or FakeTime()
        self.worker = SteppedWorker()
        self.reader = SteppedWorker()
        self.soon: deque[Callable[[], None]] = deque()
        self.owner = Owner()
        self.settings = JournalSettings(
            durability=durability,
            maximum_bytes=maximum_bytes,
            segment_bytes=segment_bytes,
            segment_seconds=segment_seconds,
        )
        self.commit_seconds: list[float] = []
        self.journal: DiskJournal
        self.recovered: Recovered
        self.journal, self.recovered = open_journal(
            files,
            clock=self.time,
            worker=self.worker,
            reader=self.reader,
            call_soon=self.soon.append,
            timers=self.time,
            settings=self.settings,
            identities=self.owner,
            observer=self,
        )
        self._adopt()
        self._numbers: dict[int, int] = {
            index: queue.next_number for index, queue in self.recovered.queues.items()
        }
        self.journal.attach(self.owner)
        if begun:
            self.run()

    def journal_committed(self, seconds: float) -> None:
        self.commit_seconds.append(seconds)

    def _adopt(self) -> None:
        """Take over what was recovered, as delivery does."""
        positions: dict[int, int] = {}
        for queue in self.recovered.queues.values():
            for record_id, position, number, subscription in zip(
                queue.ids, queue.positions, queue.numbers, queue.subscriptions, strict=True
            ):
                positions[position] = record_id
                places = self.owner.pending_places.setdefault(record_id, set())
                places.add(Place(queue.index, subscription, number))
        for indication, held in self.recovered.held:
            self.owner.held[indication.id] = indication, held
        read: list[Indication | None] = []
        if positions:
            self.journal.load(list(positions), read.extend)
            self.reader.drain()
            self.turn()
        for found in read:
            assert found is not None
            self.owner.indications[found.id] = found

    # ------------------------------------------------------------------ driving

    def turn(self) -> None:
        """One turn of the event loop."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def run(self) -> None:
        """Go on until nothing is left to do without time passing."""
        while self.soon or self.worker.jobs or self.reader.jobs:
            self.turn()
            self.worker.step()
            self.reader.step()

    # ------------------------------------------------------------------ what delivery does

    def accept(
        self,
        *destinations: int,
        body: bytes = b"{}",
        digest: bytes | None = None,
        hold: Indication | None = None,
        identifier: str = "one",
    ) -> Indication:
        """Take an indication for some destinations; ``hold``: the held one that it was."""
        indication = hold or Indication(
            body=body,
            class_name="CIM_AlertIndication",
            accepted_at=self.time.monotonic(),
            digest=digest,
            identifier=identifier,
        )
        places = [Place(where, 7, self._number(where)) for where in destinations]
        held = 0
        if hold is not None:
            held = hold.id
            del self.owner.held[held]
        self.journal.append(indication, places, held=held)
        if places:
            self.owner.pending_places[indication.id] = set(places)
            self.owner.indications[indication.id] = indication
        if digest is not None:
            self.owner.known[digest] = (None, "")
        return indication

    def _number(self, destination: int) -> int:
        number = self._numbers.get(destination, 0)
        self._numbers[destination] = number + 1
        return number

    def hold(self, *destinations: int, body: bytes = b"{}") -> Indication:
        """Take an indication that waits."""
        indication = Indication(
            body=body, class_name="CIM_AlertIndication", accepted_at=self.time.monotonic()
        )
        places = tuple(Place(where, 7, 2**64 - 1) for where in destinations)
        self.journal.hold(indication, places)
        self.owner.held[indication.id] = indication, places
        return indication

    def end_hold(self, indication: Indication) -> None:
        """Discard a held indication."""
        del self.owner.held[indication.id]
        self.journal.end_hold(indication, DiscardReason.OUT_OF_ORDER)

    def settle(
        self, indication: Indication, destination: int, reason: DiscardReason | None = None
    ) -> int:
        """Settle an indication's place at a destination."""
        places = self.owner.pending_places[indication.id]
        place = next(place for place in places if place.destination == destination)
        through = not any(
            other.destination == destination and other.number < place.number
            for several in self.owner.pending_places.values()
            for other in several
        )
        places.remove(place)
        if not places:
            del self.owner.pending_places[indication.id]
            del self.owner.indications[indication.id]
        left = self.journal.settle(place, indication, reason, through=through)
        assert left == len(places)
        return left

    @property
    def pending(self) -> dict[int, set[Place]]:
        """By id, what is pending."""
        return {record_id: set(places) for record_id, places in self.owner.pending_places.items()}
