"""What the commands have in common that run until they are told to stop."""

import argparse
import asyncio
import signal

from pillion_sidecar.telemetry.logs import LogFormat

LARGEST_PORT = 65_535


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


def heed_signals(stop: asyncio.Event) -> None:
    """Have SIGTERM and SIGINT set ``stop``."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
