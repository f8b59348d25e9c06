"""The connection to one plug-in: what the transports have in common."""

from collections.abc import Callable
from typing import Protocol

from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.handlers.errors import HandlerError


class LinkError(HandlerError):
    """A plug-in cannot be started or connected to."""

    def __init__(
        self,
        message: str,
        *,
        hidden: str | None = None,
        hold: HoldCause | None = None,
        spends_attempt: bool = True,
    ) -> None:
        """``hidden``: the text without path and program, for a URL that is a secret; None if
        ``message`` has neither. ``hold``: the fault of the declaration, if that is the cause."""
        super().__init__(message)
        self.hidden = message if hidden is None else hidden
        self.hold = hold
        self.spends_attempt = spends_attempt


class Wire(Protocol):
    """A connection that is open: a queue of commands in one direction, and a queue of replies in
    the other (S2.1)."""

    @property
    def unsent(self) -> int:
        """Bytes at the end of what was written that the plug-in cannot have read; at least 1 where
        the connection broke before all was sent."""

    def write(self, line: bytes) -> bool:
        """Return False if nothing of it can be sent, since the connection is closed."""

    def end(self, *, at_once: bool) -> None:
        """End it: by the end of input, or ``at_once`` by a signal. The owner hears no more of it.
        Idempotent."""


class WireOwner(Protocol):
    def wire_opened(self, wire: Wire) -> None: ...

    def wire_received(self, wire: Wire, line: bytes) -> None: ...

    def wire_lost(self, wire: Wire, reason: str) -> None:
        """Called at most once; the owner then ends the wire."""


class Opener(Protocol):
    async def open(self, owner: WireOwner, gone: Callable[[], None]) -> None:
        """Open a wire, and call ``owner.wire_opened`` with it.

        ``gone`` is called exactly once, when nothing is left: no process, no descriptor.

        Raises LinkError.
        """
