"""A gateway's connections over real sockets, with room for a few."""

import asyncio
import errno
import gc
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trustme
from aiohttp import web

from pillion_sidecar.auth import acceptor
from pillion_sidecar.auth.acceptor import (
    PAUSE_SECONDS,
    PROOF_SECONDS,
    QUIET_SECONDS,
    ConnectionAcceptor,
    Limits,
)
from pillion_sidecar.config.addresses import Address
from pillion_sidecar.http_server import Listeners
from pillion_sidecar.telemetry.gateway import GatewayMetrics
from pillion_sidecar.testing import FakeTime
from support.collector import no_collector

LIMITS = Limits(handshakes=2, unproven=3, total=5, grace_seconds=0.5)
PROVEN = b"GET /?proven HTTP/1.1\r\nHost: g\r\n\r\n"
UNPROVEN = b"GET / HTTP/1.1\r\nHost: g\r\n\r\n"


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> bytes:
        """What is answered."""
        self.writer.write(request)
        await self.reader.readuntil(b"\r\n\r\n")
        return await self.reader.readexactly(5)

    async def ends(self) -> bool:
        """Wait until the other side has closed it."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


class House:
    """An entrance behind which whoever asks for it is proven."""

    def __init__(self, *, limits: Limits = LIMITS, asks_for_tokens: bool = True) -> None:
        authority = trustme.CA()
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._server)
        self._client = ssl.create_default_context()
        authority.configure_trust(self._client)
        self.time = FakeTime()
        self.metrics = GatewayMetrics()
        self.acceptor = ConnectionAcceptor(
            clock=self.time,
            timers=self.time,
            observer=self.metrics,
            tls=self._server,
            asks_for_tokens=asks_for_tokens,
            limits=limits,
        )
        self.port = 0
        self._clients: list[Client] = []
        self.taken: list[asyncio.BaseProtocol] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator["House"]:
        async def answer(request: web.Request) -> web.Response:
            self.taken.append(request.protocol)
            if "proven" in request.query:
                self.acceptor.prove(request.protocol)
            answered = web.Response(text="hello")
            if "last" in request.query:
                answered.force_close()
            return answered

        app = web.Application()
        app.router.add_get("/", answer)
        listeners = Listeners()
        url = await listeners.serve(app, Address("127.0.0.1", 0), acceptor=self.acceptor)
        self.port = int(url.rsplit(":", 1)[1])
        try:
            yield self
        finally:
            await listeners.close()
            self.forget()

    async def connect(self, request: bytes = b"", *, tls: bool = True) -> Client:
        """A client that has asked once, if there is anything to ask."""
        context = self._client if tls else None
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=context))
        self._clients.append(client)
        if request:
            assert await client.ask(request) == b"hello"
        return client

    async def pressed(self, request: bytes = b"") -> Client:
        """The same, while time goes on."""
        connecting = asyncio.create_task(self.connect(request))
        while not connecting.done():
            self.time.advance(LIMITS.grace_seconds)
            await asyncio.wait((connecting,), timeout=0.01)
        return await connecting

    def ask_and_read_no_more(self) -> ssl.SSLSocket:
        """A client that asks for the last time, and then does nothing."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        client = self._client.wrap_socket(plain, server_hostname="127.0.0.1")
        client.sendall(b"GET /?last HTTP/1.1\r\nHost: g\r\n\r\n")
        return client

    def forget(self) -> None:
        """Hold no client any more."""
        for client in self._clients:
            client.writer.transport.abort()
        self._clients.clear()

    def samples(self) -> dict[str, int]:
        """All that is counted and is not 0, by stage or reason."""
        return {
            line.split('"')[1]: int(line.rsplit(" ", 1)[1])
            for line in "".join(self.metrics.samples()).splitlines()
            if line.startswith("pillion_intake_connections") and not line.endswith(" 0")
        }

    async def counted(self, **expected: int) -> None:
        """Wait until all this is counted and nothing else."""
        wanted = {name.replace("_", "-"): number for name, number in expected.items()}
        try:
            await until(lambda: self.samples() == wanted)
        except TimeoutError:
            assert self.samples() == wanted
            raise


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the kernel has a part in."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House().open() as opened:
        yield opened


