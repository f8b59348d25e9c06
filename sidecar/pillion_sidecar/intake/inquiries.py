"""What publishers ask for about what they have published: receipts, flushes and faults (S1.9)."""

import msgspec
from aiohttp import web
from msgspec import UNSET

from pillion_sidecar.auth.principal import namespace_of
from pillion_sidecar.clock import Timers
from pillion_sidecar.config.schema.service import Acknowledgement
from pillion_sidecar.history.faults import FaultList, FaultsBusy
from pillion_sidecar.history.recorder import History
from pillion_sidecar.http_errors import (
    ParameterError,
    check_names,
    history_unread,
    refuse,
    unavailable,
)
from pillion_sidecar.intake.answers import (
    add_receipt,
    faults_document,
    flush_document,
    other_history,
    other_instance,
)
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.limits import IntakeLimits
from pillion_sidecar.intake.parameters import (
    DEFAULT_FAULTS,
    MAXIMUM_FAULTS,
    parse_count,
    parse_level,
    parse_timeout,
)
from pillion_sidecar.reliability.identity import scoped
from pillion_sidecar.reliability.kept_receipts import KeptReceipts, ReceiptGone
from pillion_sidecar.reliability.publishers import Instance, Publisher, Publishers
from pillion_sidecar.reliability.receipts import Receipts, ReceiptView, Signal
from pillion_sidecar.wire.submission import ReceiptAnswer

RECEIPT_PARAMETERS = frozenset({"level", "timeout"})
FLUSH_PARAMETERS = frozenset({"instance", "level", "publisher", "timeout"})
FAULTS_PARAMETERS = frozenset({"after", "instance", "limit", "publisher"})
#: Seconds of Retry-After if a list of faults cannot be given now.
BUSY_RETRY_AFTER = 1.0
NO_RECEIPT = (
    "no such receipt (any more): it has left the memory and the history of this deliverer; publish"
    " again to be sure"
)
RECEIPT_GONE = (
    "outcomes of its lines have left the history, so it is not known any more what became of all;"
    " publish again to be sure"
)


