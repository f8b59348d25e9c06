"""A journal whose disk is a list: what it was given, what it was told, and commits by hand."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal.ports import (
    DeliveryLease,
    JournalOwner,
    Place,
    PlainPlace,
    QueueState,
    SubscriptionRecord,
)


class FakeJournal:
    """A ``Journal`` with durability Disk."""

    def __init__(self, *, offset: float = 0.0) -> None:
        self.id = "journal"
        self.durability = Durability.DISK
        self.offset = offset
        self.destinations: dict[str, int] = {}
        self.subscriptions: dict[str, int] = {}
        #: What was taken, by id: the indication as it was, and its places.
        self.records: dict[int, tuple[Indication, tuple[Place, ...]]] = {}
        #: Ids by position, since an indication may be moved.
        self.positions: dict[int, int] = {}
        self.released: dict[int, int] = {}
        self.ended_holds: list[tuple[int, DiscardReason]] = []
        #: (destination, number, reason, through), in order.
        self.settled: list[tuple[int, int, DiscardReason | None, bool]] = []
        self.states: dict[int, QueueState] = {}
        self.subscription_records: dict[str, SubscriptionRecord] = {}
        self.refuses: str | None = None
        #: Ids that too few stores have.
        self.unstable: set[int] = set()
        self.over = False
        self.damaged: set[int] = set()
        self._loads: deque[Callable[[], None]] = deque()
        self._barriers: deque[tuple[int, Callable[[], None]]] = deque()
        self._owner: JournalOwner | None = None
        self._unsettled: dict[int, int] = {}
        self.committed = 0

    lease: DeliveryLease | None = None

    def attach(self, owner: JournalOwner) -> None:
        self._owner = owner

    def destination(self, *, uid: str, name: str) -> int:
        return self.destinations.setdefault(uid, len(self.destinations))

    def subscription(self, *, uid: str, name: str, filter_name: str) -> int:
        return self.subscriptions.setdefault(uid, len(self.subscriptions))

    def refusal(self, size: int) -> str | None:
        return self.refuses

    is_half_full = False

    def is_over_bytes(self, size: int) -> bool:
        return self.over

    def append(self, indication: Indication, places: Sequence[Place], *, held: int = 0) -> None:
        indication.id = len(self.records) + 1
        indication.position = 1000 * indication.id
        indication.size = len(indication.body)
        kept = msgspec.structs.replace(indication, trackers=(), rendered=None)
        self.records[indication.id] = kept, tuple(places)
        self.positions[indication.position] = indication.id
        self._unsettled[indication.id] = len(places)
        if held:
            self.released[held] = indication.id

    def append_all(
        self, indications: Sequence[Indication], places: Sequence[Sequence[PlainPlace]]
    ) -> bool:
        for indication, of_one in zip(indications, places, strict=True):
            self.append(indication, [Place(*place) for place in of_one])
        return True

    def hold(self, indication: Indication, places: Sequence[Place]) -> None:
        self.append(indication, places)

    def end_hold(self, indication: Indication, reason: DiscardReason) -> None:
        self.ended_holds.append((indication.id, reason))

    def barrier(self, done: Callable[[], None]) -> None:
        last = len(self.records)
        if self.committed >= last:
            done()
        else:
            self._barriers.append((last, done))

    def settle(
        self, place: Place, indication: Indication, reason: DiscardReason | None, *, through: bool
    ) -> int:
        self.settled.append((place.destination, place.number, reason, through))
        self._unsettled[indication.id] -= 1
        return self._unsettled[indication.id]

    def forces(self, indication: Indication, reason: DiscardReason) -> bool:
        return indication.id in self.unstable

    def note(self, state: QueueState) -> None:
        self.states[state.destination] = state

    def note_subscription(self, record: SubscriptionRecord) -> None:
        self.subscription_records[record.uid] = record

    def load(
        self,
        positions: Sequence[int],
        done: Callable[[Sequence[Indication | None]], None],
    ) -> None:
        found = [self._read(position) for position in positions]
        self._loads.append(partial(done, found))

    def _read(self, position: int) -> Indication | None:
        found = self.positions[position]
        if found in self.damaged:
            return None
        return msgspec.structs.replace(self.records[found][0], position=position)

    def close(self) -> None:
        self.commit()

    # ------------------------------------------------------------------ by hand

    def commit(self, through: int | None = None) -> None:
        """Everything up to an id, by default all, is on disk."""
        assert self._owner is not None
        self.committed = len(self.records) if through is None else through
        self._owner.committed(self.committed)
        while self._barriers and self._barriers[0][0] <= self.committed:
            self._barriers.popleft()[1]()

    def finish_loads(self) -> int:
        """Hand over what was read back; return how many loads that were."""
        count = len(self._loads)
        for _ in range(count):
            self._loads.popleft()()
        return count

    def move(self, indication_id: int) -> None:
        """Copy a record forward, and forget where it was."""
        assert self._owner is not None
        indication, places = self.records[indication_id]
        old = next(p for p, found in self.positions.items() if found == indication_id)
        new = old + 1
        del self.positions[old]
        self.positions[new] = indication_id
        pending = self._owner.unsettled(indication_id, places)
        self._owner.moved(indication_id, pending, new, indication.size)
