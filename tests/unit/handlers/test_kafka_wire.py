"""The authentication of a connection to a Kafka broker."""

import asyncio
import threading
from typing import cast

import pytest

from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from pillion_sidecar.handlers.kafka.wire import Authentication, AuthenticationError, KafkaWire
from pillion_sidecar.handlers.transport.exchange import Failure, Headers
from pillion_sidecar.handlers.transport.wire import RequestWire
from support.broker_tests import until


class _Owner:
    def __init__(self) -> None:
        self.losses: list[Failure | None] = []

    def wire_opened(self, wire: RequestWire) -> None: ...

    def wire_answered(self, status: int, headers: Headers, body: bytes, *, keep: bool) -> None: ...

    def wire_awaits_body(self, seconds: float) -> None: ...

    def wire_lost(self, failure: Failure | None, *, untaken: bool) -> None:
        self.losses.append(failure)


async def _opened(
    authentication: Authentication,
) -> tuple[KafkaWire, _Owner, asyncio.Server, asyncio.StreamReader, asyncio.StreamWriter]:
    accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
        asyncio.get_running_loop().create_future()
    )

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result((reader, writer))

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    owner = _Owner()
    wire = KafkaWire(owner=owner, authentication=authentication, handed_over=lambda: None)
    port = server.sockets[0].getsockname()[1]
    await asyncio.get_running_loop().create_connection(lambda: wire, "127.0.0.1", port)
    return wire, owner, server, *(await accepted)


def _frame(answer: bytes) -> bytes:
    return len(answer).to_bytes(4, "big") + answer


async def test_an_authentication_computes_in_threads() -> None:
    threads: list[threading.Thread] = []

    def steps() -> Authentication:
        answer = yield b"first"
        threads.append(threading.current_thread())
        assert answer == b"challenge"
        yield b"second"
        threads.append(threading.current_thread())

    wire, _, server, reader, writer = await _opened(steps())
    async with server:
        wire.send(b"request")
        assert await reader.readexactly(5) == b"first"
        writer.write(_frame(b"challenge"))
        assert await reader.readexactly(6) == b"second"
        writer.write(_frame(b"proof"))
        assert await reader.readexactly(7) == b"request"
        wire.close()
        writer.close()
    assert threading.main_thread() not in threads
    assert len(threads) == 2


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_refusal_is_told_although_the_broker_closes_behind_it(refuses: bool) -> None:
    goes_on = threading.Event()

    def steps() -> Authentication:
        yield b"first"
        goes_on.wait(60)
        if refuses:
            raise AuthenticationError("the password is wrong")

    wire, owner, server, reader, writer = await _opened(steps())
    async with server:
        wire.send(b"request")
        await reader.readexactly(5)
        writer.write(_frame(b"refused"))
        writer.close()
        await until(lambda: wire._why is not None)
        assert owner.losses == []
        goes_on.set()
        await until(lambda: bool(owner.losses))
    (failure,) = owner.losses
    assert failure is not None
    hold = HoldCause.REFUSED if refuses else None
    told = "the password is wrong" if refuses else "closed the connection during the authentication"
    assert failure.hold is hold
    assert told in failure.detail


@pytest.mark.parametrize("closes", [False, True])
async def test_an_authentication_that_computes_can_be_ended(closes: bool) -> None:
    goes_on = threading.Event()

    def steps() -> Authentication:
        yield b"first"
        goes_on.wait(60)
        yield b"second"

    wire, owner, server, reader, writer = await _opened(steps())
    async with server:
        wire.send(b"request")
        await reader.readexactly(5)
        writer.write(_frame(b"challenge"))
        await until(lambda: wire._step is not None)
        if closes:
            wire.close()
        else:
            writer.write(_frame(b"another"))
        # Nothing more is sent, and the wire ends without the thread.
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(1)
        goes_on.set()
        writer.close()
    if closes:
        assert owner.losses == []
        return
    (failure,) = owner.losses
    assert cast(Failure, failure).result is DeliveryResult.ERROR
    assert "more than it was asked" in cast(Failure, failure).detail
