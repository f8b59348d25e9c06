"""What is wrong with a destination queue, and how badly, from one answer of the deliverer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import IntEnum

from pillion_cli.units import brief, brief_rate
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.wire.queues import Moment, QueueStatus

#: Seconds without an answer after which an attempt is worth a word.
UNANSWERED_SECONDS = 5.0
#: Seconds for which the oldest indication waits at a listener that answers.
BEHIND_SECONDS = 10.0
#: Seconds for which a discard is told.
LATELY_SECONDS = 600.0


class State(IntEnum):
    """The worst first."""

    FAILING = 0
    HELD = 1
    PAUSED = 2
    UNANSWERED = 3
    SUSPENDED = 4
    SLOW = 5
    BEHIND = 6
    LIMITED = 7
    DRAINING = 8
    OK = 9

    @property
    def is_trouble(self) -> bool:
        return self <= State.BEHIND

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Judged:
    """A queue, and what to make of it. Times are in seconds from now."""

    queue: QueueStatus
    state: State
    #: In one line; may have what others sent.
    why: str
    #: What was discarded lately.
    lost: str
    #: For how long it has been in that state.
    since: float | None
    next_attempt: str
    #: Until the first loss.
    loss: float | None
    #: Until it is full.
    full: float | None
    #: It is full and discards nothing, so that publishers are refused.
    refuses: bool

    @property
    def loses_now(self) -> bool:
        """Indications are discarded, and the next one will be."""
        return bool(self.lost) and self.loss is not None and self.loss < 1

    @property
    def is_trouble(self) -> bool:
        return self.state.is_trouble or self.loses_now or self.refuses

    @property
    def first_loss(self) -> str:
        """When the first indication is lost; empty: none will be."""
        if self.loses_now:
            return self.with_reason("loses indications now")
        return "" if self.loss is None else self.with_reason(f"first loss {due_in(self.loss)}")

    def with_reason(self, loss: str) -> str:
        """Older deliverers do not give the reason."""
        return ": ".join(filter(None, (loss, self.queue.first_loss_reason)))

    @property
    def why_and_lost(self) -> str:
        return "; ".join(filter(None, (self.why, self.lost)))


def time_of(
    queues: Iterable[QueueStatus], headers: Mapping[str, str], *, now: Callable[[], float]
) -> float:
    """Return the deliverer's time: another clock than ``now`` may be wrong."""
    for queue in queues:
        age, accepted = queue.oldest_indication_age_seconds, queue.oldest_indication_time
        if age is not None and accepted is not None:
            return accepted + age
    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return now()


def judged(queue: QueueStatus, *, now: float) -> Judged:
    unanswered = _seconds_since(queue.last_attempt_time, now) if queue.in_flight else None
    state, why, since = _state(queue, now, unanswered)
    loss = _seconds_until(queue.first_loss_due_time, now)
    # One that works, or that gets nothing more, is full for a moment.
    is_full = queue.depth >= queue.capacity and state not in (State.OK, State.DRAINING)
    refuses = is_full and (loss is None or loss >= 1)
    full = "full; publishers are refused" if refuses else ""
    return Judged(
        queue=queue,
        state=state,
        why="; ".join(filter(None, (full, why, *_also(queue, state, now, unanswered)))),
        lost=_lost(queue, now),
        since=since,
        next_attempt=_next(queue, now),
        loss=loss,
        full=_seconds_until(queue.full_time, now),
        refuses=refuses,
    )


def _state(
    queue: QueueStatus, now: float, unanswered: float | None
) -> tuple[State, str, float | None]:
    """Return the state, why, and since when."""
    if queue.suspended:
        return State.SUSPENDED, "its resource has suspended: true", None
    for state, hold in ((State.HELD, queue.hold), (State.PAUSED, queue.pause)):
        if hold is not None:
            why = ": ".join(filter(None, (hold.cause, hold.message)))
            return state, why, _seconds_since(hold.since, now)
    if queue.failing_since is not None:
        return State.FAILING, _result(queue), _seconds_since(queue.failing_since, now)
    return _pace(queue, now, unanswered)


def _pace(
    queue: QueueStatus, now: float, unanswered: float | None
) -> tuple[State, str, float | None]:
    """The state of a queue whose listener does not fail."""
    limit = queue.rate_limit
    limited = ""
    if limit is not None and limit.limiting:
        limited = f"rate limit of {limit.per_second:g} a second"
    if queue.slow_since is not None:
        why = "; ".join(filter(None, (limited, _rates(queue))))
        return State.SLOW, why, _seconds_since(queue.slow_since, now)
    if unanswered is not None and unanswered >= UNANSWERED_SECONDS:
        return State.UNANSWERED, f"no answer for {brief(unanswered)}", unanswered
    if limited:
        return State.LIMITED, limited, None
    if (queue.oldest_indication_age_seconds or 0.0) >= BEHIND_SECONDS and queue.depth:
        return State.BEHIND, _rates(queue) or "answers, and is behind", None
    if queue.draining:
        return State.DRAINING, "its destination is no longer configured", None
    return State.OK, "", None


