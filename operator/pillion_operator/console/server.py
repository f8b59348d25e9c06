"""Serves the console: the page to everybody, data for a token that the API server accepts."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from aiohttp import web

from pillion_operator.clock import Clock, within
from pillion_operator.cluster.api import FAILURES
from pillion_operator.console.access import Access, Person, Reviewer, TooManyReviews
from pillion_operator.console.answers import Answers, Deliverers, namespaces_of
from pillion_operator.console.forwarding import ENDPOINTS, Endpoint, Turns, forward
from pillion_operator.polling.client import DelivererClient
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.console.routes import add_console_routes
from pillion_sidecar.http_errors import ParameterError, check_names, refuse, unavailable

#: Telemetry limits the lines of this logger, because clients cause them.
logger = logging.getLogger("pillion.operator.console")
actions = logging.getLogger("pillion.operator")

#: Requests of data that are answered at a time.
MOST_REQUESTS = 512
#: Seconds in which a request has to be answered: the page waits as long for a button.
REQUEST_SECONDS = 120.0
#: Seconds after which a client may ask again.
_LATER = 5.0
_LONGEST_NAME = 200
_SAME_SITE = ("none", "same-origin")
_DATA_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_Handler: TypeAlias = Callable[[web.Request, Person], Awaitable[web.Response]]


class Console:
    """Every replica serves the page. Only the leader polls deliverers, so it alone has data."""

    def __init__(self, api: Reviewer, *, clock: Clock, client: DelivererClient) -> None:
        """``client`` is not that of the poller, which would have to wait for watchers."""
        self._access = Access(api, clock=clock)
        self._answers = Answers(clock)
        self._turns = Turns(clock)
        self._clock = clock
        self._client = client
        self._deliverers: Deliverers | None = None
        self._requests = 0

    def show(self, deliverers: Deliverers | None) -> None:
        """Show these from now on; None: this replica does not lead."""
        self._deliverers = deliverers
        self._answers.clear()

    def application(self) -> web.Application:
        """Its cleanup closes the client."""
        app = web.Application(client_max_size=1024)
        app.on_cleanup.append(self._close)
        add_console_routes(app, has_root=True, for_cluster=True)
        app.router.add_get("/v1/cluster", self._guarded(self._list), allow_head=False)
        for endpoint in ENDPOINTS:
            app.router.add_route(
                endpoint.method,
                f"/v1/deliverers/{{namespace}}/{{pod}}{endpoint.path}",
                self._guarded(partial(self._forward, endpoint)),
            )
        return app

    async def _close(self, _: web.Application) -> None:
        await self._client.aclose()

    def _guarded(self, handler: _Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            answer = _refuse_foreign(request)
            if answer is None and self._requests >= MOST_REQUESTS:
                answer = unavailable(
                    f"{MOST_REQUESTS} requests are being answered already", retry_after=_LATER
                )
            if answer is None:
                self._requests += 1
                try:
                    answer = await within(
                        self._clock, REQUEST_SECONDS, self._answered(request, handler)
                    )
                except TimeoutError:
                    answer = unavailable("the answer took too long", retry_after=_LATER)
                finally:
                    self._requests -= 1
            answer.headers.update(_DATA_HEADERS)
            return answer

        return answer

    async def _answered(self, request: web.Request, handler: _Handler) -> web.Response:
        token = _token(request)
        if not token:
            return _unauthorized("no token: send Authorization: Bearer TOKEN")
        try:
            person = await self._access.person(token)
            if person is None:
                return _unauthorized("the API server does not accept this token; use another one")
            return await handler(request, person)
        except ParameterError as error:
            return refuse(400, str(error))
        except TooManyReviews:
            return unavailable("too many tokens are being checked", retry_after=_LATER)
        except FAILURES as error:
            logger.warning(
                "the console cannot check a token: %s",
                str(error) or type(error).__name__,
                extra={"event": "console-review-failed"},
            )
            return unavailable(
                "the API server does not check tokens now; ask again later", retry_after=_LATER
            )

    async def _list(self, request: web.Request, person: Person) -> web.Response:
        check_names(request, ())
        deliverers = self._deliverers
        if deliverers is None:
            return _not_leading()
        everywhere = namespaces_of(deliverers.services())
        readable = await self._access.readable(person, everywhere)
        if not readable and not await self._access.reads_everywhere(person):
            return refuse(
                403,
                f"{person.name[:200]} may not get indicationservices/queues in any namespace with"
                " deliverers; bind the ClusterRole of the console's viewers",
            )
        body = await self._answers.of(deliverers, readable)
        headers = {"Content-Type": "application/json", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=body, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=await self._answers.unpacked(body), headers=headers)

    async def _forward(
        self, endpoint: Endpoint, request: web.Request, person: Person
    ) -> web.Response:
        namespace, pod = request.match_info["namespace"], request.match_info["pod"]
        # The right comes first: without it nobody learns what there is.
        if not await self._access.may(person, endpoint.right, namespace):
            verb, subresource = endpoint.right.value
            return refuse(
                403,
                f"{person.name[:200]} may not {verb} indicationservices/{subresource} in this"
                " namespace; bind a ClusterRole of the console there",
            )
        if self._deliverers is None:
            return _not_leading()
        found = self._deliverers.find(namespace, pod)
        if found is None:
            return refuse(404, "no deliverer of this name runs in this namespace")
        address, token = found
        result = "no answer in time"
        try:
            answer = await forward(
                request,
                endpoint,
                turns=self._turns,
                client=self._client,
                address=address,
                token=token,
            )
            result = f"HTTP {answer.status}"
            return answer
        finally:
            # Also where this is cancelled: the deliverer may have acted.
            if endpoint.acts and request.query.get("dryRun") != "true":
                _tell(person, request, result=result)


def _not_leading() -> web.Response:
    answer = unavailable(
        "this replica of the operator does not lead and has no data", retry_after=1.0
    )
    # The next connection may reach the leader.
    answer.force_close()
    return answer


def _refuse_foreign(request: web.Request) -> web.Response | None:
    site = request.headers.get("Sec-Fetch-Site")
    origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
    is_own = origin is None or origin.partition("://")[2].lower() == host.lower()
    if is_own and (site is None or site in _SAME_SITE):
        return None
    return refuse(403, "a web page of another origin may not ask for this")


def _tell(person: Person, request: web.Request, *, result: str) -> None:
    *_, last = request.path.rpartition("/")
    actions.info(
        "the console: %s asked the deliverer %s/%s for %s: %s",
        one_line(person.name, _LONGEST_NAME),
        request.match_info["namespace"],
        request.match_info["pod"],
        one_line(last, _LONGEST_NAME),
        result,
        extra={
            "event": "console-action",
            "user": one_line(person.name, _LONGEST_NAME),
            "action": last,
            "destination": one_line(
                request.match_info.get("name") or request.query.get("destination", ""),
                _LONGEST_NAME,
            ),
        },
    )


def _token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _unauthorized(reason: str) -> web.Response:
    answer = refuse(401, reason)
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer
