"""Durations on the command line."""

import argparse
import math
import re
from collections.abc import Callable

#: Seconds that a command line may name by default at most.
MAXIMUM_SECONDS = 3600.0
#: Seconds in a day.
DAY = 86_400.0

_DURATION = re.compile(r"([-+.0-9]+(?:[eE][-+]?[0-9]+)?) *(ms|s|min|m|h|)")
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_LONGEST_TEXT = 32


def seconds_from(minimum: float, *, maximum: float = MAXIMUM_SECONDS) -> Callable[[str], float]:
    """Return what reads a duration (``5``, ``5s``, ``2m``), in seconds from ``minimum`` to
    ``maximum``.

    It raises :class:`argparse.ArgumentTypeError` for anything else.
    """

    upto = "" if math.isinf(maximum) else f" to {maximum:g}"

    def seconds(text: str) -> float:
        value = _seconds(text)
        if not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(
                f"{text[:_LONGEST_TEXT]!r} is not a number of seconds from {minimum:g}{upto}; "
                "write 5, 5s, 2m or 1h"
            )
        return value

    return seconds


def _seconds(text: str) -> float:
    """The seconds that a text says; NaN where it says none."""
    found = _DURATION.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    try:
        return float(found[1]) * _SECONDS[found[2]] if found else math.nan
    except ValueError:
        return math.nan


def add_timeout_argument(parser: argparse.ArgumentParser, *, default: float) -> None:
    """Define ``--timeout``, for a command that may be told not to wait at all."""
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds_from(0),
        default=default,
        help="how long to wait [%(default)g]",
    )
