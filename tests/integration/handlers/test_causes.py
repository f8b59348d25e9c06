"""Each cause of a failed attempt, by a peer that fails in this way."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import pytest
import trustme

from pillion_cim.cimxml.response import render_export_error
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, FailureCause, NoAnswer
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.testing import FakeTime
from support.broker_tests import server_tls
from support.http_listener import Peer, listening
from support.name_server import name_server
from support.protocol_peers import AMPLE, Attempt, destination, registry

#: The URL, and what the registry and the destination need for it.
Case: TypeAlias = tuple[str, dict[str, Any], dict[str, Any]]


@asynccontextmanager
async def nobody() -> AsyncIterator[Case]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/", {}, {}


@asynccontextmanager
async def unknown_name() -> AsyncIterator[Case]:
    async with name_server("127.0.0.1") as (server, address):
        server.exists = False
        resolver = Resolver(nameservers=address)
        try:
            yield "http://listener.example/", {"resolver": resolver}, {}
        finally:
            await resolver.close()


@asynccontextmanager
async def wrong_certificate() -> AsyncIterator[Case]:
    async with listening(_waits, tls=server_tls(trustme.CA(), "localhost")) as listener:
        yield f"https://localhost:{listener.port}/", {}, {}


@asynccontextmanager
async def no_tls() -> AsyncIterator[Case]:
    async def script(peer: Peer) -> None:
        await peer.some()
        await peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await peer.closed()

    async with listening(script) as listener:
        yield f"https://localhost:{listener.port}/", {}, {}


@asynccontextmanager
async def answering(answer: bytes | None, **given: Any) -> AsyncIterator[Case]:
    async def script(peer: Peer) -> None:
        await peer.request()
        if answer is None:
            peer.close()
        else:
            await peer.send(answer)
            await peer.closed()

    async with listening(script) as listener:
        yield f"http://127.0.0.1:{listener.port}/", {}, given


@asynccontextmanager
async def silent() -> AsyncIterator[Case]:
    async with listening(_waits) as listener:
        yield f"http://127.0.0.1:{listener.port}/", {}, {"timeout_seconds": 30.0}


@asynccontextmanager
async def forbidden() -> AsyncIterator[Case]:
    yield "http://127.0.0.1:9/", {"address_policy": AddressPolicy()}, {}


@asynccontextmanager
async def unusable() -> AsyncIterator[Case]:
    yield "http://127.0.0.1:9/", {}, {"credentials": Credentials(username="a:b", password="secret")}


async def _waits(peer: Peer) -> None:
    await peer.closed()


def head(status: int, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d Told\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def export_error() -> bytes:
    body = render_export_error("1", 1, "the queue is full")
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/xml; charset=utf-8\r\n"
        b"CIMExport: MethodResponse\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )


CASES: dict[FailureCause, tuple[Callable[[], AbstractAsyncContextManager[Case]], str]] = {
    FailureCause.REFUSED: (nobody, "connection refused"),
    FailureCause.DNS: (unknown_name, "cannot be resolved"),
    FailureCause.CERTIFICATE: (wrong_certificate, "is not accepted"),
    FailureCause.TLS: (no_tls, "TLS handshake"),
    FailureCause.TIMEOUT: (silent, "timed out"),
    FailureCause.RESET: (partial(answering, None), "closed the connection"),
    FailureCause.STATUS: (partial(answering, head(503)), "HTTP 503"),
    FailureCause.CREDENTIALS: (partial(answering, head(401)), "HTTP 401"),
    FailureCause.CIM_ERROR: (partial(answering, export_error()), "CIM error 1"),
    FailureCause.ADDRESS: (forbidden, "127.0.0.1"),
}


async def told(
    case: Callable[[], AbstractAsyncContextManager[Case]], time: FakeTime, body: bytes | None = None
) -> DeliveryOutcome:
    async with case() as (url, shared, given), registry(time, None, **shared) as made:
        resource = destination("CIM-XML", url, **{"timeout_seconds": AMPLE, **given})
        handler = made.create_handler(resource)
        try:
            return await Attempt(handler, time, body).outcome()
        finally:
            handler.close()


@pytest.mark.parametrize("cause", CASES)
async def test_each_cause_is_named(cause: FailureCause, fake_time: FakeTime) -> None:
    case, words = CASES[cause]
    outcome = await told(case, fake_time)
    assert (outcome.failure_cause, words in outcome.detail) == (cause, True)


async def test_unusable_credentials_and_a_wrong_indication_are_named(fake_time: FakeTime) -> None:
    outcome = await told(unusable, fake_time)
    assert outcome.failure_cause is FailureCause.CREDENTIALS
    outcome = await told(nobody, fake_time, b'{"class":"CIM_AlertIndication","properties":7}')
    assert outcome.failure_cause is FailureCause.INDICATION


async def test_the_address_that_came_furthest_decides(fake_time: FakeTime) -> None:
    async with name_server("127.0.0.1", "::1") as (_, address):
        resolver = Resolver(nameservers=address)

        @asynccontextmanager
        async def two() -> AsyncIterator[Case]:
            # Nobody listens at ::1.
            async with listening(_waits, tls=server_tls(trustme.CA(), "other.example")) as listener:
                url = f"https://listener.example:{listener.port}/"
                yield url, {"resolver": resolver}, {}

        outcome = await told(two, fake_time)
        await resolver.close()
    assert outcome.failure_cause is FailureCause.CERTIFICATE
    assert outcome.no_answer is NoAnswer.TLS


def test_a_success_has_no_cause_and_any_other_result_has_one() -> None:
    assert DeliveryOutcome(DeliveryResult.SUCCESS).failure_cause is None
    for result in set(DeliveryResult) - {DeliveryResult.SUCCESS}:
        assert DeliveryOutcome(result).failure_cause is not None
