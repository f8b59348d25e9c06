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

from pillion_cli.arguments import (
    DAY,
    Options,
    add_deliverer_arguments,
    add_output_argument,
    seconds_from,
    whole_number,
)
from pillion_cli.exits import CommandError, Exit
from pillion_cli.group_publisher import GroupPublisher, Moment, SenderGroup
from pillion_cli.indications import batches, kind_of
from pillion_cli.publisher import (
    Publisher,
    PublishOptions,
    Summary,
    summary_document,
    summary_lines,
)
from pillion_cli.servers import connected
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.trace_context import MOST_STATE, TraceContext, read_trace

HELP = """
Send indications to a deliverer and report the outcome.

FILE has one indication per line (NDJSON), such as (on one line)
  {"class": "CIM_AlertIndication", "properties": {"IndicationIdentifier": "a-1", "AlertType": 5,
   "PerceivedSeverity": 6, "ProbableCause": 1}}
or is a JSON array of these, a CloudEvent or an array of them, or one CIM-XML export message. Lines
that the deliverer refuses temporarily (a full queue) are sent again after its Retry-After; invalid
lines are counted, and the first ones are printed.

With --group the lines are one message group, numbered from 0, and the last line is marked (so the
input is read one batch ahead). After each batch the command polls the deliverer for discards of the
group; the first fault ends the group, and no further line is sent.

The indications belong to the trace in --traceparent, or in the environment variables TRACEPARENT
and TRACESTATE, as otel-cli and CI systems set them. Listeners get it.

examples:
  pillion publish alerts.ndjson
  jq -c '.alerts[]' report.json | pillion publish - --source weather
  pillion publish alerts.ndjson --ack delivered --timeout 300
  pillion publish alerts.ndjson --flush
  pillion publish alerts.ndjson --server https://pillion-plant.team.svc:8288 --ca ca.crt \\
    --token-file /var/run/secrets/pillion/token
  pillion publish steps.ndjson --source plant --group batch-7 --ordered --group-max-idle 60

exit codes: 0 all accepted (with --ack durable: and on disk, with --ack stable: and in enough
stores, with --ack delivered or --flush: and all delivered, with --group: and no fault), or the
input is empty; 3 only a part, or the outcome of a part is unknown because the deliverer was
restarted; 1 nothing accepted or no deliverer; 2 a wrong command line.
"""

#: The trace of whoever runs the command.
TRACE_VARIABLES = ("TRACEPARENT", "TRACESTATE")
NETWORK_SECONDS = 10.0
LARGEST_BATCH = 100_000

_SECONDS = seconds_from(0.001, maximum=DAY)


def publisher_id(text: str) -> str:
    """Raises ArgumentTypeError for what a header cannot carry."""
    if not (text.isascii() and text.isprintable()):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not printable ASCII")
    return text


def trace_parent(text: str) -> str:
    """Raises ArgumentTypeError."""
    if read_trace(text) is None:
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not a traceparent; write 00-TRACE-SPAN-FLAGS with 32, 16 and 2 "
            "hexadecimal digits in small letters (W3C Trace Context)"
        )
    return text


