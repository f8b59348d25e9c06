"""The journal of durability ``Memory``."""

import secrets
from collections.abc import Callable, Sequence

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal.ports import (
    JournalOwner,
    Place,
    PlainPlace,
    QueueState,
    SubscriptionRecord,
)


class MemoryJournal:
    """A ``Journal`` that ends with the process.

    It gives ids, counts unsettled places, and accepts everything. ``committed`` is never called:
    nothing waits for it. Positions stay -1, so nothing is read back.
    """

    durability = Durability.MEMORY

    def __init__(self, *, clock: Clock, journal_id: str | None = None) -> None:
        self.id = journal_id or secrets.token_hex(8)
        self.offset = clock.time() - clock.monotonic()
        self._last_id = 0
        self._destinations: dict[str, int] = {}
        self._subscriptions: dict[str, int] = {}

    lease = None

    def attach(self, owner: JournalOwner) -> None: ...

    def destination(self, *, uid: str, name: str) -> int:
        return self._destinations.setdefault(uid, len(self._destinations))

    def subscription(self, *, uid: str, name: str, filter_name: str) -> int:
        return self._subscriptions.setdefault(uid, len(self._subscriptions))

    def refusal(self, size: int) -> str | None:
        return None

    def is_over_bytes(self, size: int) -> bool:
        return False

    is_half_full = False

    def append(self, indication: Indication, places: Sequence[Place], *, held: int = 0) -> None:
        self._last_id += 1
        indication.id = self._last_id

    def append_all(
        self, indications: Sequence[Indication], places: Sequence[Sequence[PlainPlace]]
    ) -> bool:
        for number, indication in enumerate(indications, self._last_id + 1):
            indication.id = number
        self._last_id += len(indications)
        return True

    def hold(self, indication: Indication, places: Sequence[Place]) -> None:
        self.append(indication, places)

    def end_hold(self, indication: Indication, reason: DiscardReason) -> None: ...

    def barrier(self, done: Callable[[], None]) -> None:
        done()

    def settle(
        self, place: Place, indication: Indication, reason: DiscardReason | None, *, through: bool
    ) -> int:
        return indication.unsettled - 1

    def forces(self, indication: Indication, reason: DiscardReason) -> bool:
        return False

    def note(self, state: QueueState) -> None: ...

    def note_subscription(self, record: SubscriptionRecord) -> None: ...

    def load(
        self,
        positions: Sequence[int],
        done: Callable[[Sequence[Indication | None]], None],
    ) -> None:
        """Raises LookupError: always; nothing has a position."""
        raise LookupError(f"a journal in memory has no indication at positions {list(positions)}")

    def close(self) -> None: ...
