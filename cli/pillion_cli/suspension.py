"""Sets ``suspended`` of a destination where the deliverer reads it: in a file of its folder."""

import argparse
import json
import os
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pillion_cli.arguments import (
    Options,
    add_deliverer_arguments,
    add_output_argument,
    destination_name,
    seconds_from,
)
from pillion_cli.client import DelivererClient
from pillion_cli.diagnosis import queue_of
from pillion_cli.doctor import status_of
from pillion_cli.exits import CommandError, Exit
from pillion_cli.queue_states import judged, time_of
from pillion_cli.replacing import replacing
from pillion_cli.servers import connected
from pillion_cli.units import brief_rate
from pillion_sidecar.config.editing import with_field
from pillion_sidecar.config.loader import MOF_SUFFIX, MOST_BYTES, resource_files
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.config.yamlstream import StreamError
from pillion_sidecar.wire.queues import QueueDetails

KIND, FIELD = "ListenerDestination", "suspended"
TIMEOUT = 30.0
#: Seconds between two looks at the queue.
PACE = 0.1
#: Fraction of the time that one answer takes if the deliverer is slow.
SLOW = 0.25


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one file."""

    file: Path
    #: Line of the destination's ``spec``, from 1.
    line: int
    before: str
    after: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", type=destination_name, metavar="DESTINATION", help="name of the destination"
    )
    options = Options(parser)
    options.file(
        "--resources DIR", "the deliverer's folder of resource files, where it is here [as it says]"
    )
    options.value(
        "--timeout SECONDS", "longest time for the deliverer to take it up", seconds_from(1), 15.0
    )
    add_deliverer_arguments(parser)
    add_output_argument(parser)


def run(args: argparse.Namespace, *, wanted: bool) -> int:
    with connected(args, timeout=min(TIMEOUT, args.timeout)) as client:
        queue = _queue(client, args.name)
        status = status_of(client)
        if status.is_rendered:
            return _tell_kubectl(args, wanted=wanted)
        if queue.suspended is wanted:
            return _say(args, queue, wanted=wanted, edit=None)
        if status.configuration_problem is not None:
            raise CommandError(
                "the deliverer does not accept its folder as it is, so a change would have no"
                f" effect: correct it first; pillion validate {status.resources} says what"
            )
        edit = edited(_folder(args, status.resources), args.name, wanted=wanted)
        taken = _applied(client, args, edit, wanted=wanted)
    return _say(args, taken, wanted=wanted, edit=edit)


def _queue(client: DelivererClient, name: str) -> QueueDetails:
    queue = queue_of(client, name)
    if queue is None:
        # Again, for the nearest name.
        raise client.get(f"/v1/queues/{name}").refusal()
    return queue


def _applied(
    client: DelivererClient, args: argparse.Namespace, edit: Edit, *, wanted: bool
) -> QueueDetails:
    """Change the file; return the queue once the deliverer has taken it up. Raises CommandError."""
    replace(edit)
    file = escape_controls(str(edit.file))
    try:
        queue, why = _wait(client, args.name, wanted=wanted, seconds=args.timeout)
    except KeyboardInterrupt:
        put_back(edit)
        raise
    except CommandError as failure:
        text = f"{file} is changed, and counts when the deliverer is back: {failure}"
        raise CommandError(text) from failure
    if queue is None:
        put_back(edit)
        raise CommandError(
            f"{file} was changed, and changed back: the deliverer did not take it up within"
            f" {args.timeout:g} s{why}"
        )
    return queue


def _wait(
    client: DelivererClient, name: str, *, wanted: bool, seconds: float
) -> tuple[QueueDetails | None, str]:
    """Return the queue once the deliverer has taken up the change; else None, and why."""
    begin = asked = time.monotonic()
    slowest = 0.0
    while True:
        queue = queue_of(client, name)
        if queue is not None and queue.suspended is wanted:
            return queue, ""
        now = time.monotonic()
        slowest = max(slowest, now - asked)
        if now >= begin + seconds:
            return None, _why_not(client, slowest=slowest, seconds=seconds)
        time.sleep(PACE)
        asked = time.monotonic()


def _why_not(client: DelivererClient, *, slowest: float, seconds: float) -> str:
    """Raises CommandError."""
    status = status_of(client)
    if status.configuration_problem is not None:
        return (
            f", since it does not accept its folder: pillion validate {status.resources} says why"
        )
    if slowest > SLOW * seconds:
        return (
            f": it was stopped or is slow, since one answer took {slowest:.1f} s; try again with a"
            " longer --timeout"
        )
    return ", so it reads another folder; name that one with --resources"


def _tell_kubectl(args: argparse.Namespace, *, wanted: bool) -> int:
    command = kubectl(args.name, wanted=wanted)
    if args.output == "json":
        print(json.dumps({"destination": args.name, "changed": False, "command": command}))
    else:
        print(command)
    verb = "suspend" if wanted else "resume"
    print(
        f"pillion {verb}: nothing was changed: {args.name} is a resource in Kubernetes, which this"
        " deliverer only reads; run the command above, with --namespace if it is in another",
        file=sys.stderr,
    )
    return Exit.FAILED


def kubectl(name: str, *, wanted: bool) -> str:
    """``name`` is that of a queue, so it needs no quotes."""
    patch = json.dumps({"spec": {FIELD: wanted}}, separators=(",", ":"))
    return f"kubectl patch listenerdestination {name} --type merge --patch '{patch}'"


def _say(args: argparse.Namespace, queue: QueueDetails, *, wanted: bool, edit: Edit | None) -> int:
    if args.output == "json":
        document: dict[str, Any] = {
            "destination": queue.name,
            "suspended": wanted,
            "changed": edit is not None,
            "file": None if edit is None else str(edit.file),
            "depth": queue.depth,
            "capacity": queue.capacity,
        }
        print(json.dumps(document))
        return Exit.OK
    word = "suspended" if wanted else "not suspended"
    when = "already" if edit is None else "now"
    print(f"{queue.name} is {word} {when}; {queue.depth:,} pending")
    if wanted and (warning := of_full_queue(queue)):
        print(warning)
    if edit is not None:
        print(escape_controls(f"changed: {edit.file}, spec of line {edit.line}"))
    return Exit.OK


def of_full_queue(queue: QueueDetails) -> str:
    """What goes on though the destination is suspended; empty: nothing does."""
    one = judged(queue, now=time_of([queue], {}, now=time.time))
    if one.refuses:
        return f"its queue is full, so publishers are refused: raise queueSize of {queue.name}"
    if one.loss is None or one.loss >= 1:
        return ""
    rate = queue.accepted_per_second
    now = f", now {brief_rate(rate)} a second" if rate else ""
    return (
        f"its queue is full: each new indication discards the oldest{now}; raise its queueSize, or"
        " see docs/runbook.md#stop-the-loss"
    )


def _folder(args: argparse.Namespace, told: str) -> Path:
    if args.resources is not None:
        folder: Path = args.resources
        if not folder.is_dir():
            text = f"--resources {folder}: no such folder; name the one that the deliverer reads"
            raise CommandError(escape_controls(text), code=Exit.USAGE)
        return folder
    folder = Path(told)
    if not folder.is_dir():
        text = f"the deliverer reads {folder}, which is not here: run this where it runs, or name"
        raise CommandError(escape_controls(f"{text} the folder with --resources"))
    return folder


# ---------------------------------------------------------------------- the file


def edited(folder: Path, name: str, *, wanted: bool) -> Edit:
    """Return the change that sets the field. Raises CommandError."""
    for file in resource_files(folder):
        if file.name.endswith(MOF_SUFFIX):
            continue
        text = _text(file)
        try:
            found = with_field(text, kind=KIND, name=name, field=FIELD, value=wanted)
        except StreamError as error:
            raise _by_hand(file, error.message) from error
        if found is not None:
            return Edit(file, found.line, text, found.text)
    raise CommandError(
        escape_controls(
            f"no file of {folder} has the ListenerDestination {name}: name the folder that the"
            " deliverer reads with --resources"
        )
    )


def _text(file: Path) -> str:
    try:
        content = file.read_bytes()
        if len(content) > MOST_BYTES:
            raise _by_hand(file, "it is too large")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _by_hand(file, str(getattr(error, "strerror", None) or error)) from error


def _by_hand(file: Path, why: str) -> CommandError:
    text = f"{file} cannot be changed: {why}; set {FIELD} there by hand"
    return CommandError(escape_controls(text))


def replace(edit: Edit) -> None:
    """Write the file in one step. Raises CommandError."""
    _write(edit.file, edit.after, known=edit.before)


def put_back(edit: Edit) -> None:
    """Raises CommandError."""
    _write(edit.file, edit.before, known=edit.after)


def _write(file: Path, text: str, *, known: str) -> None:
    # The file that a link leads to, not the link.
    target = file.resolve()
    try:
        # Hidden, so that the deliverer does not read it.
        with replacing(target, text.encode(), prefix=".pillion-") as name:
            shutil.copymode(target, name)
            with suppress(PermissionError):
                os.chown(name, target.stat().st_uid, target.stat().st_gid)
            if _text(file) != known:
                raise CommandError(
                    escape_controls(f"{file} was changed meanwhile: nothing was done; try again")
                )
    except OSError as error:
        raise _by_hand(file, error.strerror or str(error)) from error
