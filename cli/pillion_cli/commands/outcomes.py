"""``pillion outcomes``: what became of each indication (S0.11)."""

import argparse
import sys

from pillion_cli.arguments import Options, add_deliverer_arguments, add_output_argument
from pillion_cli.exits import Exit
from pillion_cli.outcomes import (
    add_listing,
    add_selection,
    check_destination,
    check_listing,
    listed,
    pages,
    show_pages,
    time_text,
)
from pillion_cli.servers import connected
from pillion_sidecar.wire.outcomes import OutcomeLine

HELP = """
Show what became of each indication at each destination: delivered, discarded, relayed to a gateway,
or handed over to one. Outcomes are numbered, and the oldest comes first. A deliverer keeps them for
some time, by default 7 days. `pillion tail` shows them as they happen.

examples:
  pillion outcomes --identifier load-7
  pillion outcomes --destination siem --result discarded --since 2026-11-22T09:00:00Z
  pillion outcomes --since 10m
  pillion outcomes --output json | jq 'select(.attempts > 1)'

exit codes: 0 done, 1 no deliverer, or it refused, 2 a wrong command line.
"""

TIMEOUT = 30.0
_COLUMNS = ("number", "time", "destination", "result", "source", "identifier", "attempts", "detail")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_deliverer_arguments(parser)
    options = Options(parser)
    add_selection(options)
    add_listing(options)
    add_output_argument(parser, "output format; json prints one JSON object per line")


def run(args: argparse.Namespace) -> int:
    check_listing(args)
    with connected(args, timeout=TIMEOUT) as client:
        found = pages(client, listed(args), after=args.after or 0, limit=args.limit)
        if not show_pages(found, columns=_COLUMNS, row=_row, output=args.output):
            check_destination(client, args)
            print("pillion outcomes: no outcomes", file=sys.stderr)
    return Exit.OK


def _row(one: OutcomeLine) -> tuple[str | int | None, ...]:
    return (
        one.number,
        time_text(one.time),
        one.destination,
        one.result,
        one.source,
        one.identifier,
        one.attempts,
        ": ".join(text for text in (one.reason, one.detail) if text),
    )
