"""The addresses of a deliverer: taken, told, and given back."""

import asyncio
import gc
import io
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import aiohttp
import pytest
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from pillion_sidecar import http_server
from pillion_sidecar.auth.acceptor import ConnectionAcceptor
from pillion_sidecar.config.addresses import Address
from pillion_sidecar.http_server import AddressTaken, Listeners
from pillion_sidecar.telemetry.gateway import GatewayMetrics
from pillion_sidecar.telemetry.logs import MOST_LINES, LogFormat, LogOutput
from pillion_sidecar.testing import FakeTime
from support.collector import no_collector


def application(text: str) -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=text)

    made = web.Application()
    made.router.add_get("/", answer)
    return made


async def asked(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


async def test_each_application_has_the_address_that_is_told() -> None:
    listeners = Listeners()
    urls = [
        await listeners.serve(application(text), Address("127.0.0.1", 0)) for text in ("a", "b")
    ]
    assert [await asked(url) for url in urls] == ["a", "b"]
    await listeners.close()
    for url in urls:
        with pytest.raises(aiohttp.ClientConnectorError):
            await asked(url)


async def test_an_address_that_somebody_has_is_named_and_what_was_taken_is_given_back() -> None:
    listeners = Listeners()
    first = await listeners.serve(application("a"), Address("127.0.0.1", 0))
    port = int(first.rpartition(":")[2])
    with pytest.raises(AddressTaken) as taken:
        await listeners.serve(application("b"), Address("127.0.0.1", port), option="--intake")
    assert str(taken.value).endswith("; choose another address by --intake")
    assert str(taken.value).startswith(f"cannot listen on 127.0.0.1:{port}: ")
    assert "address already in use" in str(taken.value).lower()
    assert await asked(first) == "a"
    await listeners.close()
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_an_address_of_another_machine_is_named() -> None:
    listeners = Listeners()
    with pytest.raises(AddressTaken, match=r"cannot listen on 192\.0\.2\.1:80: "):
        await listeners.serve(application("a"), Address("192.0.2.1", 80))
    await listeners.close()


async def test_one_of_ipv6_is_told_in_brackets() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    listeners = Listeners()
    url = await listeners.serve(application("a"), Address("::1", 0))
    assert url.startswith("http://[::1]:")
    assert await asked(url) == "a"
    await listeners.close()


UNKNOWN_FAMILY = 999


@pytest.mark.parametrize("besides", [(socket.AF_INET, "127.0.0.1"), (UNKNOWN_FAMILY, "::1")])
async def test_an_entrance_is_at_each_address_of_a_name_once_if_there_can_be_one(
    besides: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]

    async def resolved(*_name: object, **_wanted: object) -> object:
        return [
            (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
            for family, host in (besides, (socket.AF_INET, "127.0.0.1"))
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
    time = FakeTime()
    entrance = ConnectionAcceptor(
        clock=time, timers=time, observer=GatewayMetrics(), tls=None, asks_for_tokens=False
    )
    listeners = Listeners()
    url = await listeners.serve(application("a"), Address("localhost", port), acceptor=entrance)
    monkeypatch.undo()
    assert await asked(url) == "a"
    await listeners.close()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"M-POST /CIMListener HTTP/1.1", b"501"),
        (b"EXPORT / HTTP/1.0", b"501"),
        (b"\x16\x03\x01\x02", b"400"),
        (b"GET / HTTP/9.9", b"400"),
    ],
)
async def test_a_method_that_is_not_known_is_answered_so_that_an_exporter_goes_on_with_post(
    line: bytes, status: bytes
) -> None:
    listeners = Listeners()
    url = await listeners.serve(application("a"), Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    writer.write(line + b"\r\nHost: a\r\nMan: http://www.dmtf.org/cim/mapping/http/v1.0\r\n\r\n")
    assert (await reader.readline()).split()[1] == status
    writer.close()
    await listeners.close()


@pytest.mark.parametrize("value", [b"Bearer tokenSECRET\x01", b"Bearer tokenSECRET" + b"a" * 9000])
async def test_what_is_no_http_is_logged_without_what_it_says(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a header with a token."""
    listeners = Listeners()
    url = await listeners.serve(application("a"), Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: %b\r\n\r\n" % value)
    assert (await reader.readline()).split()[1] == b"400"
    writer.close()
    await listeners.close()
    (record,) = caplog.records
    assert record.name == "pillion.http"
    assert "not HTTP that is accepted here" in record.getMessage()
    assert record.exc_info is None
    assert "SECRET" not in caplog.text


async def served_by_listeners(stack: AsyncExitStack) -> str:
    listeners = Listeners()
    stack.push_async_callback(listeners.close)
    return await listeners.serve(application("a"), Address("127.0.0.1", 0))


async def served_by_aiohttp_alone(stack: AsyncExitStack) -> str:
    runner = web.AppRunner(application("a"), access_log=None)
    stack.push_async_callback(runner.cleanup)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}"


@pytest.mark.parametrize("serve", [served_by_listeners, served_by_aiohttp_alone])
async def test_a_flood_of_what_is_no_http_is_a_few_lines_and_a_count(
    serve: Callable[[AsyncExitStack], Awaitable[str]],
) -> None:
    stream = io.StringIO()
    output = LogOutput(log_format=LogFormat.JSON, stream=stream)
    output.start()
    root = logging.getLogger()
    root.addHandler(output.handler)
    async with AsyncExitStack() as stack:
        url = await serve(stack)
        for _ in range(MOST_LINES + 20):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
            writer.write(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"400"
            writer.close()
    await asyncio.to_thread(output.close)
    *few, last = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in few] == [last["of"]] * MOST_LINES
    assert (last["event"], last["count"]) == ("log-lines-left-out", 20)


NO_HTTP = (
    b"BAD" * 5000 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"GET / HTTP/1.1\r\nno header\r\n\r\n",
)


async def test_what_is_no_http_leaves_nothing_behind() -> None:
    """A flood of it would take a gigabyte before the garbage collector comes by itself."""
    with no_collector():
        async with AsyncExitStack() as stack:
            url = await served_by_listeners(stack)
            for request in NO_HTTP:
                port = int(url.rsplit(":", 1)[1])
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                assert b" 400 " in await reader.read()
                writer.close()
        assert not [one for one in gc.get_objects() if issubclass(type(one), HttpProcessingError)]


#: The beginning of a request that is answered before its end, and what comes instead of the end.
UNFINISHED = (
    (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n", b"ZZZZ"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab", b"cdno header\r\n\r\n"),
)


@pytest.mark.parametrize(("begin", "instead"), UNFINISHED, ids=["chunked", "of a known length"])
async def test_what_is_no_end_of_a_request_leaves_nothing_behind(
    begin: bytes, instead: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody logs it, and it waits behind the request."""
    monkeypatch.setattr(http_server, "LINGERING_SECONDS", 0.2)
    before = asyncio.all_tasks()
    with no_collector():
        async with AsyncExitStack() as stack:
            url = await served_by_listeners(stack)
            port = int(url.rsplit(":", 1)[1])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begin)
            await reader.readuntil(b"\r\n\r\na")
            writer.write(instead + b"x" * 1000)
            writer.write_eof()
            await reader.read()
            writer.close()
            # What waits for the rest of the request is not told that nobody is left to send it.
            while left := asyncio.all_tasks() - before:
                await asyncio.wait(left)
        assert not [one for one in gc.get_objects() if issubclass(type(one), HttpProcessingError)]


Clients = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


async def crowd(port: int, number: int, request: bytes) -> Clients:
    clients = []
    for _ in range(number):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        if request.endswith(b"\r\n\r\n"):
            await reader.readuntil(b"\r\n\r\na")
        clients.append((reader, writer))
    return clients


@pytest.mark.parametrize(
    ("request_", "number"),
    [
        (b"", 2 * http_server.CONNECTIONS),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", 2 * http_server.CONNECTIONS),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", http_server.CONNECTIONS),
    ],
    ids=["nothing", "half a head", "one request"],
)
async def test_a_crowd_that_asks_for_nothing_gives_way(request_: bytes, number: int) -> None:
    listeners = Listeners()
    url = await listeners.serve(application("a"), Address("127.0.0.1", 0))
    clients = await crowd(int(url.rsplit(":", 1)[1]), number, request_)
    assert await asked(url) == "a"
    with suppress(ConnectionError):
        assert await clients[0][0].read() == b""
    for _, writer in clients:
        writer.transport.abort()
    await listeners.close()
