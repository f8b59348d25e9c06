"""The HTTP application of the intake listener.

Nothing is answered before it is true: ``accepted`` means in the queues, ``durable`` on disk,
``delivered`` that every listener has it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

from pillion_cim.schema import Schema
from pillion_sidecar.auth.principal import PRINCIPAL, may_relay, namespace_of
from pillion_sidecar.clock import Timers
from pillion_sidecar.config.resources import Acknowledgement
from pillion_sidecar.connections import ended_with_client
from pillion_sidecar.http_errors import refuse
from pillion_sidecar.intake import cimxml
from pillion_sidecar.intake.acknowledgement import (
    Acknowledging,
    faults_document,
    flush_document,
    other_instance,
    receipt_document,
    set_retry_after,
    submission_document,
    submission_status,
    unavailable,
)
from pillion_sidecar.intake.bodies import BodyBudget, IntakeLimits, interrupt_body
from pillion_sidecar.intake.formats import (
    EXPORT_KIND,
    FORMATS,
    RELAYED,
    BodyIntake,
    Format,
    LineDecoder,
    ReadingInterruptedError,
    format_of,
)
from pillion_sidecar.intake.gate import IntakeGate, Visit
from pillion_sidecar.intake.parameters import (
    DEFAULT_FAULTS,
    MAXIMUM_FAULTS,
    PUBLISH_PARAMETERS,
    ParameterError,
    Parameters,
    check_names,
    parse_count,
    parse_level,
    parse_parameters,
    parse_timeout,
)
from pillion_sidecar.intake.relay import RelaySubmission
from pillion_sidecar.intake.submission import IntakeContext, IntakeObserver, Submission
from pillion_sidecar.origins import OriginPolicy
from pillion_sidecar.reliability.callbacks import Callbacks
from pillion_sidecar.reliability.identity import scoped
from pillion_sidecar.reliability.publishers import Publisher, Publishers
from pillion_sidecar.reliability.receipts import Follower, Receipt
from pillion_sidecar.telemetry.metrics import IntakeOutcome

RECEIPT_PARAMETERS = frozenset({"level", "timeout"})
FLUSH_PARAMETERS = frozenset({"instance", "level", "publisher", "timeout"})
FAULTS_PARAMETERS = frozenset({"after", "instance", "limit", "publisher"})
#: Seconds of Retry-After where all waits are taken.
WAIT_RETRY_AFTER = 1.0
#: What a publisher that comes at the wrong time is told to wait, in seconds.
UNAVAILABLE_RETRY_AFTER = 1.0
#: pywbem's exporter posts to /cimom whatever the URL says, OpenPegasus's to / without a path.
CIM_XML_PATHS = ("/CIMListener", "/CIMListener/{consumer:(?s:.*)}", "/cimom", "/")
NO_GATEWAY = (
    "nothing can be relayed here: this deliverer is no gateway; name in gatewayRef or handOverTo an"
    " IndicationService whose deliverer.mode is Gateway"
)
NOT_OURS = (
    "only sidecars of the gateway's own namespace relay, past all filters; publish at"
    " /v1/indications"
)
#: How many times as long as a publisher's a relayed line may be: a sidecar had accepted it, and
#: wrote it anew, with more beside it.
RELAYED_GROWTH = 2
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Handles a request that was let in.
Inside = Callable[[web.Request, Visit], Awaitable[web.StreamResponse]]


class Asking:
    """The endpoints that take nothing in."""

    def __init__(
        self,
        *,
        context: IntakeContext,
        acknowledging: Acknowledging,
        publishers: Publishers,
        limits: IntakeLimits,
        gate: IntakeGate,
    ) -> None:
        self._context = context
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
                return unavailable(busy, retry_after=WAIT_RETRY_AFTER)
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
        except ParameterError as error:
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
        document = receipt_document(receipt)
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
        except ParameterError as error:
            return refuse(400, str(error))
        refusal = _refusal(publisher, request)
        if refusal is not None:
            return refusal
        assert publisher is not None
        if level is Acknowledgement.DURABLE:
            complete = await self._acknowledging.secured(seconds)
        else:
            complete = level is Acknowledgement.ACCEPTED or await publisher.flush(seconds)
        document = flush_document(publisher, complete=complete)
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
        except ParameterError as error:
            return refuse(400, str(error))
        refusal = _refusal(publisher, request)
        if refusal is not None:
            return refusal
        assert publisher is not None
        document = faults_document(
            publisher, after=after, limit=limit, namespace=namespace_of(request)
        )
        return web.json_response(document)

    def _level(self, request: web.Request, *, default: Acknowledgement) -> Acknowledgement:
        return parse_level(
            request.query, name="level", default=default, durability=self._context.durability
        )

    def _publisher(self, request: web.Request) -> Publisher | None:
        publisher_id = request.query.get("publisher")
        if not publisher_id:
            raise ParameterError("publisher: give the ID sent as Pillion-Publisher")
        return self._publishers.find(scoped(namespace_of(request), publisher_id))


def _refusal(publisher: Publisher | None, request: web.Request) -> web.Response | None:
    """Return why nothing can be said to a publisher; None where it can."""
    if publisher is None:
        return _unknown_publisher()
    instance = request.query.get("instance")
    known = instance is None or instance == publisher.instance
    return None if known else other_instance(publisher)


def _unknown_publisher() -> web.Response:
    return refuse(404, "nothing is known of this publisher; it has not published here, or long ago")


if TYPE_CHECKING:
    # It loads what verifies tokens, which a sidecar does without.
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
    guard: "TokenMiddleware | None" = None,
    origins: OriginPolicy | None = None,
) -> web.Application:
    """Return the application. Without ``callbacks`` nobody can be called back; without a ``guard``
    anybody may come in but web pages that ``origins`` refuses, so it is for the loopback listener.

    Its runner should have a ``keepalive_timeout`` (aiohttp then also closes a connection whose
    first request does not come) and ``auto_decompress=False``.
    """
    limits = limits or IntakeLimits()
    acknowledging = Acknowledging(context=context, timers=timers, callbacks=callbacks)
    publishers = Publishers(memory=context.memory, timers=timers, clock=context.clock)
    intake = _Intake(
        context=context,
        schema=schema,
        timers=timers,
        gate=gate,
        observer=observer,
        acknowledging=acknowledging,
        publishers=publishers,
        limits=limits,
        asks_for_tokens=guard is not None,
    )
    asking = Asking(
        context=context,
        acknowledging=acknowledging,
        publishers=publishers,
        limits=limits,
        gate=gate,
    )
    middlewares = () if guard is None else (guard.middleware,)
    expect = None if guard is None else guard.expect
    app = web.Application(client_max_size=limits.line_bytes, middlewares=middlewares)
    add = partial(app.router.add_route, expect_handler=expect)
    here = partial(_not_from_a_page, origins)
    add("POST", "/v1/indications", here(intake.guarded(intake.publish)))
    add("POST", "/v1/relay", here(intake.guarded(intake.relay)))
    add("GET", "/v1/receipts/{id}", here(asking.waiting(asking.receipt)))
    add("POST", "/v1/flush", here(asking.waiting(asking.flush)))
    add("GET", "/v1/faults", here(asking.faults))
    for path in CIM_XML_PATHS:
        add("*", path, here(intake.guarded(intake.export)))
    return app


def _not_from_a_page(origins: OriginPolicy | None, handler: Handler) -> Handler:
    """Answer 403 to what a web page of another origin has a browser send.

    Any Host is good: publishers may have names of their own for this machine, and a page that was
    led here by one sends its Origin with each POST.
    """
    if origins is None:
        return handler

    async def answer(request: web.Request) -> web.StreamResponse:
        reason = origins.refuse_page(request)
        return await handler(request) if reason is None else refuse(403, reason)

    return answer


class _Intake:
    def __init__(
        self,
        *,
        context: IntakeContext,
        schema: Schema,
        timers: Timers,
        gate: IntakeGate,
        observer: IntakeObserver,
        acknowledging: Acknowledging,
        publishers: Publishers,
        limits: IntakeLimits,
        asks_for_tokens: bool,
    ) -> None:
        self._context = context
        self._schema = schema
        self._timers = timers
        self._gate = gate
        self._observer = observer
        self._limits = limits
        self._acknowledging = acknowledging
        self._publishers = publishers
        self._asks_for_tokens = asks_for_tokens
        self._budget = BodyBudget(clock=context.clock)
        self._bodies = self._body_intake(is_relayed=False)
        # Made when the first sidecar relays something.
        self._relayed_bodies: BodyIntake | None = None

    def _body_intake(self, *, is_relayed: bool) -> BodyIntake:
        limits = self._limits
        if is_relayed:
            limits = replace(limits, line_bytes=RELAYED_GROWTH * limits.line_bytes)
        return BodyIntake(
            decoder=LineDecoder(
                self._schema,
                maximum_line_bytes=limits.line_bytes,
                is_relayed=is_relayed,
                in_force=lambda: self._context.routes.schema,
            ),
            timers=self._timers,
            limits=limits,
            observer=self._observer,
            budget=self._budget,
        )

    def guarded(self, handler: Inside) -> Handler:
        """Let requests through while intake is open, and not too many at a time."""

        async def enter(request: web.Request) -> web.StreamResponse:
            # Looked up once, and only where there can be one: a look-up costs a microsecond.
            principal = request.get(PRINCIPAL) if self._asks_for_tokens else None
            visit = self._gate.enter(partial(interrupt_body, request), principal=principal)
            if isinstance(visit, str):
                return unavailable(visit, retry_after=UNAVAILABLE_RETRY_AFTER)
            try:
                return await handler(request, visit)
            except ParameterError as error:
                return refuse(400, str(error))
            finally:
                visit.leave()

        return enter

    # ------------------------------------------------------------------ publishing

    async def publish(self, request: web.Request, visit: Visit) -> web.StreamResponse:
        """POST /v1/indications."""
        body = _media(request)
        if isinstance(body, web.Response):
            return body
        if body.read is None:
            return await self.export(request, visit)
        check_names(request.query, PUBLISH_PARAMETERS)
        parameters = self._parameters(request)
        busy = self._acknowledging.refusal(parameters) or _reserve_wait(visit, parameters)
        if busy is not None:
            return unavailable(busy, retry_after=UNAVAILABLE_RETRY_AFTER)
        if (instance := parameters.instance) is not None:
            known = self._publisher(visit, parameters)
            if known is None or known.instance != instance:
                return other_instance(known)
        publication = self._begin(visit, parameters)
        reading = self._bodies.read(request, publication.submission, body=body)
        return await self._answer(request, reading, publication)

    def _publisher(self, visit: Visit, parameters: Parameters) -> Publisher | None:
        if parameters.publisher is None:
            return None
        return self._publishers.find(scoped(visit.namespace, parameters.publisher))

    async def relay(self, request: web.Request, visit: Visit) -> web.StreamResponse:
        """POST /v1/relay: what sidecars have accepted, for this gateway to deliver."""
        if not self._context.routes.takes_relayed:
            return refuse(404, NO_GATEWAY)
        if not may_relay(request):
            return refuse(403, NOT_OURS)
        body = _media(request, relayed=True)
        if isinstance(body, web.Response):
            return body
        # Other names are ignored: the sidecar may be newer than its gateway.
        parameters = self._parameters(request)
        if parameters.callback is not None:
            return refuse(400, "callback: a sidecar is answered by response alone")
        busy = _reserve_wait(visit, parameters)
        if busy is not None:
            return unavailable(busy, retry_after=UNAVAILABLE_RETRY_AFTER)
        receipt = self._acknowledging.begin(parameters, namespace=visit.namespace)
        submission = RelaySubmission(
            context=self._context,
            namespace=visit.namespace,
            followers=() if receipt is None else (receipt,),
        )
        if self._relayed_bodies is None:
            self._relayed_bodies = self._body_intake(is_relayed=True)
        reading = self._relayed_bodies.read_relayed(request, submission)
        publication = _Publication(visit, parameters, submission, receipt)
        return await self._answer(request, reading, publication)

    async def _answer(
        self, request: web.Request, reading: Awaitable[int | None], publication: "_Publication"
    ) -> web.StreamResponse:
        """Answer a request once its body is read, and its lines have come as far as it asks.

        ``reading`` gives where reading stopped, if it did.
        """
        interruption = None
        try:
            unread_from = await reading
        except ReadingInterruptedError as error:
            interruption, unread_from = error, error.unread_from
        submission = publication.submission
        document = submission_document(submission, unread_from=unread_from)
        status = submission_status(submission)
        if publication.publisher is not None:
            document["instance"] = publication.publisher.instance
        if publication.receipt is not None:
            later = await self._acknowledge(request, publication, publication.receipt, document)
            status = 202 if later else status
        if interruption is not None:
            status, document["reason"] = interruption.status, interruption.reason
        response = web.json_response(document, status=status)
        retry_after = UNAVAILABLE_RETRY_AFTER if status == 503 else submission.retry_after
        if retry_after:
            set_retry_after(response, retry_after)
        return response

    async def _acknowledge(
        self,
        request: web.Request,
        publication: "_Publication",
        receipt: Receipt,
        document: dict[str, Any],
    ) -> bool:
        """Wait as long as the request asks for, and add to the answer what is known then; return
        whether the rest is told later."""
        parameters, submission = publication.parameters, publication.submission
        if not (submission.accepted or submission.duplicate) and (
            parameters.callback is not None or receipt.is_for_durable
        ):
            # Nothing was taken: there is nothing to wait for, and nothing to be called back about.
            return False
        if parameters.callback is not None:
            self._acknowledging.call_back(receipt, parameters)
        elif await self._reach(request, publication, receipt):
            if receipt.is_for_durable:
                document["durable"] = True
            else:
                document |= receipt_document(receipt)
            return False
        document |= receipt_document(receipt)
        document["receipt"] = receipt.id
        return True

    async def _reach(
        self, request: web.Request, publication: "_Publication", receipt: Receipt
    ) -> bool:
        """Wait while the client does; return whether the lines have come as far as it asks."""
        publication.visit.begin_waiting()
        with ended_with_client(request):
            return await self._acknowledging.reach(receipt, publication.parameters)

    async def export(self, request: web.Request, visit: Visit) -> web.StreamResponse:
        """A CIM-XML export request, at whatever path."""
        refusal = cimxml.refuse_method(request.method) or _refuse_encoding(request)
        if refusal is not None:
            return refusal
        check_names(request.query, PUBLISH_PARAMETERS)
        parameters = self._parameters(request)
        if parameters.callback is not None:
            return refuse(400, "callback: an export message is answered by response alone")
        busy = _reserve_wait(visit, parameters)
        if busy is not None:
            return unavailable(busy, retry_after=UNAVAILABLE_RETRY_AFTER)
        try:
            body = await self._bodies.read_document(request)
        except ReadingInterruptedError as error:
            return cimxml.request_error(error.status, None, error.reason)
        schema = self._context.routes.schema
        export = cimxml.parse_export(request, body, schema=schema)
        if isinstance(export, web.Response):
            self._observer.received(EXPORT_KIND, IntakeOutcome.INVALID)
            return export
        publication = self._begin(visit, parameters)
        receipt, submission = publication.receipt, publication.submission
        cimxml.submit_export(export, submission, schema=schema)
        submission.report(self._observer, EXPORT_KIND)
        if receipt is not None and not submission.refused:
            await self._reach(request, publication, receipt)
            answer = cimxml.durable_answer if receipt.is_for_durable else cimxml.delivered_answer
            return answer(export, submission, receipt, timeout=parameters.timeout)
        return cimxml.export_answer(export, submission)

    def _parameters(self, request: web.Request) -> Parameters:
        return parse_parameters(
            request.query,
            request.headers,
            default=self._context.acknowledgement,
            durability=self._context.durability,
            callbacks=self._context.callbacks,
            maximum_wait=self._limits.wait_seconds,
        )

    def _begin(self, visit: Visit, parameters: Parameters) -> "_Publication":
        namespace = visit.namespace
        receipt = self._acknowledging.begin(parameters, namespace=namespace)
        publisher: Publisher | None = None
        followers: list[Follower] = []
        if parameters.publisher is not None:
            publisher = self._publishers.meet(scoped(namespace, parameters.publisher))
            followers.append(publisher)
        if receipt is not None:
            followers.append(receipt)
        submission = Submission(
            context=self._context,
            namespace=namespace,
            source=parameters.source,
            languages=parameters.languages,
            followers=tuple(followers),
        )
        return _Publication(visit, parameters, submission, receipt, publisher)


class _Publication(NamedTuple):
    """One request that publishes, once its parameters are read."""

    visit: Visit
    parameters: Parameters
    submission: Submission
    #: What follows its lines; None where it is answered once they are accepted.
    receipt: Receipt | None
    #: None where it names no publisher.
    publisher: Publisher | None = None


def _reserve_wait(visit: Visit, parameters: Parameters) -> str | None:
    """Take a place for a request that is answered when listeners have it; return why not."""
    if parameters.acknowledgement is not Acknowledgement.DELIVERED or parameters.callback:
        return None
    return visit.reserve_wait() if parameters.timeout > 0 else None


def _refuse_encoding(request: web.Request) -> web.Response | None:
    """Answer 415 to a compressed body."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() == "identity":
        return None
    return refuse(415, f"Content-Encoding: {encoding[:40]!r}; send the body as it is")


def _media(request: web.Request, *, relayed: bool = False) -> Format | web.Response:
    """Return the form of a body, or the 415 for one that is not taken."""
    found = format_of(request)
    if found is None or (relayed and request.content_type != RELAYED):
        taken = RELAYED if relayed else f"one of {', '.join(FORMATS)}"
        return refuse(415, f"Content-Type: {request.content_type[:80]!r}; send {taken}")
    refusal = _refuse_encoding(request)
    if refusal is not None:
        return refusal
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8", "us-ascii"):
        return refuse(415, f"charset: {request.charset!r:.40}; send UTF-8")
    return found


__all__ = ["IntakeGate", "create_intake"]
