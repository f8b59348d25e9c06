"""``pillion doctor``: check a deliverer, and the way to each destination."""

import argparse
import json
import socket
import time
from collections.abc import Iterator, Sequence

from pillion_cli.arguments import (
    Options,
    add_deliverer_arguments,
    add_output_argument,
    seconds_from,
)
from pillion_cli.client import DelivererClient
from pillion_cli.diagnosis import endpoints_of, queues_of
from pillion_cli.doctor import (
    check_clock,
    check_configuration,
    check_history,
    check_journal,
    check_queues,
    check_stores,
    status_of,
)
from pillion_cli.exits import CommandError, Exit
from pillion_cli.findings import Finding, Level, finding_lines, ok, problem, warning
from pillion_cli.servers import connected
from pillion_cli.terminal import Output, wrapped
from pillion_cli.ways import Ways
from pillion_sidecar.wire.diagnosis import Endpoint

HELP = """
Check a deliverer: whether it answers, its configuration, clock, journal, disk and history, the
state of each queue, and the way to each destination: DNS, connection, TLS, and how long the
certificate is still valid. Each finding is ok, a warning or a problem, and `do:` says what to do
about it. Problems come first.

The way is checked from the machine that runs this command, with its name servers and routes: run it
where the deliverer runs, as in the last example. The check sends nothing but the TLS handshake;
`pillion test DESTINATION` makes the deliverer send a test indication. Not checked: the way behind a
proxy, the way from a gateway, and destinations with a plug-in, a file or a URL from a Secret.

examples:
  pillion doctor
  pillion doctor --destination siem --destination pager
  pillion doctor --output json | jq -r '.findings[] | select(.level == "problem").text'
  kubectl exec POD -c pillion-deliverer -- pillion doctor

exit codes: 0 no problem, 1 a problem, or no deliverer answers; 2 a wrong command line.
"""

TIMEOUT = 30.0
#: Destinations whose way is checked without --destination.
MOST_WAYS = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.several("--destination NAME", "check only this destination; may be repeated [all]")
    options.value(
        "--timeout SECONDS",
        "maximum time for each connection and handshake",
        seconds_from(0.1, maximum=300),
        5.0,
    )
    add_deliverer_arguments(parser)
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    findings: list[Finding] = []
    with connected(args, timeout=TIMEOUT) as client:
        try:
            findings.extend(_checked(client, args))
        except CommandError as failure:
            if failure.code is Exit.USAGE:
                raise
            findings.append(problem("server", str(failure)))
        url = client.url
    here = socket.gethostname()
    if args.output == "json":
        counts = {str(level): sum(one.level is level for one in findings) for level in Level}
        documents = [one.document() for one in findings]
        print(json.dumps({"server": url, "from": here, "counts": counts, "findings": documents}))
    else:
        output = Output.of_process()
        for line in wrapped(f"{url}, checked from {here}", output.width):
            print(line)
        for line in finding_lines(findings, output):
            print(line)
    return Exit.FAILED if any(one.level is Level.PROBLEM for one in findings) else Exit.OK


def _checked(client: DelivererClient, args: argparse.Namespace) -> Iterator[Finding]:
    """Raises CommandError."""
    before = time.time()
    status = status_of(client)
    after = time.time()
    yield ok("server", f"version {status.version} answers in {(after - before) * 1000:,.1f} ms")
    yield check_clock(status, before=before, after=after)
    found = queues_of(client)
    yield from check_configuration(status, found.pages[0])
    yield check_journal(status)
    if status.stores is not None:
        yield check_stores(status.stores)
    yield check_history(status.history)
    queues, endpoints = found.queues, endpoints_of(client)
    known = {queue.name for queue in queues}
    _check_names(args.destination, known)
    wanted = set(args.destination or known)
    yield from check_queues([one for one in queues if one.name in wanted], now=time.time)
    ways = [one for one in endpoints if one.destination in wanted]
    yield from _ways(ways, args, is_chosen=bool(args.destination))


def _ways(
    endpoints: Sequence[Endpoint], args: argparse.Namespace, *, is_chosen: bool
) -> Iterator[Finding]:
    checked = endpoints if is_chosen else endpoints[:MOST_WAYS]
    ways = Ways(args.timeout, monotonic=time.monotonic, now=time.time)
    yield from ways.check_all(checked)
    if left := len(endpoints) - len(checked):
        text = f"the ways to {left:,} more destinations were not checked"
        yield warning("ways", text, "name those that matter with --destination")


def _check_names(given: Sequence[str], known: set[str]) -> None:
    """Raises CommandError."""
    unknown = sorted(set(given) - known)
    if unknown:
        text = (
            f"--destination {unknown[0]}: there is no such destination; `pillion queues` lists them"
        )
        raise CommandError(text, code=Exit.USAGE)
