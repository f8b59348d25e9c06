"""A crowd at a gateway's door that shows no token: a process, TLS, and real connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pillion_sidecar.auth.acceptor import Limits
from support.gateway_access import Connection, Gateway, running_without_listener

LIMITS = Limits()
CONNECTIONS = "pillion_intake_connections"
GIVEN_UP = "pillion_intake_connections_given_up_total"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """One whose listener is away: that is not what is looked at here."""
    async with running_without_listener(tmp_path) as made:
        yield made


@asynccontextmanager
async def crowd(
    connect: Callable[[], Awaitable[Connection]], number: int
) -> AsyncIterator[list[Connection]]:
    """So many connections, one after the other."""
    opened: list[Connection] = []
    try:
        while len(opened) < number:
            opened.append(await connect())
        yield opened
    finally:
        for one in opened:
            one.close()


async def until(gateway: Gateway, name: str, value: float, *, more: bool = False) -> None:
    """Wait until a metric has a value, or ``more`` than that."""
    while (found := await gateway.metric(name)) != value:
        if more and found is not None and found > value:
            return


async def test_a_crowd_without_tokens_pushes_out_its_own_and_no_publisher(gateway: Gateway) -> None:
    token, tls, beyond = gateway.token(), gateway.context, 30
    publisher = await gateway.shown()
    assert await publisher.publish(token) == 200
    async with (
        crowd(lambda: gateway.shown(tls=tls), LIMITS.unproven + beyond) as greeted,
        crowd(gateway.silent, LIMITS.handshakes + beyond) as silent,
    ):
        # Those who came first are gone, and those who came last are there.
        for one in greeted[:beyond] + silent[:beyond]:
            assert await one.ends()
        left = LIMITS.unproven - LIMITS.handshakes
        await until(gateway, f'{CONNECTIONS}{{stage="unproven"}}', left)
        await until(gateway, f'{CONNECTIONS}{{stage="handshake"}}', LIMITS.handshakes)
        for reason, number in (("unproven", len(greeted) - left), ("handshake", beyond)):
            assert await gateway.metric(f'{GIVEN_UP}{{reason="{reason}-crowded"}}') == number
        assert await greeted[-1].publish(token) == 200
        # A publisher that was there before stays, and others come.
        assert await publisher.publish(token) == 200
        assert await gateway.publish(token) == 200
        assert await gateway.metric(f'{GIVEN_UP}{{reason="full"}}') == 0
    publisher.close()
    await gateway.process.logged("connections-given-up")
    (told,) = gateway.process.events("connections-given-up")
    assert told["level"] == "WARNING"


async def test_publishers_come_and_stay_while_a_crowd_keeps_coming(gateway: Gateway) -> None:
    token, tls = gateway.token(), gateway.context
    enough = asyncio.Event()

    async def keep_coming() -> None:
        opened: list[Connection] = []
        while not enough.is_set():
            opened += [await gateway.shown(tls=tls), await gateway.silent()]
        for one in opened:
            one.close()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(keep_coming())
        for reason in ("unproven-crowded", "handshake-crowded"):
            await until(gateway, f'{GIVEN_UP}{{reason="{reason}"}}', 1, more=True)
        publishers = []
        for _ in range(20):
            publishers.append(await gateway.shown(tls=tls))
            for one in publishers:
                assert await one.publish(token) == 200
        enough.set()
    for one in publishers:
        one.close()
    assert await gateway.metric(f'{GIVEN_UP}{{reason="full"}}') == 0
