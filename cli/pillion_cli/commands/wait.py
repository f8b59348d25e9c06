"""``pillion wait``: wait until a deliverer has started."""

import argparse
import json
import time
from collections.abc import Callable

from pillion_cli.arguments import add_output_argument, add_timeout_argument, add_url_argument
from pillion_cli.client import DelivererClient, Unreachable
from pillion_cli.exits import CommandError, Exit

HELP = """
Wait until a deliverer has started: its intake answers. Before the first configuration it answers
indications with 503, and `pillion publish` tries again.

A sidecar's postStart hook runs it, so that no other container of the pod starts before publishers
can connect.

examples:
  pillion wait
  pillion wait --server http://127.0.0.1:8289 --timeout 20

exit codes: 0 it has started, 1 it has not in that time, 2 a wrong command line.
"""

#: The default address of a deliverer's telemetry.
DEFAULT_TELEMETRY = "http://127.0.0.1:8289"
TIMEOUT = 60.0
#: Seconds between two polls, short compared with a start.
PACE = 0.02
LOOK_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_url_argument(
        parser, f"the deliverer's telemetry [{DEFAULT_TELEMETRY}]", default=DEFAULT_TELEMETRY
    )
    add_timeout_argument(parser, default=TIMEOUT)
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    with DelivererClient(args.server, timeout=LOOK_SECONDS, named_by="--server") as client:
        try:
            wait_until_started(client, within=args.timeout, now=time.monotonic, sleep=time.sleep)
        except CommandError as failure:
            if args.output == "json":
                print(json.dumps({"started": False, "failure": str(failure)}))
            raise
    if args.output == "json":
        print(json.dumps({"started": True}))
    return Exit.OK


def wait_until_started(
    client: DelivererClient,
    *,
    within: float,
    now: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Poll for ``within`` seconds. Raises CommandError with the last answer."""
    end = now() + within
    while (missing := _missing(client)) is not None:
        if now() >= end:
            raise CommandError(f"not started within {within:g} s: {missing}")
        sleep(PACE)


def _missing(client: DelivererClient) -> str | None:
    """Return why the deliverer has not started; None if it has."""
    try:
        answer = client.get("/startupz")
    except Unreachable as failure:
        return str(failure)
    return None if answer.status == 200 else f"HTTP {answer.status}: {answer.text()}"
