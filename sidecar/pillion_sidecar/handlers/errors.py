from pillion_sidecar.delivery.handler import FailureCause, HoldCause


class HandlerError(Exception):
    """A request to a listener cannot be made or sent. The text says why, and holds no secret."""


class InvalidDestinationError(HandlerError):
    """No request can be sent to the destination (S0.8: permanent). The text says why."""

    def __init__(self, message: str, *, cause: HoldCause = HoldCause.DESTINATION) -> None:
        super().__init__(message)
        self.cause = cause


class ConnectError(HandlerError):
    """No address could be connected to."""

    def __init__(
        self,
        message: str,
        *,
        hold: HoldCause | None = None,
        cause: FailureCause = FailureCause.RESET,
    ) -> None:
        """``hold``: the fault of the destination, if that is the cause."""
        super().__init__(message)
        self.hold = hold
        self.cause = cause


class DescriptorShortageError(HandlerError):
    """The process or the machine has no free descriptor."""


def described(error: Exception) -> str:
    """Return what an error is, in words, for an outcome."""
    if isinstance(error, OSError):
        timed_out = "the system gave it up" if isinstance(error, TimeoutError) else ""
        return error.strerror or timed_out or "the connection broke"
    return f"a fault of the deliverer ({type(error).__name__})"
