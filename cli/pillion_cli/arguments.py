"""Options: how commands declare them, and those that commands share."""

import argparse
import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pillion_cli.client import CA_VARIABLE, DEFAULT_URL, TOKEN_VARIABLE, read_url
from pillion_cli.contexts import CONTEXT_VARIABLE
from pillion_cli.exits import CommandError
from pillion_cli.servers import SERVER_VARIABLES

#: Default maximum of a duration (seconds).
MAXIMUM_SECONDS = 3600.0
DAY = 86_400.0
_DURATION = re.compile(r"([-+.0-9]+(?:[eE][-+]?[0-9]+)?) *(ms|s|min|m|h|)")
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_AGO = re.compile(r"([0-9]{1,6})(s|min|m|h|d)")
_LONGEST_TEXT = 32
_LONGEST_CHOICES = 60


class Options:
    """Declares the options of a parser or group. A spelling is the option with the name of its
    value, such as ``--port PORT``. The help ends with the default, unless it has brackets."""

    def __init__(self, to: "argparse._ActionsContainer") -> None:
        self._to = to

    def group(self, title: str, text: str | None = None) -> "Options":
        return Options(self._to.add_argument_group(title, text))

    def value(
        self,
        spelling: str,
        text: str,
        parse: Callable[[str], Any] | None = None,
        default: object = None,
        **more: Any,
    ) -> None:
        """``more`` are arguments of ``add_argument``."""
        if default is not None and "[" not in text:
            text += f" [{default:g}]" if isinstance(default, float) else f" [{default}]"
        if parse is not None:
            more["type"] = parse
        *names, metavar = spelling.split()
        self._to.add_argument(*names, metavar=metavar, help=text, default=default, **more)

    def file(self, spelling: str, text: str, default: Path | None = None, **more: Any) -> None:
        self.value(spelling, text, file_path, default, **more)

    def several(self, spelling: str, text: str, parse: Callable[[str], Any] | None = None) -> None:
        *names, metavar = spelling.split()
        more: dict[str, Any] = {} if parse is None else {"type": parse}
        self._to.add_argument(
            *names, metavar=metavar, help=text, action="append", default=[], **more
        )

    def choice(
        self, name: str, choices: Iterable[str], text: str, default: str | None = None
    ) -> None:
        """Many choices are in the help alone: in the usage they would make a line of their own."""
        known = list(map(str, choices))
        metavar = None
        if len(",".join(known)) > _LONGEST_CHOICES:
            metavar = name.removeprefix("--").upper()
            text += f": {', '.join(known)}"
        if default is not None:
            text += f" [{default}]"
        self._to.add_argument(name, choices=known, metavar=metavar, help=text, default=default)

    def flag(self, name: str, text: str) -> None:
        self._to.add_argument(name, action="store_true", help=text)

    def hidden(self, *names: str, dest: str, parse: Callable[[str], Any] | None = None) -> None:
        """Earlier names of an option, for scripts."""
        more: dict[str, Any] = {} if parse is None else {"type": parse}
        self._to.add_argument(
            *names, dest=dest, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **more
        )


def file_path(text: str) -> Path:
    """Raises ArgumentTypeError for an empty text, which Path takes for the working folder."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def destination_name(text: str) -> str:
    """Raises ArgumentTypeError for an empty text, which names the queues of all."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the destination is empty")
    return text


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
    Options(parser).value("--timeout SECONDS", "maximum time to wait", seconds_from(0), default)


def add_deliverer_arguments(
    parser: argparse.ArgumentParser,
    what: str = "URL of the deliverer: its --administration listener, or its intake if it has none",
) -> None:
    """Define which deliverer, and the access to a gateway; :mod:`pillion_cli.servers` reads it."""
    which = parser.add_mutually_exclusive_group()
    text = f"{what} [${SERVER_VARIABLES[0]}, else the current context, else {DEFAULT_URL}]"
    add_url_argument(which, text)
    options = Options(which)
    options.value(
        "--context NAME", f"server by its name in `pillion context list` [${CONTEXT_VARIABLE}]"
    )
    options.value("--pod POD", "pod with the deliverer; kubectl port-forward connects to it")
    options = Options(parser)
    options.file(
        "--ca FILE",
        f"file of CA certificates (PEM) for an https URL [${CA_VARIABLE}, else the system's]",
    )
    options.file(
        "--token-file FILE",
        "send the token in this file, as a gateway requires; it is read for each request"
        f" [${TOKEN_VARIABLE}]",
    )
    options = options.group("with --pod")
    options.value("--namespace -n NAME", "namespace of the pod [that of the kubeconfig context]")
    options.file("--kubeconfig FILE", "kubeconfig file for kubectl [as kubectl finds it]")
    options.value("--kube-context NAME", "kubeconfig context [the current one]")


def add_url_argument(
    parser: "argparse._ActionsContainer", text: str, *, default: str | None = None
) -> None:
    Options(parser).value("--server URL", text, deliverer_url, default)
    Options(parser).hidden("--to", "--at", dest="server", parse=deliverer_url)


def deliverer_url(text: str) -> str:
    """Raises ArgumentTypeError."""
    try:
        read_url(text)
    except CommandError as failure:
        raise argparse.ArgumentTypeError(str(failure)) from None
    return text


def whole_number(minimum: int, maximum: int) -> Callable[[str], int]:
    """The parser raises ArgumentTypeError."""

    def parse(text: str) -> int:
        # int() takes more than digits, and is slow for long ones.
        number = (
            int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_TEXT else -1
        )
        if not minimum <= number <= maximum:
            shown = text[:_LONGEST_TEXT]
            raise argparse.ArgumentTypeError(
                f"{shown!r} is not a whole number from {minimum} to {maximum}"
            )
        return number

    return parse


port_number = whole_number(0, 65_535)


def moment(text: str) -> datetime:
    """Read a time, or how long ago it was (``10m``). Raises ArgumentTypeError."""
    if ago := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * (_SECONDS | {"d": DAY})[ago[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text[:_LONGEST_TEXT]!r} is not a time such as 2026-11-22T09:00:00Z, 10m or 2h"
        )
    return found


def add_cluster_arguments(options: Options) -> None:
    options.file(
        "--kubeconfig FILE",
        "kubeconfig file of the cluster"
        " [$KUBECONFIG or ~/.kube/config; in a pod its service account]",
    )
    options.value("--kube-context NAME", "kubeconfig context [the current one]", dest="context")
    options.hidden("--context", dest="context")


def add_output_argument(parser: argparse.ArgumentParser, what: str = "output format") -> None:
    """Define ``--output``; ``table`` is the earlier name of ``text``."""
    parser.add_argument(
        "--output",
        "-o",
        choices=("text", "json"),
        type=lambda given: "text" if given == "table" else given,
        default="text",
        help=f"{what} [text]",
    )
