"""The health of one listener: what the attempts say of it, and when the next one is due."""

from pillion_sidecar.config.schema.destination import HoldCause
from pillion_sidecar.delivery.handler import Hold
from pillion_sidecar.journal.ports import QueueState

#: Pauses remembered; the oldest are merged, which can only lengthen a lifetime.
REMEMBERED_PAUSES = 64
_CAUSES = frozenset(HoldCause)


class Pauses:
    """The times in which a destination was suspended or held: they count neither against attempts
    nor against lifetimes."""

    __slots__ = ("began", "spells")

    def __init__(self) -> None:
        #: When the pause under way began; None without one.
        self.began: float | None = None
        #: Begin and end of those that are over.
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
        """Return how many seconds of finished pauses lie after ``moment``."""
        if not self.spells:
            return 0.0
        return sum(end - max(begin, moment) for begin, end in self.spells if end > moment)

    def restore(self, state: QueueState, *, offset: float) -> None:
        """Continue with the pauses of the run before."""
        self.spells = [(begin - offset, end - offset) for begin, end in state.pauses]
        self.began = shifted(state.paused_since, -offset)


class ListenerHealth:
    """Failures, holds and the next attempt (S0.5, S0.8). Times are ``Clock.monotonic()``."""

    __slots__ = (
        "_failed_at",
        "failing_since",
        "failures",
        "hold",
        "next_attempt_at",
        "pauses",
        "troubled_since",
    )

    def __init__(self) -> None:
        #: No attempt before it, after a failure; None: as soon as it may.
        self.next_attempt_at: float | None = None
        #: Attempts and retries that failed since the last success.
        self.failures = 0
        #: When the first of them did.
        self.failing_since: float | None = None
        # When the last of them did.
        self._failed_at: float | None = None
        #: What is wrong with the destination itself: see ``DeliveryOutcome.hold``.
        self.hold: Hold | None = None
        #: When it began to fail or was held, without a success since.
        self.troubled_since: float | None = None
        self.pauses = Pauses()

    # ------------------------------------------------------------------ the next attempt

    def wait_until(self, moment: float) -> None:
        """Attempt nothing before ``moment``."""
        self.next_attempt_at = moment

    def retry_now(self) -> None:
        """Wait for no retry interval."""
        self.next_attempt_at = None

    # ------------------------------------------------------------------ failures

    def count_failure(self, *, began_at: float, now: float) -> None:
        """Count a failed attempt. One that was under way at the last failure failed with it."""
        if self._failed_at is None or began_at >= self._failed_at:
            self.failures += 1
            self._failed_at = now

    def begin_failing(self, now: float) -> bool:
        """Note a failure; return whether it is the first since the last success."""
        first = self.failing_since is None
        if first:
            self.failing_since = now
        self.begin_trouble(now)
        return first

    def begin_trouble(self, now: float) -> None:
        """Note that nothing gets through."""
        if self.troubled_since is None:
            self.troubled_since = now

    def restart_trouble(self, now: float) -> None:
        """Count the trouble from now on: nothing was tried meanwhile."""
        if self.troubled_since is not None:
            self.troubled_since = now

    def reset(self) -> None:
        """Forget all failures: they say nothing of the next attempt."""
        self.failures = 0
        self.failing_since = self._failed_at = self.troubled_since = None

    # ------------------------------------------------------------------ holds

    def hold_for(self, cause: HoldCause, message: str, now: float) -> Hold:
        """Hold, or go on to hold."""
        since = now if self.hold is None else self.hold.since
        self.hold = Hold(cause, message, since)
        self.begin_trouble(now)
        return self.hold

    def release(self) -> Hold | None:
        """End a hold; return the one that there was."""
        hold, self.hold = self.hold, None
        return hold

    def forget_trouble_of_hold(self) -> None:
        """Know no trouble but that of failures: no attempt will say whether a hold is over."""
        self.troubled_since = self.failing_since

    # ------------------------------------------------------------------ over restarts

    def restore(
        self, state: QueueState, *, offset: float, now: float, longest_wait: float, is_empty: bool
    ) -> None:
        """Continue where the run before stopped. ``offset`` is the journal's, ``longest_wait`` the
        retry policy's longest interval; ``is_empty``: whether nothing is pending."""
        self.failures = state.failures
        self.failing_since = shifted(state.failing_since, -offset)
        self.troubled_since = shifted(state.troubled_since or state.failing_since, -offset)
        if state.next_attempt_at is not None and state.next_attempt_at - offset > now:
            # A clock that was set back meanwhile must not keep it waiting for longer than its
            # policy.
            self.next_attempt_at = min(state.next_attempt_at - offset, now + longest_wait)
        self.pauses.restore(state, offset=offset)
        if state.hold is None:
            return
        cause, message, since = state.hold
        if is_empty:
            self.forget_trouble_of_hold()
        elif cause in _CAUSES:
            self.hold = Hold(HoldCause(cause), message, since - offset)
            # It may have been mended meanwhile.
            self.retry_now()


def shifted(time: float | None, by: float) -> float | None:
    """Return a time in another clock; None stays None."""
    return None if time is None else time + by
