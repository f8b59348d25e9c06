"""The right to deliver, which the answers of stores renew (``stores.fencing: Lease``).

Whoever claims the journal has the promise of enough stores, and each set of stores that can renew
the lease has one of these. So a lease ends within its seconds after another's claim. What counts is
when a request was sent: the store may have answered it before it heard of the claim.
"""

import logging
from collections.abc import Callable

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.stores.quorum import Membership, is_viable

logger = logging.getLogger("pillion.stores")

#: Requests for each lease: one that is lost ends none.
BEATS = 4


class Lease:
    def __init__(
        self,
        membership: Membership,
        *,
        seconds: float,
        delay: float,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """``delay``: seconds until it may begin, for the lease of a writer before."""
        self._membership = membership
        self._seconds = seconds
        self._clock, self._timers = clock, timers
        self._begin = clock.monotonic() + delay
        #: By store, when the last request that it has answered was sent.
        self._renewed: dict[str, float] = {}
        self._end = self._begin
        self._held = False
        self._changed: Callable[[], None] = _nobody
        self._beat: Callable[[], None] = _nobody
        self._timer: Timer | None = None
        self._beating: Timer | None = None

    def holds(self) -> bool:
        """Whether a delivery may begin now."""
        return self._begin <= self._clock.monotonic() < self._end

    @property
    def left(self) -> float:
        """Seconds until it ends; 0 if it does not hold."""
        return self._end - self._clock.monotonic() if self.holds() else 0.0

    def follow(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever it holds again."""
        self._changed = changed

    def start(self, beat: Callable[[], None]) -> None:
        """``beat`` has each store answer something."""
        self._beat = beat
        self._next_beat()
        self._watch()

    def now(self) -> float:
        return self._clock.monotonic()

    def renew(self, store: str, sent_at: float) -> None:
        """A store has done what it was asked for at ``sent_at`` (``now()``)."""
        if sent_at <= self._renewed.get(store, 0.0):
            return
        self._renewed[store] = sent_at
        for at in sorted(self._renewed.values(), reverse=True):
            fresh = {name for name, renewed in self._renewed.items() if renewed >= at}
            if is_viable(self._membership, fresh):
                self._end = max(self._end, at + self._seconds)
                break
        if self._timer is None or self.holds() is not self._held:
            self._watch()

    def _watch(self) -> None:
        """Tell what has changed, and look again when it ends or may begin."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now, held = self._clock.monotonic(), self.holds()
        if now < self._begin < self._end:
            self._timer = self._timers.call_at(self._begin, self._watch)
        elif held:
            self._timer = self._timers.call_at(self._end, self._watch)
        if held is self._held:
            return
        self._held = held
        if held:
            logger.info(
                "enough stores have answered, so deliveries go on", extra={"event": "lease-held"}
            )
            self._changed()
        else:
            logger.warning(
                "for %g s too few stores have answered, so no delivery begins until enough do"
                " (stores.fencing is Lease)",
                self._seconds,
                extra={"event": "lease-lapsed"},
            )

    def _next_beat(self) -> None:
        self._beating = self._timers.call_later(self._seconds / BEATS, self._next_beat)
        self._beat()

    def close(self) -> None:
        for timer in (self._timer, self._beating):
            if timer is not None:
                timer.cancel()


def _nobody() -> None: ...
