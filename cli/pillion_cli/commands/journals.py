"""``pillion journals``: the copies of journals that a gateway keeps (S3.3)."""

import argparse
import sys

from pillion_cli.arguments import add_deliverer_arguments, add_output_argument
from pillion_cli.diagnosis import journals_of
from pillion_cli.exits import Exit
from pillion_cli.servers import connected
from pillion_cli.tables import Rows
from pillion_cli.terminal import Output
from pillion_cli.units import brief
from pillion_sidecar.wire.journals import JournalCopy, json_of

HELP = """
Show the copies of other deliverers' journals that a gateway keeps (journalCopies): who claimed each
last, its size, and for how long its writer was silent. On a gateway's administration address it
shows all namespaces; with a token those of the token's namespace. `pillion journal` looks into the
folder of one journal.

examples:
  pillion journals
  pillion journals --output json | jq '.[] | select(.bytes > 1e9)'

exit codes: 0 done, 1 no deliverer answers, or it keeps no copies, 2 a wrong command line.
"""

TIMEOUT = 30.0
_COLUMNS = ("namespace", "session", "claimant", "epoch", "bytes", "idle", "service account")
_NUMBERS = ("epoch", "bytes", "idle")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_deliverer_arguments(parser)
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    with connected(args, timeout=TIMEOUT) as client:
        copies = journals_of(client)
    if args.output == "json":
        print(json_of(copies))
        return Exit.OK
    rows = Rows(_COLUMNS, numbers=_NUMBERS, output=Output.of_process())
    rows.show(map(_row, copies))
    if not copies:
        print("pillion journals: no copies", file=sys.stderr)
    return Exit.OK


def _row(copy: JournalCopy) -> tuple[str | int | None, ...]:
    return (
        copy.namespace,
        copy.session,
        copy.claimant,
        copy.epoch,
        copy.bytes,
        brief(copy.idle_seconds),
        copy.service_account,
    )
