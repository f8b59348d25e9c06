"""A message group at its sender (S1.10): what may be sent, which acknowledgements have come, when
to poll for a fault, and how the group ends. Pure: the caller passes the time.

The rules are those of the sender's side in the OASIS WS-Reliability draft; t1 to t4 and d1 to d3
are its names. All delivery is guaranteed here: a group is complete only with all acknowledgements.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Moment(NamedTuple):
    """One moment on two clocks: idle times count by the first, which never goes back."""

    monotonic: float
    #: Seconds since the epoch.
    wall: float


class Termination(StrEnum):
    """How a group ended at its sender. Its state is not needed after that."""

    #: GroupExpiryTime is over.
    EXPIRED = "t1"
    #: GroupMaxIdleTime passed between two messages.
    IDLE = "t2"
    #: The last message was sent, and all are acknowledged.
    COMPLETE = "t3.1"
    #: The same in a group with neither GroupExpiryTime nor GroupMaxIdleTime.
    COMPLETE_UNTIMED = "t4.1"
    #: The last message was answered there, and another is not acknowledged.
    CUT_SHORT = "t4.2"
    #: A delivery has failed, and the application knows.
    FAILED = "failed"


class SenderGroup:
    """One group: its members, numbered from 0 in the order in which they are sent."""

    def __init__(
        self,
        name: str,
        *,
        ordered: bool,
        expires: float | None = None,
        max_idle_seconds: float | None = None,
    ) -> None:
        """``expires`` is GroupExpiryTime in seconds since the epoch."""
        self.name = name
        self.ordered = ordered
        self.expires = expires
        self.max_idle_seconds = max_idle_seconds
        #: Members that were sent.
        self.sent = 0
        #: The number of the last one, once it was sent.
        self.last: int | None = None
        #: Members that were sent and are not acknowledged.
        self.missing: set[int] = set()
        self.terminated: Termination | None = None
        #: Why, where a delivery has failed.
        self.failure: str | None = None
        self._highest_acknowledged = -1
        self._sent_at: float | None = None
        self._acknowledged_at: float | None = None

    @property
    def timed(self) -> bool:
        return self.expires is not None or self.max_idle_seconds is not None

    @property
    def is_broken(self) -> bool:
        """Whether a message was acknowledged behind one that was not: where order is kept it is
        held, and its fault comes when the receiver gives the group up."""
        return bool(self.missing) and min(self.missing) < self._highest_acknowledged

    # ------------------------------------------------------------------ messages

    def refusal(self, now: Moment) -> str | None:
        """Return why no further message of the group may be sent now; None where one may."""
        self.advance(now)
        if self.failure is not None:
            return self.failure
        if self.terminated is Termination.EXPIRED:
            return f"group {self.name} has expired: what was not sent by then cannot be any more"
        if self.terminated is Termination.IDLE:
            return (
                f"group {self.name} has ended: more than {self.max_idle_seconds:g} s passed between"
                " two of its messages"
            )
        if self.last is not None:
            return f"group {self.name} has ended with its last message"
        if self.ordered and not self.timed and self.missing:
            # d3's SHOULD: whatever came out of order would be discarded, and the group with it.
            return f"group {self.name} waits for an acknowledgement"
        return None

    def send(self, count: int, *, last: bool, now: Moment) -> range:
        """Note that so many further messages are sent; return their numbers. ``last``: the last of
        them is the group's. Only where :meth:`refusal` has none."""
        numbers = range(self.sent, self.sent + count)
        self.sent = numbers.stop
        self.missing.update(numbers)
        if last:
            self.last = numbers.stop - 1
        self._sent_at = now.monotonic
        if self._acknowledged_at is None:
            # Where no acknowledgement ever comes, GroupMaxIdleTime counts from the first message.
            self._acknowledged_at = now.monotonic
        return numbers

    def send_again(self, now: Moment) -> str | None:
        """Note that messages which were sent before are sent again; return why they may not."""
        self.advance(now)
        if self.terminated is not None:
            return self.failure or f"group {self.name} ended ({self.terminated.value}) meanwhile"
        self._sent_at = now.monotonic
        return None

    def acknowledge(self, numbers: Iterable[int], now: Moment) -> None:
        """Note acknowledgements (S1.9: by response, callback or poll)."""
        acknowledged = list(numbers)
        self.missing.difference_update(acknowledged)
        self._highest_acknowledged = max(self._highest_acknowledged, *acknowledged, -1)
        self._acknowledged_at = now.monotonic
        self.advance(now)

    def end(self) -> None:
        """Note that no acknowledgement comes any more: all tries are made."""
        if self.terminated is None and self.last is not None and self.missing and not self.timed:
            self.terminated = Termination.CUT_SHORT

    def fail(self, why: str) -> None:
        """Note that a delivery has failed: no further message may be sent."""
        if self.failure is None:
            self.failure = why
            self.terminated = Termination.FAILED

    # ------------------------------------------------------------------ time

    def advance(self, now: Moment) -> Termination | None:
        """Note what time and the acknowledgements have done; return how the group ended, if it has.

        Where it has both, GroupExpiryTime counts and GroupMaxIdleTime does not, as at the receiver.
        """
        if self.terminated is None:
            self.terminated = self._ending(now)
        return self.terminated

    def _ending(self, now: Moment) -> Termination | None:
        if self.last is not None and not self.missing:
            return Termination.COMPLETE if self.timed else Termination.COMPLETE_UNTIMED
        if self.expires is not None:
            return Termination.EXPIRED if now.wall >= self.expires else None
        if self.max_idle_seconds is None or self._sent_at is None:
            return None
        idle = now.monotonic - self._sent_at
        return Termination.IDLE if idle > self.max_idle_seconds else None

    def poll_in(self, now: Moment) -> float | None:
        """Return in how many seconds to poll for the fault of an ordered group whose sequence is
        broken: 0 for now, None for one that has no such moment.

        d1: GroupExpiryTime is over, and acknowledgements are missing. d2: GroupMaxIdleTime from the
        last acknowledgement is over, and not all have come.
        """
        if not self.ordered or not self.missing:
            return None
        if self.expires is not None:
            return max(0.0, self.expires - now.wall)
        if self.max_idle_seconds is None or self._acknowledged_at is None:
            return None
        return max(0.0, self._acknowledged_at + self.max_idle_seconds - now.monotonic)
