"""Bounds and fields that more than one kind has."""

from enum import StrEnum

from pillion_sidecar.config.schema.fields import Integer, Transition

#: The longest wait between two attempts, in seconds: a week.
LONGEST_INTERVAL = 604_800
#: The longest time that anything is kept or waited for, in seconds: ten years.
LONGEST_TIME = 315_360_000
#: The most attempts after the original one.
MOST_ATTEMPTS = 10_000
#: The most indications in one destination queue.
LARGEST_QUEUE = 10_000_000

#: Seconds between two attempts.
INTERVAL = Integer(minimum=1, maximum=LONGEST_INTERVAL)
#: Seconds that something lasts; 0 has a meaning of its own.
TIME = Integer(minimum=0, maximum=LONGEST_TIME)


class QueueFullPolicy(StrEnum):
    """What happens to a full destination queue (S0.4 and the design's "Full queue")."""

    ADAPTIVE = "Adaptive"
    DISCARD_OLDEST = "DiscardOldest"
    REJECT = "Reject"


class RemovalAction(StrEnum):
    """DSP1054's Ignore, Disable and Remove: SubscriptionRemovalAction and OnFatalErrorPolicy."""

    IGNORE = "Ignore"
    DISABLE = "Disable"
    REMOVE = "Remove"


def immutable(name: str, *, message: str, remedy: str) -> Transition:
    """A field that always has a value, and keeps the one that it was made with."""
    return Transition(
        cel=f"self.{name} == oldSelf.{name}", field=name, message=message, remedy=remedy
    )


#: The bound of a destination queue (S0.3).
QUEUE_SIZE = Integer(minimum=1, maximum=LARGEST_QUEUE)
ABOUT_QUEUE_SIZE = (
    "The most indications that wait in one destination queue. "
    "What happens beyond it, queueFullPolicy says."
)
#: What happens to a full destination queue (S0.4).
ABOUT_QUEUE_FULL_POLICY = (
    "What happens when a destination queue is full. DiscardOldest: its oldest indication is "
    "discarded and reported, also while its listener works. Reject: the publisher is asked to come "
    "back later (429). Adaptive: Reject while the listener takes indications, DiscardOldest while "
    "it fails, so that a dead listener never keeps anything from the others."
)
#: How long an undelivered indication waits (D.2).
ABOUT_LIFETIME = (
    "How long, in seconds since its acceptance, an indication that could not be delivered is kept "
    "and tried; then it is discarded and reported. 0: for as long as it takes. Time in which a "
    "destination is suspended does not count."
)
