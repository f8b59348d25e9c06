"""The administration API of the destination queues (S0.12), on loopback; the JSON is in
:mod:`pillion_sidecar.wire.queues`."""

import asyncio
import heapq
import hmac
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from aiohttp import web
from msgspec import UNSET

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.connections import ended_with_client
from pillion_sidecar.delivery.entries import Subscription
from pillion_sidecar.delivery.handler import DeliveryOutcome, Hold
from pillion_sidecar.delivery.health import AttemptRecord
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.redrive import Redriver
from pillion_sidecar.delivery.retry import (
    first_loss,
    full_due,
    limited_until,
    next_attempt_at,
    slow_since,
)
from pillion_sidecar.delivery.service import DeliveryService
from pillion_sidecar.filewatch import Unusable, read_bounded
from pillion_sidecar.history.recorder import History
from pillion_sidecar.http_errors import (
    MOST_SHOWN,
    OriginPolicy,
    ParameterError,
    check_names,
    refuse,
)
from pillion_sidecar.telemetry.outcomes import (
    DISCARD_PARAMETERS,
    OUTCOME_PARAMETERS,
    REDRIVE_PARAMETERS,
    OutcomeRoutes,
)
from pillion_sidecar.telemetry.parameters import limit_of, seconds
from pillion_sidecar.telemetry.shared import SharedAnswers
from pillion_sidecar.wire.outcomes import HISTORY_HEADER
from pillion_sidecar.wire.queues import (
    MOST_ENTRIES,
    AttemptStatus,
    HoldStatus,
    KeptFilter,
    Moment,
    OutcomeStatus,
    QueueDetails,
    QueuePage,
    QueueStatus,
    RateLimitStatus,
    ReplayPage,
    ReplayStatus,
    RetryStatus,
    SubscriptionEnd,
    json_bytes,
    written,
)

#: Default and maximum queues in one answer.
DEFAULT_LIMIT = 500
MAXIMUM_LIMIT = MOST_ENTRIES
#: Default and maximum seconds of ``POST /drain``.
DEFAULT_DRAIN_TIMEOUT = 20.0
MAXIMUM_DRAIN_TIMEOUT = 3600.0
#: Concurrent ``POST /drain`` requests.
MOST_DRAINING = 16
#: Speeds up delivery for at most so many seconds; returns the number still pending.
Drain: TypeAlias = Callable[[float], Awaitable[int]]
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
MOST_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration:
    delivery: DeliveryService
    clock: Clock
    timers: Timers
    #: The revision in force; None before the first.
    revision: Callable[[], str | None]
    durability: Callable[[], Durability]
    #: Filters whose last good version stays in force: name to reason.
    kept_filters: Callable[[], Mapping[str, str]] = dict
    drain: Drain
    #: Why the journal's folder is not read yet; None: it is, or there is none.
    starting: Callable[[], str | None] = lambda: None
    #: Checks requests of web pages; None: tokens are required.
    origins: OriginPolicy | None = None
    history: History
    redriver: Redriver
    #: How far each replay is.
    replays: Callable[[], list[ReplayStatus]] = list


def add_administration_routes(app: web.Application, found: "AdministrationRoutes") -> None:
    """Mount ``/v1/queues``, ``/v1/outcomes``, ``/v1/discards``, ``/v1/replays`` and ``/drain``."""
    routes, outcomes = found.queues, found.outcomes
    guarded = partial(guarded_route, found.origins)
    app.router.add_get("/v1/queues", guarded(routes.list_queues, "after", "limit"))
    _add_console_data(app, routes, outcomes, guarded)
    app.router.add_get("/v1/discards", guarded(outcomes.list_discards, *DISCARD_PARAMETERS))
    app.router.add_get("/v1/replays", guarded(routes.list_replays))
    app.router.add_post("/drain", guarded(routes.drain, "timeout"))


class AdministrationRoutes:
    """Those of one deliverer: their bounds hold for all its listeners together."""

    def __init__(self, administration: Administration) -> None:
        self.origins = administration.origins
        self.queues = _Routes(administration)
        self.outcomes = OutcomeRoutes(
            administration.history,
            clock=administration.clock,
            timers=administration.timers,
            redriver=administration.redriver,
            unknown=self.queues.unknown,
        )


