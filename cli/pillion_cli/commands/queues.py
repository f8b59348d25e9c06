"""``pillion queues``: a deliverer's destination queues (S0.12)."""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pillion_cli.arguments import (
    Options,
    add_deliverer_arguments,
    add_output_argument,
    destination_name,
    seconds_from,
)
from pillion_cli.client import DelivererClient, count_of
from pillion_cli.diagnosis import queues_of, read
from pillion_cli.exits import CommandError, Exit
from pillion_cli.queue_states import ORDERS, Judged, judged, summary, time_of
from pillion_cli.queue_table import details_lines, queue_lines
from pillion_cli.servers import connected
from pillion_cli.terminal import Output, Style, cut, wrapped
from pillion_cli.watching import watch
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.wire.queues import QueueDetails

HELP = """
Show the queue of each destination, the worst first: its state and the reason, pending indications
and capacity, the age of the oldest one, since when the listener fails or is slow, indications that
arrive and are delivered per second, the time of the next attempt, when the first indication will be
discarded, and when the queue will be full. With NAME: that queue, its retry policy and its last 20
attempts.

Of the queues in trouble those that lose indications now come first, then those that are full and
refuse publishers, then by the time of the first loss, the state and the depth.

The states, from the worst:
  failing     attempts fail, and are repeated
  held        the destination has a fault: nothing is sent until it is corrected
  paused      only the oldest indication is sent, now and then, until one is accepted
  unanswered  an attempt waits for its answer
  suspended   the resource has suspended: true; `pillion resume NAME` ends that
  slow        the listener takes fewer indications than arrive
  behind      the oldest indication has waited for 10 s
  limited     rateLimit delays it
  draining    the destination is no longer configured; the rest is delivered
  ok

`pillion doctor` says what to do, and `pillion test NAME` tries the listener now.

A terminal shows the columns that fit; --wide shows all. NO_COLOR=1 turns colours off. A pipe gets a
summary, an empty line, and one line for each queue with all columns, two spaces or more apart, and
- for an empty cell.

--skip discards the indication at the front, for example one that the listener never accepts;
--purge discards all that are pending. An attempt in progress may still succeed; it is not repeated.
The discards are logged, counted with the reason `purged`, and reported to a publisher that waits
for them. `pillion discarded redrive` queues them again.

examples:
  pillion queues
  pillion queues siem
  pillion queues --watch --failing
  pillion queues --sort loss --wide
  pillion queues --skip siem
  pillion queues --purge siem --yes
  pillion queues --output json | jq '.queues[] | select(.depth > 0)'

exit codes: 0 done, 1 no such queue, nothing to discard, or no deliverer answers, 2 a wrong command
line, 130 --watch was ended by Ctrl-C.
"""

TIMEOUT = 30.0
#: Seconds between two looks of --watch.
WATCH_SECONDS, LEAST_SECONDS = 2.0, 0.1
#: A deliverer that hangs is told sooner.
WATCH_TIMEOUT = 5.0
#: Members of a page that are not about the deliverer.
_OF_A_PAGE = ("queues", "next")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_deliverer_arguments(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "name",
        type=destination_name,
        metavar="NAME",
        nargs="?",
        help="show this queue and its attempts",
    )
    one = Options(what)
    one.value("--skip NAME", "discard the indication at the front of this queue", destination_name)
    one.value("--purge NAME", "discard all pending indications of this queue", destination_name)
    options = Options(parser)
    options.flag("--yes", "do not ask for confirmation")
    options.flag("--failing", "only queues in trouble, from failing to behind")
    options.choice("--sort", ORDERS, "order of the queues [trouble; with --output json: name]")
    options.flag("--wide", "all columns, however narrow the terminal is")
    options.value(
        "--watch SECONDS",
        f"repeat every SECONDS, until Ctrl-C [{WATCH_SECONDS:g}]",
        seconds_from(LEAST_SECONDS),
        nargs="?",
        const=WATCH_SECONDS,
    )
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    _check(args)
    timeout = TIMEOUT if args.watch is None else WATCH_TIMEOUT
    with connected(args, timeout=timeout) as client:
        if args.skip is not None or args.purge is not None:
            return _give_up(client, args)
        look = _Look(client, args, now=time.time)
        if args.watch is not None:
            watch(
                look.frame,
                every=args.watch,
                output=Output.of_process,
                monotonic=time.monotonic,
                sleep=time.sleep,
                tell=_tell,
            )
        for line in look.lines(Output.of_process()):
            print(line)
    return Exit.OK


def _check(args: argparse.Namespace) -> None:
    """Raises CommandError for options that would have no effect."""
    of_all = {"--failing": args.failing, "--sort": args.sort}
    of_a_look = {"--watch": args.watch, "--wide": args.wide}
    if args.skip is not None or args.purge is not None:
        wrong = [name for name, given in (of_all | of_a_look).items() if given]
        if wrong:
            raise CommandError(f"{', '.join(wrong)}: not with --skip or --purge", code=Exit.USAGE)
    elif args.yes:
        raise CommandError("--yes: only with --skip or --purge", code=Exit.USAGE)
    elif args.name is not None:
        wrong = [name for name, given in of_all.items() if given]
        if wrong:
            raise CommandError(f"{', '.join(wrong)}: not with NAME", code=Exit.USAGE)


