"""A deliverer's last report as the operator keeps it, and its changes. Pure. Times are seconds
since the epoch, by the deliverer's clock unless stated otherwise."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.wire.queues import (
    OutcomeStatus,
    QueuePage,
    QueueStatus,
    RateLimitStatus,
    ReplayStatus,
    SubscriptionEnd,
)

#: The token comes with the configuration, which the deliverer does not have yet either.
NO_TOKEN = "it does not know the operator's token yet (HTTP 401)"
LONGEST_DETAIL = 200
#: Fill levels of a queue at which a backlog begins or ends.
_FILL_LEVELS = (0.6, 0.8)


class DeliveryResult(StrEnum):
    """The result of one attempt (S0.8)."""

    SUCCESS = "Success"
    ERROR = "Error"
    FATAL_ERROR = "FatalError"
    POST_DELIVERY_ERROR = "PostDeliveryError"


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class QueueReport:
    name: str
    depth: int
    capacity: int
    high_water: int
    #: None for an empty queue.
    oldest_indication_time: float | None = None
    last_result: DeliveryResult | None = None
    #: Why it failed, in the words of the metric ``pillion_destination_failing``, and one line; both
    #: empty after a success.
    last_cause: str = ""
    last_detail: str = ""
    #: Since when nothing is delivered: it fails, or is held or paused.
    failing_since: float | None = None
    #: Since when its listener delivers late and takes fewer than arrive.
    slow_since: float | None = None
    last_attempt_time: float | None = None
    next_attempt_time: float | None = None
    #: When the first indication is discarded if nothing more is delivered.
    first_loss_due_time: float | None = None
    #: Why; None from older deliverers.
    first_loss_reason: str | None = None
    #: Indications discarded undelivered since the deliverer started, and the time of the last.
    discarded: int = 0
    last_discard_time: float | None = None
    suspended: bool = False
    #: Why the deliverer holds the destination, and one line of detail. None: it is not held.
    hold: str | None = None
    hold_detail: str = ""
    #: The same of a pause.
    pause: str | None = None
    pause_detail: str = ""
    #: Removed from the configuration; the queue delivers what it holds.
    draining: bool = False
    #: The service whose gateway delivers for it; None: it delivers itself.
    relay_to: str | None = None
    #: Held by message groups.
    held: int = 0
    in_flight: int = 0
    #: The rate limit for which indications wait.
    limited_to_per_second: float | None = None
    #: None: from an older deliverer.
    accepted_per_second: float | None = None
    delivered_per_second: float | None = None

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed at the listener."""
        return self.hold is None and self.last_result not in (None, DeliveryResult.SUCCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """How far a deliverer is with a replay."""

    name: str
    uid: str
    #: A ``ReplayState``.
    state: str
    #: See ``wire.queues.ReplayStatus``.
    selected: int = 0
    replayed: int = 0
    delivered: int = 0
    discarded: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    covers_from: bool = True
    oldest_outcome_time: float | None = None
    started: float | None = None
    #: One line: why it failed, or what it waits for.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelivererReport:
    pod: str
    #: None before the first configuration.
    revision: str | None
    queues: Mapping[str, QueueReport]
    #: None before the first configuration, and from an older deliverer.
    durability: Durability | None = None
    ended: tuple[SubscriptionEnd, ...] = ()
    #: By name.
    replays: Mapping[str, ReplayReport] = field(default_factory=dict)
    #: See ``config.levels``.
    schema_level: int = LEVEL
    #: By the operator's clock.
    at: float

    @property
    def ready(self) -> bool:
        return self.revision is not None

    @property
    def pending(self) -> Mapping[str, int]:
        """By destination, without zeros."""
        return {name: queue.depth for name, queue in self.queues.items() if queue.depth}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """A deliverer whose last answer was missing or unusable."""

    pod: str
    reason: str
    #: The first of the failed polls, by the operator's clock.
    since: float
    last: DelivererReport | None = None

    @property
    def held(self) -> Container[str]:
        """The destinations with a queue in its last report."""
        return () if self.last is None else self.last.queues


Answer = DelivererReport | Unreachable


def last_report(answer: Answer | None) -> DelivererReport | None:
    return answer.last if isinstance(answer, Unreachable) else answer


class Change(IntEnum):
    NONE = 0
    #: In numbers that a status shows.
    NUMBERS = 1
    #: In what a condition may depend on.
    STATE = 2


def change(before: Answer | None, after: Answer) -> Change:
    if isinstance(before, Unreachable) and isinstance(after, Unreachable):
        return Change.NONE
    if not isinstance(before, DelivererReport) or not isinstance(after, DelivererReport):
        return Change.STATE
    if (before.revision, before.ended, before.durability, before.queues.keys()) != (
        after.revision,
        after.ended,
        after.durability,
        after.queues.keys(),
    ):
        return Change.STATE
    queues = (_queue_change(before.queues[name], queue) for name, queue in after.queues.items())
    return max(_replay_change(before.replays, after.replays), *queues, Change.NONE)


def _replay_change(before: Mapping[str, ReplayReport], after: Mapping[str, ReplayReport]) -> Change:
    if before == after:
        return Change.NONE
    states = [{(one.uid, one.state) for one in replays.values()} for replays in (before, after)]
    return Change.NUMBERS if states[0] == states[1] else Change.STATE


def _queue_change(before: QueueReport, after: QueueReport) -> Change:
    # Idle queues are mostly one shared object, whose comparison is expensive.
    if before is after or before == after:
        return Change.NONE
    if _state(before) != _state(after):
        return Change.STATE
    return Change.NUMBERS if _numbers(before) != _numbers(after) else Change.NONE


def _state(queue: QueueReport) -> tuple[object, ...]:
    fill = queue.depth / queue.capacity if queue.capacity else 0.0
    return (
        queue.failing,
        queue.last_result is None,
        queue.suspended,
        queue.hold,
        queue.pause,
        queue.slow_since is None,
        queue.draining,
        queue.relay_to,
        sum(fill >= level for level in _FILL_LEVELS),
    )


def _numbers(queue: QueueReport) -> tuple[object, ...]:
    """The numbers in a status, except the time of a successful attempt."""
    return (
        queue.depth,
        queue.capacity,
        queue.high_water,
        queue.oldest_indication_time,
        queue.last_result,
        queue.last_cause,
        queue.last_detail,
        queue.failing_since,
        queue.hold_detail,
        queue.pause_detail,
        queue.next_attempt_time,
        queue.last_attempt_time if queue.failing else None,
    )


def report_of(pod: str, pages: Sequence[QueuePage], *, at: float) -> DelivererReport:
    # A draining queue comes before a new one of the same name, and the new one is kept.
    queues = {queue.name: _queue(queue) for page in pages for queue in page.queues}
    ended = {one.name: one for page in pages for one in page.ended_subscriptions or ()}
    first = pages[0]
    return DelivererReport(
        pod=pod,
        # The first page also names the ended subscriptions: after a change of the configuration
        # between two pages, those would pass for ended in the newer one.
        revision=first.revision,
        durability=None if first.revision is None else first.durability,
        schema_level=first.schema_level,
        queues=queues,
        ended=tuple(sorted(ended.values(), key=lambda one: one.name)),
        replays={one.name: _replay(one) for one in first.replays or ()},
        at=at,
    )


def _queue(queue: QueueStatus) -> QueueReport:
    result, cause, detail = _outcome(queue.last_result)
    stop = queue.hold or queue.pause
    return QueueReport(
        name=queue.name,
        depth=queue.depth,
        capacity=queue.capacity,
        high_water=queue.high_water,
        oldest_indication_time=queue.oldest_indication_time,
        last_result=result,
        last_cause=cause,
        last_detail=detail,
        failing_since=queue.failing_since if stop is None else stop.since,
        slow_since=queue.slow_since,
        last_attempt_time=queue.last_attempt_time,
        next_attempt_time=queue.next_attempt_time,
        first_loss_due_time=queue.first_loss_due_time,
        first_loss_reason=queue.first_loss_reason,
        discarded=sum(queue.discarded.values()),
        last_discard_time=queue.last_discard_time,
        suspended=queue.suspended,
        hold=None if queue.hold is None else queue.hold.cause,
        hold_detail="" if queue.hold is None else _one_line(queue.hold.message),
        pause=None if queue.pause is None else queue.pause.cause,
        pause_detail="" if queue.pause is None else _one_line(queue.pause.message),
        draining=queue.draining,
        relay_to=queue.relay_to,
        held=queue.held,
        in_flight=queue.in_flight,
        limited_to_per_second=_limited_to(queue.rate_limit),
        accepted_per_second=queue.accepted_per_second,
        delivered_per_second=queue.delivered_per_second,
    )


def _limited_to(limit: RateLimitStatus | None) -> float | None:
    return limit.per_second if limit is not None and limit.limiting else None


def _replay(replay: ReplayStatus) -> ReplayReport:
    return ReplayReport(
        name=replay.name,
        uid=replay.uid,
        state=replay.state,
        selected=replay.selected,
        replayed=replay.replayed,
        delivered=replay.delivered,
        discarded=replay.discarded,
        left_out=replay.left_out,
        covers_from=replay.covers_from,
        oldest_outcome_time=replay.oldest_outcome_time,
        started=replay.started,
        detail=_one_line(replay.detail),
    )


def _outcome(outcome: OutcomeStatus | None) -> tuple[DeliveryResult | None, str, str]:
    if outcome is None:
        return None, "", ""
    result = DeliveryResult(outcome.result.title().replace("-", ""))
    if result is DeliveryResult.SUCCESS:
        return result, "", ""
    return result, outcome.cause or "", _one_line(outcome.detail)


def _one_line(text: str) -> str:
    return one_line(text, LONGEST_DETAIL).strip()
