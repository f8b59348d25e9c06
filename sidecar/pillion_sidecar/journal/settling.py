"""What was settled since the last commit, gathered into as few records as may be."""

from collections.abc import Iterator

from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.ports import Place, QueueState, SubscriptionRecord
from pillion_sidecar.journal.records import (
    DELIVERED,
    REASON_CODES,
    SETTLEMENT,
    THROUGH,
    Kind,
    encode_queue,
    encode_subscriptions,
    seal,
)

#: Settlements in one record, so that a purge of a million makes no endless one.
_MOST = 16_384


class Settling:
    """Settlements, ended holds and states of queues that no commit has taken yet.

    Deliveries are kept as one THROUGH for each destination where possible; a discard is always
    explicit, since its reason must not be lost behind a later THROUGH.
    """

    __slots__ = ("_ended", "_explicit", "_states", "_subscriptions", "_through")

    def __init__(self) -> None:
        self._through: dict[int, int] = {}
        self._explicit = bytearray()
        self._ended = bytearray()
        self._states: dict[int, QueueState] = {}
        self._subscriptions: dict[str, SubscriptionRecord] = {}

    def __bool__(self) -> bool:
        return bool(
            self._through or self._explicit or self._ended or self._states or self._subscriptions
        )

    def settle(self, place: Place, reason: DiscardReason | None, through: bool) -> None:
        """A place is delivered or discarded."""
        destination, _, number = place
        if reason is not None:
            self._explicit += SETTLEMENT.pack(destination, REASON_CODES[reason], number)
        elif through:
            self._through[destination] = number
        else:
            self._explicit += SETTLEMENT.pack(destination, DELIVERED, number)

    def end_hold(self, indication_id: int, reason: DiscardReason) -> None:
        """A held indication was discarded."""
        self._ended += SETTLEMENT.pack(0, REASON_CODES[reason], indication_id)

    def note(self, state: QueueState) -> None:
        """A queue's state replaces the one before."""
        self._states[state.destination] = state

    def note_subscription(self, record: SubscriptionRecord) -> None:
        """What is known of a subscription replaces what was known before."""
        self._subscriptions[record.uid] = record

    def take(self) -> list[bytes]:
        """Return the records of all that was gathered, and begin anew."""
        if not self:
            return []
        records = [encode_queue(state) for state in self._states.values()]
        if self._subscriptions:
            records.append(encode_subscriptions([*self._subscriptions.values()]))
        records += _sealed(Kind.HOLD_ENDED, self._ended)
        # A THROUGH says nothing of what is discarded, whichever of the two stands first.
        pack = SETTLEMENT.pack
        through = [pack(where, THROUGH, number) for where, number in self._through.items()]
        records += _sealed(Kind.SETTLED, self._explicit + b"".join(through))
        self._through, self._explicit = {}, bytearray()
        self._ended, self._states, self._subscriptions = bytearray(), {}, {}
        return records


def _sealed(kind: Kind, packed: bytearray) -> Iterator[bytes]:
    step = _MOST * SETTLEMENT.size
    for begin in range(0, len(packed), step):
        part = bytes(packed[begin : begin + step])
        yield seal(kind, part, count=len(part) // SETTLEMENT.size)
