"""The failures of intake."""


class IntakeError(Exception):
    """What a publisher sent is not taken. The text says why."""
