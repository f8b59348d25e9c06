"""When something is logged that happens often: the first at once, then what a minute brings."""

from collections.abc import Callable

from pillion_sidecar.clock import Timer, Timers

#: Seconds from one line of the log to the next.
SECONDS = 60.0


class MinuteLog:
    """Calls ``log`` when there is something to say, once a minute at most."""

    def __init__(self, *, timers: Timers, log: Callable[[], None]) -> None:
        self._timers = timers
        self._log = log
        self._timer: Timer | None = None
        self._has_news = False

    def news(self) -> None:
        """There is something to say."""
        self._has_news = True
        if self._timer is None:
            self._tell()

    def _tell(self) -> None:
        self._timer = None
        if self._has_news:
            self._has_news = False
            self._log()
            self._timer = self._timers.call_later(SECONDS, self._tell)

    def close(self) -> None:
        """Say what has not been said yet, and set no timer any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._has_news:
            self._has_news = False
            self._log()
