class IntakeError(Exception):
    """A publisher's request is refused. The text says why."""
