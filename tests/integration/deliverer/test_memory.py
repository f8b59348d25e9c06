"""What strangers and publishers can do to a deliverer's memory and descriptors: resident memory
stays under the limit that the chart gives, and others are served meanwhile."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from support.descriptors import many_descriptors
from support.intake import alert
from support.memory import MIB, memory_limit, peak_memory
from support.resources import alert_filter, destination, service, subscription, write
from support.sidecar import Sidecar, sidecar

#: Connections of one attack.
CROWD = 600
LINES = "application/x-ndjson"
ALERT = alert("1")


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    """This process opens the connections of the attacks."""
    with many_descriptors():
        yield


class Attackers:
    """Connections of one attack, which end with it."""

    def __init__(self, run: Sidecar) -> None:
        self.run = run
        self._open: list[asyncio.StreamWriter] = []

    async def connect(self, url: str, begin: bytes) -> None:
        """Open a connection and send the beginning of a request, as far as it is taken."""
        where = urlsplit(url)
        with suppress(ConnectionError, TimeoutError):
            _, writer = await asyncio.open_connection(where.hostname, where.port)
            self._open.append(writer)
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    for start in range(0, len(begin), 65_536):
                        writer.write(begin[start : start + 65_536])
                        await writer.drain()

    async def crowd(self, url: str, begin: bytes, number: int = CROWD) -> None:
        """Many of these, some at a time."""
        for start in range(0, number, 50):
            await asyncio.gather(
                *(self.connect(url, begin) for _ in range(min(50, number - start)))
            )

    async def post(self, body: bytes, content_type: str) -> int:
        """Send a whole body; return the status."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                self.run.intake + "/v1/indications",
                data=BytesIO(body),
                headers={"Content-Type": content_type},
            ) as answer,
        ):
            await answer.read()
            return answer.status

    def leave(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()


def head(method: str, path: str, *fields: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode()


BIG_HEAD = head("GET", "/metrics", *(f"X-{n}: {'x' * 8000}" for n in range(45)))[:-2]


async def half_sent_heads(who: Attackers, *, listener: str) -> None:
    await who.crowd(getattr(who.run, listener), BIG_HEAD)


async def silent_connections(who: Attackers) -> None:
    await who.crowd(who.run.telemetry, b"", 1143)


async def stalled_documents(who: Attackers, *, content_type: str) -> None:
    begin = head(
        "POST", "/v1/indications", f"Content-Type: {content_type}", f"Content-Length: {MIB}"
    )
    await who.crowd(who.run.intake, begin + b"x" * (MIB - 64), 400)


async def abandoned_waits(who: Attackers, *, path: str, body: bytes) -> None:
    begin = head(
        "POST",
        path,
        f"Content-Type: {LINES}",
        "Pillion-Publisher: p",
        f"Content-Length: {len(body)}",
    )
    for _ in range(4):
        await who.crowd(who.run.intake, begin + body, 500)
        who.leave()


def batch(element: bytes) -> bytes:
    return b"[" + b",".join([element] * (15 * MIB // (len(element) + 1))) + b"]"


BODIES = {
    "application/cloudevents-batch+json": [
        batch(b"0"),
        batch(b"[]"),
        b"[" + batch(b"[]") + b"]",
        b"[" * 15 * MIB + b"]",
        batch(b'{"a":{}}'),
    ],
    "application/json": [
        b"[" * (MIB - 1),
        batch(b"[]")[: MIB - 1] + b"]",
        batch(b"{}")[: MIB - 1] + b"]",
        b"9" * (MIB - 1),
        b'{"properties":{' + b",".join(b'"%d":{}' % n for n in range(80_000)) + b"}}",
    ],
    "text/xml": [
        b"<a>" * 300_000,
        b"<a>" + b"<b/>" * 260_000 + b"</a>",
        b"<a>" + b"<b c='d'/>" * 100_000 + b"</a>",
        b"<!DOCTYPE a [<!ENTITY b '" + b"x" * 60_000 + b"'>]><a>" + b"&b;" * 300_000 + b"</a>",
        b'<CIM CIMVERSION="2.0" DTDVERSION="2.0"><MESSAGE ID="1" PROTOCOLVERSION="1.0">'
        b'<SIMPLEEXPREQ><EXPMETHODCALL NAME="ExportIndication">'
        + b'<EXPPARAMVALUE NAME="NewIndication"/>' * 25_000
        + b"</EXPMETHODCALL></SIMPLEEXPREQ></MESSAGE></CIM>",
    ],
}


async def bad_bodies(who: Attackers, *, content_type: str) -> None:
    for body in BODIES[content_type]:
        assert await who.post(body, content_type) in (200, 400)


FLUSH = "/v1/flush?publisher=p&timeout=3600"
DELIVERED = "/v1/indications?ack=delivered&timeout=3600"
ATTACKS: dict[str, Callable[[Attackers], Awaitable[None]]] = {
    "half-sent heads to telemetry": partial(half_sent_heads, listener="telemetry"),
    "half-sent heads to intake": partial(half_sent_heads, listener="intake"),
    "silent connections": silent_connections,
    "stalled documents": partial(stalled_documents, content_type="application/json"),
    "stalled lines": partial(stalled_documents, content_type=LINES),
    "stalled batches": partial(
        stalled_documents, content_type="application/cloudevents-batch+json"
    ),
    "bad batches": partial(bad_bodies, content_type="application/cloudevents-batch+json"),
    "bad JSON": partial(bad_bodies, content_type="application/json"),
    "bad XML": partial(bad_bodies, content_type="text/xml"),
    "abandoned flushes": partial(abandoned_waits, path=FLUSH, body=b""),
    "abandoned waits": partial(
        abandoned_waits, path=DELIVERED, body=json.dumps(ALERT).encode() + b"\n"
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_stays_under_the_memory_limit_and_others_are_served(
    config: Path, attack: str, record_property: Callable[[str, object], None]
) -> None:
    write(
        config,
        service(),
        destination(destination="http://127.0.0.1:9/"),
        alert_filter(),
        subscription(),
    )
    async with AsyncExitStack() as stack:
        run = await stack.enter_async_context(sidecar(config))
        answer = await run.publish(ALERT, query="ack=delivered&timeout=0")
        assert answer.status == 202
        who = Attackers(run)
        stack.callback(who.leave)
        await ATTACKS[attack](who)
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session,
            session.get(run.telemetry + "/livez") as alive,
        ):
            assert alive.status == 200
        # As a publisher does: again, until a body has given way.
        async with asyncio.timeout(20):
            while (answer := await run.publish(ALERT)).status == 503:
                pass
        assert answer.status == 200
        peak = peak_memory(run.process.pid)
        record_property("peak MiB", peak / MIB)
        print(f"\n{attack}: {peak / MIB:.0f} MiB")
        assert peak < memory_limit()
        assert run.process.returncode is None
