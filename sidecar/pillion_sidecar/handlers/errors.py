from pillion_sidecar.delivery.handler import HoldCause


class HandlerError(Exception):
    """A request to a listener cannot be made or sent. The text says why, and holds no secret."""


class ConnectError(HandlerError):
    """No address could be connected to."""

    def __init__(self, message: str, *, hold: HoldCause | None = None) -> None:
        """``hold``: the fault of the destination, if that is the cause."""
        super().__init__(message)
        self.hold = hold


class DescriptorShortageError(HandlerError):
    """The process or the machine has no free descriptor."""
