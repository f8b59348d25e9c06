"""``pillion drain``: attempt all pending deliveries now."""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pillion_cli.arguments import (
    Options,
    add_deliverer_arguments,
    add_output_argument,
    add_timeout_argument,
)
from pillion_cli.client import DelivererClient, NoDeliverer, Unreachable, count_of, is_count
from pillion_cli.exits import CommandError, Exit
from pillion_cli.output import OutputError
from pillion_cli.servers import connected

HELP = """
Attempt every pending delivery now, and wait until nothing is pending, for at most --timeout. The
command ends earlier if the pending indications cannot be delivered now: the attempt has failed
again, or the destination is suspended or held. It names the destinations with the most pending
indications, and why they wait. Intake stays open.

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
#: Destinations that are named.
MOST_NAMED = 5


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
        document = answer.document(200, 202)
        pending, left = count_of(document, "pending"), _destinations(document)
        is_early = time.monotonic() - started < args.timeout
        why = ", which cannot be delivered now" if pending and is_early else ""
        _tell(args, f"{pending:,} pending{why}", pending=pending, destinations=left)
        # A hook has no reader, and no time.
        if pending and args.output != "json" and not args.best_effort:
            for line in _named(client, left):
                print(line)
    return Exit.PARTLY if pending else Exit.OK


def _destinations(document: Mapping[str, Any]) -> dict[str, int]:
    """Return what is pending by destination, the most first. Raises NoDeliverer."""
    left = document.get("destinations", {})
    if not isinstance(left, dict) or not all(map(is_count, left.values())):
        raise NoDeliverer("destinations is not what it should be")
    return dict(sorted(left.items(), key=lambda one: (-one[1], one[0])))


def _named(client: DelivererClient, left: Mapping[str, int]) -> Iterator[str]:
    # Not above: a hook waits for each import.
    from pillion_cli.diagnosis import queue_of
    from pillion_cli.queue_states import judged, time_of
    from pillion_sidecar.config.problems import escape_controls

    names, is_answered = list(left), True
    for name in names[:MOST_NAMED]:
        why = ""
        try:
            queue = queue_of(client, name) if is_answered else None
        except CommandError:
            queue, is_answered = None, False
        if queue is not None:
            one = judged(queue, now=time_of([queue], {}, now=time.time))
            why = ": ".join(filter(None, (f"; {one.state}", one.why_and_lost)))
        yield escape_controls(f"{name}: {left[name]:,} pending{why}")
    if len(names) > MOST_NAMED:
        yield f"{len(names) - MOST_NAMED:,} more destinations: pillion queues lists them"
    if names:
        yield f"try: pillion queues {shlex.quote(escape_controls(names[0]))}"


def _tell(
    args: argparse.Namespace,
    text: str,
    *,
    pending: int | None,
    destinations: Mapping[str, int] | None = None,
) -> None:
    """Print the result; ``pending`` is None without an answer."""
    if args.output == "json":
        more = {"failure": text} if pending is None else {"destinations": destinations}
        print(json.dumps({"pending": pending, **more}))
    else:
        print(text)
