"""The HTTP application of the intake listener. ``accepted`` means in the queues, ``durable`` on
disk, ``delivered`` acknowledged by every listener."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from aiohttp import web

from pillion_cim.schema import Schema
from pillion_sidecar.auth.principal import PRINCIPAL, may_relay
from pillion_sidecar.clock import Timers
from pillion_sidecar.config.schema.service import Acknowledgement, Durability
from pillion_sidecar.connections import ended_with_client
from pillion_sidecar.history.recorder import History
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
    other_instance,
    submission_answer,
    submission_status,
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
from pillion_sidecar.intake.context import IntakeContext, IntakeObserver
from pillion_sidecar.intake.histories import take_part
from pillion_sidecar.intake.inquiries import Inquiries
from pillion_sidecar.intake.journals import JOURNAL_PATH, JOURNALS_PATH, JournalRoutes
from pillion_sidecar.intake.limits import (
    NOT_CONFIGURED,
    BodyBudget,
    IntakeGate,
    IntakeLimits,
    RequestSlot,
)
from pillion_sidecar.intake.parameters import (
    PUBLISH_PARAMETERS,
    Parameters,
    RelayMarks,
    parse_marks,
    parse_parameters,
)
from pillion_sidecar.intake.relay import RelaySubmission
from pillion_sidecar.intake.submission import Submission
from pillion_sidecar.reliability.callbacks import Callbacks
from pillion_sidecar.reliability.identity import scoped
from pillion_sidecar.reliability.kept_receipts import KeptReceipts
from pillion_sidecar.reliability.publishers import Publisher
from pillion_sidecar.reliability.receipts import Follower, Receipt
from pillion_sidecar.telemetry.metrics import IntakeOutcome
from pillion_sidecar.trace_context import PARENT, STATE, trace_of
from pillion_sidecar.wire.relay import HISTORY_PATH, RELAY_PATH, TRACE_HEADER
from pillion_sidecar.wire.submission import SubmissionAnswer

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

    # It imports OpenTelemetry, which is an extra.
    from pillion_sidecar.telemetry.spans import RequestSpan


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
    history: History | None = None,
    kept: KeptReceipts | None = None,
) -> web.Application:
    """Return the application.

    Without ``callbacks`` nobody is called back. ``service`` returns the JSON of ``/v1/service``;
    None before the first configuration. ``history`` has the faults, ``kept`` the receipts of
    earlier runs; without these the latest are in memory. Without ``tokens`` only ``origins``
    refuses requests, so this is for loopback. The runner needs a ``keepalive_timeout`` (it also
    closes connections without a first request) and ``auto_decompress=False``.
    """
    history = history or History(clock=context.clock, timers=timers)
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
        history=history,
        kept=kept or _receipts_of(history, context, timers),
    )
    middlewares = () if tokens is None else (tokens.middleware,)
    expect = None if tokens is None else tokens.expect
    app = web.Application(client_max_size=intake.limits.line_bytes, middlewares=middlewares)
    add = partial(app.router.add_route, expect_handler=expect)
    add("POST", "/v1/indications", intake.accept(intake.publish))
    add("POST", RELAY_PATH, intake.accept(intake.relay))
    add("POST", HISTORY_PATH, intake.accept(intake.take_history))
    add("GET", "/v1/receipts/{id}", intake.query(intake.inquiries.receipt, waits=True))
    add("POST", "/v1/flush", intake.query(intake.inquiries.flush, waits=True))
    add("GET", "/v1/faults", intake.query(intake.inquiries.faults, waits=False))
    add("GET", "/v1/service", intake.query(intake.service, waits=False))
    for path in CIM_XML_PATHS:
        add("*", path, intake.accept(intake.export))
    journals = intake.journals
    add("POST", JOURNAL_PATH, intake.accept(journals.change, while_closed=journals.are_open))
    add("GET", JOURNALS_PATH, intake.query(journals.list, waits=False))
    return app


def _receipts_of(history: History, context: IntakeContext, timers: Timers) -> KeptReceipts:
    return KeptReceipts(
        history=history,
        memory=context.memory,
        clock=context.clock,
        timers=timers,
        barrier=context.queues.barrier,
    )


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
        history: History,
        kept: KeptReceipts,
    ) -> None:
        self.limits = limits
        self._context = context
        self._schema = schema
        self._timers = timers
        self._gate = gate
        self._observer = observer
        self._callbacks = callbacks
        self._kept = kept
        self.inquiries = Inquiries(
            context=context, timers=timers, limits=limits, history=history, kept=kept
        )
        self._publishers = self.inquiries.publishers
        self._asks_for_tokens = asks_for_tokens
        self._origins = origins
        self._describe_service = service
        self._budget = BodyBudget(clock=context.clock)
        self._bodies = self._body_intake(is_relayed=False)
        self.journals = JournalRoutes(context, reader=self._bodies.reader)
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

    def accept(
        self, handler: Admitted, *, while_closed: Callable[[], bool] = lambda: False
    ) -> Handler:
        """Serve a bounded number of requests while intake is open."""

        async def answer(request: web.Request) -> web.StreamResponse:
            # Any Host is accepted: publishers may have their own names for this machine, and a page
            # that used one sends its Origin with each POST.
            refusal = None if self._origins is None else self._origins.refuse_page(request)
            if refusal is not None:
                return refusal
            # Only where there can be one: a look-up costs a microsecond.
            principal = request.get(PRINCIPAL) if self._asks_for_tokens else None
            slot = self._gate.enter(
                partial(interrupt_body, request), principal=principal, while_closed=while_closed()
            )
            if isinstance(slot, str):
                return unavailable(slot, retry_after=UNAVAILABLE_RETRY_AFTER)
            try:
                answered = handler(request, slot)
                return answered if isinstance(answered, web.StreamResponse) else await answered
            except ParameterError as error:
                return refuse(400, str(error))
            except ConnectionError:
                if request.transport is not None:
                    raise
                # The client has gone: nobody reads this, and aiohttp logs no error.
                return refuse(400, "the connection ended within the body")
            finally:
                slot.release()

        return answer

    def query(self, handler: Handler, *, waits: bool) -> Handler:
        """Serve requests that publish nothing. Those that wait are bounded and end with it."""

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

    async def service(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/service: the service and its capabilities as CIM instances (D.3)."""
        check_names(request, ())
        document = self._describe_service()
        if document is None:
            return unavailable(NOT_CONFIGURED, retry_after=UNAVAILABLE_RETRY_AFTER)
        return web.json_response(document)

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
        span = self._begin_span(parameters)
        publication = self._begin(slot, parameters, span=span)
        answering = self._receive(request, publication, self._bodies, body)
        return answering if span is None else span.follow(answering)

    def _begin_span(self, parameters: Parameters) -> "RequestSpan | None":
        spans = self._context.spans
        return None if spans is None else spans.begin_request(parameters.trace)

    def relay(
        self, request: web.Request, slot: RequestSlot
    ) -> web.StreamResponse | Awaitable[web.StreamResponse]:
        """POST /v1/relay: indications that sidecars accepted."""
        refusal = self._refuse_relay(request)
        if refusal is not None:
            return refusal
        body = find_format(request, RELAY_FORMATS)
        if isinstance(body, web.Response):
            return body
        # Unknown names are ignored: the sidecar may be newer than its gateway.
        parameters = self._parameters(request, slot, sender="a sidecar")
        if isinstance(parameters, web.Response):
            return parameters
        if self._relayed_bodies is None:
            self._relayed_bodies = self._body_intake(is_relayed=True)
        headers = request.headers
        publication = self._begin(
            slot, parameters, marks=parse_marks(headers, headers.getall(TRACE_HEADER, ()))
        )
        return self._receive(request, publication, self._relayed_bodies, body)

    def take_history(
        self, request: web.Request, slot: RequestSlot
    ) -> web.StreamResponse | Awaitable[web.StreamResponse]:
        """POST /v1/relay/outcomes: the history of a sidecar that ends."""
        refusal = self._refuse_relay(request)
        if refusal is not None:
            return refusal
        return take_part(request, self._bodies.reader, self._context)

    def _refuse_relay(self, request: web.Request) -> web.Response | None:
        if not self._context.routes.takes_relayed:
            return refuse(404, NO_GATEWAY)
        return None if may_relay(request) else refuse(403, NOT_OURS)

    async def _receive(
        self, request: web.Request, publication: "_Publication", bodies: BodyIntake, body: Format
    ) -> web.StreamResponse:
        """Read a request; answer once its lines have reached the requested level."""
        submission, interruption = publication.submission, None
        assert body.read is not None
        try:
            try:
                unread_from = await body.read(bodies, request, submission)
            except BodyError as error:
                interruption, unread_from = error, error.unread_from
            await submission.redeliver()
        finally:
            submission.close()
            submission.report(self._observer, body.kind)
        if publication.span is not None:
            self._follow_commit(publication.span, submission)
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

    def _follow_commit(self, span: "RequestSpan", submission: Submission) -> None:
        span.received(submission.accepted + submission.duplicate + len(submission.refused))
        if submission.accepted and self._context.durability is Durability.DISK:
            self._context.queues.barrier(span.begin_commit(submission.accepted))

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
                receipt,
                url=parameters.callback,
                seconds=parameters.timeout,
                render=callback_body,
                done=partial(self._kept.called_back, receipt.id),
            )
        else:
            if publication.slot.may_wait:
                publication.slot.stop_reading()
            if await self._reach(request, receipt, parameters):
                if receipt.is_for_durable:
                    answer.durable, answer.stable = True, receipt.is_for_stable or msgspec.UNSET
                else:
                    add_receipt(answer, receipt)
                return False
        await self._kept.keep(
            receipt,
            publisher=submission.publisher_id,
            callback=parameters.callback,
            seconds=parameters.timeout,
        )
        add_receipt(answer, receipt)
        answer.receipt = receipt.id
        return True

    async def _reach(
        self, request: web.BaseRequest, receipt: Receipt, parameters: Parameters
    ) -> bool:
        """Wait, while the client is connected, until the lines reach the requested level; return
        whether they have."""
        self._complete(receipt)
        try:
            with ended_with_client(request):
                reached = await receipt.reached.wait(parameters.timeout)
        except asyncio.CancelledError:
            # The client left without the receipt's ID: nobody can ask for it.
            self.inquiries.receipts.drop(receipt)
            raise
        if reached:
            # The answer is complete.
            self.inquiries.receipts.drop(receipt)
        return reached

    def _complete(self, receipt: Receipt) -> None:
        # Before any wait, so that it stays bounded if the publisher leaves.
        self.inquiries.receipts.keep(receipt)
        receipt.completed()
        if receipt.is_for_durable:
            self._context.queues.barrier(receipt.secured.give)
        if receipt.is_for_stable and self._context.stable is not None:
            self._context.stable(receipt.stable.give)

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
        span = self._begin_span(parameters)
        answering = self._export(request, slot, parameters, span)
        return await (answering if span is None else span.follow(answering))

    async def _export(
        self,
        request: web.Request,
        slot: RequestSlot,
        parameters: Parameters,
        span: "RequestSpan | None",
    ) -> web.StreamResponse:
        try:
            body = await self._bodies.reader.document(request)
        except BodyError as error:
            return cimxml.request_error(error.status, None, str(error))
        schema = self._context.routes.schema
        export = cimxml.parse_export(request, body, schema=schema)
        if isinstance(export, web.Response):
            self._observer.received(EXPORT.kind, IntakeOutcome.INVALID)
            return export
        publication = self._begin(slot, parameters, span=span)
        receipt, submission = publication.receipt, publication.submission
        cimxml.submit_export(export, submission, schema=schema)
        await submission.redeliver()
        submission.report(self._observer, EXPORT.kind)
        if span is not None:
            self._follow_commit(span, submission)
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
        headers = request.headers
        parameters = parse_parameters(
            request.query,
            headers,
            default=self._context.acknowledgement,
            durability=self._context.durability,
            has_stores=self._context.stable is not None,
            callbacks=self._context.callbacks,
            maximum_wait=self.limits.wait_seconds,
            trace=trace_of(headers.getall(PARENT, ()), headers.getall(STATE, ())),
        )
        level, busy = parameters.acknowledgement, None
        if parameters.callback is not None:
            if sender is not None:
                raise ParameterError(f"callback: {sender} is answered by response alone")
            if self._callbacks is None:
                raise ParameterError("callback: this deliverer calls nobody back; poll the receipt")
            busy = self._callbacks.refusal
        elif (
            level in (Acknowledgement.DELIVERED, Acknowledgement.STABLE) and parameters.timeout > 0
        ):
            busy = slot.reserve_wait()
        if busy is None:
            return parameters
        return unavailable(busy, retry_after=UNAVAILABLE_RETRY_AFTER)

    def _begin(
        self,
        slot: RequestSlot,
        parameters: Parameters,
        *,
        marks: RelayMarks | None = None,
        span: "RequestSpan | None" = None,
    ) -> "_Publication":
        """``marks``: of relayed lines."""
        namespace, level = slot.namespace, parameters.acknowledgement
        publisher: Publisher | None = None
        receipt: Receipt | None = None
        followers: list[Follower] = []
        if parameters.publisher is not None and marks is None:
            publisher = self._publishers.meet(scoped(namespace, parameters.publisher))
            followers.append(publisher)
        if not (level is Acknowledgement.ACCEPTED and parameters.callback is None):
            receipt = Receipt(memory=self._context.memory, timers=self._timers, namespace=namespace)
            receipt.is_for_stable = level is Acknowledgement.STABLE
            receipt.is_for_durable = receipt.is_for_stable or level is Acknowledgement.DURABLE
            followers.append(receipt)
        if marks is not None:
            relayed = RelaySubmission(
                context=self._context,
                namespace=namespace,
                followers=tuple(followers),
                marks=marks,
            )
            return _Publication(slot, parameters, relayed, receipt)
        submission = Submission(
            context=self._context,
            namespace=namespace,
            source=parameters.source,
            publisher=parameters.publisher,
            languages=parameters.languages,
            trace=parameters.trace if span is None else span.trace,
            followers=tuple(followers),
            redelivers=parameters.redeliver,
        )
        return _Publication(slot, parameters, submission, receipt, publisher, span)


class _Publication(NamedTuple):
    """A publish request with its parameters."""

    slot: RequestSlot
    parameters: Parameters
    submission: Submission
    #: None: answered once the lines are accepted.
    receipt: Receipt | None
    publisher: Publisher | None = None
    #: None: it is not recorded.
    span: "RequestSpan | None" = None
