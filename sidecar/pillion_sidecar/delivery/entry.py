"""One (indication, subscription) that waits for its listener."""

import msgspec

from pillion_sidecar.delivery.subscriptions import Subscription
from pillion_sidecar.indication import Indication

#: Attempts at an indication that its listener refuses, whatever the retry policy.
MOST_REFUSALS = 3


class QueueEntry(msgspec.Struct, eq=False, gc=False):
    """One (indication, subscription) that waits for its listener."""

    indication: Indication
    subscription: Subscription
    #: Counts the queue's entries; its SequenceNumber, the same for every attempt, is told from it
    #: (D.2).
    number: int
    #: Failed attempts so far.
    attempts: int = 0
    #: Those of them, in this run, in which the listener refused the indication itself.
    refusals: int = 0
