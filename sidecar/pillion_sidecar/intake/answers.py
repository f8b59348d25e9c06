"""JSON answers to publishers about receipts, faults and flushes."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web
from msgspec import UNSET

from pillion_sidecar.http_errors import refuse
from pillion_sidecar.indication import Unreached
from pillion_sidecar.reliability.identity import unscoped
from pillion_sidecar.reliability.publishers import Publisher
from pillion_sidecar.reliability.receipts import Fault, Receipt
from pillion_sidecar.wire.submission import ReceiptAnswer

#: Discards that a callback details; the receipt details more.
CALLBACK_DISCARDS = 1000


def add_receipt(answer: ReceiptAnswer, receipt: Receipt, *, limit: int | None = None) -> None:
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


def callback_body(receipt: Receipt) -> bytes:
    """Return a callback's body (S1.9)."""
    answer = ReceiptAnswer(receipt=receipt.id, complete=receipt.settled_all.given)
    add_receipt(answer, receipt, limit=CALLBACK_DISCARDS)
    return json.dumps(msgspec.to_builtins(answer)).encode()


def told_by(publisher: Publisher) -> dict[str, Any]:
    """Return the publisher's instance, which began at ``since``."""
    since = datetime.fromtimestamp(publisher.since, UTC).isoformat(timespec="milliseconds")
    return {"instance": publisher.instance, "since": since.replace("+00:00", "Z")}


def other_instance(publisher: Publisher | None) -> web.Response:
    """Answer 409: the named instance is not the publisher's."""
    return refuse(
        409,
        "instance: this deliverer does not know what it accepted under it: it was restarted, or the"
        " publisher gave way to others; publish again what is not known to be delivered",
        **({} if publisher is None else told_by(publisher)),
    )


def faults_document(
    publisher: Publisher, *, after: int, limit: int, namespace: str | None
) -> dict[str, Any]:
    """Return a publisher's faults after a number (S1.9)."""
    faults = publisher.faults.after(after, limit=limit)
    return {
        "faults": [_fault(number, fault, namespace) for number, fault in faults],
        "dropped": publisher.faults.dropped_after(after),
        "last": publisher.faults.last,
        **told_by(publisher),
    }


def _fault(number: int, fault: Fault, namespace: str | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "number": number,
        "destination": fault.destination,
        "reason": fault.reason.value,
    }
    given = {
        "source": fault.source,
        "identifier": fault.identifier,
        "group": unscoped(namespace, fault.group),
        "sequence": fault.sequence,
    }
    document |= {name: value for name, value in given.items() if value is not None}
    if fault.is_of_duplicate:
        document["duplicate"] = True
    return document


def flush_document(publisher: Publisher, *, complete: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "complete": complete,
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
