"""``pillion publish``: send a file's indications to a deliverer."""

import argparse
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from pillion_cli.client import DEFAULT_URL, DelivererClient
from pillion_cli.exits import CommandFailed
from pillion_cli.indications import batches, kind_of
from pillion_cli.publisher import Publisher, PublishOptions, Summary

HELP = """
Send indications to a deliverer, and say what became of each.

FILE has one indication to a line (NDJSON), such as (on one line)
  {"class": "CIM_AlertIndication", "properties": {"IndicationIdentifier": "a-1", "AlertType": 5,
   "PerceivedSeverity": 6, "ProbableCause": 1}}
or is a JSON array of these, a CloudEvent or an array of them, or one CIM-XML export message. Lines
that the deliverer refuses for now (a full queue) are sent again, those alone, when it says; lines
that are wrong are counted and the first ones quoted.

examples:
  pillion publish alerts.ndjson
  jq -c '.alerts[]' report.json | pillion publish - --source weather
  pillion publish alerts.ndjson --ack delivered --timeout 300
  pillion publish alerts.ndjson --flush

exit codes: 0 all accepted (with --ack delivered or --flush: and all delivered), 3 a part of it,
1 nothing accepted or no deliverer, 2 a wrong command line.
"""

#: Seconds that a request may take beyond what it was told to wait.
NETWORK_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument("file", metavar="FILE", help="what to send; - reads standard input")
    parser.add_argument(
        "--to", metavar="URL", default=DEFAULT_URL, help=f"the deliverer's intake [{DEFAULT_URL}]"
    )
    parser.add_argument(
        "--ack",
        choices=("accepted", "durable", "stable", "delivered"),
        default="accepted",
        help="how far an indication must have come before it is answered [accepted];"
        " no deliverer of this version can give durable or stable",
    )
    parser.add_argument(
        "--source", help="the source of lines that name none; with a source, repeats are recognised"
    )
    parser.add_argument("--publisher", metavar="ID", help="the ID under which a flush counts")
    parser.add_argument(
        "--batch", metavar="N", type=_count, default=1000, help="indications to a request [1000]"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=60.0,
        help="how long to wait for an acknowledgement, and how long to go on without progress [60]",
    )
    parser.add_argument(
        "--flush",
        action="store_true",
        help="at the end, wait until everything is delivered or discarded, and say where",
    )
    parser.add_argument(
        "--content-type",
        metavar="TYPE",
        help="what FILE is, where its suffix (.ndjson, .jsonl, .json, .xml) does not tell",
    )
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="how to say it [text]"
    )


def run(args: argparse.Namespace) -> int:
    """Publish; return the exit code."""
    options = PublishOptions(
        ack=args.ack,
        source=args.source,
        publisher=args.publisher or (f"cli-{uuid.uuid4()}" if args.flush else None),
        timeout=args.timeout,
    )
    kind = kind_of(args.file, args.content_type)
    with (
        _input(args.file) as stream,
        DelivererClient(args.to, timeout=args.timeout + NETWORK_SECONDS) as client,
        _progress(stream) as settled,
    ):
        publisher = Publisher(
            client, options, monotonic=time.monotonic, sleep=time.sleep, settled=settled
        )
        try:
            publisher.publish(batches(stream, kind, size=args.batch))
            if args.flush and publisher.summary.accepted + publisher.summary.duplicate:
                publisher.flush()
        except (CommandFailed, KeyboardInterrupt):
            _say(publisher.summary, args.output)
            raise
    _say(publisher.summary, args.output)
    return publisher.summary.exit_code


def _count(text: str) -> int:
    number = int(text)
    if not 0 < number <= 100_000:
        raise argparse.ArgumentTypeError("a number from 1 to 100000")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= 86_400:
        raise argparse.ArgumentTypeError("a number of seconds above 0, at most 86400")
    return number


@contextmanager
def _input(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        # Not a with: only a failure to open has this message.
        stream = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
    with stream:
        yield stream


@contextmanager
def _progress(stream: BinaryIO) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda items, octets: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    size = os.fstat(stream.fileno()).st_size or None
    columns = (
        TextColumn("{task.fields[settled]:>10,} indications"),
        BarColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("publishing", total=size, settled=0)
        count = 0

        def settled(items: int, octets: int) -> None:
            nonlocal count
            count += items
            # A line break for each, which the items do not have.
            bar.update(task, advance=octets + items, settled=count)

        yield settled


def _say(summary: Summary, output: str) -> None:
    if output == "json":
        print(json.dumps(_document(summary)))
        return
    counts = [f"{summary.accepted:,} accepted", f"{summary.duplicate:,} duplicate"]
    counts.append(f"{summary.refused:,} refused")
    if summary.delivered or summary.pending or summary.discarded.total():
        counts.append(f"{summary.delivered:,} delivered")
        if summary.unrouted:
            counts[-1] += f" ({summary.unrouted:,} of them had no subscriber)"
        counts.append(f"{summary.pending:,} pending")
        counts += [f"{n:,} discarded ({reason})" for reason, n in summary.discarded.items() if n]
    print(", ".join(counts))
    for refusal in summary.refusals:
        print(f"  line {refusal.number}: {refusal.reason}")
    if summary.refused > len(summary.refusals):
        print(f"  … and {summary.refused - len(summary.refusals):,} more")
    for name, counted in (summary.flush or {}).get("destinations", {}).items():
        print(f"  {name}: {_destination(counted)}")
    if summary.failure is not None:
        if summary.unsettled_from is not None:
            print(f"stopped at line {summary.unsettled_from}: what follows was not accepted")
        print(f"pillion publish: {summary.failure}", file=sys.stderr)


def _destination(counted: dict[str, object]) -> str:
    parts = [f"{counted.get('delivered', 0):,} delivered", f"{counted.get('pending', 0):,} pending"]
    discarded = counted.get("discarded")
    if isinstance(discarded, dict):
        parts += [f"{number:,} discarded ({reason})" for reason, number in discarded.items()]
    return ", ".join(parts)


def _document(summary: Summary) -> dict[str, object]:
    return {
        "accepted": summary.accepted,
        "duplicate": summary.duplicate,
        "refused": summary.refused,
        "refusals": [
            {"line": refusal.number, "reason": refusal.reason} for refusal in summary.refusals
        ],
        "delivered": summary.delivered,
        "unrouted": summary.unrouted,
        "pending": summary.pending,
        "discarded": dict(+summary.discarded),
        "resent": summary.resent,
        "failure": summary.failure,
        "unsettledFrom": summary.unsettled_from,
        "flush": summary.flush,
    }
