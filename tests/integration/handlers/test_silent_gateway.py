"""A gateway's address behind which nobody is: what is sent there is not even refused."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from pillion_sidecar.handlers.errors import ConnectError
from pillion_sidecar.handlers.gateway import SILENCE, GatewayConnector
from pillion_sidecar.handlers.http.wire import HTTPWire
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.handlers.transport.exchange import Failure, Headers
from pillion_sidecar.handlers.transport.sender import SharedParts
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.handlers.transport.wire import RequestWire
from pillion_sidecar.testing import FakeTime


class Owner:
    """Of a wire that is opened, and no more."""

    def wire_opened(self, wire: RequestWire) -> None:
        """It is open."""

    def wire_answered(self, status: int, headers: Headers, body: bytes, *, keep: bool) -> None:
        raise AssertionError(status)

    def wire_lost(self, failure: Failure | None, *, untaken: bool) -> None:
        assert failure is None


@pytest.fixture
def nobody() -> Iterator[str]:
    """A URL whose packets go unanswered: the queue of its listener is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def connector(url: str, resolver: Resolver, *, silence_seconds: float) -> GatewayConnector:
    time = FakeTime()
    parts = SharedParts(clock=time, timers=time, resolver=resolver)
    return GatewayConnector(
        parse_target(url), parts=parts, authorities=None, silence_seconds=silence_seconds
    )


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux alone has that")
async def test_a_connection_that_nobody_acknowledges_is_given_up(nobody: str) -> None:
    resolver = Resolver(nameservers=())
    wire = HTTPWire(Owner(), buffer=memoryview(bytearray(1024)))
    try:
        with pytest.raises(ConnectError, match=r"no connection to 127\.0\.0\.1 .*timed out"):
            await connector(nobody, resolver, silence_seconds=0.2).connect(wire, lambda _: None)
    finally:
        wire.close()
        await resolver.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux alone has that")
async def test_so_is_one_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    usual = socket.socket

    def kept(family: int, kind: int) -> socket.socket:
        made.append(usual(family, kind))
        return made[-1]

    resolver = Resolver(nameservers=())
    wire = HTTPWire(Owner(), buffer=memoryview(bytearray(1024)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        monkeypatch.setattr(socket, "socket", kept)
        try:
            await connector(url, resolver, silence_seconds=SILENCE).connect(wire, lambda _: None)
            (opened,) = made
            milliseconds = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert milliseconds == SILENCE * 1000
        finally:
            wire.close()
            await resolver.close()
