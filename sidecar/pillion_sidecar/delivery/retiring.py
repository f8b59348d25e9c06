"""Handlers that a change of their destination has replaced."""

from collections.abc import Sequence

from pillion_sidecar.delivery.entries import QueueEntry
from pillion_sidecar.delivery.handler import Handler


class RetiringHandlers:
    """Each goes on until the attempts end that began with it, and is closed with the last one."""

    __slots__ = ("under_way",)

    def __init__(self) -> None:
        #: Each with its attempts under way; none without one.
        self.under_way: list[tuple[Handler, list[QueueEntry]]] = []

    def add(self, handler: Handler, flying: Sequence[QueueEntry]) -> None:
        """Have a handler go on for what is in flight; all that is has begun with it, or with one
        that is here already."""
        self.under_way.append((handler, list(flying)))

    def land(self, entry: QueueEntry) -> None:
        """Note that an entry is no longer in flight."""
        for handler, flying in self.under_way:
            if entry in flying:
                flying.remove(entry)
                if not flying:
                    handler.close()
        self.under_way = [pair for pair in self.under_way if pair[1]]

    def close(self) -> None:
        """Close them all; attempts under way are abandoned."""
        for handler, _ in self.under_way:
            handler.close()
        self.under_way.clear()
