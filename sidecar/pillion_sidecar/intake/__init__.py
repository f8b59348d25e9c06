class IntakeError(Exception):
    """Intake refuses what a publisher sent. The text says why."""
