"""Bounds the links to plug-ins of one deliverer, and waits for their ends."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from pillion_sidecar.clock import Timers

#: Maximum number of links of one deliverer. A Python program takes some 10 MiB, so these fit beside
#: a deliverer where a few thousand, one for each destination, would not.
MOST_LINKS = 64
#: Seconds from the end of a plug-in's input to SIGTERM, and from there to SIGKILL. A stopping
#: deliverer waits for both, and Kubernetes gives it 5 seconds beyond delivery.
GRACE_SECONDS = 1.0
#: Descriptors of a link: three pipes and the process.
LINK_DESCRIPTORS = 4
#: Seconds that a stopping deliverer waits for its plug-ins: for both signals, and a little more.
CLOSING_SECONDS = 2 * GRACE_SECONDS + 0.5


class Holder(Protocol):
    @property
    def is_idle(self) -> bool: ...

    def end_idle(self) -> None: ...


class LinkSlots:
    def __init__(self, *, timers: Timers, most: int = MOST_LINKS) -> None:
        self._timers = timers
        self._most = most
        # In the order of their start.
        self._held: dict[object, Holder] = {}
        self._changed = asyncio.Event()
        self._is_late = False

    def take(self, holder: Holder) -> Callable[[], None] | None:
        """Return what gives the slot back, when nothing of the link is left. None if all are taken;
        then an idle link is ended, so that a later attempt finds a slot."""
        if len(self._held) >= self._most:
            idle = next((one for one in self._held.values() if one.is_idle), None)
            if idle is not None:
                idle.end_idle()
            return None
        slot = object()
        self._held[slot] = holder
        return partial(self._give, slot)

    async def close(self) -> None:
        """Wait until all links have ended, for at most :data:`CLOSING_SECONDS`."""
        timer = self._timers.call_later(CLOSING_SECONDS, self._give_up)
        while self._held and not self._is_late:
            self._changed.clear()
            await self._changed.wait()
        timer.cancel()

    def _give_up(self) -> None:
        self._is_late = True
        self._changed.set()

    def _give(self, slot: object) -> None:
        self._held.pop(slot, None)
        self._changed.set()
