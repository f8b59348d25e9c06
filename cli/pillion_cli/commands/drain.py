"""``pillion drain``: attempt all pending deliveries now."""

import argparse
import json
import sys
import time
from contextlib import suppress

from pillion_cli.arguments import (
    Options,
    add_deliverer_arguments,
    add_output_argument,
    add_timeout_argument,
)
from pillion_cli.client import Unreachable, count_of
from pillion_cli.exits import CommandError, Exit
from pillion_cli.output import OutputError
from pillion_cli.servers import connected

HELP = """
Attempt every pending delivery now, and wait until nothing is pending, for at most --timeout. The
command ends earlier if the pending indications cannot be delivered now: the attempt has failed
again, or the destination is suspended or held. Intake stays open.

A container's preStop hook runs it with --best-effort. A deliverer that does not answer is a
failure, since the URL may be wrong; with --gone-ok it counts as drained.

examples:
  pillion drain
  pillion drain --server http://127.0.0.1:8290 --timeout 20
  pillion drain --gone-ok

exit codes: 0 nothing is pending, 1 no deliverer or an unexpected answer, 2 a wrong command line,
3 something is pending; with --gone-ok 0 if no deliverer answers; with --best-effort 0 for all but a
wrong command line.
"""

TIMEOUT = 20.0
#: Seconds for the answer beyond --timeout.
ANSWER_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_deliverer_arguments(parser)
    add_timeout_argument(parser, default=TIMEOUT)
    options = Options(parser)
    options.flag("--gone-ok", "treat a deliverer that does not answer as drained")
    options.flag(
        "--best-effort", "always exit with 0, so that the kubelet reports no failed preStop hook"
    )
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    if not args.best_effort:
        return _drain(args)
    with suppress(OutputError):
        try:
            _drain(args)
        except CommandError as failure:
            _tell(args, str(failure), pending=None)
        sys.stdout.flush()
    return Exit.OK


def _drain(args: argparse.Namespace) -> int:
    started = time.monotonic()
    timeout = args.timeout + ANSWER_SECONDS
    with connected(args, timeout=timeout) as client:
        try:
            answer = client.post("/drain", {"timeout": f"{args.timeout:g}"})
        except Unreachable as failure:
            if time.monotonic() - started > args.timeout:
                raise CommandError(str(failure), code=Exit.PARTLY) from failure
            if not args.gone_ok:
                raise
            _tell(args, f"{failure}; nothing is left to do", pending=None)
            return Exit.OK
    left = count_of(answer.document(200, 202), "pending")
    _tell(args, f"{left:,} pending", pending=left)
    return Exit.PARTLY if left else Exit.OK


def _tell(args: argparse.Namespace, text: str, *, pending: int | None) -> None:
    """Print the result; ``pending`` is None without an answer."""
    if args.output == "json":
        print(json.dumps({"pending": pending} | ({"failure": text} if pending is None else {})))
    else:
        print(text)
