"""The client against servers that behave, and against some that do not."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from pillion_operator.clock import SystemClock
from pillion_operator.polling import client as client_module
from pillion_operator.polling.client import LARGEST_PAGE, MOST_PAGES, DelivererClient
from pillion_operator.polling.reports import DelivererReport, Unreachable
from support.operator_time import FakeClock

TOKEN = "0123456789abcdef" * 4

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[int]:
    """A server on loopback that answers every request for the queues; its port."""
    app = web.Application()
    app.router.add_get("/v1/queues", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def poll(port: int, *, address: str = "127.0.0.1") -> DelivererReport | Unreachable:
    async with aclosing(DelivererClient(clock=SystemClock(), port=port)) as client:
        return await client.poll("pod", address=address, token=TOKEN)


def queue(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "depth": 0, "capacity": 10, "highWater": 0, **changes}


def page(*queues: dict[str, Any], **more: Any) -> web.Response:
    return web.json_response({"revision": "one", "queues": list(queues), "next": None, **more})


async def reason(answer: Answer) -> str:
    """Why a server that answers like this counts as unreachable."""
    async with serving(answer) as port:
        result = await poll(port)
    assert isinstance(result, Unreachable)
    return result.reason


async def test_a_deliverer_is_asked_with_its_token_and_page_by_page() -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.headers["Authorization"], dict(request.query)))
        if "after" not in request.query:
            ended = [{"name": "alerts", "uid": "", "state": "Disabled", "reason": "FatalError"}]
            return page(queue("a", depth=3), next="a", endedSubscriptions=ended)
        return page(queue("b", draining=True), queue("b", depth=1), revision="two")

    async with serving(answer) as port:
        report = await poll(port)

    assert seen == [
        (f"Bearer {TOKEN}", {"limit": "500"}),
        (f"Bearer {TOKEN}", {"limit": "500", "after": "a"}),
    ]
    assert isinstance(report, DelivererReport)
    # A configuration that was taken over in between says nothing of what was read before it.
    assert (report.pod, report.revision) == ("pod", "one")
    assert {name: one.depth for name, one in report.queues.items()} == {"a": 3, "b": 1}
    # Of two queues of one name, the one that drains belongs to a destination that is gone.
    assert not report.queues["b"].draining
    assert [(one.name, one.reason, one.uid) for one in report.ended] == [
        ("alerts", "FatalError", "")
    ]


@pytest.mark.parametrize("status", [401, 404, 500, 503])
async def test_an_answer_other_than_200_is_none(status: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text="the body is not looked at")

    assert f"HTTP {status}" in await reason(answer)


async def test_a_redirect_is_not_followed() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path_qs)
        raise web.HTTPTemporaryRedirect("/v1/queues?elsewhere=yes")

    assert await reason(answer) == "HTTP 307"
    assert len(asked) == 1


async def test_a_page_that_never_ends_is_given_up() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)

    assert await reason(answer) == f"a page is larger than {LARGEST_PAGE} bytes"


async def test_pages_that_never_end_are_given_up() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request)
        return page(next=f"q{len(asked):04}")

    assert await reason(answer) == f"the answer is longer than {MOST_PAGES} pages"
    assert len(asked) == MOST_PAGES


async def test_pages_that_go_round_in_circles_are_given_up() -> None:
    async def answer(request: web.Request) -> web.Response:
        return page(next="same")

    assert await reason(answer) == "next is not after the page before"


async def test_a_compressed_answer_is_not_unpacked() -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        response = page(queue("a"))
        response.enable_compression(web.ContentCoding.gzip, strategy=0)
        return response

    assert await reason(answer) == "the answer is not JSON"


async def test_something_else_than_http_is_told_as_such() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        result = await poll(server.sockets[0].getsockname()[1])

    assert isinstance(result, Unreachable)
    assert result.reason in ("the answer is not HTTP", "the connection broke")


async def test_nobody_there_is_told_as_such() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        result = await poll(free.getsockname()[1])

    assert isinstance(result, Unreachable)
    assert (result.pod, result.reason) == ("pod", "connection refused")


async def test_who_does_not_answer_is_given_up_after_a_while() -> None:
    asked = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody waits for ever")

    clock = FakeClock()
    async with (
        serving(answer) as port,
        aclosing(DelivererClient(clock=clock, port=port)) as client,
    ):
        polling = asyncio.create_task(client.poll("pod", address="127.0.0.1", token=TOKEN))
        await asked.wait()
        await clock.advance(client_module.TOTAL_TIMEOUT)
        result = await polling

    assert result == Unreachable(pod="pod", reason="timed out", since=1_700_000_000.0)


@pytest.mark.parametrize("address", ["", "localhost", "127.0.0.1/x", "127.0.0.1:80", "a@127.0.0.1"])
async def test_only_an_ip_address_is_polled(address: str) -> None:
    result = await poll(1, address=address)

    assert isinstance(result, Unreachable)
    assert result.reason == "the pod's address is not an IP address"


async def test_proxies_of_the_environment_are_not_minded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    async def answer(request: web.Request) -> web.Response:
        return page()

    async with serving(answer) as port:
        assert isinstance(await poll(port), DelivererReport)


async def test_no_connection_is_kept() -> None:
    peers = set()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return page()

    async with (
        serving(answer) as port,
        aclosing(DelivererClient(clock=SystemClock(), port=port)) as client,
    ):
        for _ in range(3):
            await client.poll("pod", address="127.0.0.1", token=TOKEN)

    assert len(peers) == 3


async def test_the_token_is_in_no_log_and_no_report(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=json.dumps({"queues": [request.headers["Authorization"]]}))

    async with (
        serving(answer) as port,
        aclosing(DelivererClient(clock=SystemClock(), port=port)) as client,
    ):
        result = await client.poll("pod", address="127.0.0.1", token=TOKEN)
        shown = repr(client)

    assert TOKEN not in f"{result!r} {shown} {caplog.text}"
    assert isinstance(result, Unreachable)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1%eth0", "0.0.0.0", "224.0.0.1"]
)
async def test_no_address_is_asked_that_no_pod_may_have(address: str) -> None:
    result = await poll(1, address=address)

    assert isinstance(result, Unreachable)
    assert result.reason == "the pod's address is none that a pod may have"
