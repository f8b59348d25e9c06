"""``pillion discarded``: discarded indications, and their second chance (S0.11)."""

import argparse
import json
import sys
import time
from collections import Counter

from pillion_cli.arguments import (
    Options,
    add_deliverer_arguments,
    add_output_argument,
    add_timeout_argument,
    whole_number,
)
from pillion_cli.client import DelivererClient
from pillion_cli.exits import CommandError, Exit
from pillion_cli.outcomes import (
    MOST_NUMBER,
    PATH,
    Page,
    add_selection,
    check_destination,
    outcome_of,
    pages,
    selected,
    show_pages,
    time_text,
    write_lines,
)
from pillion_cli.redrive import Redrive, Totals, Waiting
from pillion_cli.servers import connected
from pillion_cli.units import brief
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.history.outcome import OutcomeResult
from pillion_sidecar.wire.outcomes import OutcomeLine

HELP = """
Show the discarded indications that the history of a deliverer has, and give them a second chance.

list shows them, one line for each destination that missed an indication. show NUMBER shows one with
its content. export writes their content to standard output, one per line, in the format of pillion
publish, without their place in a message group; --envelope writes the outcome around it. A
deliverer that knows an exported identity answers that it is a duplicate: redrive instead.

redrive delivers them again, each only to the destination that missed it, under the same identity,
in their order. It shows first how many there are, and asks. A full queue makes it wait, --timeout
seconds at most for the next place. What is redriven already is skipped, so the command may be
repeated; so is what has no content any more, or has lost its subscription.

examples:
  pillion discarded list --destination siem --since 2026-11-22T09:00:00Z
  pillion discarded show 41007
  pillion discarded redrive --destination siem --reason attempts-exceeded
  pillion discarded redrive --destination siem --yes --output json
  pillion discarded export --source nightly-load | pillion publish - --server http://other:8288

exit codes: 0 done, 1 no deliverer, no such outcome, or a queue stayed full, 2 a wrong command line,
3 the export lacks indications whose content is not kept.
"""

ACTIONS = ("list", "show", "redrive", "export")
TIMEOUT = 60.0
ANSWER_SECONDS = 60.0
_COLUMNS = ("number", "time", "destination", "reason", "source", "identifier", "attempts", "detail")
#: Why an indication was skipped. An unknown reason is shown as it is.
_SKIPPED = {
    "redriven": "redriven already",
    "not-kept": "without content in the history",
    "not-subscribed": "not subscribed any more",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="action")
    parser.add_argument(
        "number",
        metavar="NUMBER",
        nargs="?",
        type=whole_number(1, MOST_NUMBER),
        help="of the outcome, for show",
    )
    add_deliverer_arguments(parser)
    options = Options(parser)
    add_selection(options)
    options.flag("--dry-run", "of redrive: only show how many there are")
    options.flag("--yes", "do not ask for confirmation")
    options.flag("--envelope", "export each indication with its outcome")
    add_timeout_argument(parser, default=TIMEOUT)
    add_output_argument(
        parser, "output format, except of export; list prints one JSON object per line"
    )


def run(args: argparse.Namespace) -> int:
    _check(args)
    with connected(args, timeout=ANSWER_SECONDS) as client:
        match args.action:
            case "list":
                return _list(client, args)
            case "show":
                return _show(client, args)
            case "redrive":
                return _redrive(client, args)
        return _export(client, args)


def _check(args: argparse.Namespace) -> None:
    if (args.number is not None) is not (args.action == "show"):
        text = "NUMBER is missing" if args.action == "show" else "NUMBER: only for show"
        raise CommandError(text, code=Exit.USAGE)
    if args.number is not None and any(value is not None for value in selected(args).values()):
        raise CommandError("show NUMBER needs no other selection", code=Exit.USAGE)
    of_redrive = {"--dry-run": args.dry_run, "--yes": args.yes}
    given = [name for name, is_given in of_redrive.items() if is_given]
    if given and args.action != "redrive":
        raise CommandError(f"{', '.join(given)}: only for redrive", code=Exit.USAGE)
    if args.envelope and args.action != "export":
        raise CommandError("--envelope: only for export", code=Exit.USAGE)
    if args.output == "json" and args.action == "export":
        raise CommandError("--output: not for export, which writes JSON", code=Exit.USAGE)


def _discards(args: argparse.Namespace) -> dict[str, object]:
    return {**selected(args), "result": OutcomeResult.DISCARDED.value}


# ---------------------------------------------------------------------- list and show


def _list(client: DelivererClient, args: argparse.Namespace) -> int:
    found = pages(client, _discards(args), after=0, limit=None)
    if not show_pages(found, columns=_COLUMNS, row=_row, output=args.output):
        check_destination(client, args)
        print("pillion discarded: no discards", file=sys.stderr)
    return Exit.OK


def _row(one: OutcomeLine) -> tuple[str | int | None, ...]:
    return (
        one.number,
        time_text(one.time),
        one.destination,
        one.reason,
        one.source,
        one.identifier,
        one.attempts,
        one.detail,
    )