async def test_the_oldest_that_has_shown_nothing_goes(house: House) -> None:
    crowd = [await house.connect(request) for request in (b"", UNPROVEN, UNPROVEN)]
    for number in range(2):
        crowd.append(await house.pressed(UNPROVEN))
        assert await crowd[number].ends()
    await house.counted(unproven=3, unproven_crowded=2)
    assert [await one.ask(UNPROVEN) for one in crowd[2:]] == [b"hello"] * 3


async def test_the_oldest_in_the_handshake_goes(house: House) -> None:
    silent = []
    for number in (1, 2):
        silent.append(await house.connect(tls=False))
        await house.counted(handshake=number)
    silent.append(await house.connect(tls=False))
    house.time.advance(LIMITS.grace_seconds)
    assert await silent[0].ends()
    await house.counted(handshake=2, handshake_crowded=1)
    # Whoever goes on with it gets through, and another of those goes.
    await house.pressed(PROVEN)
    assert await silent[1].ends()
    await house.counted(handshake=1, proven=1, handshake_crowded=2)


async def test_each_has_some_time_for_its_handshake_whoever_comes(house: House) -> None:
    """Those who come all at once do not push out each other."""
    first = await house.connect(tls=False)
    await house.counted(handshake=1)
    house.time.advance(0.1)
    await house.connect(tls=False)
    await house.counted(handshake=2)
    waiting = [asyncio.create_task(house.connect(PROVEN)) for _ in range(2)]
    house.time.advance(LIMITS.grace_seconds - 0.1 - 0.01)
    await asyncio.wait(waiting, timeout=0.05)
    assert house.samples() == {"handshake": 2}
    # The place of one that is through is free at once.
    house.time.advance(0.01)
    assert await first.ends()
    await asyncio.gather(*waiting)
    await house.counted(handshake=1, proven=2, handshake_crowded=1)


async def test_each_that_waits_is_looked_at_when_the_next_had_its_time(house: House) -> None:
    first = await house.connect(tls=False)
    await house.counted(handshake=1)
    house.time.advance(0.3)
    second = await house.connect(tls=False)
    await house.counted(handshake=2)
    for _ in range(2):
        await house.connect(tls=False)
    house.time.advance(LIMITS.grace_seconds - 0.3)
    assert await first.ends()
    await house.counted(handshake=2, handshake_crowded=1)
    house.time.advance(0.3)
    assert await second.ends()
    await house.counted(handshake=2, handshake_crowded=2)


async def test_a_place_that_somebody_leaves_is_taken_at_once(house: House) -> None:
    crowd = [await house.connect(UNPROVEN) for _ in range(LIMITS.unproven)]
    connecting = asyncio.create_task(house.connect(PROVEN))
    await asyncio.wait((connecting,), timeout=0.05)
    assert house.samples() == {"unproven": 3}
    crowd[0].writer.transport.abort()
    await connecting
    await house.counted(unproven=2, proven=1)


async def test_a_publisher_stays_and_another_comes_whatever_crowd_there_is(house: House) -> None:
    publisher = await house.connect(PROVEN)
    for _ in range(4):
        await house.pressed()
        await house.connect(tls=False)
    another = await house.pressed(PROVEN)
    assert [await one.ask(PROVEN) for one in (publisher, another)] == [b"hello"] * 2
    assert house.samples()["proven"] == 2


