"""What publishers are answered: the levels of acknowledgement (S1.4, S1.9), and the documents that
say what became of their indications."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from pillion_sidecar.clock import Timers
from pillion_sidecar.config.schema.service import Acknowledgement
from pillion_sidecar.connections import ended_with_client
from pillion_sidecar.http_errors import ParameterError, refuse
from pillion_sidecar.indication import Unreached
from pillion_sidecar.intake.parameters import Parameters
from pillion_sidecar.intake.submission import IntakeContext, RefusedLine, Submission
from pillion_sidecar.reliability.callbacks import Callbacks
from pillion_sidecar.reliability.identity import unscoped
from pillion_sidecar.reliability.publishers import Publisher
from pillion_sidecar.reliability.receipts import Fault, Receipt, Receipts, Signal

#: Discards that a callback tells one by one; the receipt tells more.
CALLBACK_DISCARDS = 1000


def submission_document(submission: Submission, *, unread_from: int | None) -> dict[str, Any]:
    """Return the answer's counts and refused lines; ``unread_from``: where reading stopped."""
    document: dict[str, Any] = {
        "accepted": submission.accepted,
        "duplicate": submission.duplicate,
        "refused": [_refused(line) for line in submission.refused],
    }
    if unread_from is not None:
        document["unreadFrom"] = unread_from
    return document | _unreached(submission.unreached)


def _unreached(counts: Mapping[Unreached, int]) -> dict[str, int]:
    """Return how many lines go to no listener, by reason; nothing for a reason without any."""
    if not counts:
        return {}
    return {reason.value: counts[reason] for reason in Unreached if counts.get(reason)}


def submission_status(submission: Submission) -> int:
    """Return 200, 207 for some refused, or 400 or 429 where all were refused for one reason."""
    if not submission.refused:
        return 200
    if submission.accepted or submission.duplicate:
        return 207
    if submission.wrong == len(submission.refused):
        return 400
    return 207 if submission.wrong else 429


def told_by(publisher: Publisher) -> dict[str, Any]:
    """Return what an answer to a publisher speaks of: nothing from before ``since``."""
    since = datetime.fromtimestamp(publisher.since, UTC).isoformat(timespec="milliseconds")
    return {"instance": publisher.instance, "since": since.replace("+00:00", "Z")}


def other_instance(publisher: Publisher | None) -> web.Response:
    """Answer 409: what a publisher has published under the instance that it names is not known."""
    return refuse(
        409,
        "instance: this deliverer does not know what it accepted under it: it was restarted, or the"
        " publisher gave way to others; publish again what is not known to be delivered",
        **({} if publisher is None else told_by(publisher)),
    )


def receipt_document(receipt: Receipt, *, limit: int | None = None) -> dict[str, Any]:
    """Return what has become of a request's lines so far, with ``limit`` discards one by one."""
    told = receipt.discarded[:limit]
    document: dict[str, Any] = {
        "delivered": receipt.delivered,
        "discarded": [
            {"line": one.line, "destination": one.destination, "reason": one.reason.value}
            for one in told
        ],
        "pending": receipt.pending,
    }
    document |= _unreached(receipt.unreached_lines)
    beyond = receipt.discarded_beyond + len(receipt.discarded) - len(told)
    if beyond:
        document["discardedBeyond"] = beyond
    if receipt.is_for_durable:
        document["durable"] = receipt.secured.given
    return document


def callback_body(receipt: Receipt) -> bytes:
    """Return what a publisher is called back with (S1.9)."""
    document = {
        "receipt": receipt.id,
        "complete": receipt.settled_all.given,
        **receipt_document(receipt, limit=CALLBACK_DISCARDS),
    }
    return json.dumps(document).encode()


def faults_document(
    publisher: Publisher, *, after: int, limit: int, namespace: str | None
) -> dict[str, Any]:
    """Return the faults of a publisher of ``namespace`` behind a number (S1.9)."""
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
    """Return a publisher's counts by destination."""
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


def _refused(line: RefusedLine) -> dict[str, Any]:
    document: dict[str, Any] = {"line": line.line, "status": line.status, "reason": line.reason}
    if line.field is not None:
        document["field"] = line.field
    if line.destination is not None:
        document["destination"] = line.destination
    return document


class Acknowledging:
    """Receipts, those who wait for them, and those who are called back."""

    def __init__(
        self, *, context: IntakeContext, timers: Timers, callbacks: Callbacks | None
    ) -> None:
        """Without ``callbacks`` nobody can be called back."""
        self._context = context
        self._timers = timers
        self._callbacks = callbacks
        self.receipts = Receipts()

    def refusal(self, parameters: Parameters) -> str | None:
        """Return why a request cannot be taken up now; None where it can.

        Raises :class:`ParameterError` where it never can.
        """
        if parameters.callback is None:
            return None
        if self._callbacks is None:
            raise ParameterError("callback: this deliverer calls nobody back; poll the receipt")
        return self._callbacks.refusal

    def begin(self, parameters: Parameters, *, namespace: str | None) -> Receipt | None:
        """Return what follows the lines of a request of ``namespace``; None where it is answered
        once they are accepted, and nothing is told later."""
        level = parameters.acknowledgement
        if level is Acknowledgement.ACCEPTED and parameters.callback is None:
            return None
        receipt = Receipt(memory=self._context.memory, timers=self._timers, namespace=namespace)
        receipt.is_for_durable = level is Acknowledgement.DURABLE
        return receipt

    # ------------------------------------------------------------------ once all lines are in

    async def reach(
        self, request: web.BaseRequest, receipt: Receipt, parameters: Parameters
    ) -> bool:
        """Wait until a request's lines have come as far as it asks, while its client does; return
        whether they have."""
        self._complete(receipt)
        signal = receipt.secured if receipt.is_for_durable else receipt.settled_all
        try:
            with ended_with_client(request):
                reached = await signal.wait(parameters.timeout)
        except asyncio.CancelledError:
            # The client is gone without the receipt's ID: nobody can ever ask for it.
            self.receipts.drop(receipt)
            receipt.close()
            raise
        if reached:
            # The publisher is told all that it has asked for.
            self.receipts.drop(receipt)
            receipt.close()
        return reached

    def call_back(self, receipt: Receipt, parameters: Parameters) -> None:
        """See to it that a request's publisher is called back."""
        assert self._callbacks is not None
        assert parameters.callback is not None
        receipt.is_called_back = True
        self._complete(receipt)
        self._callbacks.expect(
            receipt, url=parameters.callback, seconds=parameters.timeout, render=callback_body
        )

    def _complete(self, receipt: Receipt) -> None:
        # Kept before any wait, so that a publisher who goes away meanwhile leaves it bounded.
        self.receipts.keep(receipt)
        receipt.completed()
        if receipt.is_for_durable:
            self._context.queues.barrier(receipt.secured.give)

    async def secured(self, seconds: float) -> bool:
        """Wait until all that has been taken is on disk, for at most ``seconds``; return whether
        it is."""
        signal = Signal(self._timers)
        self._context.queues.barrier(signal.give)
        return await signal.wait(seconds)
