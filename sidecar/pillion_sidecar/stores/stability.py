"""How long the journal waits for its stores, and what it gives up before it is stable (S3.3).

A record is *forced* if it is discarded, or its segment removed, before enough stores have it.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from pillion_sidecar.clock import Clock, Timer, Timers

logger = logging.getLogger("pillion.stores")

#: Writes that are told apart; beyond, neighbours are taken together.
MOST_MARKS = 1024


class ForcedBy(StrEnum):
    """Why a segment is removed before it is stable."""

    #: It was not stable for ``stores.stabilityLifetimeSeconds``.
    LIFETIME = "lifetime"
    #: More than ``stores.flightSize`` is not stable.
    FLIGHT_SIZE = "flight-size"
    #: The folder has no space for it.
    VOLUME = "volume"


class _Mark(NamedTuple):
    """A write, or some that follow each other."""

    position: int
    last_id: int
    #: ``Clock.monotonic()``, of the first.
    at: float
    writes: int

    def with_next(self, position: int, last_id: int, *, writes: int = 1) -> "_Mark":
        return _Mark(position, last_id, self.at, self.writes + writes)


class Stability:
    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        lifetime: float,
        flight_size: int,
        continues: bool,
        base: int,
        last_id: int,
        released: Callable[[], None],
    ) -> None:
        """``lifetime``: seconds that the journal keeps what is not stable. ``continues``: whether
        more than ``flight_size`` may be in too few stores. ``base``: the end of the log at the
        start; ``last_id``: the greatest id before it. ``released`` is called when a segment that
        was kept need not be kept any more."""
        self._clock, self._timers, self._released = clock, timers, released
        self._lifetime, self._flight_size = lifetime, flight_size
        self._continues = continues
        self._last_id, self._is_over = last_id, False
        self._marks = deque([_Mark(base, last_id, clock.monotonic(), 1)])
        # Writes in one mark.
        self._together = 1
        #: The greatest id below which all is stable.
        self._stable_id = 0
        # Whether a segment was kept since the last release.
        self._is_kept = False
        self._timer: Timer | None = None
        #: Discards of indications that were not stable, by reason.
        self.discards = Counter[str]()
        #: Segments that were removed before they were stable, by cause.
        self.segments = Counter[ForcedBy]()
        #: Indications that were accepted while more than ``flight_size`` was in too few stores.
        self.unprotected = 0

    @property
    def age(self) -> float:
        """Seconds since the oldest write that is not stable; 0 if all is."""
        return self._clock.monotonic() - self._marks[0].at if self._marks else 0.0

    def written(self, position: int, last_id: int, *, unstable: int) -> None:
        """All before ``position`` is on disk: ids up to ``last_id``. ``unstable``: bytes in too few
        stores."""
        if self._continues:
            self._watch(last_id, unstable)
        marks = self._marks
        if not marks:
            self._together = 1
        elif marks[-1].writes < self._together:
            marks[-1] = marks[-1].with_next(position, last_id)
            return
        elif len(marks) >= MOST_MARKS:
            self._together *= 2
            pairs = zip(*[iter([*marks])] * 2, strict=True)
            self._marks = marks = deque(
                one.with_next(two.position, two.last_id, writes=two.writes) for one, two in pairs
            )
        marks.append(_Mark(position, last_id, self._clock.monotonic(), 1))

    def _watch(self, last_id: int, unstable: int) -> None:
        is_over = unstable > self._flight_size
        if is_over:
            self.unprotected += last_id - self._last_id
        self._last_id = last_id
        if is_over is self._is_over:
            return
        self._is_over = is_over
        if is_over:
            logger.warning(
                "%d bytes of the journal are in too few stores, more than stores.flightSize;"
                " withoutQuorum is Continue, so more is accepted, and lost with the volume",
                unstable,
                extra={"event": "flight-exceeded", "bytes": unstable},
            )
        else:
            logger.info(
                "no more than stores.flightSize is in too few stores again",
                extra={"event": "flight-back", "count": self.unprotected},
            )

    def advance(self, stable: int, *, unstable: int) -> None:
        """All before ``stable`` is stable. ``unstable``: bytes in too few stores."""
        marks = self._marks
        while marks and marks[0].position <= stable:
            self._stable_id = marks.popleft().last_id
        if self._is_over:
            self._watch(self._last_id, unstable)
        self._release()

    def forces(self, indication_id: int, reason: str) -> bool:
        """Count a discard; return whether the indication is not stable."""
        if indication_id <= self._stable_id:
            return False
        self.discards[reason] += 1
        return True

    def keeps(self, *, unstable: int, is_crowded: bool) -> bool:
        """Whether the oldest segment, which is not stable, waits for the stores. ``unstable``:
        bytes in too few stores; ``is_crowded``: the folder has no space for it."""
        if self._cause(unstable, is_crowded) is not None:
            return False
        self._is_kept = True
        if self._timer is None:
            self._timer = self._timers.call_later(self._lifetime - self.age, self._expired)
        return True

    def _cause(self, unstable: int, is_crowded: bool) -> ForcedBy | None:
        if is_crowded:
            return ForcedBy.VOLUME
        if unstable > self._flight_size:
            return ForcedBy.FLIGHT_SIZE
        return ForcedBy.LIFETIME if self.age >= self._lifetime else None

    def removed(self, number: int, *, unstable: int) -> None:
        """A segment that is not stable is about to be removed."""
        cause = self._cause(unstable, is_crowded=False) or ForcedBy.VOLUME
        self.segments[cause] += 1
        logger.warning(
            "segment %x of the journal is removed before it is stable: %s; what is pending in it"
            " was copied forward",
            number,
            cause.value,
            extra={"event": "segment-forced", "segment": f"{number:x}", "cause": cause.value},
        )

    def _expired(self) -> None:
        self._timer = None
        self._release()

    def _release(self) -> None:
        if self._is_kept:
            self._is_kept = False
            self._released()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