def trace_state(text: str) -> str:
    """Raises ArgumentTypeError."""
    if len(text) > MOST_STATE or not (text.isascii() and text.isprintable()):
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not at most {MOST_STATE} printable ASCII characters"
        )
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="file to send; - reads standard input")
    add_deliverer_arguments(parser, "URL of the deliverer's intake")
    options = Options(parser)
    options.choice(
        "--ack",
        ("accepted", "durable", "stable", "delivered"),
        "level that a request must reach before it is answered; durable needs a deliverer with"
        " durability Disk, stable one whose service names stores",
        "accepted",
    )
    options.value(
        "--source SOURCE", "default source of the lines; with a source, repeats are recognised"
    )
    options.value(
        "--publisher ID", "publisher ID, which a flush refers to [a new one]", publisher_id
    )
    options.value(
        "--batch N",
        "indications per request, which is sent when it is full or the input ends; use 1 for an"
        " input that goes on",
        whole_number(1, LARGEST_BATCH),
        1000,
    )
    options.value(
        "--timeout SECONDS",
        "maximum time to wait for an acknowledgement and to retry without progress",
        _SECONDS,
        60.0,
    )
    options.flag(
        "--flush",
        "at the end, wait until everything is delivered or discarded and show the counts",
    )
    options.value("--group NAME", "publish the lines as one message group of this name")
    options.flag("--ordered", "deliver the group in order, without gaps")
    options.value(
        "--group-expires SECONDS",
        "end the group after this time; later than the expires of each of its lines",
        _SECONDS,
    )
    options.value(
        "--group-max-idle SECONDS",
        "end the group when this time passes between two of its lines",
        _SECONDS,
    )
    options.value(
        "--traceparent TRACEPARENT", "trace of the indications [$TRACEPARENT]", trace_parent
    )
    options.value(
        "--tracestate TRACESTATE",
        "state of the trace in --traceparent [with $TRACEPARENT: $TRACESTATE]",
        trace_state,
    )
    options.value(
        "--content-type TYPE", "format of FILE [by its suffix: .ndjson, .jsonl, .json, .xml]"
    )
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    named = args.publisher or (f"cli-{uuid.uuid4()}" if args.flush or args.group else None)
    options = PublishOptions(
        ack=args.ack,
        source=args.source,
        publisher=named,
        timeout=args.timeout,
        follows=bool(args.flush or args.group),
        trace=_trace(args),
    )
    group = _group(args)
    kind = kind_of(args.file, args.content_type)
    with (
        _input(args.file) as stream,
        connected(args, timeout=args.timeout + NETWORK_SECONDS) as client,
        _progress(stream) as settled,
    ):
        publisher = Publisher(
            client, options, monotonic=time.monotonic, sleep=time.sleep, settled=settled
        )
        sender: Publisher | GroupPublisher = publisher
        if group is not None:
            sender = GroupPublisher(
                publisher,
                client,
                group,
                now=lambda: Moment(time.monotonic(), time.time()),
                sleep=time.sleep,
            )
        try:
            sender.publish(batches(stream, kind, size=args.batch))
            if args.flush and publisher.summary.accepted + publisher.summary.duplicate:
                sender.flush()
        except (CommandError, KeyboardInterrupt):
            _say(publisher.summary, args.output)
            raise
    _say(publisher.summary, args.output)
    if publisher.summary.is_empty:
        where = "standard input" if args.file == "-" else args.file
        print(f"pillion publish: nothing was published: no indication in {where}", file=sys.stderr)
    return publisher.summary.exit_code


def _group(args: argparse.Namespace) -> SenderGroup | None:
    if args.group is None:
        for name in ("ordered", "group_expires", "group_max_idle"):
            if getattr(args, name):
                option = name.replace("_", "-")
                raise CommandError(f"--{option} needs --group NAME", code=Exit.USAGE)
        return None
    return SenderGroup(
        args.group,
        ordered=args.ordered,
        expires=None if args.group_expires is None else time.time() + args.group_expires,
        max_idle_seconds=args.group_max_idle,
    )


def _trace(args: argparse.Namespace) -> TraceContext | None:
    if args.traceparent is not None:
        return read_trace(args.traceparent, args.tracestate or "")
    if args.tracestate is not None:
        raise CommandError("--tracestate needs --traceparent TRACEPARENT", code=Exit.USAGE)
    given = os.environ.get(TRACE_VARIABLES[0], "")
    trace = read_trace(given, os.environ.get(TRACE_VARIABLES[1], ""))
    if given and trace is None:
        # Another program has set it: a trace is never a reason to publish nothing.
        shown = escape_controls(given[:80])
        print(
            f"pillion publish: {TRACE_VARIABLES[0]} is ignored: {shown!r} is not a traceparent",
            file=sys.stderr,
        )
    return trace


@contextmanager
def _input(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        if sys.stdin is None:  # as `<&-` has it
            raise CommandError("cannot read standard input: it is closed")
        yield sys.stdin.buffer
        return
    try:
        # Not a with: only a failure to open has this message.
        stream = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise CommandError(
            f"cannot read {path}: {error.strerror}; name a file, or - for standard input"
        ) from error
    with stream:
        yield stream


@contextmanager
def _progress(stream: BinaryIO) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar, if standard error is a terminal."""
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
            # The items have no line breaks.
            bar.update(task, advance=octets + items, settled=count)

        yield settled


def _say(summary: Summary, output: str) -> None:
    if output == "json":
        print(json.dumps(summary_document(summary)))
        return
    for line in summary_lines(summary):
        # Reasons quote the input, and may come from another program.
        print(escape_controls(line))
    if summary.failure is not None:
        print(escape_controls(f"pillion publish: {summary.failure}"), file=sys.stderr)
