"""Bounds and fields that more than one kind has."""

from enum import StrEnum

from pillion_sidecar.config.resources import QueueFullPolicy
from pillion_sidecar.config.schema.fields import Field, Integer, Text, Transition

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


def one_of(values: type[StrEnum]) -> Text:
    """A text that is one of an enumeration's values."""
    texts = tuple(value.value for value in values)
    return Text(values=texts, max_length=max(map(len, texts)))


def immutable(name: str, *, message: str, remedy: str) -> Transition:
    """A field that always has a value, and keeps the one that it was made with."""
    return Transition(
        cel=f"self.{name} == oldSelf.{name}", field=name, message=message, remedy=remedy
    )


def queue_size(*, assumed: str) -> Field:
    """The bound of a destination queue (S0.3)."""
    return Field(
        name="queueSize",
        type=Integer(minimum=1, maximum=LARGEST_QUEUE),
        assumed=assumed,
        description="The most indications that wait in one destination queue. "
        "What happens beyond it, queueFullPolicy says.",
    )


def queue_full_policy(*, default: str | None, assumed: str) -> Field:
    """What happens to a full destination queue (S0.4)."""
    return Field(
        name="queueFullPolicy",
        type=one_of(QueueFullPolicy),
        default=default,
        assumed=assumed,
        description="What happens when a destination queue is full. "
        "DiscardOldest: its oldest indication is discarded and reported, also while its listener "
        "works. Reject: the publisher is asked to come back later (429). Adaptive: Reject while "
        "the listener takes indications, DiscardOldest while it fails, so that a dead listener "
        "never keeps anything from the others.",
    )


def indication_lifetime(*, assumed: str) -> Field:
    """How long an undelivered indication waits (D.2)."""
    return Field(
        name="indicationLifetimeSeconds",
        type=TIME,
        assumed=assumed,
        description="How long, in seconds since its acceptance, an indication that could not be "
        "delivered is kept and tried; then it is discarded and reported. 0: for as long as it "
        "takes. Time in which a destination is suspended does not count.",
    )