def _add_console_data(
    app: web.Application,
    routes: "_Routes",
    outcomes: OutcomeRoutes,
    guarded: Callable[..., Handler],
) -> None:
    """Mount what the console asks for besides the list of queues."""
    app.router.add_get("/v1/queues/{name}", guarded(routes.show_queue))
    app.router.add_post("/v1/queues/{name}/retry", guarded(routes.retry))
    app.router.add_post("/v1/queues/{name}/skip", guarded(routes.skip))
    app.router.add_post("/v1/queues/{name}/purge", guarded(routes.purge))
    app.router.add_get("/v1/outcomes", guarded(outcomes.list_outcomes, *OUTCOME_PARAMETERS))
    app.router.add_post("/v1/outcomes/redrive", guarded(outcomes.redrive, *REDRIVE_PARAMETERS))


def guarded_route(origins: OriginPolicy | None, handler: Handler, *parameters: str) -> Handler:
    """Answer 403 to a web page of another origin, and 400 to unknown query parameters: a purge that
    ignored one would discard too much."""

    async def answer(request: web.Request) -> web.StreamResponse:
        refusal = None if origins is None else origins.refuse(request)
        if refusal is not None:
            return refusal
        try:
            check_names(request, parameters)
            return await handler(request)
        except ParameterError as error:
            return refuse(400, str(error))
        except web.HTTPError as error:
            answer = refuse(error.status, error.text or error.reason)
            for name in ("Retry-After", HISTORY_HEADER):
                if name in error.headers:
                    answer.headers[name] = error.headers[name]
            return answer

    return answer


def queue_page(administration: Administration, *, after: str, limit: int) -> QueuePage:
    """Return a page of queues by name; ``next`` is the next page's ``after``. A draining queue and
    its successor stay on one page, which may exceed ``limit``."""
    delivery, clock = administration.delivery, administration.clock
    wanted = [queue for queue in delivery.all_queues() if queue.name > after]
    page = heapq.nsmallest(limit, wanted, key=_by_name)
    last = page[-1].name if page else ""
    named_alike = {id(queue) for queue in page}
    page += [q for q in wanted if q.name == last and id(q) not in named_alike]
    answer = QueuePage(
        revision=administration.revision(),
        durability=administration.durability(),
        schema_level=LEVEL,
        queues=[queue_status(queue, clock=clock) for queue in page],
        next=last if len(page) < len(wanted) else None,
        starting=administration.starting() or UNSET,
    )
    if not after:
        ended = delivery.ended_subscriptions()
        kept = sorted(administration.kept_filters().items())[:MOST_ENTRIES]
        answer = msgspec.structs.replace(
            answer,
            ended_subscriptions=[subscription_end(one) for one in ended[:MOST_ENTRIES]],
            ended_subscriptions_count=len(ended),
            kept_filters=[KeptFilter(name=name, problem=problem) for name, problem in kept],
            replays=administration.replays() or UNSET,
        )
    return answer


def _by_name(queue: DestinationQueue) -> tuple[str, bool]:
    return queue.name, not queue.draining


