"""One deliverer's administration API, through the operator. What a deliverer answers is not
trusted: its status, its three headers and its size are checked; the page shows the rest as text."""

import asyncio
import gzip
import json
import re
from asyncio import to_thread
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote
from weakref import WeakValueDictionary

import aiohttp
from aiohttp import web

from pillion_operator.clock import Clock, within
from pillion_operator.console.access import Right
from pillion_operator.polling.client import DelivererClient
from pillion_operator.polling.reports import NO_TOKEN
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.http_errors import ParameterError, check_names, refuse, unavailable
from pillion_sidecar.wire.queues import AnswerError

#: Seconds for a deliverer's answer, and for that to a button: a redrive reads the history.
READ_SECONDS = 8.0
ACT_SECONDS = 100.0
#: Maximum bytes of an answer. One with the content of indications has few of them.
LARGEST_ANSWER = 8 * 1024 * 1024
#: Requests that are under way at a time: of all namespaces, and of one. One waits so many seconds.
MOST_FORWARDED, MOST_OF_NAMESPACE = 8, 2
TURN_SECONDS = 5.0
_COMPRESSED_FROM = 1024
_LONGEST_REASON = 300
_NUMBERS = ("after", "limit")
_SELECTION = ("destination", "identifier", *_NUMBERS)
_TYPES = ("application/json", "application/x-ndjson")
_PASSED = frozenset(
    {
        HTTPStatus.OK,
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.CONFLICT,
        HTTPStatus.SERVICE_UNAVAILABLE,
    }
)
_HEADERS = ("Pillion-History", "Pillion-More", "Pillion-Next-After")
_HEADER_VALUE = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint of deliverers that the page uses."""

    method: str
    path: str
    right: Right
    parameters: tuple[str, ...] = ()

    @property
    def acts(self) -> bool:
        return self.right is Right.ACT


ENDPOINTS = (
    Endpoint(method="GET", path="/v1/queues", right=Right.STATES, parameters=_NUMBERS),
    Endpoint(method="GET", path="/v1/queues/{name}", right=Right.OUTCOMES),
    Endpoint(
        method="GET",
        path="/v1/outcomes",
        right=Right.OUTCOMES,
        parameters=(*_SELECTION, "indication", "latest", "result"),
    ),
    Endpoint(method="POST", path="/v1/queues/{name}/retry", right=Right.ACT),
    Endpoint(method="POST", path="/v1/queues/{name}/skip", right=Right.ACT),
    Endpoint(method="POST", path="/v1/queues/{name}/purge", right=Right.ACT),
    Endpoint(
        method="POST",
        path="/v1/outcomes/redrive",
        right=Right.ACT,
        parameters=(*_SELECTION, "dryRun", "through"),
    ),
)


class NoTurn(Exception):
    """Other requests are under way; this one was not sent."""


class Turns:
    """Of one namespace a few requests are under way, of all not many more: a deliverer that is slow
    costs those of other namespaces nothing, and the answers fit into memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all = asyncio.Semaphore(MOST_FORWARDED)
        #: Those in use, by namespace.
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def one(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a turn. Raises NoTurn after ``TURN_SECONDS``."""
        own = self._own.setdefault(namespace, asyncio.Semaphore(MOST_OF_NAMESPACE))
        async with AsyncExitStack() as taken:

            async def take() -> None:
                await taken.enter_async_context(own)
                await taken.enter_async_context(self._all)

            try:
                await within(self._clock, TURN_SECONDS, take())
            except TimeoutError:
                raise NoTurn from None
            yield


async def forward(
    request: web.Request,
    endpoint: Endpoint,
    *,
    turns: Turns,
    client: DelivererClient,
    address: str,
    token: str,
) -> web.Response:
    """Ask the deliverer at ``address``. Raises ParameterError."""
    try:
        async with turns.one(request.match_info["namespace"]):
            return await _forwarded(request, endpoint, client=client, address=address, token=token)
    except NoTurn:
        return unavailable(
            "other requests to deliverers wait for their answers; this one was not sent",
            retry_after=1.0,
        )


async def _forwarded(
    request: web.Request,
    endpoint: Endpoint,
    *,
    client: DelivererClient,
    address: str,
    token: str,
) -> web.Response:
    check_names(request, endpoint.parameters)
    name = request.match_info.get("name", "")
    if name in (".", ".."):
        raise ParameterError(f"{name}: is no name of a destination")
    try:
        status, headers, body = await client.ask(
            endpoint.method,
            endpoint.path.replace("{name}", quote(name, safe="")),
            query=dict(request.query),
            address=address,
            token=token,
            seconds=ACT_SECONDS if endpoint.acts else READ_SECONDS,
            most=LARGEST_ANSWER,
        )
    except TimeoutError:
        return refuse(504, "the deliverer has not answered in time; what it did is not known")
    except (AnswerError, aiohttp.ClientError, OSError) as error:
        reason = str(error) if isinstance(error, AnswerError) else "no connection"
        return refuse(502, f"the deliverer does not answer: {reason}")
    return await _answer(request, status, headers, body)


async def _answer(
    request: web.Request, status: int, headers: Mapping[str, str], body: bytes
) -> web.Response:
    if status == HTTPStatus.UNAUTHORIZED:
        return refuse(502, f"the deliverer refuses the operator: {NO_TOKEN}")
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return unavailable(_reason(body) or "the deliverer is busy", retry_after=1.0)
    content_type = headers.get("Content-Type", "").partition(";")[0].strip()
    if status not in _PASSED or content_type not in _TYPES:
        return refuse(502, f"the deliverer answers HTTP {status}; is its version older?")
    passed = {
        name: value
        for name in _HEADERS
        if _HEADER_VALUE.fullmatch(value := headers.get(name, "")) is not None
    }
    passed |= {"Content-Type": content_type, "Vary": "Accept-Encoding"}
    if len(body) >= _COMPRESSED_FROM and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = await to_thread(gzip.compress, body, 3)
        passed["Content-Encoding"] = "gzip"
    return web.Response(status=status, body=body, headers=passed)


def _reason(body: bytes) -> str:
    """The reason of a refusal in one line; empty: none can be read."""
    try:
        document = json.loads(body)
    except ValueError:
        return ""
    reason = document.get("reason") if isinstance(document, dict) else None
    return one_line(reason, _LONGEST_REASON) if isinstance(reason, str) else ""
