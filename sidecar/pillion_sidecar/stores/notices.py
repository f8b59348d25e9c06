"""What the log says of stores that do not take the journal."""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.stores.members import NO_ANSWER

logger = logging.getLogger("pillion.stores")

#: Seconds until missed stores are told of: a store that is restarted is back before.
STALL_SECONDS = 10.0


class StallNotice:
    """Tells once that nothing becomes stable, and once that it does again."""

    def __init__(self, *, timers: Timers) -> None:
        self._timers = timers
        self._timer: Timer | None = None
        self._is_told = False

    def change(self, stalled: Callable[[], Mapping[str, str]]) -> None:
        """``stalled``: the stores that are missed, and why; it has begun or ended."""
        self.close()
        if stalled():
            self._timer = self._timers.call_later(STALL_SECONDS, partial(self._tell, stalled))
        elif self._is_told:
            self._is_told = False
            logger.info("enough stores take the journal again", extra={"event": "stores-back"})

    def _tell(self, stalled: Callable[[], Mapping[str, str]]) -> None:
        self._timer, self._is_told = None, True
        missed = stalled()
        logger.warning(
            "too few stores take the journal, so nothing becomes stable; missed are: %s",
            reasons(missed, missed),
            extra={"event": "stores-missed", "stores": list(missed)},
        )

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class ResponseNotices:
    """Tells once that a store does not respond, and once that it does again."""

    def __init__(self, *, timers: Timers) -> None:
        self._timers = timers
        self._waiting: dict[str, Timer] = {}
        self._told: set[str] = set()

    def change(self, store: str, problem: str | None) -> None:
        """``problem``: None once it takes the journal again."""
        if problem is not None:
            tell = partial(self._tell, store, problem)
            self._waiting[store] = self._timers.call_later(STALL_SECONDS, tell)
        elif (timer := self._waiting.pop(store, None)) is not None:
            timer.cancel()
        elif store in self._told:
            self._told.remove(store)
            logger.info(
                "store %s takes the journal again",
                store,
                extra={"event": "store-responsive", "store": store},
            )

    def _tell(self, store: str, problem: str) -> None:
        del self._waiting[store]
        self._told.add(store)
        logger.warning(
            "store %s does not take the journal: %s",
            store,
            problem,
            extra={"event": "store-unresponsive", "store": store},
        )

    def close(self) -> None:
        for timer in self._waiting.values():
            timer.cancel()


def reasons(missed: Iterable[str], problems: Mapping[str, str]) -> str:
    return "; ".join(f"{name} ({problems.get(name, NO_ANSWER)})" for name in missed)
