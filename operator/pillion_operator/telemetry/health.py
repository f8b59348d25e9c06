"""Liveness: a watch that no longer tries has stalled. An unreachable API server is no reason for a
restart, since watches go on trying.
"""

from collections.abc import Callable, Iterable

from pillion_operator.watching import SERVER_TIMEOUT

#: Seconds without any attempt to watch a kind after which its watch has stalled. The API server
#: ends each watch after SERVER_TIMEOUT, so a live one begins anew more often than that.
STALLED_AFTER = 2.0 * SERVER_TIMEOUT


class WatchHealth:
    """When each watch last began."""

    def __init__(self, kinds: Iterable[str], *, monotonic: Callable[[], float]) -> None:
        """``kinds`` are plural names; each has until ``STALLED_AFTER`` from now to begin."""
        self._monotonic = monotonic
        self._began = dict.fromkeys(kinds, monotonic())

    def began(self, kind: str) -> None:
        self._began[kind] = self._monotonic()

    def stalled(self) -> dict[str, bool]:
        """By kind, whether its watch has stalled."""
        now = self._monotonic()
        return {kind: now - at > STALLED_AFTER for kind, at in self._began.items()}

    def problem(self) -> str | None:
        stalled = sorted(kind for kind, yes in self.stalled().items() if yes)
        if not stalled:
            return None
        return f"no watch of {', '.join(stalled)} has begun for {STALLED_AFTER:.0f} s"
