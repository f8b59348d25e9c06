"""Logging, signals and the termination message of commands that run until a signal."""

import argparse
import asyncio
import ipaddress
import json
import logging
import signal
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from pillion_cli.arguments import Options, port_number, whole_number
from pillion_cli.exits import CommandError, Exit
from pillion_sidecar.config.addresses import Address
from pillion_sidecar.telemetry.logs import LogFormat, LogOutput, configure_logging
from pillion_sidecar.telemetry.rolling import Frequency, LogFile

logger = logging.getLogger("pillion.deliverer")
#: A container's terminationMessagePath; outside Kubernetes it does not exist.
TERMINATION_LOG = Path("/dev/termination-log")
#: The kubelet's limit.
MOST_BYTES = 4096
MEGABYTE = 1_000_000
LARGEST_COUNT = 1_000_000


def leave_word(
    left: int | None, *, destinations: Mapping[str, int], path: Path = TERMINATION_LOG
) -> None:
    """Write the termination message: the number of pending indications.

    ``kubectl describe pod`` shows it. The operator reads it, since a volume that goes with its pod
    leaves no other trace. ``left`` is None if unknown; ``destinations`` are counts by name, in
    descending order.
    """
    if left is None or not path.exists():
        return
    try:
        path.write_text(termination_message(left, destinations), encoding="utf-8")
    except OSError as error:
        # The log has the counts too.
        logger.warning("the termination message cannot be written: %s", error.strerror)


def termination_message(left: int, destinations: Mapping[str, int]) -> str:
    """Return JSON of at most 4,096 bytes; ``others`` counts the destinations that do not fit."""
    if not destinations:
        return json.dumps({"left": left})
    named: dict[str, int] = {}
    message = ""
    for shown, (name, count) in enumerate(destinations.items(), start=1):
        named[name] = count
        document = {"left": left, "destinations": named, "others": len(destinations) - shown}
        longer = json.dumps(document, ensure_ascii=False)
        if len(longer.encode()) > MOST_BYTES:
            break
        message = longer
    return message or json.dumps({"left": left, "others": len(destinations)})


def host_and_port(text: str, *, example: str) -> tuple[str, int]:
    """Parse HOST:PORT, with an IPv6 address in brackets. Raises ArgumentTypeError."""
    host, _, port = text.rpartition(":")
    is_bare = ":" not in host or (host.startswith("[") and host.endswith("]"))
    try:
        if not host or "/" in host or not is_bare:
            raise argparse.ArgumentTypeError
        return host.removeprefix("[").removesuffix("]"), port_number(port)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, as in {example}") from None


def check_listeners(listeners: Mapping[str, Address | None]) -> None:
    """Raise CommandError for two addresses that cannot both be listened on.

    ``listeners`` are addresses by option; None is no listener.
    """
    given = [(option, where) for option, where in listeners.items() if where is not None]
    for (first, one), (second, other) in combinations(given, 2):
        if one.port and one.port == other.port and _overlap(one.host, other.host):
            raise CommandError(
                f"{first} {one} and {second} {other} cannot share a port; "
                "choose another port for one of them",
                code=Exit.USAGE,
            )


def _overlap(one: str, other: str) -> bool:
    """False for names: which addresses they have is known only when they are listened on."""
    if one == other:
        return True
    try:
        first, second = ipaddress.ip_address(one), ipaddress.ip_address(other)
    except ValueError:
        return False
    is_wildcard = first.is_unspecified or second.is_unspecified
    return first.version == second.version and (is_wildcard or first == second)


def add_logging_arguments(options: Options) -> None:
    options.choice("--log-format", LogFormat, "format of a log line", LogFormat.JSON)
    options.choice(
        "--log-level", ("DEBUG", "INFO", "WARNING", "ERROR"), "minimum log level", "INFO"
    )
    options.file("--log-file FILE", "append the log to this file [standard error]")
    count = whole_number(1, LARGEST_COUNT)
    options.value(
        "--log-file-size MEGABYTES", "rotate the log file when it exceeds this size (MB)", count
    )
    options.choice("--log-file-frequency", Frequency, "rotate the log file every hour or day (UTC)")
    options.value("--log-file-keep N", "keep only the latest N rotated files [all]", count)


def start_logging(args: argparse.Namespace) -> LogOutput:
    """The caller closes the result. Raises CommandError."""
    try:
        return configure_logging(LogFormat(args.log_format), args.log_level, file=_log_file(args))
    except OSError as error:
        raise CommandError(
            f"--log-file {args.log_file}: {error.strerror or error}; name a file in an existing "
            "folder that is writable"
        ) from error


def _log_file(args: argparse.Namespace) -> LogFile | None:
    size, frequency, keep = args.log_file_size, args.log_file_frequency, args.log_file_keep
    if args.log_file is None:
        rotation = {"size": size, "frequency": frequency, "keep": keep}
        given = [f"--log-file-{name}" for name, value in rotation.items() if value]
        if given:
            raise CommandError(f"{', '.join(given)}: only with --log-file FILE", code=Exit.USAGE)
        return None
    if keep and not (size or frequency):
        raise CommandError(
            "--log-file-keep: say when to rotate the file, with --log-file-size or "
            "--log-file-frequency",
            code=Exit.USAGE,
        )
    return LogFile(
        path=args.log_file,
        maximum_bytes=size * MEGABYTE if size else None,
        frequency=Frequency(frequency) if frequency else None,
        keep=keep,
    )


def heed_signals(stop: asyncio.Event) -> None:
    """Set ``stop`` at SIGTERM, SIGINT and SIGHUP, but keep an ignored SIGHUP (``nohup``)."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number is not signal.SIGHUP:
            loop.add_signal_handler(number, stop.set)