class _Routes:
    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self._delivery = administration.delivery
        self._clock = administration.clock
        self._drain = administration.drain
        self._draining = 0
        self._pages = SharedAnswers(administration.clock, administration.timers)

    async def list_queues(self, request: web.Request) -> web.Response:
        limit = limit_of(request, default=DEFAULT_LIMIT, most=MAXIMUM_LIMIT)
        after = request.query.get("after", "")

        def page() -> bytes:
            return json_bytes(queue_page(self._administration, after=after, limit=limit))

        body = await self._pages.get((after, limit), page)
        return web.Response(body=body, content_type="application/json", charset="utf-8")

    async def list_replays(self, _: web.Request) -> web.Response:
        return web.json_response(written(ReplayPage(replays=self._administration.replays())))

    async def show_queue(self, request: web.Request) -> web.Response:
        details = queue_details(self._found(request), clock=self._clock)
        return web.json_response(written(details))

    async def retry(self, request: web.Request) -> web.Response:
        name = self._found(request).name
        return web.json_response({"name": name, "retried": self._delivery.retry(name)})

    async def skip(self, request: web.Request) -> web.Response:
        queue = self._found(request)
        identifiers = queue.front_identifiers
        skipped = self._delivery.skip(queue.name)
        return web.json_response(
            {
                "name": queue.name,
                "discarded": int(skipped),
                "identifiers": identifiers if skipped else [],
            }
        )

    async def purge(self, request: web.Request) -> web.Response:
        name = self._found(request).name
        return web.json_response({"name": name, "discarded": self._delivery.purge(name) or 0})

    async def drain(self, request: web.Request) -> web.Response:
        """Speed up delivery; answer 200 if nothing is pending, 202 after the time-out, and 503
        before the journal is read."""
        timeout = seconds(request, "timeout", MAXIMUM_DRAIN_TIMEOUT, default=DEFAULT_DRAIN_TIMEOUT)
        starting = self._administration.starting()
        if starting is not None:
            # Nobody knows yet what is pending.
            raise web.HTTPServiceUnavailable(
                text=f"the journal is not read yet: {starting}", headers={"Retry-After": "1"}
            )
        if self._draining >= MOST_DRAINING:
            raise web.HTTPServiceUnavailable(
                text=f"{MOST_DRAINING} requests wait for the drain already",
                headers={"Retry-After": "1"},
            )
        self._draining += 1
        try:
            with ended_with_client(request):
                pending = await self._drain(timeout)
        finally:
            self._draining -= 1
        left = sorted(
            (queue.name, queue.depth) for queue in self._delivery.all_queues() if queue.depth
        )
        return web.json_response(
            {
                "complete": not pending,
                "pending": pending,
                "destinations": dict(left[:MAXIMUM_LIMIT]),
            },
            status=202 if pending else 200,
        )

    def _found(self, request: web.Request) -> DestinationQueue:
        name = request.match_info["name"]
        queue = self._delivery.queue(name)
        if queue is None:
            raise self._unknown(name)
        return queue

    def unknown(self, name: str) -> web.HTTPNotFound | None:
        """Return the error for a destination without a queue; None if it has one."""
        return None if self._delivery.queue(name) is not None else self._unknown(name)

    def _unknown(self, name: str) -> web.HTTPNotFound:
        return unknown_queue(name, [queue.name for queue in self._delivery.all_queues()])


def unknown_queue(name: str, known: Collection[str]) -> web.HTTPNotFound:
    # Not the names of all: there may be thousands.
    near = get_close_matches(name[:MOST_SHOWN], known, n=1)
    remedy = f"did you mean {near[0]}?" if near else "`pillion queues` lists them"
    text = f"no destination queue named {name[:MOST_SHOWN]!r}; {remedy}"
    return web.HTTPNotFound(text=text)


class TokenFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes:
        """Return the token; empty if the file is missing, empty or too long."""
        try:
            return read_bounded(self._path, maximum=MOST_TOKEN_BYTES).strip()
        except Unusable:
            return b""


