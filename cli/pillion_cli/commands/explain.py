"""``pillion explain``: what became of one indication, and which filters select it."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from pillion_cli.arguments import Options, add_deliverer_arguments, add_output_argument
from pillion_cli.client import DelivererClient
from pillion_cli.exits import CommandError, Exit
from pillion_cli.explaining import Known, explain, known_lines, look_up, verdict_lines
from pillion_cli.servers import connected
from pillion_cli.terminal import Output
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.wire.diagnosis import document_of
from pillion_sidecar.wire.queues import written

HELP = """
Show what a deliverer knows of one indication: when it was accepted; the attempts, result, cause and
answer at each destination; if it is pending, its place in the queue; and which subscriptions select
it, and why the others do not. The filters are those in force now, not those at its acceptance.

Name the deliverer that accepted the indication with --server, --context or --pod. Of attempts that
are not among the last 20 of their queue only the number is shown.

With --file: a dry run of all filters. The file has one indication, which need not be published, and
the command does not publish it:
  {"class": "CIM_AlertIndication", "properties": {"AlertType": 5, "PerceivedSeverity": 6,
   "ProbableCause": 1}}

The reasons why a subscription does not select an indication: class (the query names another class),
source-namespace (the filter names others), query (the condition is false or unknown), disabled,
expired, and fatal-error or removal-action (the subscription has ended).

`pillion queues NAME` shows why a queue waits, `pillion doctor --destination NAME` checks the
connection to a listener, and `pillion discarded redrive --identifier ID` queues the indication
again for the destinations that have discarded it.

examples:
  pillion explain load-7
  pillion explain load-7 --source scheduler --output json
  pillion explain --file alert.json
  jq -c '.alerts[0]' report.json | pillion explain --file -

exit codes: 0 it is known, or with --file at least one subscription selects it; 1 nothing is known
of it, no subscription selects it, or no deliverer answers; 2 a wrong command line.
"""

TIMEOUT = 60.0
#: Bytes of a file.
MOST_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "identifier", metavar="IDENTIFIER", nargs="?", help="IndicationIdentifier of the indication"
    )
    options = Options(parser)
    options.value("--source NAME", "only the indication of this publisher, by its source")
    options.file(
        "--file FILE", "file with one indication as JSON, for a dry run; - reads standard input"
    )
    add_deliverer_arguments(parser)
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    if (args.identifier is None) == (args.file is None):
        raise CommandError("give either IDENTIFIER or --file FILE", code=Exit.USAGE)
    if args.identifier == "":
        raise CommandError("the identifier is empty", code=Exit.USAGE)
    if args.file is not None and args.source is not None:
        text = "--source: only with IDENTIFIER; write it as source in the file"
        raise CommandError(text, code=Exit.USAGE)
    with connected(args, timeout=TIMEOUT) as client:
        if args.file is not None:
            return _dry_run(client, _indication(args.file), args.output)
        known = look_up(client, args.identifier, args.source, now=time.time)
    return _show(known, args.output)


def _dry_run(client: DelivererClient, body: bytes, output: str) -> int:
    explanation = explain(client, body)
    if output == "json":
        print(json.dumps(document_of(explanation)))
    else:
        for line in verdict_lines(explanation, Output.of_process()):
            print(line)
    return Exit.OK if explanation.selected else Exit.FAILED


def _show(known: Known, output: str) -> int:
    is_known = known.is_found or known.pending.remembered
    if output == "json":
        print(json.dumps(_document(known)))
    elif is_known or known.pending.unread:
        for line in known_lines(known, Output.of_process()):
            print(line)
    if not is_known:
        print(f"pillion explain: {_unknown(known)}", file=sys.stderr)
    return Exit.OK if is_known else Exit.FAILED


def _unknown(known: Known) -> str:
    named = escape_controls(known.identifier[:80])
    hint = "" if known.source else ", or add --source: it then says whether it was accepted"
    return (
        f"nothing is known of {named}: this deliverer has not accepted it, no subscription selected"
        " it, or the history has dropped its outcomes; ask the deliverer that accepted it"
        f" (--server, --context or --pod){hint}"
    )


def _document(known: Known) -> dict[str, Any]:
    return {
        "identifier": known.identifier,
        "source": known.source,
        **document_of(known.pending),
        "outcomes": known.told,
        "attempts": [{"destination": name, **written(one)} for name, one in known.attempts()],
        "explanation": None if known.explanation is None else document_of(known.explanation),
    }


def _indication(path: Path) -> bytes:
    """Raises CommandError."""
    where = "standard input" if str(path) == "-" else str(path)
    try:
        if str(path) == "-":
            if sys.stdin is None:
                raise CommandError("cannot read standard input: it is closed")
            body = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with path.open("rb") as stream:
                body = stream.read(MOST_BYTES + 1)
    except OSError as error:
        text = f"cannot read {where}: {error.strerror}; name a file, or - for standard input"
        raise CommandError(escape_controls(text), code=Exit.USAGE) from error
    if not body.strip():
        raise CommandError(escape_controls(f"{where} is empty: write one indication as JSON"))
    if len(body) > MOST_BYTES:
        raise CommandError(escape_controls(f"{where} has more than {MOST_BYTES:,} bytes"))
    return body
