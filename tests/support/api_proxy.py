"""Stands between a client and an API server: hands everything on, and does the harm it is told to.

It runs on a thread of its own, for tests that block. Watches are handed on as they come.
"""

import asyncio
import io
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
from aiohttp import AddrInfoType, web
from yarl import URL

from pillion_testbed.rest import LOOK_INTERVAL

#: Seconds that the thread is given to begin and to end.
PATIENCE = 20.0
#: What belongs to one connection, not to a request or an answer.
_HOP_BY_HOP = frozenset({"connection", "host", "keep-alive", "transfer-encoding", "content-length"})
#: What a leader writes all the time, and what is told in passing.
_NOISE = ("/leases", "/events")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: ``target`` is its path and query."""

    method: str
    target: str

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def is_watch(self) -> bool:
        return self.method == "GET" and "watch=true" in self.target

    @property
    def is_write(self) -> bool:
        """Whether it changes something, but for the Lease and Events."""
        return self.method != "GET" and not any(word in self.path for word in _NOISE)

    @property
    def plural(self) -> str:
        """The kind in the path, with its subresource: ``secrets``, ``pods/eviction``."""
        parts = self.path.split("/")
        place = parts.index("namespaces") + 2 if "namespaces" in parts else len(parts) - 1
        return "/".join([*parts[place : place + 1], *parts[place + 2 : place + 3]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Answer so, and hand nothing on."""

    status: int
    reason: str = "Injected"
    #: In the header alone, as the API server's own flow control has it.
    retry_after: int | None = None
    #: Plain text instead of a Status.
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HangUp:
    """Close the connection without an answer; ``handed_on``: after the API server has answered."""

    handed_on: bool = False
    #: Called before the connection is closed.
    then: Callable[[], None] = lambda: None


Fault = Refuse | HangUp
#: Says of each request what becomes of it; None: it is handed on. Called on the proxy's thread.
Plan = Callable[[Asked], Fault | None]


@dataclass(slots=True)
class ApiProxy:
    """The proxy, as a test sees it."""

    url: str = ""
    plan: Plan = lambda _: None
    #: What was asked, with the status of the answer; 0: the connection was closed.
    seen: list[tuple[Asked, int]] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop | None = None
    _watches: set[asyncio.Transport] = field(default_factory=set)

    def writes(self) -> list[Asked]:
        """The requests so far that change something, but for the Lease and Events."""
        return [asked for asked, _ in list(self.seen) if asked.is_write]

    def cut_watches(self) -> int:
        """Cut the connection of every watch; return how many there were."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(PATIENCE)

    async def _cut(self) -> int:
        watches = list(self._watches)
        for transport in watches:
            transport.abort()
        return len(watches)

    async def handle(self, request: web.Request, upstream: str, client: Any) -> web.StreamResponse:
        """Answer one request."""
        asked = Asked(request.method, request.raw_path)
        fault = self.plan(asked)
        if isinstance(fault, Refuse):
            self.seen.append((asked, fault.status))
            return _refusal(fault)
        body = await request.read()
        if isinstance(fault, HangUp):
            if fault.handed_on:
                async with _asking(client, request, upstream, body) as answer:
                    await answer.read()
            self.seen.append((asked, 0))
            fault.then()
            return _abort(request)
        return await self._hand_on(request, asked, _asking(client, request, upstream, body))

    async def _hand_on(self, request: web.Request, asked: Asked, asking: Any) -> web.StreamResponse:
        transport = request.transport
        if asked.is_watch and transport is not None:
            self._watches.add(transport)
        answered = False
        try:
            async with asking as answer:
                answered = True
                self.seen.append((asked, answer.status))
                try:
                    return await _passed_on(answer, request)
                except BaseException:
                    # Closed in order, it would outlive the loop.
                    if answer.connection is not None and answer.connection.transport is not None:
                        answer.connection.transport.abort()
                    raise
        except (aiohttp.ClientError, OSError):
            # The API server is away, or one of both has hung up.
            if not answered:
                self.seen.append((asked, 0))
            return _abort(request)
        finally:
            if transport is not None:
                self._watches.discard(transport)


async def _passed_on(answer: aiohttp.ClientResponse, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
    await response.prepare(request)
    async for part in answer.content.iter_any():
        await response.write(part)
    await response.write_eof()
    return response


def _asking(client: Any, request: web.Request, upstream: str, body: bytes) -> Any:
    url = URL(upstream + request.raw_path, encoded=True)
    data = io.BytesIO(body) if body else None
    return client.request(request.method, url, headers=_kept(request.headers), data=data)


def _kept(headers: Any) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP]


def _refusal(fault: Refuse) -> web.Response:
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    if fault.text is not None:
        return web.Response(status=fault.status, text=fault.text, headers=headers)
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": fault.reason,
        "message": "a test has refused this",
        "code": fault.status,
    }
    return web.Response(
        status=fault.status,
        text=json.dumps(status),
        content_type="application/json",
        headers=headers,
    )


def _abort(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


@contextmanager
def api_proxy(*, upstream: str, ca: Path, certificate: Path, key: Path) -> Iterator[ApiProxy]:
    """Stand before the API server at ``upstream``, with a certificate of the same authority."""
    proxy, started, end = ApiProxy(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        proxy._loop = asyncio.get_running_loop()
        incoming = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        incoming.load_cert_chain(certificate, key)
        outgoing = ssl.create_default_context(cafile=ca)
        upstream_sockets: WeakSet[socket.socket] = WeakSet()

        def upstream_socket(address: AddrInfoType) -> socket.socket:
            made = socket.socket(*address[:3])
            upstream_sockets.add(made)
            return made

        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=outgoing, socket_factory=upstream_socket),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as client:
            app = web.Application(client_max_size=8 * 1024**2)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await proxy.handle(request, upstream, client)

            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(
                app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
            )
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=incoming)
            await site.start()
            proxy.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
            started.set()
            await end.wait()
            assert runner.server is not None
            for connection in runner.server.connections:
                # Closed in order, it would wait for the client, and outlive the loop.
                if connection.transport is not None:
                    connection.transport.abort()
            await runner.cleanup()
        # A request that was cancelled says goodbye to the API server, and would outlive the loop.
        async with asyncio.timeout(PATIENCE):
            while any(one.fileno() != -1 for one in upstream_sockets):  # noqa: ASYNC110 - no event
                await asyncio.sleep(LOOK_INTERVAL)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="api-proxy")
    thread.start()
    try:
        assert started.wait(PATIENCE), "the proxy did not start"
        yield proxy
    finally:
        with suppress(RuntimeError):
            assert proxy._loop is not None
            proxy._loop.call_soon_threadsafe(end.set)
        thread.join(PATIENCE)
