"""The failures of handlers."""

from pillion_sidecar.delivery.handler import HoldCause


class HandlerError(Exception):
    """A request to a listener cannot be made or sent. The text says why, and holds no secret."""


class ConnectError(HandlerError):
    """No address could be connected to."""

    def __init__(self, message: str, *, hold: HoldCause | None = None) -> None:
        """``hold``: what is wrong with the destination, where that is why."""
        super().__init__(message)
        self.hold = hold


class DescriptorShortageError(HandlerError):
    """The process, or the machine, has no descriptor left for a connection."""