def _rates(queue: QueueStatus) -> str:
    """How it keeps up; empty: an older deliverer does not tell."""
    if queue.accepted_per_second is None or queue.delivered_per_second is None:
        return ""
    arrive, delivered = map(brief_rate, (queue.accepted_per_second, queue.delivered_per_second))
    return f"{arrive} a second arrive, {delivered} are delivered"


def _also(queue: QueueStatus, state: State, now: float, unanswered: float | None) -> Iterable[str]:
    if unanswered is not None and unanswered >= UNANSWERED_SECONDS:
        if state is State.FAILING:
            yield f"tried again {brief(unanswered)} ago, without an answer so far"
        elif state is State.SLOW:
            yield f"no answer for {brief(unanswered)}"
    if state is State.FAILING and not queue.depth:
        yield "nothing waits, so nothing is tried"
    if queue.relay_to is not None:
        yield f"relay to {queue.relay_to}"
    if queue.held:
        yield f"{queue.held:,} held by message groups"


def _lost(queue: QueueStatus, now: float) -> str:
    last = _seconds_since(queue.last_discard_time, now)
    if last is None or last >= LATELY_SECONDS:
        return ""
    return f"{sum(queue.discarded.values()):,} discarded, the last {brief(last)} ago"


def _result(queue: QueueStatus) -> str:
    last = queue.last_result
    if last is None:
        return "its attempts fail; the next one shows the cause"
    if last.cause is not None:
        return f"{last.cause}: {last.detail}" if last.detail else last.cause
    if last.result == "error" and last.detail:
        return last.detail
    return f"{last.result}: {last.detail}" if last.detail else last.result


def _next(queue: QueueStatus, now: float) -> str:
    if queue.suspended or queue.hold is not None:
        return ""
    if queue.in_flight:
        return "under way"
    due = queue.next_attempt_time
    return "" if due is None else due_in(due - now)


def due_in(seconds: float) -> str:
    return f"in {brief(seconds)}" if seconds >= 1 else "now"


def _seconds_since(time: Moment | None, now: float) -> float | None:
    return None if time is None else max(0.0, now - time)


def _seconds_until(time: Moment | None, now: float) -> float | None:
    return None if time is None else max(0.0, time - now)


# ---------------------------------------------------------------------- all of them


def _by_loss(one: Judged) -> float:
    if one.loss is None:
        return float("inf")
    return one.loss if one.loss >= 1 else 0.0


def _worst(one: Judged) -> tuple[object, ...]:
    """Of those in trouble first what loses indications now, then what refuses publishers, then by
    the first loss. The console has the same order."""
    urgency = (0, not one.loses_now, not one.refuses, _by_loss(one)) if one.is_trouble else (1,)
    return urgency, one.state, -one.queue.depth, one.queue.name


#: What --sort names.
ORDERS: Mapping[str, Callable[[Judged], tuple[object, ...]]] = {
    "trouble": _worst,
    "name": lambda one: (one.queue.name,),
    "depth": lambda one: (-one.queue.depth, *_worst(one)),
    "oldest": lambda one: (-(one.queue.oldest_indication_age_seconds or 0.0), *_worst(one)),
    "loss": lambda one: (_by_loss(one), *_worst(one)),
}


def summary(found: Sequence[Judged], *, starting: str | None = None) -> str:
    """``starting``: why the deliverer has not read its journal yet."""
    if starting is not None:
        return f"nothing is delivered yet: {escape_controls(starting)}"
    if not found:
        return "no destinations are configured"
    bad = sum(one.is_trouble for one in found)
    what = "destination" if len(found) == 1 else "destinations"
    has = "has" if bad == 1 else "have"
    of = f"{bad:,} of {len(found):,} {what}"
    text = f"{of} {has} trouble" if bad else f"{len(found):,} {what} without trouble"
    for one in sorted((one for one in found if one.refuses), key=_worst)[:1]:
        text += f"; {one.queue.name} is full, so publishers are refused"
    first = min(found, key=lambda one: (not one.loses_now, _by_loss(one)))
    if first.loss is None:
        return text
    if first.loses_now:
        return f"{text}; {first.queue.name} {first.first_loss}"
    return f"{text}; the first loss is due {due_in(first.loss)}, at {first.queue.name}"
