"""``pillion journal``: inspect, verify or export a journal (S3.1)."""

import argparse
import json
import resource
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pillion_cli.arguments import Options, add_output_argument, moment
from pillion_cli.exits import CommandError, Exit
from pillion_cli.journal_overview import Export, Overview
from pillion_cli.journal_reader import JournalReader, Snapshot
from pillion_cli.tables import show_table
from pillion_sidecar.history.damage import Damage, damage_in
from pillion_sidecar.history.discards import (
    count_unlisted,
    encode_discard,
    lists_discards,
    read_discards,
)
from pillion_sidecar.history.files import segments_of
from pillion_sidecar.history.outcome import Discard, OutcomeQuery, OutcomeResult
from pillion_sidecar.history.reading import Kept
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.files import JournalError, UnreadableError, path_error
from pillion_sidecar.journal.marks import MARKS_NAME
from pillion_sidecar.journal.scan import Finding, FindingKind
from pillion_sidecar.journal.segments import DAMAGED_SUFFIX
from pillion_sidecar.wire.queues import Moment

HELP = """
Read the folder of a journal. The command changes nothing and may run beside a deliverer; its output
is a snapshot.

inspect shows the segments; for each destination the number of pending indications, the oldest one
and the time of the next attempt; and the indications that wait for their predecessors. verify reads
every byte and reports where the journal is damaged or incomplete, and what is lost. The end of the
log can be cut short: a power failure interrupted the last write, or the end is damaged and may have
been acknowledged; the next start truncates it and begins new sequence contexts. A write that a kill
of the process interrupted is reported but is no damage: nothing of it was acknowledged. export
writes indications to standard output, one per line, in the format of pillion publish; --envelope
adds the id, the time of acceptance and the outcome at each destination.

discards lists the discards: time, destination, subscription, reason, the source and identifier by
which the publisher can send the indication again, and the detail of the attempt that decided it.
The list is that of the history: by default a week, in a tenth of the volume.

Of these, only export shows the content of indications; `pillion discarded show` shows that of a
discard. The journal contains no credentials, but may have the URLs of callbacks. A deliverer that
accepts an export assigns new numbers, and refuses lines whose `expires` has passed.

examples:
  pillion journal inspect /var/lib/pillion
  pillion journal verify /var/lib/pillion --output json | jq '.findings'
  pillion journal export /var/lib/pillion --destination siem | pillion publish -
  pillion journal export /var/lib/pillion --all --envelope | jq 'select(.id > 41000)'
  pillion journal discards /var/lib/pillion --destination siem --since 2026-11-22T09:00:00Z
  pillion journal discards /var/lib/pillion --output json | jq -r .identifier

exit codes: 0 done, and with verify: sound, 1 damaged, cut short, or the disk failed, 2 a wrong
command line or no journal, 3 the export lacks indications that are damaged or have no body.
"""

ACTIONS = ("inspect", "verify", "export", "discards")
_SEGMENT_COLUMNS = ("segment", "bytes", "live bytes", "records", "live records")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, type=_action, help="action")
    parser.add_argument("directory", metavar="DIR", type=Path, help="folder of the journal")
    add_output_argument(
        parser, "output format, except of export; discards prints one JSON object per line"
    )
    which = Options(parser.add_mutually_exclusive_group())
    which.flag("--pending", "export pending indications [the default]")
    which.flag("--all", "export settled indications too")
    options = Options(parser)
    options.value("--destination NAME", "export or list only the indications of this destination")
    options.choice("--reason", DiscardReason, "list only the discards for this reason")
    options.value(
        "--since TIME",
        "list only the discards since this time, such as 2026-11-22T09:00:00Z",
        moment,
    )
    options.flag("--envelope", "export each indication with its outcome")


def _action(text: str) -> str:
    if text not in ACTIONS:
        raise argparse.ArgumentTypeError(
            f"{text[:200]!r} is not an action: write one of {', '.join(ACTIONS)} before DIR"
        )
    return text


def run(args: argparse.Namespace) -> int:
    _check(args)
    if args.action == "discards":
        return _discards(args)
    _allow_many_files()
    with Snapshot(args.directory) as snapshot, _refusing():
        reader = JournalReader(snapshot)
        if args.action == "inspect":
            return _inspect(reader, snapshot, args)
        if args.action == "verify":
            return _verify(reader, snapshot, args)
        return _export(reader, args)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except JournalError as error:
        failed = isinstance(error, UnreadableError)
        code = Exit.FAILED if failed else Exit.USAGE
        raise CommandError(str(error), code=code) from error


