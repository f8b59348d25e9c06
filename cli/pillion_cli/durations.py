"""Durations on the command line."""

import argparse
import math

#: Seconds that a command may be told to wait at most.
MAXIMUM_TIMEOUT = 3600.0


def seconds(text: str) -> float:
    """Read a number of seconds, from 0 to :data:`MAXIMUM_TIMEOUT`.

    Raises :class:`argparse.ArgumentTypeError` for anything else.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAXIMUM_TIMEOUT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds from 0 to {MAXIMUM_TIMEOUT:g}"
        )
    return value
