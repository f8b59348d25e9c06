"""One (indication, subscription) that waits for its listener."""

import msgspec

from pillion_sidecar.delivery.subscriptions import Subscription
from pillion_sidecar.indication import Indication

#: Attempts at an indication that its listener refuses, whatever the retry policy.
MOST_REFUSALS = 3
#: Numbers of refusals that are told apart.
_REFUSALS = MOST_REFUSALS + 1


class QueueEntry(msgspec.Struct, eq=False, gc=False):
    """One (indication, subscription) that waits for its listener."""

    indication: Indication
    subscription: Subscription
    #: Counts the queue's entries; its SequenceNumber, the same for every attempt, is told from it
    #: (D.2).
    number: int
    #: What is counted of it, in one number: another would take 16 bytes more of each entry.
    counted: int = 0

    @property
    def attempts(self) -> int:
        """Failed attempts so far."""
        return self.counted // _REFUSALS

    @attempts.setter
    def attempts(self, number: int) -> None:
        self.counted = number * _REFUSALS + self.refusals

    @property
    def refusals(self) -> int:
        """Those of them, in this run, in which the listener refused the indication itself; at most
        MOST_REFUSALS."""
        return self.counted % _REFUSALS

    def refuse(self) -> None:
        """Count one of these; none beyond MOST_REFUSALS."""
        self.counted += self.refusals < MOST_REFUSALS
