"""Bounds the links to plug-ins of one deliverer, and waits for their ends.

At the limit, links wait for their turn, untimed, as attempts wait for connections
(:mod:`pillion_sidecar.handlers.transport.outgoing`), with the same shares.
"""

import asyncio
from typing import Protocol

from pillion_sidecar.clock import Timers
from pillion_sidecar.handlers.transport.outgoing import OutgoingConnections

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
    """A link that has a slot, or waits for one."""

    @property
    def is_idle(self) -> bool:
        """Its process only waits for a delivery."""

    @property
    def failures(self) -> int:
        """See :class:`pillion_sidecar.handlers.transport.outgoing.AnswerTimes`."""

    @property
    def is_overdue(self) -> bool:
        """The answer takes far longer than the plug-in's longest."""

    def begin(self) -> None:
        """Its slot is free: it may start."""

    def end_idle(self) -> None: ...

    def give_way(self) -> None:
        """End the attempts under way, and the link."""


class Slot:
    """The place of one start of a link, until its process and descriptors are gone."""

    __slots__ = ("_slots", "failures", "is_held", "link", "owner")

    #: Its process takes a while to end, so :meth:`LinkSlots.take` ends idle links itself.
    is_idle = False

    def __init__(self, link: Holder, slots: "LinkSlots") -> None:
        self._slots = slots
        #: None once the link uses it no more.
        self.link: Holder | None = link
        self.owner: object = link
        self.failures = link.failures
        #: It waits no more.
        self.is_held = False

    @property
    def is_overdue(self) -> bool:
        return self.link is not None and self.link.is_overdue

    def close_idle(self) -> None:
        """See :attr:`is_idle`."""

    def give_way(self) -> None:
        if self.link is not None:
            self.link.give_way()

    def admitted(self) -> None:
        self._slots.hold(self)
        if self.link is not None:
            self.link.begin()

    def leave(self) -> None:
        """The link uses it no more. It stays taken until :meth:`give`, unless it still waits."""
        self.link = None
        if not self.is_held:
            self.give()

    def give(self) -> None:
        """Nothing of the link is left."""
        self._slots.give(self)


class LinkSlots:
    def __init__(self, *, timers: Timers, most: int = MOST_LINKS) -> None:
        self._timers = timers
        self._turns = OutgoingConnections(most, timers=timers)
        # In the order of their start.
        self._held: dict[Slot, None] = {}
        self._changed = asyncio.Event()
        self._is_late = False

    @property
    def taken(self) -> int:
        return len(self._held)

    @property
    def is_crowded(self) -> bool:
        """Others wait for a slot."""
        return self._turns.is_crowded

    def take(self, link: Holder) -> Slot:
        """Return a slot. Unless it is held, ``link.begin`` is called when it is."""
        slot = Slot(link, self)
        if self._turns.take(slot):
            self.hold(slot)
        else:
            self._end_idle(slot)
        return slot

    def hold(self, slot: Slot) -> None:
        slot.is_held = True
        self._held[slot] = None

    def give(self, slot: Slot) -> None:
        self._held.pop(slot, None)
        self._turns.give(slot)
        self._changed.set()

    def _end_idle(self, waiting: Slot) -> None:
        """End one idle link for each that waits: of its own kind first, since the slots of the
        other kind may not be for it."""
        idle = [one for one in self._held if one.link is not None and one.link.is_idle]
        idle.sort(key=lambda one: (one.failures > 0) is not (waiting.failures > 0))
        for slot in idle[:1]:
            assert slot.link is not None
            slot.link.end_idle()

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
