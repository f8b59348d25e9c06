"""What the journal asks of delivery, and tells it (``JournalOwner``)."""

from collections.abc import Sequence

from pillion_sidecar.delivery.keeping import Keeping
from pillion_sidecar.delivery.restoring import queue_state
from pillion_sidecar.delivery.settling import Settlements
from pillion_sidecar.delivery.table import DestinationTable
from pillion_sidecar.delivery.taking import Taking
from pillion_sidecar.journal.ports import Place, QueueState, SubscriptionRecord


class JournalAnswers:
    """Delivery's part of a ``JournalOwner``."""

    def __init__(
        self,
        *,
        table: DestinationTable,
        keeping: Keeping,
        settlements: Settlements,
        taking: Taking,
    ) -> None:
        self._table = table
        self._keeping = keeping
        self._settlements = settlements
        self._taking = taking

    def failed(self) -> None:
        """What the journal has is not known any more."""
        self._keeping.failed = True

    def committed(self, through: int) -> None:
        """See ``JournalOwner``."""
        self._taking.committed(through)

    def pending(self, indication_id: int, places: Sequence[Place]) -> Sequence[Place]:
        """See ``JournalOwner``."""
        return self._keeping.pending(indication_id, places, holds=self._holds)

    def _holds(self, place: Place) -> bool:
        queues = self._table.queues_at(place.destination)
        return any(queue.holds(place.number) for queue in queues) or self._settlements.holds(
            place.destination, place.number
        )

    def moved(self, indication_id: int, places: Sequence[Place], position: int, size: int) -> None:
        """See ``JournalOwner``."""
        if self._keeping.move_held(indication_id, position, size):
            return
        for place in places:
            queues = self._table.queues_at(place.destination)
            if not any(queue.move(place.number, position, size) for queue in queues):
                self._settlements.move(place.destination, place.number, position, size)

    def subscription_records(self) -> list[SubscriptionRecord]:
        """See ``JournalOwner``."""
        return self._table.subscriptions.records()

    def queue_states(self) -> list[QueueState]:
        """See ``JournalOwner``."""
        offset = self._keeping.journal.offset
        return [queue_state(queue, offset=offset) for queue in self._table.all_queues()]
