"""A deliverer's report of itself and of its destination queues, as the operator keeps it.

Times are seconds since the epoch, by the clock of whoever states them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.wire.queues import OutcomeStatus, QueuePage, QueueStatus

#: Why a deliverer refuses the operator's token: the token comes with the configuration, which it
#: does not have yet either.
NO_TOKEN = "it does not know the operator's token yet (HTTP 401)"


#: Characters of a failure's detail that are kept.
LONGEST_DETAIL = 200


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


def report_of(pod: str, pages: Sequence[QueuePage], *, at: float) -> DelivererReport:
    """The answer of a pod's deliverer, asked at ``at``."""
    queues: dict[str, QueueReport] = {}
    ended: dict[str, EndedSubscription] = {}
    for page in pages:
        # A queue that drains comes before a new one of its name, which is the one that is told of.
        queues.update((queue.name, _queue(queue)) for queue in page.queues)
        ended.update((one.name, one) for one in _ended(page))
    return DelivererReport(
        pod=pod,
        # Of the first page, which names the subscriptions that have ended: were a configuration
        # taken over in between, these would pass for the newer one's.
        revision=pages[0].revision,
        # Settled with the first configuration.
        durability=None if pages[0].revision is None else pages[0].durability,
        schema_level=pages[0].schema_level,
        queues=queues,
        ended=tuple(sorted(ended.values(), key=lambda one: one.name)),
        at=at,
    )


def _queue(queue: QueueStatus) -> QueueReport:
    result, detail = _outcome(queue.last_result)
    failing_since: float | None = None
    if result not in (None, DeliveryResult.SUCCESS):
        # Without the field, before it: the last failure is all that is known.
        since = queue.failing_since
        failing_since = queue.last_attempt_time if since is None else since
    return QueueReport(
        name=queue.name,
        depth=queue.depth,
        capacity=queue.capacity,
        high_water=queue.high_water,
        oldest_indication_time=queue.oldest_indication_time,
        last_result=result,
        last_detail=detail,
        last_attempt_time=queue.last_attempt_time,
        last_success_time=queue.last_success_time,
        next_attempt_time=queue.next_attempt_time,
        first_loss_due_time=queue.first_loss_due_time,
        failing_since=failing_since,
        discarded=sum(queue.discarded.values()),
        last_discard_time=queue.last_discard_time,
        suspended=queue.suspended,
        hold=None if queue.hold is None else queue.hold.cause,
        hold_detail="" if queue.hold is None else _one_line(queue.hold.message),
        draining=queue.draining,
        relay_to=queue.relay_to,
    )


def _ended(page: QueuePage) -> list[EndedSubscription]:
    return [
        EndedSubscription(name=one.name, reason=one.reason, uid=one.uid or None)
        for one in page.ended_subscriptions or ()
    ]


def _outcome(outcome: OutcomeStatus | None) -> tuple[DeliveryResult | None, str]:
    if outcome is None:
        return None, ""
    result = DeliveryResult(outcome.result.title().replace("-", ""))
    return result, "" if result is DeliveryResult.SUCCESS else _one_line(outcome.detail)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:LONGEST_DETAIL]).strip()
