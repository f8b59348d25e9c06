"""The administration API of diagnosis: ``/v1/pending``, ``/v1/explain``, ``/v1/status``,
``/v1/endpoints``, ``/v1/journals`` and ``/v1/queues/{name}/test``."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.connections import ended_with_client
from pillion_sidecar.delivery.handler import Handler
from pillion_sidecar.delivery.pending import Pending
from pillion_sidecar.diagnosis.dry_run import explain
from pillion_sidecar.diagnosis.status import (
    DEFAULT_ENDPOINTS,
    MAXIMUM_ENDPOINTS,
    deliverer_status,
    endpoint_page,
    history_status,
    stores_status,
)
from pillion_sidecar.diagnosis.trial import trial_sequence, try_destination
from pillion_sidecar.http_errors import ParameterError, refuse
from pillion_sidecar.indication import Indication
from pillion_sidecar.intake.decoding import LineError
from pillion_sidecar.intake.journals import (
    JOURNALS_PATH,
    LIST_PARAMETERS,
    NO_COPIES,
    list_copies,
)
from pillion_sidecar.journal_runtime import JournalFolder
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.identity import identity_digest
from pillion_sidecar.routing import Router
from pillion_sidecar.settings import Settings
from pillion_sidecar.telemetry.administration import (
    Administration,
    guarded_route,
    unknown_queue,
)
from pillion_sidecar.telemetry.parameters import flag, limit_of
from pillion_sidecar.telemetry.turns import Turns
from pillion_sidecar.wire.diagnosis import PendingAnswer, PendingLine

#: Bytes of an indication to explain.
MOST_BODY = 1 << 20
#: Seconds in which it must come.
BODY_SECONDS = 30.0
#: Concurrent requests of each kind.
MOST_AT_A_TIME = 4
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    administration: Administration
    memory: DuplicateMemory
    folder: JournalFolder
    settings: Settings
    #: None before the first configuration.
    configuration: Callable[[], Configuration | None]
    #: Why the last content of the folder was rejected; None: it was not.
    problem: Callable[[], Exception | None]
    router: Callable[[], Router]
    create_handler: Callable[[ListenerDestination], Handler]


def add_diagnosis_routes(app: web.Application, diagnosis: Diagnosis) -> None:
    routes = _Routes(diagnosis)
    guarded = partial(guarded_route, diagnosis.administration.origins)
    app.router.add_get("/v1/pending", guarded(routes.pending, "identifier", "indication", "source"))
    app.router.add_post("/v1/explain", guarded(routes.explain))
    app.router.add_get("/v1/status", guarded(routes.status))
    app.router.add_get("/v1/endpoints", guarded(routes.endpoints, "after", "limit"))
    app.router.add_post("/v1/queues/{name}/test", guarded(routes.test))
    if diagnosis.settings.administration is not None:
        # Else intake's own answers: it lists those of one namespace.
        app.router.add_get(JOURNALS_PATH, guarded(routes.journals, *LIST_PARAMETERS))


class _Routes:
    def __init__(self, diagnosis: Diagnosis) -> None:
        self._diagnosis = diagnosis
        self._delivery = diagnosis.administration.delivery
        self._clock = diagnosis.administration.clock
        self._searches = Turns("searches", most=MOST_AT_A_TIME)
        self._explanations = Turns("explanations", most=MOST_AT_A_TIME)
        self._tests = Turns("tests", most=MOST_AT_A_TIME)

    async def pending(self, request: web.Request) -> web.Response:
        source, identifier = request.query.get("source"), request.query.get("identifier")
        shows = flag(request, "indication")
        self._configured()
        if not identifier:
            raise ParameterError("identifier: give the IndicationIdentifier to look for")

        def matches(indication: Indication) -> bool:
            return indication.identifier == identifier and source in (None, indication.source)

        with self._searches.one(), ended_with_client(request):
            search = await self._delivery.search(matches)
        digest = identity_digest(source, identifier)
        remembered = digest is not None and self._diagnosis.memory.find(digest) is not None
        epoch = self._clock.time() - self._clock.monotonic()
        return _json(
            PendingAnswer(
                pending=[_line(one, epoch=epoch, shows=shows) for one in search.found],
                unread=search.unread,
                remembered=remembered,
            )
        )

    async def explain(self, request: web.Request) -> web.Response:
        configuration = self._configured()
        with self._explanations.one():
            body = await _body(request)
            ends = {
                name: end
                for name in configuration.subscriptions
                if (end := self._delivery.subscription_end(name)) is not None
            }
            try:
                explanation = await explain(
                    body, router=self._diagnosis.router(), configuration=configuration, ends=ends
                )
            except LineError as error:
                raise ParameterError(error.reason) from None
        return _json(explanation)

    async def status(self, _: web.Request) -> web.Response:
        diagnosis = self._diagnosis
        folder, statistics = diagnosis.settings.journal, diagnosis.folder.statistics
        status = await asyncio.to_thread(
            deliverer_status,
            configuration=diagnosis.configuration(),
            problem=diagnosis.problem(),
            resources=diagnosis.settings.resources,
            journal=None if folder is None or statistics is None else (folder, statistics),
            history=history_status(diagnosis.administration.history),
            durability=diagnosis.folder.durability.value,
            # Before the first configuration there is no journal either.
            pending=self._delivery.pending if diagnosis.configuration() else 0,
            at=self._clock.time(),
            stores=stores_status(diagnosis.folder.written_stores),
            starting=diagnosis.administration.starting(),
        )
        return _json(status)

    async def journals(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/journals: the copies of all namespaces."""
        stores = self._diagnosis.folder.stores
        return refuse(404, NO_COPIES) if stores is None else await list_copies(stores, request)

    async def endpoints(self, request: web.Request) -> web.Response:
        limit = limit_of(request, default=DEFAULT_ENDPOINTS, most=MAXIMUM_ENDPOINTS)
        configuration = self._diagnosis.configuration()
        destinations = {} if configuration is None else configuration.destinations
        return _json(endpoint_page(destinations, after=request.query.get("after", ""), limit=limit))

    async def test(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        destinations = self._configured().destinations
        destination = destinations.get(name)
        if destination is None:
            raise unknown_queue(name, [*destinations])
        if destination.relay_to is not None:
            raise web.HTTPConflict(
                text=f"{name} is delivered by the gateway {destination.relay_to}: test it there"
            )
        with self._tests.one(), ended_with_client(request):
            answer = await try_destination(
                destination,
                sequence=trial_sequence(self._delivery.queue(name)),
                create_handler=self._diagnosis.create_handler,
                clock=self._clock,
            )
        return _json(answer)

    def _configured(self) -> Configuration:
        configuration = self._diagnosis.configuration()
        if configuration is None:
            raise web.HTTPServiceUnavailable(
                text="no configuration is loaded yet; `pillion doctor` says why",
                headers={"Retry-After": "1"},
            )
        return configuration


async def _body(request: web.Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.content.iter_chunked(65_536):
                body += piece
                if len(body) > MOST_BODY:
                    raise web.HTTPRequestEntityTooLarge(
                        max_size=MOST_BODY,
                        actual_size=len(body),
                        text=f"the indication has more than {MOST_BODY:,} bytes",
                    )
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body stopped coming") from None
    return bytes(body)


def _line(one: Pending, *, epoch: float, shows: bool) -> PendingLine:
    indication = one.indication
    return PendingLine(
        destination=one.queue.name,
        subscription=one.subscription.resource.name,
        class_name=indication.class_name,
        source=indication.source,
        identifier=indication.identifier,
        accepted_time=datetime.fromtimestamp(epoch + indication.accepted_at, UTC),
        in_flight=one.in_flight,
        ahead=one.ahead,
        attempts=one.attempts,
        group=indication.group,
        indication=msgspec.Raw(indication.body) if shows and indication.body else msgspec.UNSET,
    )


def _json(answer: Any) -> web.Response:
    return web.Response(body=_encode(answer), content_type="application/json", charset="utf-8")
