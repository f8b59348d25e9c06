"""SequenceContext and SequenceNumber of one destination queue (D.2)."""

#: SequenceNumber is a sint64 that wraps to 0 (DSP1054; CIM_Indication.SequenceNumber).
SEQUENCE_LIMIT = 2**63


class SequenceIdentifiers:
    """Numbers the indications of one destination under one context.

    Numbers start at 0 in each context and grow by one for each new indication, whether it is ever
    delivered or not: a listener sees what was discarded as a gap.
    """

    __slots__ = ("_epoch", "_origin", "context", "next_number")

    def __init__(self, *, service: str, deliverer_id: str, destination_uid: str) -> None:
        """``deliverer_id`` is random for each start of a deliverer without a journal, since nobody
        may continue a context that somebody else began."""
        self._origin = f"{service}#{deliverer_id}#{destination_uid}"
        self._epoch = 0
        self.context = f"{self._origin}#{self._epoch}"
        self.next_number = 0

    def number(self) -> int:
        """Return the number of a new indication."""
        number = self.next_number
        self.next_number = number + 1 if number + 1 < SEQUENCE_LIMIT else 0
        return number

    def renew(self) -> None:
        """Begin a new context, for a listener that knows nothing of the present one."""
        self._epoch += 1
        self.context = f"{self._origin}#{self._epoch}"
        self.next_number = 0
