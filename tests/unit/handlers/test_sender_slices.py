"""A destination that does not answer opens its connections and times out in its turn."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from pillion_sidecar.clock import BETWEEN_SLICES, MOST_AT_ONCE, Slices
from pillion_sidecar.handlers.http.wire import http_wires
from pillion_sidecar.handlers.transport.exchange import Failure, Headers
from pillion_sidecar.handlers.transport.outgoing import OutgoingConnections
from pillion_sidecar.handlers.transport.sender import PooledSender
from pillion_sidecar.testing import FakeTime

SECONDS = 2.0


class Silent:
    """A connector: no connection is ever opened."""

    def __init__(self) -> None:
        self.begun = 0

    async def connect(self, wire: asyncio.BaseProtocol, stage: Callable[[str], None]) -> None:
        self.begun += 1
        await asyncio.get_running_loop().create_future()


class Heard:
    def __init__(self) -> None:
        self.failures: list[str] = []

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        raise AssertionError("nobody answers")

    def failed(self, failure: Failure) -> None:
        self.failures.append(failure.detail)


class Sending:
    """A sender that has failed once; and its time."""

    def __init__(self, time: FakeTime, outgoing: OutgoingConnections | None = None) -> None:
        self.time, self.connector, self.heard = time, Silent(), Heard()
        self.slices = Slices(clock=time, timers=time)
        self.waits: list[bool] = []
        self.sender = PooledSender(
            connector=self.connector,
            clock=time,
            timers=time,
            new_wire=http_wires(memoryview(bytearray(1024))),
            timeout=SECONDS,
            outgoing=outgoing,
            waits=self.waits.append,
            slices=self.slices,
        )

    def exhaust(self, *, waiting: int = 0) -> None:
        """Nothing more is done at once, and so many wait."""
        for _ in range(MOST_AT_ONCE + waiting):
            self.slices.add(lambda: None)

    async def send(self) -> None:
        self.sender.send(b"a request", self.heard)
        await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        self.time.advance(seconds)
        await asyncio.sleep(0)


@pytest.fixture
async def sending(fake_time: FakeTime) -> AsyncIterator[Sending]:
    sending = Sending(fake_time)
    await sending.send()
    # The first neither waits for its connection nor for its time-out.
    assert sending.connector.begun == 1
    await sending.advance(SECONDS)
    assert len(sending.heard.failures) == 1
    yield sending
    sending.sender.close()


async def test_it_opens_in_its_turn_and_its_time_begins_then(sending: Sending) -> None:
    sending.exhaust(waiting=1)
    await sending.send()
    await sending.advance(BETWEEN_SLICES)
    assert sending.connector.begun == 1
    assert sending.waits == [True]
    await sending.advance(BETWEEN_SLICES)
    assert sending.connector.begun == 2
    assert sending.waits == [True, False]
    await sending.advance(SECONDS - BETWEEN_SLICES)
    assert len(sending.heard.failures) == 1
    await sending.advance(BETWEEN_SLICES)
    assert len(sending.heard.failures) == 2


async def test_it_times_out_in_its_turn(sending: Sending) -> None:
    await sending.send()
    assert sending.connector.begun == 2
    await sending.advance(SECONDS - BETWEEN_SLICES)
    sending.exhaust(waiting=3)
    await sending.advance(3 * BETWEEN_SLICES)
    assert len(sending.heard.failures) == 1
    await sending.advance(BETWEEN_SLICES)
    assert sending.heard.failures[1:] == ["timed out after 2 s while connecting"]


async def test_what_is_closed_meanwhile_is_left_alone(sending: Sending) -> None:
    sending.exhaust(waiting=1)
    await sending.send()
    sending.sender.close()
    await sending.advance(1.0)
    assert sending.connector.begun == 1
    await sending.send()
    await sending.advance(SECONDS - BETWEEN_SLICES)
    sending.exhaust(waiting=3)
    await sending.advance(2 * BETWEEN_SLICES)
    sending.sender.close()
    await sending.advance(1.0)
    assert len(sending.heard.failures) == 1


async def test_one_alone_waits_for_nothing(sending: Sending) -> None:
    for _ in range(3):
        await sending.send()
        await sending.advance(SECONDS)
    assert sending.connector.begun == 4
    assert len(sending.heard.failures) == 4


async def test_a_turn_that_is_over_begins_nothing_else(fake_time: FakeTime) -> None:
    outgoing = OutgoingConnections(1)
    sending, other = Sending(fake_time, outgoing), Sending(fake_time, outgoing)
    await sending.send()
    await sending.advance(SECONDS)
    # It waits for its turn, and is given up.
    sending.exhaust(waiting=1)
    await sending.send()
    sending.sender.close()
    await other.send()
    # It waits for the other's connection.
    await sending.send()
    await sending.advance(1.0)
    assert (sending.connector.begun, other.connector.begun) == (1, 1)
    await other.advance(1.0)
    assert sending.connector.begun == 2
    sending.sender.close()
    other.sender.close()