class OperatorGuard:
    """Lets the bearer of the operator's token in.

    Its routes are on the pod's address, so a client without the token learns nothing, not even
    whether one exists.
    """

    def __init__(self, *, token: Callable[[], bytes], refused: Callable[[], None]) -> None:
        """``token`` runs in a thread, one call at a time, and returns nothing to refuse everybody;
        ``refused`` is called for each refused request."""
        self._token = token
        self._refused = refused
        self._one_at_a_time = asyncio.Lock()

    @classmethod
    def of_file(cls, path: Path, *, refused: Callable[[], None]) -> "OperatorGuard":
        return cls(token=TokenFile(path).read, refused=refused)

    def guarded(self, handler: Handler, *parameters: str) -> Handler:
        checked = guarded_route(None, handler, *parameters)

        async def answer(request: web.Request) -> web.StreamResponse:
            if await self._is_known(request):
                return await checked(request)
            self._refused()
            return web.Response(
                status=401, text="unauthorized\n", headers={"WWW-Authenticate": "Bearer"}
            )

        return answer

    async def _is_known(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            async with self._one_at_a_time:
                expected = await asyncio.to_thread(self._token)
            return _same(given.strip(), expected)
        return False


def add_operator_route(
    app: web.Application, found: AdministrationRoutes, *, guard: OperatorGuard, console: bool
) -> None:
    """Mount ``GET /v1/queues`` for the operator, and with ``console`` what the console of a
    cluster asks for. The operator has checked who uses its console."""
    routes, outcomes, guarded = found.queues, found.outcomes, guard.guarded
    app.router.add_get(
        "/v1/queues", guarded(routes.list_queues, "after", "limit"), allow_head=False
    )
    if console:
        _add_console_data(app, routes, outcomes, guarded)


def _same(given: str, expected: bytes) -> bool:
    # Compared even without a token, so that the time taken does not show whether one exists.
    return hmac.compare_digest(given.encode(errors="replace"), expected) and bool(expected)


def queue_status(queue: DestinationQueue, *, clock: Clock) -> QueueStatus:
    now = clock.monotonic()
    epoch = clock.time() - now
    health, statistics = queue.health, queue.statistics
    accepted_at = queue.oldest_accepted_at
    rates = queue.throughput.rates(now)
    loss = first_loss(queue, now)
    return QueueStatus(
        name=queue.name,
        uid=queue.uid,
        protocol=queue.protocol,
        relay_to=queue.relay_to,
        suspended=queue.suspended,
        hold=_hold(health.hold if health.is_held else None, epoch),
        pause=_hold(health.hold if health.is_paused else None, epoch),
        draining=queue.draining,
        depth=queue.depth,
        held=queue.held,
        capacity=queue.capacity,
        high_water=statistics.high_water,
        in_flight=queue.in_flight_count,
        oldest_indication_age_seconds=None if accepted_at is None else round(now - accepted_at, 3),
        oldest_indication_time=_moment(accepted_at, epoch),
        creation_time=Moment(queue.created_at),
        delivered=statistics.delivered,
        suppressed=statistics.suppressed,
        handed_over=statistics.handed_over,
        attempts_by_result={key.value: n for key, n in statistics.attempts.items() if n},
        discarded={key.value: n for key, n in statistics.discarded.items() if n},
        last_discard_time=_moment(statistics.last_discard_at, epoch),
        last_attempt_time=_moment(statistics.last_attempt_at, epoch),
        last_success_time=_moment(statistics.last_success_at, epoch),
        last_result=_outcome(statistics.last_outcome),
        failing_since=_moment(health.failing_since, epoch),
        slow_since=_moment(slow_since(queue), epoch),
        accepted_per_second=round(rates.accepted, 3),
        delivered_per_second=round(rates.delivered, 3),
        full_time=_moment(full_due(queue, now), epoch),
        next_attempt_time=_moment(next_attempt_at(queue, now), epoch),
        rate_limit=_rate_limit(queue, now),
        first_loss_due_time=None if loss is None else _moment(loss.due, epoch),
        first_loss_reason=None if loss is None else loss.reason.value,
        sequence_context=queue.sequence_context,
        next_sequence_number=queue.next_sequence_number,
    )


def queue_details(queue: DestinationQueue, *, clock: Clock) -> QueueDetails:
    retry = queue.retry
    status: dict[str, Any] = msgspec.structs.asdict(queue_status(queue, clock=clock))
    return QueueDetails(
        **status,
        indication_lifetime_seconds=queue.lifetime,
        retry=RetryStatus(
            attempts=retry.attempts,
            interval_seconds=retry.interval_seconds,
            backoff=retry.backoff.value,
            maximum_interval_seconds=retry.maximum_interval_seconds,
            jitter_percent=round(retry.jitter * 100),
        ),
        front_identifiers=queue.front_identifiers,
        attempts=[_attempt(record) for record in reversed(queue.statistics.recent)],
    )


def subscription_end(subscription: Subscription) -> SubscriptionEnd:
    states = {"Removed": "Removed", "Expired": "Expired"}
    return SubscriptionEnd(
        name=subscription.resource.name,
        uid=subscription.resource.uid,
        state=states.get(subscription.end or "", "Disabled"),
        reason=str(subscription.cause),
    )


def _attempt(record: AttemptRecord) -> AttemptStatus:
    return AttemptStatus(
        time=Moment(record.at),
        identifier=record.identifier,
        sequence_number=record.sequence_number,
        attempt=record.attempt,
        result=record.result.value,
        detail=record.detail,
        status=record.status,
        seconds=round(record.seconds, 6),
    )


def _moment(monotonic: float | None, epoch: float) -> Moment | None:
    return None if monotonic is None else Moment(epoch + monotonic)


def _hold(hold: Hold | None, epoch: float) -> HoldStatus | None:
    if hold is None:
        return None
    since = Moment(epoch + hold.since)
    return HoldStatus(cause=hold.cause.value, message=hold.message, since=since)


def _rate_limit(queue: DestinationQueue, now: float) -> RateLimitStatus | None:
    pace, due = queue.pace, queue.health.next_attempt_at
    if pace is None:
        return None
    limited = limited_until(queue, now)
    return RateLimitStatus(
        per_second=pace.per_second,
        burst=pace.burst,
        limiting=limited is not None and (due is None or limited > due),
    )


def _outcome(outcome: DeliveryOutcome | None) -> OutcomeStatus | None:
    if outcome is None:
        return None
    return OutcomeStatus(
        result=outcome.result.value,
        cause=outcome.failure_cause,
        detail=outcome.detail,
        status=outcome.status,
    )
