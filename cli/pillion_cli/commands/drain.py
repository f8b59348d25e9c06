"""``pillion drain``: have a deliverer deliver at once what waits for a retry."""

import argparse
import time

from pillion_cli.access import Access, add_access_arguments
from pillion_cli.client import DEFAULT_URL, DelivererClient, Refused, Unreachable
from pillion_cli.durations import add_timeout_argument
from pillion_cli.exits import CommandFailed, Exit

HELP = """
Hasten delivery: whatever waits for a retry is attempted at once, and the command waits until
nothing is left, for at most so many seconds. Intake stays open.

This is what a container's preStop hook runs: a deliverer that is gone has nothing left to do, so
that counts as done.

examples:
  pillion drain
  pillion drain --to http://127.0.0.1:8290 --timeout 20

exit codes: 0 nothing is left, or the deliverer is gone, 1 another answer, 2 a wrong command line,
3 something is left; with --best-effort 0 for all but a wrong command line.
"""

#: Seconds that are waited unless asked otherwise.
TIMEOUT = 20.0
#: Seconds more that the answer is given.
ANSWER_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument(
        "--to",
        metavar="URL",
        default=DEFAULT_URL,
        help=f"the deliverer's intake, or its administration where that is apart [{DEFAULT_URL}]",
    )
    add_access_arguments(parser)
    add_timeout_argument(parser, default=TIMEOUT)
    parser.add_argument(
        "--best-effort",
        action="store_true",
        help="end with 0 whatever came of it, so that a kubelet reports no failed preStop hook",
    )


def run(args: argparse.Namespace) -> int:
    """Hasten, wait, and return the exit code."""
    try:
        code = _drain(args)
    except CommandFailed as failure:
        if not args.best_effort:
            raise
        print(failure)
        return Exit.OK
    return Exit.OK if args.best_effort else code


def _drain(args: argparse.Namespace) -> int:
    started = time.monotonic()
    timeout = args.timeout + ANSWER_SECONDS
    with DelivererClient(args.to, timeout=timeout, access=Access.of(args)) as client:
        try:
            answer = client.post("/drain", {"timeout": f"{args.timeout:g}"})
        except Unreachable as failure:
            if time.monotonic() - started > args.timeout:
                raise CommandFailed(str(failure), code=Exit.PARTLY) from failure
            print(f"{failure}; nothing is left to do")
            return Exit.OK
    content = answer.json()
    if answer.status not in (200, 202) or content is None:
        raise Refused(f"HTTP {answer.status}: {answer.text()}")
    left = content["pending"]
    print(f"{left:,} left")
    return Exit.PARTLY if left else Exit.OK
