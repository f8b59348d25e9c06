"""What a deliverer says of itself and of its destination queues, as the operator keeps it.

Times are seconds since the epoch, by the clock of whoever states them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.resources import Durability

#: Why a deliverer gave no answer that does not know the operator's token: it comes with the
#: configuration, so that one is not there yet either.
NO_TOKEN = "it does not know the operator's token yet (HTTP 401)"


class DeliveryResult(StrEnum):
    """The result of one attempt (S0.8), in the CamelCase of resources."""

    SUCCESS = "Success"
    ERROR = "Error"
    FATAL_ERROR = "FatalError"
    POST_DELIVERY_ERROR = "PostDeliveryError"


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class QueueReport:
    """One destination queue of one deliverer."""

    name: str
    depth: int
    capacity: int
    high_water: int
    #: When the oldest indication that waits was accepted; None for an empty queue.
    oldest_indication_time: float | None = None
    last_result: DeliveryResult | None = None
    #: How the last attempt failed, one line for people; empty after a success.
    last_detail: str = ""
    last_attempt_time: float | None = None
    last_success_time: float | None = None
    next_attempt_time: float | None = None
    #: When the first indication is discarded if nothing more is delivered; None: none is due.
    first_loss_due_time: float | None = None
    #: The first of the failures since the last success; None while the listener takes what it gets.
    failing_since: float | None = None
    #: What it has discarded undelivered since its deliverer was started, and when that was last.
    discarded: int = 0
    last_discard_time: float | None = None
    suspended: bool = False
    #: What is wrong with the destination, by the deliverer: a word, and one line for people. None:
    #: it is not held.
    hold: str | None = None
    hold_detail: str = ""
    #: Of a destination that is no longer in the configuration: delivers what it holds.
    draining: bool = False
    #: The service whose gateway it leaves delivery to; None: it delivers itself.
    relay_to: str | None = None

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed at the listener."""
        return self.hold is None and self.last_result not in (None, DeliveryResult.SUCCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSubscription:
    """A subscription that a deliverer no longer delivers for, though its resource says Enabled."""

    name: str
    #: Why: ``FatalError``, ``RemovalAction`` or ``Expired``.
    reason: str
    #: The resource's UID, where the deliverer knows it: another one of the same name goes on.
    uid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DelivererReport:
    """One deliverer's answer."""

    pod: str
    #: The configuration that is in force there; None before the first.
    revision: str | None
    queues: Mapping[str, QueueReport]
    #: Where it keeps indications; None before it has a configuration, and from an older one.
    durability: Durability | None = None
    ended: tuple[EndedSubscription, ...] = ()
    #: Which fields of a configuration it knows: see ``config.levels``.
    schema_level: int = LEVEL
    #: When it was asked, by the operator's clock.
    at: float

    @property
    def ready(self) -> bool:
        """Whether it serves: it has a configuration."""
        return self.revision is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """A deliverer that gave no answer that could be used."""

    pod: str
    #: One line for people.
    reason: str
    #: The first of the askings in vain, by the operator's clock.
    since: float
    #: The destinations of which it had a queue when it last answered.
    held: frozenset[str] = frozenset()
    #: Of these, those of which something waited: how much. And when that was; None: never.
    pending: Mapping[str, int] = field(default_factory=dict)
    heard: float | None = None
