"""Names of signals."""

import signal


def signal_name(number: int) -> str:
    """Return such as ``SIGKILL``, or ``signal 40`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
