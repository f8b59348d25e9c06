"""JSON answers to publishers about their lines, receipts, faults and flushes."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web
from msgspec import UNSET

from pillion_sidecar.history.faults import FaultPage
from pillion_sidecar.history.outcome import NoteResult, Numbered
from pillion_sidecar.http_errors import refuse
from pillion_sidecar.indication import Unreached
from pillion_sidecar.intake.submission import Submission
from pillion_sidecar.reliability.identity import unscoped
from pillion_sidecar.reliability.publishers import Instance, Publisher
from pillion_sidecar.reliability.receipts import ReceiptView
from pillion_sidecar.wire.submission import ReceiptAnswer, SubmissionAnswer

#: Characters of a text that a fault repeats.
MAXIMUM_TEXT = 1024
#: Discards that a callback details; the receipt details more.
CALLBACK_DISCARDS = 1000


def submission_answer(submission: Submission, *, unread_from: int | None) -> SubmissionAnswer:
    """``unread_from``: the first line that was not read."""
    counts = submission.unreached
    return SubmissionAnswer(
        accepted=submission.accepted,
        duplicate=submission.duplicate,
        refused=submission.refused,
        redelivered=submission.redelivered or UNSET,
        unread_from=UNSET if unread_from is None else unread_from,
        unrouted=counts.get(Unreached.UNROUTED, UNSET),
        ended=counts.get(Unreached.ENDED, UNSET),
        suppressed=counts.get(Unreached.SUPPRESSED, UNSET),
    )


def submission_status(submission: Submission) -> int:
    """Return 200; 207 if some were refused; 400 or 429 if all were, for one reason."""
    if not submission.refused:
        return 200
    if submission.accepted or submission.duplicate:
        return 207
    if submission.wrong == len(submission.refused):
        return 400
    return 207 if submission.wrong else 429


def add_receipt(answer: ReceiptAnswer, receipt: ReceiptView, *, limit: int | None = None) -> None:
    """Add the results so far, with at most ``limit`` discards."""
    answer.delivered = receipt.delivered
    answer.discarded = receipt.discarded[:limit]
    answer.pending = receipt.pending
    beyond = receipt.discarded_beyond + len(receipt.discarded) - len(answer.discarded)
    answer.discarded_beyond = beyond or UNSET
    counts = receipt.unreached_lines
    answer.unrouted = counts[Unreached.UNROUTED] or UNSET
    answer.ended = counts[Unreached.ENDED] or UNSET
    answer.suppressed = counts[Unreached.SUPPRESSED] or UNSET
    if receipt.is_for_durable:
        answer.durable = receipt.secured.given
    if receipt.is_for_stable:
        answer.stable = receipt.stable.given


def callback_body(receipt: ReceiptView) -> bytes:
    """Return a callback's body (S1.9)."""
    answer = ReceiptAnswer(receipt=receipt.id, complete=receipt.settled_all.given)
    add_receipt(answer, receipt, limit=CALLBACK_DISCARDS)
    return json.dumps(msgspec.to_builtins(answer)).encode()


def told_by(publisher: Publisher) -> dict[str, Any]:
    """Return the publisher's instance, which began at ``since``."""
    return {"instance": publisher.instance, "since": _utc(publisher.since)}


def _utc(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def other_instance(publisher: Publisher | None) -> web.Response:
    """Answer 409: the named instance is not the publisher's."""
    return refuse(
        409,
        "instance: this deliverer does not know what it accepted under it: it was restarted, or the"
        " publisher gave way to others; publish again what is not known to be delivered",
        **({} if publisher is None else told_by(publisher)),
    )


def other_history(history: str) -> web.Response:
    """Answer 409: the faults of the named instance are in no history here."""
    return refuse(
        409,
        "the history has begun anew since: the faults that it had are not known any more; ask"
        " without instance, and from after=0",
        instance=history,
    )


def faults_document(
    page: FaultPage, *, instance: str, covers: Instance, namespace: str | None
) -> dict[str, Any]:
    """Return a publisher's faults after a number (S1.9), as far as the ``instance`` covers them."""
    document = {
        "faults": [_fault(one, namespace) for one in page.found],
        "dropped": page.dropped,
        "last": page.last,
        "instance": instance,
    }
    return document if covers.since is None else {**document, "since": _utc(covers.since)}


def _fault(numbered: Numbered, namespace: str | None) -> dict[str, Any]:
    fault = numbered.outcome
    document: dict[str, Any] = {
        "number": numbered.number,
        "destination": fault.destination,
        "reason": fault.reason,
    }
    given = {
        "source": _shortened(fault.source),
        "identifier": _shortened(fault.identifier),
        "group": _shortened(unscoped(namespace, fault.group)),
        "sequence": fault.group_sequence,
    }
    document |= {name: value for name, value in given.items() if value is not None}
    if fault.result == NoteResult.REPEATED:
        document["duplicate"] = True
    return document


def _shortened(text: str | None) -> str | None:
    return text if text is None else text[:MAXIMUM_TEXT]


def flush_document(publisher: Publisher, *, complete: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "complete": complete,
        "accepted": publisher.accepted,
        "destinations": {
            name: {
                "delivered": counts.delivered,
                "discarded": {reason.value: count for reason, count in counts.discarded.items()},
                "pending": counts.pending,
            }
            for name, counts in publisher.destinations.items()
        },
    }
    document |= _unreached(publisher.unreached_indications)
    document |= told_by(publisher)
    if publisher.pending_originals:
        document["pendingOriginals"] = publisher.pending_originals
    return document


def _unreached(counts: Mapping[Unreached, int]) -> dict[str, int]:
    """Count indications without listener by reason, zeros omitted."""
    return {reason.value: counts[reason] for reason in Unreached if counts.get(reason)}
