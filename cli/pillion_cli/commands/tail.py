"""``pillion tail``: outcomes as they happen (S0.11)."""

import argparse
import sys
import time

from pillion_cli.arguments import Options, add_deliverer_arguments, add_output_argument
from pillion_cli.client import DelivererClient
from pillion_cli.exits import Exit
from pillion_cli.outcomes import (
    WAIT,
    Follower,
    add_listing,
    add_selection,
    check_listing,
    last_number,
    listed,
    time_text,
    write_lines,
)
from pillion_cli.servers import connected
from pillion_cli.tables import Rows
from pillion_cli.terminal import Cell, Output, Style
from pillion_sidecar.history.outcome import OutcomeResult
from pillion_sidecar.wire.outcomes import OutcomeLine

HELP = """
Print outcomes as they happen, until Ctrl-C: one line for each indication and destination, with the
time, the result and the reason. The first line is the next outcome; --since and --after print
earlier outcomes first. `pillion outcomes` prints the earlier ones and ends.

The results: delivered (the listener has it), discarded (its delivery was given up, for the reason
on the line), relayed (a gateway has it and delivers it), handed-over (a gateway has it from a
sidecar that ends), redriven (a discarded one was queued again).

The command waits while the deliverer restarts, and then continues. If the deliverer has no volume,
or has lost it, numbers begin at 1 again; the command prints this and continues.

A terminal gets local times, and lines cut to its width, without the source in less than 100
columns. A pipe gets times in UTC, and whole lines.

`pillion explain IDENTIFIER` shows one indication at all destinations. `pillion discarded redrive`
queues discarded indications again.

examples:
  pillion tail
  pillion tail --result discarded
  pillion tail --destination siem --since 10m
  pillion tail --output json --after 41000 | jq 'select(.attempts > 1)'

exit codes: 0 --limit is reached, 1 no deliverer answers, or it refuses, 2 a wrong command line,
130 ended by Ctrl-C.
"""

#: Seconds for an answer beyond those for which it may wait.
ANSWER_SECONDS = 30.0
_COLUMNS = ("time", "destination", "result", "source", "identifier", "detail")
#: Columns of a terminal with room for the source.
WIDE = 100
#: Most cells of a column in a terminal.
_MOST = {"destination": 20, "source": 16, "identifier": 24}
_STYLES: dict[str, Style] = {
    OutcomeResult.DELIVERED: Style.GREEN,
    OutcomeResult.DISCARDED: Style.ALARM,
    OutcomeResult.REDRIVEN: Style.YELLOW,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_deliverer_arguments(parser)
    options = Options(parser)
    add_selection(options, has_until=False)
    add_listing(options)
    add_output_argument(parser, "output format; json prints one JSON object per line")


def run(args: argparse.Namespace) -> int:
    check_listing(args)
    output = Output.of_process()
    timeout = WAIT + ANSWER_SECONDS
    with connected(args, timeout=timeout) as client:
        after = _begin(client, args)
        _check_destination(client, args.destination)
        if output.is_terminal and args.output != "json":
            _tell(f"from number {after + 1:,} on, until Ctrl-C")
        hidden = () if output.width is None or output.width >= WIDE else ("source",)
        columns = [name for name in _COLUMNS if name not in hidden]
        rows = Rows(columns, output=output, most=_MOST)
        follower = Follower(client, sleep=time.sleep, tell=_tell)
        for page in follower.pages(listed(args), after=after, limit=args.limit):
            if args.output == "json":
                write_lines(page.lines)
            else:
                shown = (_row(one, output) for one in page.outcomes())
                rows.show([row[name] for name in columns] for row in shown)
            sys.stdout.flush()
    return Exit.OK


def _begin(client: DelivererClient, args: argparse.Namespace) -> int:
    if args.after is not None:
        return int(args.after)
    return 0 if args.since is not None else last_number(client)


def _check_destination(client: DelivererClient, name: str | None) -> None:
    """Warn of one that is not there, which may have been, or will be."""
    if name is None:
        return
    answer = client.get(f"/v1/queues/{name}")
    if answer.status == 404:
        _tell(f"waiting all the same: {answer.refusal()}")


def _tell(text: str) -> None:
    print(f"pillion tail: {text}", file=sys.stderr, flush=True)


def _row(one: OutcomeLine, output: Output) -> dict[str, Cell | str | None]:
    local = f"{one.time.astimezone():%H:%M:%S}"
    return {
        "time": local if output.is_terminal else time_text(one.time),
        "destination": one.destination,
        "result": Cell(one.result, _STYLES.get(one.result, Style.PLAIN)),
        "source": one.source,
        "identifier": one.identifier,
        "detail": _detail(one),
    }


def _detail(one: OutcomeLine) -> str:
    why = ": ".join(text for text in (one.reason, one.detail) if text)
    attempts = f"after {one.attempts:,} attempts" if one.attempts > 1 else ""
    return ", ".join(filter(None, (why, attempts)))