async def test_a_newcomer_is_refused_where_publishers_have_all_places(house: House) -> None:
    publishers = [await house.connect(PROVEN) for _ in range(LIMITS.total)]
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await house.connect()
    await house.counted(proven=5, full=1)
    for one in publishers[1:]:
        assert await one.ask(PROVEN) == b"hello"
    publishers[0].writer.close()
    await house.counted(proven=4, full=1)
    await house.connect(PROVEN)


async def test_there_is_a_time_to_show_a_token(house: House) -> None:
    silent = await house.connect()
    publisher = await house.connect(PROVEN)
    await house.counted(unproven=1, proven=1)
    house.time.advance(PROOF_SECONDS - 1)
    late = await house.connect(UNPROVEN)
    house.time.advance(1)
    assert await silent.ends()
    await house.counted(unproven=1, proven=1, unproven_late=1)
    house.time.advance(PROOF_SECONDS - 2)
    assert await late.ask(PROVEN) == b"hello"
    house.time.advance(10 * PROOF_SECONDS)
    assert [await one.ask(UNPROVEN) for one in (publisher, late)] == [b"hello"] * 2
    await house.counted(proven=2, unproven_late=1)


async def test_a_handshake_that_takes_too_long_ends(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_SECONDS", 0.1)
    silent = await house.connect(tls=False)
    assert await silent.ends()
    await house.counted(handshake_failed=1)


async def test_whoever_leaves_gives_back_the_place(house: House) -> None:
    for request in (b"", UNPROVEN, PROVEN):
        client = await house.connect(request)
        await house.counted(**{"proven" if request is PROVEN else "unproven": 1})
        client.writer.close()
        await client.writer.wait_closed()
        await house.counted()
    # In the handshake, too.
    client = await house.connect(tls=False)
    await house.counted(handshake=1)
    client.writer.close()
    await house.counted(handshake_failed=1)


async def test_what_is_closed_does_not_wait_for_the_collector(house: House) -> None:
    """Each has a buffer of 256 KiB."""

    def connections() -> int:
        return sum(type(one).__name__ == "SSLProtocol" for one in gc.get_objects())

    with no_collector():
        client = await house.connect(tls=False)
        client.writer.write(b"no TLS at all")
        assert await client.ends()
        for request in (b"", UNPROVEN, PROVEN):
            client = await house.connect(request)
            client.writer.close()
            await client.writer.wait_closed()
        await house.counted(handshake_failed=1)
        del client
        house.forget()
        await until(lambda: connections() == 0)


@pytest.mark.parametrize("twice", [False, True])
async def test_one_that_says_goodbye_for_long_gives_way(
    house: House, *, twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has closed it, and waits for the client to do so too, which reads nothing."""
    monkeypatch.setattr(acceptor, "GOODBYE_SECONDS", 3600.0)
    client = await asyncio.to_thread(house.ask_and_read_no_more)
    await until(lambda: bool(house.taken))
    protocol = house.taken[0]
    assert isinstance(protocol, web.RequestHandler)
    transport = protocol.transport
    assert transport is not None
    await until(transport.is_closing)
    if twice:
        # As aiohttp does here and there. Of Python 3.11.2 it cannot be aborted from now on.
        transport.close()
    assert house.samples() == {"unproven": 1}
    for _ in range(LIMITS.unproven):
        await house.pressed(UNPROVEN)
    await house.counted(unproven=3, unproven_crowded=1)
    await until(lambda: protocol.transport is None)
    client.close()


async def test_where_no_token_is_asked_for_whoever_has_asked_something_stays() -> None:
    async with House(asks_for_tokens=False).open() as house:
        clients = [await house.connect(UNPROVEN) for _ in range(LIMITS.total)]
        await house.counted(proven=5)
        house.time.advance(10 * PROOF_SECONDS)
        for one in clients:
            assert await one.ask(UNPROVEN) == b"hello"
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await house.connect()


async def test_where_no_token_is_asked_for_a_handshake_alone_keeps_no_place() -> None:
    async with House(asks_for_tokens=False).open() as house:
        silent = await house.connect()
        await house.counted(unproven=1)
        house.time.advance(PROOF_SECONDS)
        assert await silent.ends()


async def test_the_head_of_a_request_has_a_bound(house: House) -> None:
    """48 headers of 8 KB from each of 600 connections took 400 MB."""
    one = await house.connect(PROVEN)
    one.writer.write(b"GET / HTTP/1.1\r\nHost: g\r\n")
    for _ in range(5):
        one.writer.write(b"X: " + b"x" * 8000 + b"\r\n")
    assert (await one.reader.readline()).split()[1] == b"431"
    await house.counted(head_too_long=1)


async def test_a_long_body_is_no_head(house: House) -> None:
    one = await house.connect(PROVEN)
    one.writer.write(b"GET /?proven HTTP/1.1\r\nHost: g\r\nContent-Length: 200000\r\n\r\n")
    for _ in range(200):
        one.writer.write(b"x" * 1000)
        await one.writer.drain()
    await one.reader.readuntil(b"hello")
    assert await one.ask(PROVEN) == b"hello"
    await house.counted(proven=1)


async def test_what_there_is_no_place_for_is_told_once_a_minute(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[tuple[str, str]]:
        records = [(vars(one)["event"], vars(one)["reason"]) for one in caplog.records]
        caplog.clear()
        return records

    for _ in range(2):
        for _ in range(LIMITS.unproven + 2):
            await house.pressed(UNPROVEN)
        assert told() == [("connections-given-up", "unproven-crowded")]
        house.time.advance(QUIET_SECONDS)


class Exhausted(socket.socket):
    """Of which the system takes up no connection, once."""

    refusals = 1

    def accept(self) -> tuple[socket.socket, object]:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_without_descriptors_it_waits_and_goes_on(
    caplog: pytest.LogCaptureFixture, socket_factory: Callable[[], Exhausted]
) -> None:
    house = House()
    listening = socket_factory()
    house.acceptor.open([listening], web.Server(hello))
    house.port = listening.getsockname()[1]
    connecting = asyncio.create_task(house.connect(PROVEN))
    await until(lambda: bool(caplog.records))
    (record,) = caplog.records
    assert (record.levelno, vars(record)["event"]) == (logging.WARNING, "connections-not-taken")
    assert vars(record)["reason"] == "EMFILE"
    house.time.advance(PAUSE_SECONDS)
    client = await connecting
    assert len(caplog.records) == 1
    client.writer.transport.abort()
    await house.acceptor.close()


class Last(socket.socket):
    """Of which the first connection is the last: the entrance is closed at once."""

    entrance: ConnectionAcceptor
    closing: asyncio.Task[None]

    def accept(self) -> tuple[socket.socket, object]:
        self.closing = asyncio.create_task(self.acceptor.close())
        return super().accept()


async def test_one_that_comes_at_the_very_end_is_closed() -> None:
    house = House()
    listening = Last()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    listening.acceptor = house.acceptor
    house.acceptor.open([listening], web.Server(hello))
    house.port = listening.getsockname()[1]
    client = await house.connect(tls=False)
    assert await client.ends()
    await listening.closing
    await house.counted()
    house.forget()


async def hello(request: web.BaseRequest) -> web.Response:
    return web.Response(text="hello")


@pytest.fixture
def socket_factory() -> Callable[[], Exhausted]:
    def made() -> Exhausted:
        found = Exhausted()
        found.bind(("127.0.0.1", 0))
        found.listen()
        return found

    return made


async def test_the_end_lets_go_of_all_and_takes_nobody() -> None:
    async with House().open() as house:
        clients = [await house.connect(one) for one in (PROVEN, b"", UNPROVEN)]
        clients.append(await house.connect(tls=False))
        await house.counted(handshake=1, unproven=2, proven=1)
        port = house.port
    for one in clients:
        await one.ends()
    await house.counted()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)
