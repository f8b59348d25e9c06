"""The bounds of a request's head, over a real socket: however its bytes arrive."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from pillion_sidecar.auth.acceptor import HEAD_BYTES, ConnectionAcceptor
from pillion_sidecar.config.addresses import Address
from pillion_sidecar.http_server import MAXIMUM_HEADERS, Listeners
from pillion_sidecar.telemetry.gateway import GatewayMetrics
from pillion_sidecar.testing import FakeTime

FIELD_BYTES = 8190
SHORT_HEAD_BYTES = 8192
BEGINNING = b"GET / HTTP/1.1\r\nHost: g\r\n"
SMALL = BEGINNING + b"\r\n"


def head(size: int) -> bytes:
    """A whole head of ``size`` bytes, each header within its own bound."""
    made = BEGINNING
    while (left := size - len(made) - 2) > 0:
        field = min(left, 8000) if left < 8000 or left > 8010 else left - 100
        made += b"X: " + b"x" * (field - 5) + b"\r\n"
    return made + b"\r\n"


def line(size: int) -> bytes:
    """A head whose request's target has ``size`` bytes."""
    return b"GET /?" + b"q" * (size - 2) + b" HTTP/1.1\r\nHost: g\r\n\r\n"


def field(size: int) -> bytes:
    """A head one of whose values has ``size`` bytes."""
    return BEGINNING + b"X: " + b"x" * size + b"\r\n\r\n"


def fields(count: int) -> bytes:
    return BEGINNING + b"".join(b"X: x\r\n" for _ in range(count - 1)) + b"\r\n"


def blank(size: int) -> bytes:
    """A head with ``size`` blanks before a value."""
    return BEGINNING + b"X:" + b" " * size + b"x\r\n\r\n"


@asynccontextmanager
async def listening(head_bytes: int = HEAD_BYTES) -> AsyncIterator[tuple[int, GatewayMetrics]]:
    """The port of a listener that answers hello."""

    async def hello(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_route("*", "/", hello)
    time, metrics = FakeTime(), GatewayMetrics()
    entrance = ConnectionAcceptor(
        clock=time,
        timers=time,
        observer=metrics,
        tls=None,
        asks_for_tokens=False,
        head_bytes=head_bytes,
    )
    listeners = Listeners()
    url = await listeners.serve(app, Address("127.0.0.1", 0), acceptor=entrance)
    try:
        yield int(url.rsplit(":", 1)[1]), metrics
    finally:
        await listeners.close()


async def statuses(port: int, text: bytes, count: int = 1, *, step: int | None = None) -> list[int]:
    """What is answered to ``count`` requests, sent in one write or in pieces of ``step`` bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for start in range(0, len(text), step or len(text)):
        writer.write(text[start : start + (step or len(text))])
        if step is not None:
            # The other side reads what has come before there is more.
            await asyncio.sleep(0)
    found = []
    for _ in range(count):
        answer = await reader.readuntil(b"\r\n\r\n")
        found.append(int(answer.split()[1]))
        length = answer.lower().split(b"content-length: ")[1].split()[0]
        await reader.readexactly(int(length))
    writer.transport.abort()
    return found


@pytest.mark.parametrize(
    ("make", "taken", "refused"),
    [
        (line, FIELD_BYTES, FIELD_BYTES + 1),
        # Byte by byte the parser counts one more of a header.
        (field, FIELD_BYTES - 1, FIELD_BYTES + 1),
        (fields, MAXIMUM_HEADERS, MAXIMUM_HEADERS + 1),
    ],
)
async def test_a_line_a_header_and_their_number_have_bounds(
    make: Callable[[int], bytes], taken: int, refused: int
) -> None:
    async with listening() as (port, _):
        assert await statuses(port, make(taken)) == [200]
        assert await statuses(port, make(taken), step=1) == [200]
        assert await statuses(port, make(refused)) == [400]


@pytest.mark.parametrize(
    "beginning",
    [
        line(FIELD_BYTES + 1).partition(b" HTTP")[0],
        field(FIELD_BYTES).rstrip(b"\r\n"),
        fields(MAXIMUM_HEADERS + 1),
    ],
    ids=["line", "header", "headers"],
)
async def test_byte_by_byte_it_is_refused_as_soon_as_it_is_too_long(beginning: bytes) -> None:
    async with listening() as (port, _):
        assert await statuses(port, beginning, step=1) == [400]


@pytest.mark.parametrize("head_bytes", [SHORT_HEAD_BYTES, HEAD_BYTES])
@pytest.mark.parametrize("step", [None, 1, 5000])
async def test_a_head_has_its_bound_in_one_write_and_in_pieces(
    head_bytes: int, step: int | None
) -> None:
    async with listening(head_bytes) as (port, metrics):
        assert len(head(head_bytes)) == head_bytes
        assert await statuses(port, head(head_bytes), step=step) == [200]
        assert await statuses(port, head(head_bytes + 1), step=step) == [431]
        assert 'head-too-long"} 1' in "".join(metrics.samples())


@pytest.mark.parametrize("step", [None, 5000])
async def test_blanks_count_as_part_of_a_head(step: int | None) -> None:
    async with listening() as (port, _):
        assert await statuses(port, blank(HEAD_BYTES), step=step) in ([400], [431])


async def test_a_head_behind_others_has_the_same_bound_and_is_answered_in_its_turn() -> None:
    body = b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 9\r\n\r\nsome text"
    async with listening() as (port, metrics):
        before = SMALL + body
        assert await statuses(port, before + head(HEAD_BYTES) + SMALL, 4) == [200] * 4
        too_long = before + head(HEAD_BYTES + 100) + SMALL
        assert await statuses(port, too_long, 3) == [200, 200, 431]
        assert await statuses(port, too_long, 3, step=5000) == [200, 200, 431]
        assert 'head-too-long"} 2' in "".join(metrics.samples())


async def test_a_body_in_the_same_write_is_no_part_of_the_head() -> None:
    size = 3 * HEAD_BYTES
    text = f"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * size
    async with listening() as (port, _):
        assert await statuses(port, text + SMALL, 2) == [200, 200]
