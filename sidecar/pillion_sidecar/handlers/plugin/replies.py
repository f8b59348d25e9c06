"""The reply queue: the list of commands that wait for a reply (S2.2), and its time-out (S2.4)."""

from collections.abc import Callable
from dataclasses import dataclass

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.delivery.handler import DeliveryOutcome

#: Time-outs that a command waits for its reply, whatever other messages come: a plug-in that sends
#: some and answers nothing would keep its destination for ever.
MOST_TIMEOUTS = 3
# Timers may fire this much early.
_SLACK = 0.001


@dataclass(slots=True, eq=False)
class Command:
    """One delivery; ``initialize`` has no ``done``."""

    params: bytes
    done: Callable[[DeliveryOutcome], None] | None = None
    #: Bytes that were written up to the end of its line, over the whole connection.
    end_offset: int = 0
    #: ``Clock.monotonic()`` when it was written.
    written_at: float = 0.0


class ReplyQueue:
    """One timer serves the time-out and the idle end. It is set at most one time-out ahead, so a
    delivery changes a number and no heap."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        timeout: float,
        idle_seconds: float,
        expired: Callable[[], None],
        idle: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self.timeout = timeout
        self._idle_seconds = idle_seconds
        self._expired = expired
        self._idle = idle
        self._pending: dict[int | str | float | None, Command] = {}
        #: ``Clock.monotonic()`` of the last message, or of the first pending command.
        self._heard_at = 0.0
        #: That of the last answer to a command: messages that answer nothing do not keep a link.
        self._answered_at = 0.0
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def expect(self, number: int, command: Command) -> None:
        """The time-out runs while anything is pending."""
        command.written_at = self._clock.monotonic()
        if not self._pending:
            self._heard_at = command.written_at
        self._pending[number] = command
        if self._timer is None:
            self._timer = self._timers.call_at(self._heard_at + self.timeout, self._due)

    @property
    def is_silent(self) -> bool:
        """Whether the last message is a time-out ago."""
        return self._clock.monotonic() + _SLACK >= self._heard_at + self.timeout

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last message; 0 while nothing is pending."""
        return self._clock.monotonic() - self._heard_at if self._pending else 0.0

    @property
    def unanswered_seconds(self) -> float:
        """Seconds since the last answer, or the first pending command; 0 while nothing is
        pending."""
        if not self._pending:
            return 0.0
        oldest = next(iter(self._pending.values()))
        return self._clock.monotonic() - max(oldest.written_at, self._answered_at)

    def heard(self) -> None:
        """A message has come, whatever it says."""
        self._heard_at = self._clock.monotonic()

    def take(self, number: int | str | float | None) -> Command | None:
        """Return the command that a reply answers; None for an unknown id."""
        command = self._pending.pop(number, None)
        if command is not None:
            self._answered_at = self._clock.monotonic()
        return command

    def clear(self) -> list[Command]:
        """The link has ended: return what was pending."""
        pending = list(self._pending.values())
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return pending

    def _due(self) -> None:
        self._timer = None
        now = self._clock.monotonic() + _SLACK
        if self._pending:
            oldest = next(iter(self._pending.values()))
            answered_by = oldest.written_at + MOST_TIMEOUTS * self.timeout
            until = min(self._heard_at + self.timeout, answered_by)
        else:
            until = self._answered_at + self._idle_seconds
        if now < until:
            self._timer = self._timers.call_at(min(until, now + self.timeout), self._due)
        elif self._pending:
            self._expired()
        else:
            self._idle()
