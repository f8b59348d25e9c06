"""What strangers and publishers can do to a gateway's memory: resident memory stays under the limit
that the chart gives, and a publisher is served meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from pillion_sidecar.auth.acceptor import Limits
from support.descriptors import many_descriptors
from support.gateway_access import Gateway, running_without_listener
from support.memory import MIB, memory_limit, peak_memory

#: Connections of one attack, and the service accounts that share them where they show tokens.
CROWD = 600
ACCOUNTS = 6
AT_A_TIME = 25


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    """This process opens the connections of the attacks."""
    with many_descriptors():
        yield


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """One whose listener is away."""
    async with running_without_listener(tmp_path) as made:
        yield made


class Attackers:
    """Connections of one attack, which end with it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._tls = gateway.context
        self._open: list[asyncio.StreamWriter] = []

    async def _connect(self, begin: bytes) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(5):
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", self.gateway.port, ssl=self._tls
                )
                self._open.append(writer)
                for start in range(0, len(begin), 65_536):
                    writer.write(begin[start : start + 65_536])
                    await writer.drain()

    async def crowd(self, begin: Callable[[int], bytes]) -> None:
        """Open connections, some at a time; ``begin`` gives what each of them sends."""
        for start in range(0, CROWD, AT_A_TIME):
            await asyncio.gather(
                *(self._connect(begin(number)) for number in range(start, start + AT_A_TIME))
            )

    def leave(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()


def head(method: str, path: str, *fields: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: g", *fields, "", ""]).encode()


def authorizations(gateway: Gateway) -> list[str]:
    """The header of each account."""
    return [
        f"Authorization: Bearer {gateway.token(account=f'job-{number}')}"
        for number in range(ACCOUNTS)
    ]


async def half_sent_heads(who: Attackers) -> None:
    begin = head("POST", "/v1/indications", *(f"X-{n}: {'x' * 7000}" for n in range(4)))[:-2]
    await who.crowd(lambda _: begin)


async def stalled_bodies(who: Attackers, *, content_type: str) -> None:
    shown = authorizations(who.gateway)
    fields = (f"Content-Type: {content_type}", f"Content-Length: {MIB}")
    body = b"x" * (MIB - 64)
    await who.crowd(
        lambda number: head("POST", "/v1/indications", shown[number % ACCOUNTS], *fields) + body
    )


async def bodies_without_a_token(who: Attackers) -> None:
    begin = head(
        "POST", "/v1/indications", "Content-Type: application/json", f"Content-Length: {MIB}"
    )
    await who.crowd(lambda _: begin + b"x" * (MIB - 64))


async def abandoned_flushes(who: Attackers) -> None:
    shown = authorizations(who.gateway)
    path = "/v1/flush?publisher=p&timeout=3600"
    for _ in range(3):
        await who.crowd(lambda number: head("POST", path, shown[number % ACCOUNTS]))
        who.leave()


async def abandoned_waits(who: Attackers) -> None:
    shown = authorizations(who.gateway)
    path = "/v1/indications?ack=delivered&timeout=3600&source=s"
    line = b'{"class":"CIM_AlertIndication","properties":{}}\n'
    fields = ("Content-Type: application/x-ndjson", f"Content-Length: {len(line)}")
    for _ in range(3):
        await who.crowd(lambda number: head("POST", path, shown[number % ACCOUNTS], *fields) + line)
        who.leave()


ATTACKS: dict[str, Callable[[Attackers], Awaitable[None]]] = {
    "half-sent heads": half_sent_heads,
    "bodies without a token": bodies_without_a_token,
    "stalled documents": partial(stalled_bodies, content_type="application/json"),
    "stalled lines": partial(stalled_bodies, content_type="application/x-ndjson"),
    "abandoned flushes": abandoned_flushes,
    "abandoned waits": abandoned_waits,
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_on_a_gateway_stays_under_the_memory_limit(
    gateway: Gateway, attack: str, record_property: Callable[[str, object], None]
) -> None:
    token = gateway.token()
    assert Limits().total > CROWD
    assert await gateway.publish(token) == 200
    assert await gateway.publish(gateway.token(account="job-0")) == 200
    who = Attackers(gateway)
    try:
        await ATTACKS[attack](who)
        # As a publisher does: again, while bodies of others are read.
        async with asyncio.timeout(30):
            while (status := await gateway.publish(token)) == 503:
                pass
        assert status == 200
    finally:
        who.leave()
    peak = peak_memory(gateway.process.process.pid)
    record_property("peak MiB", peak / MIB)
    print(f"\n{attack}: {peak / MIB:.0f} MiB")
    assert peak < memory_limit()
    assert gateway.process.process.returncode is None
