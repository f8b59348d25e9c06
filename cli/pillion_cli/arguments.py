"""The options that commands share: deliverer, output, durations."""

import argparse
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

from pillion_cli.client import DEFAULT_URL, add_access_arguments, read_url
from pillion_cli.exits import CommandError

#: Default maximum of a duration (seconds).
MAXIMUM_SECONDS = 3600.0
DAY = 86_400.0
_DURATION = re.compile(r"([-+.0-9]+(?:[eE][-+]?[0-9]+)?) *(ms|s|min|m|h|)")
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_LONGEST_TEXT = 32
#: The default of --to; the Spark data source reads it too.
URL_VARIABLE = "PILLION_URL"


def seconds_from(minimum: float, *, maximum: float = MAXIMUM_SECONDS) -> Callable[[str], float]:
    """Return a parser of durations (``5``, ``5s``, ``2m``) in a range of seconds.

    It raises ArgumentTypeError.
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
    """NaN for a text that is no duration."""
    found = _DURATION.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    try:
        return float(found[1]) * _SECONDS[found[2]] if found else math.nan
    except ValueError:
        return math.nan


def add_timeout_argument(parser: argparse.ArgumentParser, *, default: float) -> None:
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds_from(0),
        default=default,
        help="maximum time to wait [%(default)g]",
    )


def add_deliverer_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--to",
        "--at",
        dest="to",
        metavar="URL",
        type=deliverer_url,
        default=os.environ.get(URL_VARIABLE) or DEFAULT_URL,
        help=f"{what} [${URL_VARIABLE}, else {DEFAULT_URL}]",
    )
    add_access_arguments(parser)


def deliverer_url(text: str) -> str:
    """Raises ArgumentTypeError."""
    try:
        read_url(text)
    except CommandError as failure:
        # argparse checks the default too.
        where = f"{URL_VARIABLE}: " if text == os.environ.get(URL_VARIABLE) else ""
        raise argparse.ArgumentTypeError(f"{where}{failure}") from None
    return text


def whole_number(minimum: int, maximum: int) -> Callable[[str], int]:
    """The parser raises ArgumentTypeError."""

    def parse(text: str) -> int:
        # int() takes more than digits, and is slow for long ones.
        number = int(text) if text.isdecimal() and len(text) <= _LONGEST_TEXT else -1
        if not minimum <= number <= maximum:
            shown = text[:_LONGEST_TEXT]
            raise argparse.ArgumentTypeError(
                f"{shown!r} is not a whole number from {minimum} to {maximum}"
            )
        return number

    return parse


def add_cluster_arguments(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="kubeconfig file of the cluster"
    )
    parser.add_argument("--context", metavar="NAME", help="kubeconfig context [the current one]")


def add_output_argument(parser: argparse.ArgumentParser, what: str = "output format") -> None:
    """Define ``--output``; ``table`` is the earlier name of ``text``."""
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        type=lambda given: "text" if given == "table" else given,
        default="text",
        help=f"{what} [text]",
    )
