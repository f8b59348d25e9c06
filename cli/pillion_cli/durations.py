"""Durations on the command line."""

import argparse
import math
from collections.abc import Callable

#: Seconds that a command line may name at most.
MAXIMUM_SECONDS = 3600.0


def seconds_from(minimum: float) -> Callable[[str], float]:
    """Return what reads a number of seconds, from ``minimum`` to :data:`MAXIMUM_SECONDS`.

    It raises :class:`argparse.ArgumentTypeError` for anything else.
    """

    def seconds(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not minimum <= value <= MAXIMUM_SECONDS:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a number of seconds from {minimum:g} to {MAXIMUM_SECONDS:g}"
            )
        return value

    return seconds


def add_timeout_argument(parser: argparse.ArgumentParser, *, default: float) -> None:
    """Define ``--timeout``, for a command that may be told not to wait at all."""
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds_from(0),
        default=default,
        help="how long to wait [%(default)g]",
    )
