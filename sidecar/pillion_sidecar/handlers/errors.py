"""The failures of handlers."""


class HandlerError(Exception):
    """A request to a listener cannot be made or sent. The text says why, and holds no secret."""
