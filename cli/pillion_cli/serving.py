"""What the commands have in common that run until they are told to stop."""

import argparse
import asyncio
import signal
from pathlib import Path

from pillion_cli.exits import CommandFailed, Exit
from pillion_sidecar.telemetry.logs import LogFormat, LogOutput, configure_logging
from pillion_sidecar.telemetry.rolling import Frequency, LogFile

LARGEST_PORT = 65_535
MEGABYTE = 1_000_000
LARGEST_COUNT = 1_000_000


def host_and_port(text: str, *, example: str) -> tuple[str, int]:
    """Read HOST:PORT; an IPv6 address stands in brackets. Raises ArgumentTypeError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, as in {example}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def add_logging_arguments(parser: "argparse._ActionsContainer") -> None:
    """Declare how the command logs."""
    parser.add_argument(
        "--log-format",
        choices=[chosen.value for chosen in LogFormat],
        default=LogFormat.JSON.value,
        help="how a log line is written [%(default)s]",
    )
    parser.add_argument(
        "--log-level",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        default="INFO",
        help="the least level that is logged [%(default)s]",
    )
    parser.add_argument(
        "--log-file",
        metavar="FILE",
        type=Path,
        help="append the log to this file [it goes to standard error]",
    )
    parser.add_argument(
        "--log-file-size",
        metavar="MEGABYTES",
        type=_count,
        help="roll the file with the first message after it has this many million bytes",
    )
    parser.add_argument(
        "--log-file-frequency",
        choices=[frequency.value for frequency in Frequency],
        help="roll the file with the first message of each hour or day (UTC)",
    )
    parser.add_argument(
        "--log-file-keep",
        metavar="N",
        type=_count,
        help="remove all but the latest N rolled files [all are kept]",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST_COUNT:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {LARGEST_COUNT}")
    return int(text)


def start_logging(args: argparse.Namespace) -> LogOutput:
    """Log as the command line says; the caller closes the returned output at the end.

    Raises CommandFailed where the log file cannot be opened, or where there is none to roll.
    """
    try:
        return configure_logging(LogFormat(args.log_format), args.log_level, file=_log_file(args))
    except OSError as error:
        raise CommandFailed(
            f"--log-file {args.log_file}: {error.strerror or error}; name a file in a folder that "
            "there is, and that may be written to"
        ) from error


def _log_file(args: argparse.Namespace) -> LogFile | None:
    size, frequency, keep = args.log_file_size, args.log_file_frequency, args.log_file_keep
    if args.log_file is None:
        if size or frequency or keep:
            raise CommandFailed(
                "only a file rolls: say which with --log-file FILE", code=Exit.USAGE
            )
        return None
    if keep and not (size or frequency):
        raise CommandFailed(
            "--log-file-keep: say when the file rolls, with --log-file-size or "
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
    """Have SIGTERM, SIGINT and SIGHUP set ``stop``; under ``nohup`` SIGHUP is ignored."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number is not signal.SIGHUP:
            loop.add_signal_handler(number, stop.set)