def _show(client: DelivererClient, args: argparse.Namespace) -> int:
    query = {"after": args.number - 1, "limit": 1, "indication": "true"}
    answer = client.get(PATH, query)
    # 409: beyond the last number.
    lines = [] if answer.status == 409 else Page.of(answer).lines
    one = outcome_of(lines[0]) if lines else None
    if one is None or one.number != args.number:
        raise CommandError(f"the history has no outcome {args.number}, or not any more")
    if one.result != OutcomeResult.DISCARDED:
        raise CommandError(f"outcome {args.number} is no discard: it is {one.result}")
    document = json.loads(lines[0])
    if args.output == "json":
        print(json.dumps(document))
        return Exit.OK
    indication = document.pop("indication", None)
    width = max(map(len, document))
    for name, value in document.items():
        print(f"{name:<{width}}  {escape_controls(str(value))}")
    if indication is None:
        print("The history does not have its content.")
    else:
        for line in json.dumps(indication, indent=2, ensure_ascii=False).split("\n"):
            print(escape_controls(line))
    return Exit.OK


# ---------------------------------------------------------------------- export


def _export(client: DelivererClient, args: argparse.Namespace) -> int:
    bodiless = 0
    for page in pages(client, {**_discards(args), "indication": "true"}, after=0, limit=None):
        for line in page.lines:
            one = outcome_of(line)
            if not one.indication:
                bodiless += 1
            if args.envelope:
                write_lines((line,))
            elif one.indication:
                write_lines((_publishable(one, bytes(one.indication)),))
    sys.stdout.flush()
    if bodiless:
        print(
            f"pillion discarded: {bodiless:,} without content: the history does not keep it",
            file=sys.stderr,
        )
    return Exit.PARTLY if bodiless else Exit.OK


def _publishable(one: OutcomeLine, body: bytes) -> bytes:
    """The indication with its source, as a publisher sends it."""
    if one.source is None:
        return body
    source = json.dumps(one.source, ensure_ascii=False).encode()
    # The body is an object with members, so its last character closes it.
    return body.rstrip()[:-1] + b',"source":' + source + b"}"


# ---------------------------------------------------------------------- redrive


def _redrive(client: DelivererClient, args: argparse.Namespace) -> int:
    redrive = Redrive(
        client, selected(args), monotonic=time.monotonic, sleep=time.sleep, tell=_tell_waiting
    )
    if args.dry_run or not args.yes:
        if not args.dry_run and not sys.stdin.isatty():
            raise CommandError(
                "redrive without a terminal needs --yes or --dry-run", code=Exit.USAGE
            )
        found = redrive.count()
        _check_covered(client, args, found)
        if args.dry_run and args.output == "json":
            print(json.dumps(found.document()))
            return Exit.OK
        if args.output != "json":
            _say_destinations(client, args, through=found.through or 0)
            _say(found, "can be redriven")
        if args.dry_run or not found.redriven:
            return Exit.OK
        _confirm(found)
    try:
        redrive.run(timeout=args.timeout)
    except CommandError as failure:
        done = redrive.totals.redriven
        raise CommandError(
            f"{failure}; {done:,} redriven before that, which another redrive skips"
        ) from failure
    totals = redrive.totals
    _check_covered(client, args, totals)
    if args.output == "json":
        print(json.dumps(totals.document()))
    else:
        _say(totals, "redriven")
    if totals.refusal is not None and args.output != "json":
        print(
            f"pillion discarded: the rest was refused for {args.timeout:g} s: "
            f"{escape_controls(totals.refusal)}; a later redrive goes on",
            file=sys.stderr,
        )
    return Exit.OK if totals.refusal is None else Exit.FAILED


def _tell_waiting(waiting: Waiting) -> None:
    how_long = "" if waiting.seconds is None else f", in about {brief(waiting.seconds)}"
    print(
        f"pillion discarded: {waiting.redriven:,} redriven; {escape_controls(waiting.refusal)}, so"
        f" the other {waiting.left:,} follow as it empties{how_long}",
        file=sys.stderr,
        flush=True,
    )


def _check_covered(client: DelivererClient, args: argparse.Namespace, totals: Totals) -> None:
    """Raises CommandError if there is no discard, and no such destination."""
    if not (totals.redriven or totals.skipped or totals.refusal):
        check_destination(client, args)


def _say_destinations(client: DelivererClient, args: argparse.Namespace, *, through: int) -> None:
    discarded: Counter[str] = Counter()
    for page in pages(client, _discards(args), after=0, limit=None):
        discarded.update(one.destination for one in page.outcomes() if one.number <= through)
    for destination, count in sorted(discarded.items()):
        print(f"{escape_controls(destination)}: {count:,} discarded")


def _say(totals: Totals, done: str) -> None:
    skipped = "".join(
        f"; {count:,} {_SKIPPED.get(reason) or escape_controls(reason)}"
        for reason, count in sorted(totals.skipped.items())
        if count
    )
    print(f"{totals.redriven:,} {done}{skipped}")
    if totals.newer:
        print(f"{totals.newer:,} of them will arrive after newer indications of the same source.")


def _confirm(found: Totals) -> None:
    answer = input(f"Redrive {found.redriven:,}? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was redriven")
