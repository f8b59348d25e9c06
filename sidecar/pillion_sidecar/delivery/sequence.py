"""SequenceContext and SequenceNumber of one destination queue (D.2)."""

import itertools
from collections.abc import Iterator

#: SequenceNumber is a sint64 that wraps to 0 (DSP1054; CIM_Indication.SequenceNumber).
SEQUENCE_LIMIT = 2**63


class SequenceIdentifiers:
    """Numbers the indications of one destination under one context.

    Numbers start at 0 in each context and grow by one for each new indication, whether it is ever
    delivered or not: a listener sees what was discarded as a gap.
    """

    __slots__ = ("_epochs", "_origin", "context", "next_number")

    def __init__(
        self,
        *,
        service: str,
        deliverer_id: str,
        destination_uid: str,
        epochs: Iterator[int] | None = None,
    ) -> None:
        """``deliverer_id`` is random for each start of a deliverer without a journal, since nobody
        may continue a context that somebody else began. ``epochs`` is shared by all queues that
        one uid may ever have: one that is removed and comes back begins another context too.
        """
        self._origin = f"{service}#{deliverer_id}#{destination_uid}"
        self._epochs = itertools.count() if epochs is None else epochs
        self.next_number = 0
        self.renew()

    def number(self) -> int:
        """Return the number of a new indication."""
        number = self.next_number
        self.next_number = number + 1 if number + 1 < SEQUENCE_LIMIT else 0
        return number

    def renew(self) -> None:
        """Begin a new context, for a listener that knows nothing of the present one."""
        self.context = f"{self._origin}#{next(self._epochs)}"
        self.next_number = 0