class Inquiries:
    def __init__(
        self,
        *,
        context: IntakeContext,
        timers: Timers,
        limits: IntakeLimits,
        history: History,
        kept: KeptReceipts,
    ) -> None:
        self.receipts = Receipts()
        self.publishers = Publishers(
            memory=context.memory, timers=timers, clock=context.clock, history=history
        )
        self._context = context
        self._timers = timers
        self._limits = limits
        self._history, self._faults = history, FaultList(history)
        self._kept = kept

    async def receipt(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/receipts/ID."""
        check_names(request, RECEIPT_PARAMETERS)
        seconds = parse_timeout(request.query, maximum=self._limits.wait_seconds)
        level = self._level(request)
        receipt_id, namespace = request.match_info["id"], namespace_of(request)
        receipt = self.receipts.find(receipt_id, namespace=namespace)
        if receipt is None:
            return await self._earlier(request, receipt_id, level, seconds)
        reached = self._reached(request, receipt, level)
        if isinstance(reached, web.Response):
            return reached
        return _told(receipt, has_reached=await reached.wait(seconds))

    async def _earlier(
        self, request: web.Request, receipt_id: str, level: Acknowledgement, seconds: float
    ) -> web.StreamResponse:
        """Answer about a receipt of an earlier run."""
        try:
            receipt = await self._kept.find(receipt_id, namespace=namespace_of(request))
        except OSError as error:
            return history_unread(error)
        if receipt is None:
            return refuse(404, NO_RECEIPT)
        reached = self._reached(request, receipt, level)
        if isinstance(reached, web.Response):
            return reached
        if reached is not receipt.settled_all:
            await reached.wait(seconds)
            seconds = 0.0
        try:
            await self._kept.follow(receipt, seconds)
        except ReceiptGone:
            return refuse(404, RECEIPT_GONE)
        except OSError as error:
            return history_unread(error)
        return _told(receipt, has_reached=reached.given)

    def _reached(
        self, request: web.Request, receipt: ReceiptView, level: Acknowledgement
    ) -> Signal | web.Response:
        """Return what tells that a receipt has reached the asked level, or the error answer."""
        if "level" not in request.query:
            return receipt.reached
        if level is Acknowledgement.STABLE and receipt.is_for_stable:
            return receipt.stable
        if level is Acknowledgement.DURABLE and receipt.is_for_durable:
            return receipt.secured
        if level in (Acknowledgement.DURABLE, Acknowledgement.STABLE):
            asked = level.value.lower()
            return refuse(400, f"level: the request of this receipt did not ask for {asked}")
        return receipt.settled_all

    async def flush(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/flush: wait for everything that a publisher has published so far."""
        check_names(request, FLUSH_PARAMETERS)
        seconds = parse_timeout(request.query, maximum=self._limits.wait_seconds)
        level = self._level(request)
        publisher = self._named_publisher(request)
        if isinstance(publisher, web.Response):
            return publisher
        barrier = {
            Acknowledgement.DURABLE: self._context.queues.barrier,
            Acknowledgement.STABLE: self._context.stable,
        }.get(level)
        if barrier is not None:
            signal = Signal(self._timers)
            barrier(signal.give)
            complete = await signal.wait(seconds)
        else:
            complete = level is Acknowledgement.ACCEPTED or await publisher.flush(seconds)
        document = flush_document(publisher, complete=complete)
        if barrier is not None:
            document[level.value.lower()] = complete
        return web.json_response(document, status=200 if complete else 202)

    async def faults(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/faults: a publisher's discards (S1.9)."""
        check_names(request, FAULTS_PARAMETERS)
        after = parse_count(request.query, name="after", default=0, maximum=1 << 62)
        limit = parse_count(
            request.query, name="limit", default=DEFAULT_FAULTS, maximum=MAXIMUM_FAULTS
        )
        publisher_id, namespace = _publisher_id(request), namespace_of(request)
        instance = request.query.get("instance", self._history.id)
        covers = Instance.read(instance)
        after = max(after, covers.after)
        if covers.history != self._history.id or after > self._history.last:
            return other_history(self._history.id)
        try:
            page = await self._faults.after(publisher_id, after, limit=limit)
        except FaultsBusy as busy:
            return unavailable(str(busy), retry_after=BUSY_RETRY_AFTER)
        except OSError as error:
            return history_unread(error)
        document = faults_document(page, instance=instance, covers=covers, namespace=namespace)
        return web.json_response(document)

    def _level(self, request: web.Request) -> Acknowledgement:
        return parse_level(
            request.query,
            name="level",
            default=Acknowledgement.DELIVERED,
            durability=self._context.durability,
            has_stores=self._context.stable is not None,
        )

    def _named_publisher(self, request: web.Request) -> Publisher | web.Response:
        """Return the named publisher, or the error answer."""
        publisher = self.publishers.find(_publisher_id(request))
        if publisher is None:
            return refuse(
                404, "nothing is known of this publisher; it has not published here, or long ago"
            )
        if request.query.get("instance", publisher.instance) != publisher.instance:
            return other_instance(publisher)
        return publisher


def _told(receipt: ReceiptView, *, has_reached: bool) -> web.Response:
    answer = ReceiptAnswer(receipt=UNSET if receipt.settled_all.given else receipt.id)
    add_receipt(answer, receipt)
    return web.json_response(msgspec.to_builtins(answer), status=200 if has_reached else 202)


def _publisher_id(request: web.Request) -> str:
    """Raises ParameterError: none is named."""
    publisher = request.query.get("publisher")
    if not publisher:
        raise ParameterError("publisher: give the ID sent as Pillion-Publisher")
    return scoped(namespace_of(request), publisher)
