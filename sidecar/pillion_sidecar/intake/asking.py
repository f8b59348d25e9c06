"""What publishers ask later: what became of a request, of all that they published, and what was
discarded of it (S1.9)."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from pillion_sidecar.config.resources import Acknowledgement
from pillion_sidecar.connections import ended_with_client
from pillion_sidecar.door.principal import PRINCIPAL, namespace_of
from pillion_sidecar.httprefusals import refuse
from pillion_sidecar.intake import answers
from pillion_sidecar.intake.acceptance import Rooms
from pillion_sidecar.intake.acknowledging import Acknowledging
from pillion_sidecar.intake.bodies import IntakeLimits
from pillion_sidecar.intake.gate import IntakeGate
from pillion_sidecar.intake.parameters import (
    DEFAULT_FAULTS,
    MAXIMUM_FAULTS,
    BadParameter,
    check_names,
    parse_count,
    parse_level,
    parse_timeout,
)
from pillion_sidecar.reliability.identity import scoped
from pillion_sidecar.reliability.publishers import Publisher, Publishers

RECEIPT_PARAMETERS = frozenset({"level", "timeout"})
FLUSH_PARAMETERS = frozenset({"instance", "level", "publisher", "timeout"})
FAULTS_PARAMETERS = frozenset({"after", "instance", "limit", "publisher"})

#: Seconds of Retry-After where all waits are taken.
WAIT_RETRY_AFTER = 1.0


class Asking:
    """The endpoints that take nothing in."""

    def __init__(
        self,
        *,
        rooms: Rooms,
        acknowledging: Acknowledging,
        publishers: Publishers,
        limits: IntakeLimits,
        gate: IntakeGate,
    ) -> None:
        self._rooms = rooms
        self._acknowledging = acknowledging
        self._publishers = publishers
        self._limits = limits
        self._gate = gate

    def waiting(
        self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Reserve one of the bounded waits, which ends with its client."""

        async def wait(request: web.Request) -> web.StreamResponse:
            if request.query.get("timeout") == "0":
                return await handler(request)
            visit = self._gate.ask(principal=request.get(PRINCIPAL))
            busy = visit.reserve_wait()
            if busy is not None:
                return answers.unavailable(busy, retry_after=WAIT_RETRY_AFTER)
            try:
                with ended_with_client(request):
                    return await handler(request)
            finally:
                visit.leave()

        return wait

    async def receipt(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/receipts/ID: what has become of a request."""
        try:
            check_names(request.query, RECEIPT_PARAMETERS)
            seconds = parse_timeout(request.query, maximum=self._limits.wait_seconds)
            level = self._level(request, default=Acknowledgement.DELIVERED)
        except BadParameter as error:
            return refuse(400, str(error))
        receipt = self._acknowledging.find(
            request.match_info["id"], namespace=namespace_of(request)
        )
        if receipt is None:
            return refuse(404, "no such receipt (any more); publish again to be sure")
        if receipt.is_for_durable and "level" not in request.query:
            level = Acknowledgement.DURABLE
        if level is not Acknowledgement.DURABLE:
            reached = await receipt.settled_all.wait(seconds)
        elif receipt.is_for_durable:
            reached = await receipt.secured.wait(seconds)
        else:
            return refuse(400, "level: the request of this receipt did not ask for durable")
        document = answers.receipt_document(receipt)
        if not receipt.settled_all.given:
            document["receipt"] = receipt.id
        return web.json_response(document, status=200 if reached else 202)

    async def flush(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/flush: wait for all that a publisher has published so far."""
        try:
            check_names(request.query, FLUSH_PARAMETERS)
            seconds = parse_timeout(request.query, maximum=self._limits.wait_seconds)
            level = self._level(request, default=Acknowledgement.DELIVERED)
            publisher = self._publisher(request)
        except BadParameter as error:
            return refuse(400, str(error))
        refusal = _refusal(publisher, request)
        if refusal is not None:
            return refusal
        assert publisher is not None
        if level is Acknowledgement.DURABLE:
            complete = await self._acknowledging.secured(seconds)
        else:
            complete = level is Acknowledgement.ACCEPTED or await publisher.flush(seconds)
        document = answers.flush_document(publisher, complete=complete)
        if level is Acknowledgement.DURABLE:
            document["durable"] = complete
        return web.json_response(document, status=200 if complete else 202)

    async def faults(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/faults: what was discarded of that which a publisher published (S1.9)."""
        try:
            check_names(request.query, FAULTS_PARAMETERS)
            after = parse_count(request.query, name="after", default=0, maximum=1 << 62)
            limit = parse_count(
                request.query, name="limit", default=DEFAULT_FAULTS, maximum=MAXIMUM_FAULTS
            )
            publisher = self._publisher(request)
        except BadParameter as error:
            return refuse(400, str(error))
        refusal = _refusal(publisher, request)
        if refusal is not None:
            return refusal
        assert publisher is not None
        document = answers.faults_document(
            publisher, after=after, limit=limit, namespace=namespace_of(request)
        )
        return web.json_response(document)

    def _level(self, request: web.Request, *, default: Acknowledgement) -> Acknowledgement:
        return parse_level(
            request.query, name="level", default=default, durability=self._rooms.durability
        )

    def _publisher(self, request: web.Request) -> Publisher | None:
        publisher_id = request.query.get("publisher")
        if not publisher_id:
            raise BadParameter("publisher: give the ID sent as Pillion-Publisher")
        return self._publishers.find(scoped(namespace_of(request), publisher_id))


def _refusal(publisher: Publisher | None, request: web.Request) -> web.Response | None:
    """Return why nothing can be said to a publisher; None where it can."""
    if publisher is None:
        return _unknown_publisher()
    instance = request.query.get("instance")
    known = instance is None or instance == publisher.instance
    return None if known else answers.other_instance(publisher)


def _unknown_publisher() -> web.Response:
    return refuse(404, "nothing is known of this publisher; it has not published here, or long ago")
