"""The HTTP application of the intake listener. ``accepted`` means in the queues, ``durable`` on
disk, ``delivered`` acknowledged by every listener."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from aiohttp import web
from msgspec import UNSET

from pillion_cim.schema import Schema
from pillion_sidecar.auth.principal import PRINCIPAL, may_relay, namespace_of
from pillion_sidecar.clock import Timers
from pillion_sidecar.config.schema.service import Acknowledgement
from pillion_sidecar.connections import ended_with_client
from pillion_sidecar.http_errors import (
    OriginPolicy,
    ParameterError,
    check_names,
    refuse,
    set_retry_after,
    unavailable,
)
from pillion_sidecar.intake import cimxml
from pillion_sidecar.intake.answers import (
    add_receipt,
    callback_body,
    faults_document,
    flush_document,
    other_instance,
)
from pillion_sidecar.intake.bodies import (
    EXPORT,
    FORMATS,
    RELAY_FORMATS,
    BodyError,
    BodyIntake,
    BodyReader,
    Format,
    LineDecoder,
    find_format,
    interrupt_body,
    refuse_encoding,
)
from pillion_sidecar.intake.limits import (
    NOT_CONFIGURED,
    BodyBudget,
    IntakeGate,
    IntakeLimits,
    RequestSlot,
)
from pillion_sidecar.intake.parameters import (
    DEFAULT_FAULTS,
    MAXIMUM_FAULTS,
    PUBLISH_PARAMETERS,
    Parameters,
    parse_count,
    parse_level,
    parse_parameters,
    parse_timeout,
)
from pillion_sidecar.intake.relay import RelaySubmission
from pillion_sidecar.intake.submission import (
    IntakeContext,
    IntakeObserver,
    Submission,
    submission_answer,
    submission_status,
)
from pillion_sidecar.reliability.callbacks import Callbacks
from pillion_sidecar.reliability.identity import scoped
from pillion_sidecar.reliability.publishers import Publisher, Publishers
from pillion_sidecar.reliability.receipts import Follower, Receipt, Receipts, Signal
from pillion_sidecar.telemetry.metrics import IntakeOutcome
from pillion_sidecar.wire.relay import RELAY_PATH
from pillion_sidecar.wire.submission import ReceiptAnswer, SubmissionAnswer

RECEIPT_PARAMETERS = frozenset({"level", "timeout"})
FLUSH_PARAMETERS = frozenset({"instance", "level", "publisher", "timeout"})
FAULTS_PARAMETERS = frozenset({"after", "instance", "limit", "publisher"})
#: Seconds of Retry-After if all waits are taken.
WAIT_RETRY_AFTER = 1.0
#: Seconds of Retry-After while intake is closed or full.
UNAVAILABLE_RETRY_AFTER = 1.0
#: pywbem's exporter always posts to /cimom, OpenPegasus's to / without a path.
CIM_XML_PATHS = ("/CIMListener", "/CIMListener/{consumer:(?s:.*)}", "/cimom", "/")
NO_GATEWAY = (
    "nothing can be relayed here: this deliverer is no gateway; name in gatewayRef or handOverTo an"
    " IndicationService whose deliverer.mode is Gateway"
)
NOT_OURS = (
    "only sidecars of the gateway's own namespace relay, past all filters; publish at"
    " /v1/indications"
)
#: Factor on a line's limit for relayed lines: the sidecar rewrote them with more members.
RELAYED_GROWTH = 2
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Returns the JSON of the service; None before the first configuration.
DescribeService: TypeAlias = Callable[[], Mapping[str, Any] | None]
#: Handles a request with a slot: returns the refusal, or an awaitable that reads and answers it.
Admitted: TypeAlias = Callable[
    [web.Request, RequestSlot], web.StreamResponse | Awaitable[web.StreamResponse]
]

if TYPE_CHECKING:
    # It imports token verification, which a sidecar does not need.
    from pillion_sidecar.auth.token_middleware import TokenMiddleware


def create_intake(
    *,
    context: IntakeContext,
    schema: Schema,
    timers: Timers,
    gate: IntakeGate,
    observer: IntakeObserver,
    callbacks: Callbacks | None = None,
    limits: IntakeLimits | None = None,
    tokens: "TokenMiddleware | None" = None,
    origins: OriginPolicy | None = None,
    service: DescribeService = lambda: None,
) -> web.Application:
    """Return the application.

    Without ``callbacks`` nobody is called back. ``service`` returns the JSON of ``/v1/service``;
    None before the first configuration. Without ``tokens`` only ``origins`` refuses requests, so
    this is for loopback. The runner needs a ``keepalive_timeout`` (it also closes
    connections without a first request) and ``auto_decompress=False``.
    """
    intake = _Intake(
        context=context,
        schema=schema,
        timers=timers,
        gate=gate,
        observer=observer,
        callbacks=callbacks,
        limits=limits or IntakeLimits(),
        asks_for_tokens=tokens is not None,
        origins=origins,
        service=service,
    )
    middlewares = () if tokens is None else (tokens.middleware,)
    expect = None if tokens is None else tokens.expect
    app = web.Application(client_max_size=intake.limits.line_bytes, middlewares=middlewares)
    add = partial(app.router.add_route, expect_handler=expect)
    add("POST", "/v1/indications", intake.accept(intake.publish))
    add("POST", RELAY_PATH, intake.accept(intake.relay))
    add("GET", "/v1/receipts/{id}", intake.query(intake.receipt, waits=True))
    add("POST", "/v1/flush", intake.query(intake.flush, waits=True))
    add("GET", "/v1/faults", intake.query(intake.faults, waits=False))
    add("GET", "/v1/service", intake.query(intake.service, waits=False))
    for path in CIM_XML_PATHS:
        add("*", path, intake.accept(intake.export))
    return app


class _Intake:
    def __init__(
        self,
        *,
        context: IntakeContext,
        schema: Schema,
        timers: Timers,
        gate: IntakeGate,
        observer: IntakeObserver,
        callbacks: Callbacks | None,
        limits: IntakeLimits,
        asks_for_tokens: bool,
        origins: OriginPolicy | None,
        service: DescribeService,
    ) -> None:
        self.limits = limits
        self._context = context
        self._schema = schema
        self._timers = timers
        self._gate = gate
        self._observer = observer
        self._callbacks = callbacks
        self._receipts = Receipts()
        self._publishers = Publishers(memory=context.memory, timers=timers, clock=context.clock)
        self._asks_for_tokens = asks_for_tokens
        self._origins = origins
        self._describe_service = service
        self._budget = BodyBudget(clock=context.clock)
        self._bodies = self._body_intake(is_relayed=False)
        # Created with the first relayed request.
        self._relayed_bodies: BodyIntake | None = None

    def _body_intake(self, *, is_relayed: bool) -> BodyIntake:
        limits = self.limits
        if is_relayed:
            limits = replace(limits, line_bytes=RELAYED_GROWTH * limits.line_bytes)
        decoder = LineDecoder(
            self._schema,
            maximum_line_bytes=limits.line_bytes,
            is_relayed=is_relayed,
            in_force=lambda: self._context.routes.schema,
        )
        reader = BodyReader(timers=self._timers, limits=limits, budget=self._budget)
        return BodyIntake(decoder=decoder, reader=reader)

    def accept(self, handler: Admitted) -> Handler:
        """Serve a bounded number of requests while intake is open."""

        async def answer(request: web.Request) -> web.StreamResponse:
            # Any Host is accepted: publishers may have their own names for this machine, and a page
            # that used one sends its Origin with each POST.
            refusal = None if self._origins is None else self._origins.refuse_page(request)
            if refusal is not None:
                return refusal
            # Only where there can be one: a look-up costs a microsecond.
            principal = request.get(PRINCIPAL) if self._asks_for_tokens else None
            slot = self._gate.enter(partial(interrupt_body, request), principal=principal)
            if isinstance(slot, str):
                return unavailable(slot, retry_after=UNAVAILABLE_RETRY_AFTER)
            try:
                answered = handler(request, slot)
                return answered if isinstance(answered, web.StreamResponse) else await answered
            except ParameterError as error:
                return refuse(400, str(error))
            finally:
                slot.release()

        return answer

    def query(self, handler: Handler, *, waits: bool) -> Handler:
        """Serve requests that publish nothing. Those that wait are bounded, and end with their
        client."""

        async def answer(request: web.Request) -> web.StreamResponse:
            refusal = None if self._origins is None else self._origins.refuse_page(request)
            if refusal is not None:
                return refusal
            slot = self._gate.ask(principal=request.get(PRINCIPAL))
            try:
                if not waits or request.query.get("timeout") == "0":
                    return await handler(request)
                busy = slot.reserve_wait()
                if busy is not None:
                    return unavailable(busy, retry_after=WAIT_RETRY_AFTER)
                with ended_with_client(request):
                    return await handler(request)
            except ParameterError as error:
                return refuse(400, str(error))
            finally:
                slot.release()

        return answer

    async def receipt(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/receipts/ID."""
        check_names(request, RECEIPT_PARAMETERS)
        seconds = parse_timeout(request.query, maximum=self.limits.wait_seconds)
        level = self._level(request)
        receipt = self._receipts.find(request.match_info["id"], namespace=namespace_of(request))
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
        answer = ReceiptAnswer(receipt=UNSET if receipt.settled_all.given else receipt.id)
        add_receipt(answer, receipt)
        return web.json_response(msgspec.to_builtins(answer), status=200 if reached else 202)

    async def flush(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/flush: wait for everything that a publisher has published so far."""
        check_names(request, FLUSH_PARAMETERS)
        seconds = parse_timeout(request.query, maximum=self.limits.wait_seconds)
        level = self._level(request)
        publisher = self._named_publisher(request)
        if isinstance(publisher, web.Response):
            return publisher
        if level is Acknowledgement.DURABLE:
            signal = Signal(self._timers)
            self._context.queues.barrier(signal.give)
            complete = await signal.wait(seconds)
        else:
            complete = level is Acknowledgement.ACCEPTED or await publisher.flush(seconds)
        document = flush_document(publisher, complete=complete)
        if level is Acknowledgement.DURABLE:
            document["durable"] = complete
        return web.json_response(document, status=200 if complete else 202)

    async def faults(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/faults: a publisher's discards (S1.9)."""
        check_names(request, FAULTS_PARAMETERS)
        after = parse_count(request.query, name="after", default=0, maximum=1 << 62)
        limit = parse_count(
            request.query, name="limit", default=DEFAULT_FAULTS, maximum=MAXIMUM_FAULTS
        )
        publisher = self._named_publisher(request)
        if isinstance(publisher, web.Response):
            return publisher
        document = faults_document(
            publisher, after=after, limit=limit, namespace=namespace_of(request)
        )
        return web.json_response(document)

    async def service(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/service: the service and its capabilities as CIM instances (D.3)."""
        check_names(request, ())
        document = self._describe_service()
        if document is None:
            return unavailable(NOT_CONFIGURED, retry_after=UNAVAILABLE_RETRY_AFTER)
        return web.json_response(document)

    def _level(self, request: web.Request) -> Acknowledgement:
        return parse_level(
            request.query,
            name="level",
            default=Acknowledgement.DELIVERED,
            durability=self._context.durability,
        )

    def _named_publisher(self, request: web.Request) -> Publisher | web.Response:
        """Return the named publisher, or the error answer."""
        publisher_id = request.query.get("publisher")
        if not publisher_id:
            raise ParameterError("publisher: give the ID sent as Pillion-Publisher")
        publisher = self._publishers.find(scoped(namespace_of(request), publisher_id))
        if publisher is None:
            return refuse(
                404, "nothing is known of this publisher; it has not published here, or long ago"
            )
        if request.query.get("instance", publisher.instance) != publisher.instance:
            return other_instance(publisher)
        return publisher

    def publish(
        self, request: web.Request, slot: RequestSlot
    ) -> web.StreamResponse | Awaitable[web.StreamResponse]:
        """POST /v1/indications."""
        body = find_format(request, FORMATS)
        if isinstance(body, web.Response):
            return body
        if body is EXPORT:
            return self.export(request, slot)
        check_names(request, PUBLISH_PARAMETERS)
        parameters = self._parameters(request, slot)
        if isinstance(parameters, web.Response):
            return parameters
        if parameters.instance is not None:
            refusal = self._refuse_instance(parameters, slot)
            if refusal is not None:
                return refusal
        return self._receive(request, self._begin(slot, parameters), self._bodies, body)

    def relay(
        self, request: web.Request, slot: RequestSlot
    ) -> web.StreamResponse | Awaitable[web.StreamResponse]:
        """POST /v1/relay: indications that sidecars accepted."""
        if not self._context.routes.takes_relayed:
            return refuse(404, NO_GATEWAY)
        if not may_relay(request):
            return refuse(403, NOT_OURS)
        body = find_format(request, RELAY_FORMATS)
        if isinstance(body, web.Response):
            return body
        # Unknown names are ignored: the sidecar may be newer than its gateway.
        parameters = self._parameters(request, slot, sender="a sidecar")
        if isinstance(parameters, web.Response):
            return parameters
        if self._relayed_bodies is None:
            self._relayed_bodies = self._body_intake(is_relayed=True)
        publication = self._begin(slot, parameters, is_relayed=True)
        return self._receive(request, publication, self._relayed_bodies, body)

    async def _receive(
        self, request: web.Request, publication: "_Publication", bodies: BodyIntake, body: Format
    ) -> web.StreamResponse:
        """Read a request; answer once its lines have reached the requested level."""
        submission, interruption = publication.submission, None
        assert body.read is not None
        try:
            unread_from = await body.read(bodies, request, submission)
        except BodyError as error:
            interruption, unread_from = error, error.unread_from
        finally:
            submission.report(self._observer, body.kind)
        answer = submission_answer(submission, unread_from=unread_from)
        status = submission_status(submission)
        if publication.publisher is not None:
            answer.instance = publication.publisher.instance
        if publication.receipt is not None:
            later = await self._acknowledge(request, publication, publication.receipt, answer)
            status = 202 if later else status
        if interruption is not None:
            status, answer.reason = interruption.status, str(interruption)
        response = web.json_response(msgspec.to_builtins(answer), status=status)
        retry_after = UNAVAILABLE_RETRY_AFTER if status == 503 else submission.retry_after
        if retry_after:
            set_retry_after(response, retry_after)
        return response

    async def _acknowledge(
        self,
        request: web.Request,
        publication: "_Publication",
        receipt: Receipt,
        answer: SubmissionAnswer,
    ) -> bool:
        """Wait as requested, add the results to the answer, and return whether more is to come."""
        parameters, submission = publication.parameters, publication.submission
        if not (submission.accepted or submission.duplicate) and (
            parameters.callback is not None or receipt.is_for_durable
        ):
            # Nothing was accepted: there is nothing to wait for.
            return False
        if parameters.callback is not None:
            assert self._callbacks is not None
            receipt.is_called_back = True
            self._complete(receipt)
            self._callbacks.expect(
                receipt, url=parameters.callback, seconds=parameters.timeout, render=callback_body
            )
        else:
            if publication.slot.may_wait:
                publication.slot.stop_reading()
            if await self._reach(request, receipt, parameters):
                if receipt.is_for_durable:
                    answer.durable = True
                else:
                    add_receipt(answer, receipt)
                return False
        add_receipt(answer, receipt)
        answer.receipt = receipt.id
        return True

    async def _reach(
        self, request: web.BaseRequest, receipt: Receipt, parameters: Parameters
    ) -> bool:
        """Wait, while the client is connected, until the lines reach the requested level; return
        whether they have."""
        self._complete(receipt)
        signal = receipt.secured if receipt.is_for_durable else receipt.settled_all
        try:
            with ended_with_client(request):
                reached = await signal.wait(parameters.timeout)
        except asyncio.CancelledError:
            # The client left without the receipt's ID: nobody can ask for it.
            self._receipts.drop(receipt)
            raise
        if reached:
            # The answer is complete.
            self._receipts.drop(receipt)
        return reached

    def _complete(self, receipt: Receipt) -> None:
        # Before any wait, so that it stays bounded if the publisher leaves.
        self._receipts.keep(receipt)
        receipt.completed()
        if receipt.is_for_durable:
            self._context.queues.barrier(receipt.secured.give)

    async def export(self, request: web.Request, slot: RequestSlot) -> web.StreamResponse:
        """A CIM-XML export request, on any path."""
        refusal = cimxml.refuse_method(request.method) or refuse_encoding(request)
        if refusal is not None:
            return refusal
        check_names(request, PUBLISH_PARAMETERS)
        parameters = self._parameters(request, slot, sender="an export message")
        if isinstance(parameters, web.Response):
            return parameters
        if parameters.instance is not None:
            refusal = self._refuse_instance(parameters, slot)
            if refusal is not None:
                return refusal
        try:
            body = await self._bodies.reader.document(request)
        except BodyError as error:
            return cimxml.request_error(error.status, None, str(error))
        schema = self._context.routes.schema
        export = cimxml.parse_export(request, body, schema=schema)
        if isinstance(export, web.Response):
            self._observer.received(EXPORT.kind, IntakeOutcome.INVALID)
            return export
        publication = self._begin(slot, parameters)
        receipt, submission = publication.receipt, publication.submission
        cimxml.submit_export(export, submission, schema=schema)
        submission.report(self._observer, EXPORT.kind)
        if receipt is not None and not submission.refused:
            if slot.may_wait:
                slot.stop_reading()
            await self._reach(request, receipt, parameters)
            answer = cimxml.durable_answer if receipt.is_for_durable else cimxml.delivered_answer
            return answer(export, submission, receipt, timeout=parameters.timeout)
        return cimxml.export_answer(export, submission)

    def _refuse_instance(self, parameters: Parameters, slot: RequestSlot) -> web.Response | None:
        assert parameters.publisher is not None
        known = self._publishers.find(scoped(slot.namespace, parameters.publisher))
        if known is None or known.instance != parameters.instance:
            return other_instance(known)
        return None

    def _parameters(
        self, request: web.Request, slot: RequestSlot, *, sender: str | None = None
    ) -> Parameters | web.Response:
        """Return the parameters and reserve the wait, or return the 503. A ``sender`` cannot be
        called back. Raises :class:`ParameterError`."""
        parameters = parse_parameters(
            request.query,
            request.headers,
            default=self._context.acknowledgement,
            durability=self._context.durability,
            callbacks=self._context.callbacks,
            maximum_wait=self.limits.wait_seconds,
        )
        level, busy = parameters.acknowledgement, None
        if parameters.callback is not None:
            if sender is not None:
                raise ParameterError(f"callback: {sender} is answered by response alone")
            if self._callbacks is None:
                raise ParameterError("callback: this deliverer calls nobody back; poll the receipt")
            busy = self._callbacks.refusal
        elif level is Acknowledgement.DELIVERED and parameters.timeout > 0:
            busy = slot.reserve_wait()
        if busy is None:
            return parameters
        return unavailable(busy, retry_after=UNAVAILABLE_RETRY_AFTER)

    def _begin(
        self, slot: RequestSlot, parameters: Parameters, *, is_relayed: bool = False
    ) -> "_Publication":
        namespace, level = slot.namespace, parameters.acknowledgement
        publisher: Publisher | None = None
        receipt: Receipt | None = None
        followers: list[Follower] = []
        if parameters.publisher is not None and not is_relayed:
            publisher = self._publishers.meet(scoped(namespace, parameters.publisher))
            followers.append(publisher)
        if not (level is Acknowledgement.ACCEPTED and parameters.callback is None):
            receipt = Receipt(memory=self._context.memory, timers=self._timers, namespace=namespace)
            receipt.is_for_durable = level is Acknowledgement.DURABLE
            followers.append(receipt)
        if is_relayed:
            relayed = RelaySubmission(
                context=self._context, namespace=namespace, followers=tuple(followers)
            )
            return _Publication(slot, parameters, relayed, receipt)
        submission = Submission(
            context=self._context,
            namespace=namespace,
            source=parameters.source,
            languages=parameters.languages,
            followers=tuple(followers),
        )
        return _Publication(slot, parameters, submission, receipt, publisher)


class _Publication(NamedTuple):
    """A publish request with its parameters."""

    slot: RequestSlot
    parameters: Parameters
    submission: Submission
    #: None: answered once the lines are accepted.
    receipt: Receipt | None
    publisher: Publisher | None = None