def _tell(text: str) -> None:
    print(f"pillion queues: {text}", file=sys.stderr, flush=True)


class _Look:
    """What the deliverer says, as lines."""

    def __init__(
        self, client: DelivererClient, args: argparse.Namespace, *, now: Callable[[], float]
    ) -> None:
        self._client = client
        self._args = args
        self._now = now

    def frame(self, output: Output) -> list[str]:
        """The lines, below one that says when they were true."""
        lines = list(self.lines(output))
        if self._args.output == "json":
            return lines
        at = datetime.fromtimestamp(self._now()).astimezone()
        if not output.is_screen:
            return [at.isoformat(timespec="seconds"), *lines, ""]
        text = f"{at:%H:%M:%S}  {self._client.url}  every {self._args.watch:g} s"
        return [output.paint(cut(text, output.width), Style.DIM), *lines]

    def lines(self, output: Output) -> Iterator[str]:
        """Raises CommandError."""
        if self._args.name is not None:
            return self._one(output)
        return self._all(output)

    def _one(self, output: Output) -> Iterator[str]:
        answer = self._client.get(f"/v1/queues/{self._args.name}")
        document = answer.document()
        if self._args.output == "json":
            yield json.dumps(document)
            return
        queue = read(document, QueueDetails)
        now = time_of([queue], answer.headers, now=self._now)
        yield from details_lines(
            judged(queue, now=now), queue, output, now=now, is_wide=self._args.wide
        )

    def _all(self, output: Output) -> Iterator[str]:
        told = queues_of(self._client)
        first, queues = told.documents[0], told.queues
        now = time_of(queues, told.headers, now=self._now)
        found = [judged(queue, now=now) for queue in queues]
        shown = [one for one in found if one.is_trouble] if self._args.failing else found
        if self._args.output == "json":
            documents = (queue for page in told.documents for queue in page["queues"])
            document_of = dict(zip(map(id, queues), documents, strict=True))
            ordered = self._in_order(shown, by_default="name")
            yield _document(first, [document_of[id(one.queue)] for one in ordered])
            return
        starting = told.pages[0].starting or None
        for line in wrapped(summary(found, starting=starting), output.width):
            yield output.paint(line, Style.BOLD)
        durability = first["durability"]
        if durability is not None and starting is None:
            yield f"durability: {escape_controls(str(durability))}"
        if shown:
            yield ""
            ordered = self._in_order(shown, by_default="trouble")
            yield from queue_lines(ordered, output, is_wide=self._args.wide)
            yield from self._next(ordered, output)

    def _next(self, found: Sequence[Judged], output: Output) -> Iterator[str]:
        """Name the next commands, to a person who does not watch."""
        worst = next((one.queue.name for one in found if one.is_trouble), None)
        if worst is None or not output.is_terminal or self._args.watch is not None:
            return
        name = shlex.quote(escape_controls(worst))
        yield ""
        for line in (f"try: pillion queues {name}", f"     pillion test {name}"):
            yield output.paint(cut(line, output.width), Style.DIM)

    def _in_order(self, found: Sequence[Judged], *, by_default: str) -> list[Judged]:
        return sorted(found, key=ORDERS[self._args.sort or by_default])


def _document(page: Mapping[str, Any], queues: Sequence[dict[str, Any]]) -> str:
    told = {name: value for name, value in page.items() if name not in _OF_A_PAGE}
    return json.dumps({**told, "queues": queues})


def _give_up(client: DelivererClient, args: argparse.Namespace) -> int:
    verb, name = ("skip", args.skip) if args.skip is not None else ("purge", args.purge)
    if not args.yes:
        _confirm(verb, name, count_of(client.get(f"/v1/queues/{name}").document(), "depth"))
    answer = client.post(f"/v1/queues/{name}/{verb}").document()
    discarded = count_of(answer, "discarded")
    if args.output == "json":
        print(json.dumps(answer))
    else:
        empty = "" if discarded else ": no indication is pending"
        print(f"{name}: {discarded:,} discarded{empty}{_which({**answer, 'name': name})}")
    return Exit.OK if discarded else Exit.FAILED


def _which(answer: dict[str, Any]) -> str:
    """Name the discarded indications, unless an older deliverer does not."""
    if not answer["discarded"]:
        return ""
    given = answer.get("identifiers")
    identifiers = given if isinstance(given, list) else ()
    named = [escape_controls(str(one or "without identifier")) for one in identifiers]
    if named:
        return f": {', '.join(named)}"
    name = shlex.quote(escape_controls(str(answer["name"])))
    return f"; `pillion discarded list --destination {name}` lists them"


def _confirm(verb: str, name: str, depth: int) -> None:
    if not sys.stdin.isatty():
        raise CommandError(
            f"--{verb}: add --yes, since no terminal can ask for confirmation", code=Exit.USAGE
        )
    what = "the first" if verb == "skip" else "all"
    answer = input(f"Discard {what} of {depth:,} pending for {name}? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was discarded")
