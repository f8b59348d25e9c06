"""The health of one listener: failures, holds, statistics (S0.12) and the next attempt. Times are
``Clock.monotonic()``."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pillion_sidecar.config.schema.destination import HoldCause
from pillion_sidecar.config.schema.response_policy import REFUSALS
from pillion_sidecar.delivery.entries import QueueEntry
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, FailureCause, Hold
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.ports import QueueState

#: Pauses remembered; merging the oldest can only lengthen a lifetime.
REMEMBERED_PAUSES = 64
#: Seconds after the log of a pause without another one, so that a destination that pauses again and
#: again does not flood the log.
QUIET_SECONDS = 600.0
#: The same for the log of a failure: one that lasts is logged then.
FLAPPING_SECONDS = 60.0
#: Attempts remembered for ``pillion queues NAME``.
REMEMBERED_ATTEMPTS = 20
_CAUSES = frozenset(HoldCause)
_RESULTS = frozenset(DeliveryResult)
_FAILURE_CAUSES = frozenset(FailureCause)


class Attempted(NamedTuple):
    """The attempts at an entry that has failed. Times are in seconds since the epoch."""

    #: None: in an earlier run.
    first: float | None
    last: float
    outcome: DeliveryOutcome


class Pauses:
    """Times in which a destination was suspended or held: they count against neither attempts nor
    lifetimes."""

    __slots__ = ("began", "spells")

    def __init__(self) -> None:
        #: Begin of the current pause.
        self.began: float | None = None
        #: Begin and end of finished pauses.
        self.spells: list[tuple[float, float]] = []

    def begin(self, now: float) -> None:
        if self.began is None:
            self.began = now

    def finish(self, now: float) -> None:
        if self.began is None:
            return
        self.spells.append((self.began, now))
        self.began = None
        if len(self.spells) > REMEMBERED_PAUSES:
            (begin, _), (_, end) = self.spells[:2]
            self.spells[:2] = [(begin, end)]

    def since(self, moment: float) -> float:
        """Return the seconds of finished pauses after ``moment``."""
        return sum(end - max(begin, moment) for begin, end in self.spells if end > moment)

    def restore(self, state: QueueState, *, offset: float) -> None:
        self.spells = [(begin - offset, end - offset) for begin, end in state.pauses]
        self.began = shifted(state.paused_since, -offset)


class ListenerHealth:
    __slots__ = (
        "_failed_at",
        "_failure_told_at",
        "_told_at",
        "discards_after",
        "failing_since",
        "failures",
        "hold",
        "is_brought_forward",
        "is_failure_told",
        "next_attempt_at",
        "pauses",
        "troubled_since",
    )

    def __init__(self) -> None:
        #: No attempt before this time; None: immediately; infinite: none until a change.
        self.next_attempt_at: float | None = None
        #: Whether somebody has ended the wait for it: the limits of attempts do not count it.
        self.is_brought_forward = False
        #: Failed attempts since the last success.
        self.failures = 0
        #: When the first of them failed.
        self.failing_since: float | None = None
        # When the last of them failed.
        self._failed_at: float | None = None
        #: Whether the log has them.
        self.is_failure_told = False
        # When a failure was last logged.
        self._failure_told_at = -math.inf
        #: See ``DeliveryOutcome.hold``.
        self.hold: Hold | None = None
        # When a pause was last logged.
        self._told_at = -math.inf
        #: Attempts after which the indication that was refused last is discarded.
        self.discards_after = REFUSALS
        #: When it began to fail or was held, without a success since.
        self.troubled_since: float | None = None
        self.pauses = Pauses()

    # ------------------------------------------------------------------ the next attempt

    def wait_until(self, moment: float) -> None:
        self.next_attempt_at = moment

    def retry_now(self) -> None:
        self.next_attempt_at, self.is_brought_forward = None, False

    @property
    def waits_for_a_change(self) -> bool:
        return self.next_attempt_at == math.inf

    def hurry(self) -> None:
        """Retry now, unless nothing is sent until a change."""
        if not self.waits_for_a_change:
            self.next_attempt_at = None

    def bring_forward(self) -> bool:
        """Retry now, for somebody who asks for it; return False if no retry waits."""
        if self.next_attempt_due is None:
            return False
        self.next_attempt_at, self.is_brought_forward = None, True
        return True

    @property
    def next_attempt_due(self) -> float | None:
        """When the next attempt is scheduled; None: it is not."""
        return None if self.waits_for_a_change else self.next_attempt_at

    # ------------------------------------------------------------------ failures

    def count_failure(self, *, began_at: float, now: float) -> None:
        """Count a failed attempt, unless it was already under way at the last failure."""
        if self._failed_at is None or began_at >= self._failed_at:
            self.failures += 1
            self._failed_at = now

    def note_refusal(self, discard_after: int) -> None:
        self.discards_after = discard_after

    def begin_failing(self, now: float) -> bool:
        """Note a failure; return whether to log it: once until a success."""
        if self.failing_since is None:
            self.failing_since, self.is_failure_told = now, False
        self.begin_trouble(now)
        if self.is_failure_told or now - self._failure_told_at < FLAPPING_SECONDS:
            return False
        self.is_failure_told, self._failure_told_at = True, now
        return True

    def begin_trouble(self, now: float) -> None:
        if self.troubled_since is None:
            self.troubled_since = now

    def restart_trouble(self, now: float) -> None:
        """Restart the trouble now: nothing was tried meanwhile."""
        if self.troubled_since is not None:
            self.troubled_since = now

    def reset(self) -> None:
        """Forget all failures: they say nothing of the next attempt."""
        self.failures = 0
        self.failing_since = self._failed_at = self.troubled_since = None

    # ------------------------------------------------------------------ holds

    @property
    def is_held(self) -> bool:
        """Whether lifetimes stop too."""
        return self.hold is not None and not self.hold.cause.is_pause

    @property
    def is_paused(self) -> bool:
        return self.hold is not None and self.hold.cause.is_pause

    def hold_for(self, cause: HoldCause, message: str, now: float) -> Hold:
        before = self.hold
        since = now if before is None else before.since
        is_told = True
        if cause.is_pause:
            goes_on = before is not None and before.cause is cause and before.is_told
            is_told = goes_on or now - self._told_at >= QUIET_SECONDS
            if is_told and not goes_on:
                self._told_at = now
        self.hold = Hold(cause, message, since, is_told)
        self.begin_trouble(now)
        return self.hold

    def release(self) -> Hold | None:
        hold, self.hold = self.hold, None
        return hold

    def forget_trouble_of_hold(self) -> None:
        """Keep only the trouble of failures: no attempt will tell whether a hold is over."""
        self.troubled_since = self.failing_since

    # ------------------------------------------------------------------ over restarts

    def restore(
        self, state: QueueState, *, offset: float, now: float, longest_wait: float, is_empty: bool
    ) -> None:
        """Continue from the previous run. ``offset`` is the journal's, ``longest_wait`` the retry
        policy's longest interval; ``is_empty``: nothing is pending."""
        self.failures = state.failures
        self.failing_since = shifted(state.failing_since, -offset)
        self.is_failure_told = self.failing_since is not None
        self.troubled_since = shifted(state.troubled_since or state.failing_since, -offset)
        if state.next_attempt_at is not None and state.next_attempt_at - offset > now:
            # A clock set back meanwhile must not extend the wait beyond the policy.
            self.next_attempt_at = min(state.next_attempt_at - offset, now + longest_wait)
        self.pauses.restore(state, offset=offset)
        if state.hold is None:
            return
        cause, message, since = state.hold
        if is_empty:
            self.forget_trouble_of_hold()
        elif cause in _CAUSES:
            self.hold = Hold(HoldCause(cause), message, since - offset)
            # The cause may have been fixed.
            self.retry_now()


