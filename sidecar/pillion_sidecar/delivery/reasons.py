"""Why an indication was discarded: a closed set, used in logs, metrics and answers alike."""

from enum import StrEnum


class DiscardReason(StrEnum):
    """The reasons for discarding what had been accepted (S0.4, S0.7, S0.10, S0.11, S0.14, S1.6,
    D.2)."""

    QUEUE_FULL = "queue-full"
    ATTEMPTS_EXCEEDED = "attempts-exceeded"
    LIFETIME_EXPIRED = "lifetime-expired"
    SUBSCRIPTION_NOT_ACTIVE = "subscription-not-active"
    DESTINATION_REMOVED = "destination-removed"
    FATAL_ERROR = "fatal-error"
    SHUTDOWN = "shutdown"
    #: An administrator's skip or purge of a destination queue.
    PURGED = "purged"
    #: A member of an ordered group whose predecessors never came (S1.6), or were discarded at its
    #: destination (S1.5).
    OUT_OF_ORDER = "out-of-order"
    #: The journal cannot read it any more.
    DAMAGED = "damaged"