def _check(args: argparse.Namespace) -> None:
    if args.destination is not None and args.action not in ("export", "discards"):
        raise CommandError("--destination: only for export and discards", code=Exit.USAGE)
    of_export = {"--pending": args.pending, "--all": args.all, "--envelope": args.envelope}
    given = [name for name, is_given in of_export.items() if is_given]
    if given and args.action != "export":
        raise CommandError(f"{', '.join(given)}: only for export", code=Exit.USAGE)
    of_discards = {"--reason": args.reason, "--since": args.since}
    given = [name for name, value in of_discards.items() if value is not None]
    if given and args.action != "discards":
        raise CommandError(f"{', '.join(given)}: only for discards", code=Exit.USAGE)
    if args.output == "json" and args.action == "export":
        raise CommandError("--output: not for export, which writes JSON", code=Exit.USAGE)


def _allow_many_files() -> None:
    """Raise the limit: a journal has a file for each 16 MiB, and all are open at once."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# ---------------------------------------------------------------------- inspect


def _inspect(reader: JournalReader, snapshot: Snapshot, args: argparse.Namespace) -> int:
    document = Overview(reader).take_all().document()
    document["quarantined"] = _quarantined(snapshot)
    document["findings"] = [_finding(one) for one in reader.damage()]
    if args.output == "json":
        print(json.dumps(document))
        return Exit.OK
    segments, destinations = document["segments"], document["destinations"]
    print(f"journal {document['journal'] or '(its id is lost)'}, version {document['version']}")
    print(
        f"{sum(one['bytes'] for one in segments):,} bytes in {_count(len(segments), 'segment')}, "
        f"{sum(one['liveBytes'] for one in segments):,} of them live; "
        f"{_count(document['identities'], 'identity', 'identities')} remembered; "
        f"last time {document['lastTime']}"
    )
    show_table(
        _SEGMENT_COLUMNS,
        (
            (one["name"], one["bytes"], one["liveBytes"], one["records"], one["liveRecords"])
            for one in segments
        ),
        numbers=_SEGMENT_COLUMNS[1:],
    )
    if destinations:
        _show_destinations(destinations)
    if document["heldGroups"]:
        show_table(
            ("source", "group", "held", "oldest", "lowest sequence"),
            (
                (
                    one["source"],
                    one["group"],
                    one["pending"],
                    one["oldestAcceptedAt"],
                    _text(one["leastSequence"]),
                )
                for one in document["heldGroups"]
            ),
            numbers=("held", "lowest sequence"),
        )
    if document["lost"]:
        print(f"{document['lost']:,} lost with a deliverer that kept bodies in memory (StateOnly)")
    _say_quarantined(document["quarantined"])
    _say_findings(reader.damage(), snapshot)
    return Exit.OK


def _show_destinations(destinations: list[dict[str, Any]]) -> None:
    def row(one: dict[str, Any]) -> tuple[str | int | None, ...]:
        context = one["context"] or {}
        return (
            one["name"],
            one["pending"],
            one["oldestAcceptedAt"],
            one["failures"],
            "paused" if one["paused"] else one["nextAttemptTime"],
            _text(context.get("epoch")),
            _text(context.get("nextSequenceNumber")),
        )

    numbers = ("pending", "failures", "epoch", "next number")
    columns = ("destination", "pending", "oldest", "failures", "next attempt", *numbers[2:])
    show_table(columns, map(row, destinations), numbers=numbers)


def _text(number: int | None) -> str | None:
    """Return a number without thousands separators."""
    return None if number is None else str(number)


# ---------------------------------------------------------------------- verify


def _verify(reader: JournalReader, snapshot: Snapshot, args: argparse.Namespace) -> int:
    damage = [*reader.damage(), *_marks_folder(snapshot), *_of_history(snapshot)]
    torn, unfinished = reader.torn(), reader.unfinished()
    quarantined = _quarantined(snapshot)
    files = len(snapshot.names())
    size = sum(snapshot.size(name) for name in snapshot.names())
    if args.output == "json":
        document = {
            "journal": reader.journal_id,
            "sound": not damage and not torn,
            "files": files,
            "bytes": size,
            "findings": [_finding(one) for one in damage],
            "unfinished": [_finding(one) for one in (*torn, *unfinished)],
            "quarantined": quarantined,
        }
        print(json.dumps(document))
        return Exit.FAILED if damage or torn else Exit.OK
    _say_findings(damage, snapshot)
    for one in (*torn, *unfinished):
        print(f"{one.file}: from byte {one.begin}: cut short; lost: {one.lost}")
    _say_quarantined(quarantined)
    verdict = "cut short" if torn else "sound"
    verdict = f"damaged in {_count(len(damage), 'place')}" if damage else verdict
    print(f"{verdict}: {_count(files, 'file')}, {size:,} bytes")
    return Exit.FAILED if damage or torn else Exit.OK


def _of_history(snapshot: Snapshot) -> list[Finding]:
    segments = segments_of(snapshot.folder)
    found: list[Damage] = []
    for segment in segments:
        # A deliverer may have removed it.
        with suppress(FileNotFoundError):
            found += damage_in(segment, is_newest=segment is segments[-1])
    return [
        Finding(
            kind=FindingKind.DAMAGED,
            file=one.file,
            begin=one.begin,
            end=one.begin + one.size,
            lost=f"outcomes, at most {_count(one.discards, 'discard')} among them",
        )
        for one in found
    ]


def _marks_folder(snapshot: Snapshot) -> list[Finding]:
    if not snapshot.is_folder(MARKS_NAME):
        return []
    lost = "no record; a missing first or last segment cannot be detected"
    return [Finding(kind=FindingKind.MARKS, file=MARKS_NAME, begin=0, end=0, lost=lost)]


def _say_findings(damage: list[Finding], snapshot: Snapshot) -> None:
    for one in damage:
        where = _where(one, is_folder=snapshot.is_folder(one.file))
        print(f"{one.file}: {where}: {one.kind.value}; lost: {one.lost}")


def _where(one: Finding, *, is_folder: bool) -> str:
    if is_folder:
        return "a folder instead of a file"
    if one.end > one.begin:
        return f"bytes {one.begin} to {one.end - 1}"
    return "not there" if one.kind is FindingKind.MISSING else "empty"


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "file": one.file,
        "kind": one.kind.value,
        "begin": one.begin,
        "end": one.end,
        "lost": one.lost,
    }


def _quarantined(snapshot: Snapshot) -> list[dict[str, Any]]:
    others = sorted(snapshot.others().items())
    return [{"file": name, "bytes": size} for name, size in others if name.endswith(DAMAGED_SUFFIX)]


def _say_quarantined(files: list[dict[str, Any]]) -> None:
    for one in files:
        print(f"{one['file']}: {one['bytes']:,} damaged bytes, quarantined by a deliverer")


def _count(number: int, what: str, several: str | None = None) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {several or what + 's'}"


# ---------------------------------------------------------------------- export


def _export(reader: JournalReader, args: argparse.Namespace) -> int:
    export = Export(all=args.all, destination=args.destination, envelope=args.envelope)
    known = {name for _, name in reader.account.destinations.values()}
    if args.destination is not None and args.destination not in known:
        raise CommandError(
            f"--destination: the journal has no destination {args.destination!r}; it has "
            f"{', '.join(sorted(known)) or 'none'}",
            code=Exit.USAGE,
        )
    out = sys.stdout.buffer
    for line in export.lines(reader):
        out.write(line + b"\n")
    out.flush()
    damage = reader.damage()
    if damage:
        places = _count(len(damage), "place")
        print(
            f"pillion journal: damaged in {places}, so the export is incomplete; "
            "pillion journal verify shows the damage",
            file=sys.stderr,
        )
    if export.bodiless:
        print(
            f"pillion journal: {export.bodiless:,} without a body: the deliverer ran as StateOnly",
            file=sys.stderr,
        )
    return Exit.PARTLY if damage or export.bodiless else Exit.OK


# ---------------------------------------------------------------------- discards


def _discards(args: argparse.Namespace) -> int:
    query = OutcomeQuery(
        result=OutcomeResult.DISCARDED,
        destination=args.destination,
        reason=args.reason,
        since=None if args.since is None else args.since.timestamp(),
    )
    if not lists_discards(args.directory):
        # Nothing was discarded, if it is a journal.
        with Snapshot(args.directory) as snapshot, _refusing():
            JournalReader(snapshot)
    try:
        found = read_discards(Kept(folder=args.directory), query)
        if args.output == "json":
            for one in found:
                sys.stdout.buffer.write(encode_discard(one))
            sys.stdout.buffer.flush()
        else:
            _show_discards(found)
        unlisted = count_unlisted(args.directory)
    except OSError as error:
        failure = path_error(str(args.directory), error)
        raise CommandError(str(failure), code=Exit.USAGE) from error
    if unlisted:
        print(
            f"pillion journal: {unlisted:,} discards are not listed any more: they were too old,"
            " or the history was full",
            file=sys.stderr,
        )
    return Exit.OK


def _show_discards(found: Iterable[Discard]) -> None:
    columns = ("time", "destination", "subscription", "reason", "source", "identifier")
    numbers = ("number", "attempts")
    rows = (
        (
            str(Moment(one.time.timestamp())),
            one.destination,
            one.subscription,
            one.reason,
            one.source,
            one.identifier,
            _text(one.sequence_number),
            _text(one.attempts),
            one.detail,
        )
        for one in found
    )
    show_table((*columns, *numbers, "detail"), rows, numbers=numbers)