def shifted(time: float | None, by: float) -> float | None:
    return None if time is None else time + by


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    #: Begin, in seconds since the epoch.
    at: float
    #: IndicationIdentifier.
    identifier: str | None
    sequence_number: int
    #: 1 for the original attempt.
    attempt: int
    result: DeliveryResult
    detail: str
    #: HTTP status.
    status: int | None
    seconds: float


class QueueStatistics:
    """Counters since the start, and the last attempts."""

    __slots__ = (
        "_recent",
        "attempt_seconds",
        "attempted",
        "attempts",
        "dead_letters_refused",
        "dead_letters_taken",
        "delivered",
        "discarded",
        "handed_over",
        "high_water",
        "last_attempt_at",
        "last_discard_at",
        "last_outcome",
        "last_success_at",
        "suppressed",
    )

    def __init__(self) -> None:
        self.high_water = 0
        #: The failed attempts of this run at entries that are not settled, by number.
        self.attempted: dict[int, Attempted] = {}
        self.delivered = 0
        #: Suppressed by a repeat notification policy.
        self.suppressed = 0
        #: Accepted by a gateway at the end, instead of the listener.
        self.handed_over = 0
        #: Of what was discarded: handed to the dead-letter destination, or not taken there.
        self.dead_letters_taken = 0
        self.dead_letters_refused = 0
        #: Every result, in the order of the enumeration.
        self.attempts: dict[DeliveryResult, int] = dict.fromkeys(DeliveryResult, 0)
        #: Of all of them.
        self.attempt_seconds = 0.0
        #: Every reason, in the order of the enumeration.
        self.discarded: dict[DiscardReason, int] = dict.fromkeys(DiscardReason, 0)
        self.last_discard_at: float | None = None
        self.last_success_at: float | None = None
        self.last_attempt_at: float | None = None
        self.last_outcome: DeliveryOutcome | None = None
        # ``recent`` builds the records on demand.
        self._recent: deque[tuple[float, str | None, int, int, DeliveryOutcome, float]] = deque(
            maxlen=REMEMBERED_ATTEMPTS
        )

    def note_depth(self, depth: int) -> None:
        if depth > self.high_water:
            self.high_water = depth

    def begin_attempt(self, now: float) -> None:
        self.last_attempt_at = now

    def suppress(self) -> None:
        self.suppressed += 1

    def continue_from(self, discarded: dict[DiscardReason, int]) -> None:
        """Go on with the counts of a removed destination, which may still change."""
        self.discarded = discarded

    def add_discards(self, discarded: Mapping[DiscardReason, int]) -> None:
        for reason, count in discarded.items():
            self.discarded[reason] += count

    def hand_on(self, *, taken: bool) -> None:
        """Count what was offered to the destination of dead letters."""
        if taken:
            self.dead_letters_taken += 1
        else:
            self.dead_letters_refused += 1

    def discard(self, reason: DiscardReason, *, now: float) -> None:
        self.discarded[reason] += 1
        self.last_discard_at = now

    def record(
        self,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        number: int,
        at: float,
        seconds: float,
        hands_over: bool,
        now: float,
    ) -> None:
        """Count and remember a finished attempt, unless it gave way.

        ``number`` is its SequenceNumber, ``at`` its begin in seconds since the epoch;
        ``hands_over``: to a gateway, instead of the listener.
        """
        if not outcome.preempted:
            self.attempts[outcome.result] += 1
            self.attempt_seconds += seconds
            self.last_outcome = outcome
        if outcome.result is DeliveryResult.SUCCESS:
            if hands_over:
                self.handed_over += 1
            else:
                self.delivered += 1
            self.last_success_at = now
        identifier = entry.indication.identifier
        self._recent.append((at, identifier, number, entry.attempts + 1, outcome, seconds))

    @property
    def is_tried(self) -> bool:
        """Whether this run has finished an attempt."""
        return any(self.attempts.values())

    @property
    def last_failure(self) -> tuple[str, str, str, int | None] | None:
        """Return the last outcome for ``QueueState``, if it is a failure."""
        last = self.last_outcome
        cause = None if last is None else last.failure_cause
        if last is None or cause is None:
            return None
        return last.result.value, cause.value, last.detail, last.status

    def restore(self, state: QueueState) -> None:
        """Show the last failure of the previous run until this run's first attempt."""
        if state.last_failure is None:
            return
        result, cause, detail, status = state.last_failure
        # A later version may know others.
        if result in _RESULTS and cause in _FAILURE_CAUSES:
            self.last_outcome = DeliveryOutcome(
                DeliveryResult(result), detail, status=status, cause=FailureCause(cause)
            )

    @property
    def recent(self) -> list[AttemptRecord]:
        """Oldest first."""
        return [
            AttemptRecord(
                at=at,
                identifier=identifier,
                sequence_number=number,
                attempt=attempt,
                result=outcome.result,
                detail=outcome.detail,
                status=outcome.status,
                seconds=seconds,
            )
            for at, identifier, number, attempt, outcome, seconds in self._recent
        ]
