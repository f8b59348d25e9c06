"""Tokens over real sockets: endpoints that answer, lie, hang, or lead elsewhere."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.config.schema.oauth2 import ClientAuthentication, OAuth2
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, listening
from support.protocol_peers import ADAPTERS, AMPLE, TIMEOUT, Attempt, destination, registry
from support.token_endpoint import CLIENT, guarded

HTTP = ("CIM-XML", "CloudEvents", "Webhook", "StandardWebhooks")


@pytest_asyncio.fixture
async def handlers(fake_time: FakeTime, tmp_path: Path) -> AsyncIterator[HandlerRegistry]:
    async with registry(fake_time, tmp_path) as made:
        yield made


def client(url: str, **given: Any) -> Credentials:
    values = {"client_id": CLIENT["clientId"], "client_secret": CLIENT["clientSecret"], **given}
    return Credentials(oauth2=OAuth2(token_url=url, **values))


def to(url: str, credentials: Credentials, **given: Any) -> Any:
    values = {"timeout_seconds": AMPLE, "credentials": credentials, **given}
    return destination("CloudEvents", url, **values)


async def failed(
    handlers: HandlerRegistry, time: FakeTime, token_url: str, **given: Any
) -> DeliveryOutcome:
    """The outcome of an attempt that never reaches its listener."""
    async with guarded() as (_, listener):
        handler = handlers.create_handler(to(listener.url, client(token_url, **given)))
        told = await Attempt(handler, time).outcome()
        handler.close()
        assert listener.bodies == []
    return told


@pytest.mark.parametrize("protocol", HTTP)
@pytest.mark.parametrize("how", ClientAuthentication)
async def test_each_protocol_of_http_sends_the_token(
    handlers: HandlerRegistry, fake_time: FakeTime, protocol: str, how: ClientAuthentication
) -> None:
    async with guarded() as (endpoint, listener):
        credentials = client(endpoint.url, client_authentication=how, scopes=("a", "b"))
        signing = ADAPTERS[protocol].given.get("credentials")
        if signing is not None:
            credentials = Credentials(oauth2=credentials.oauth2, signing=signing.signing)
        given = destination(protocol, listener.url, timeout_seconds=AMPLE, credentials=credentials)
        handler = handlers.create_handler(given)
        for _ in range(2):
            told = await Attempt(handler, fake_time).outcome(turn=0.0)
            # The answer of the listener is none of CIM-XML.
            assert told.result is DeliveryResult.SUCCESS or protocol == "CIM-XML"
        handler.close()
        assert len(listener.bodies) == 2
        assert [form["scope"] for form in endpoint.asked] == [["a b"]]


async def test_destinations_with_equal_credentials_share_a_token(
    handlers: HandlerRegistry, fake_time: FakeTime
) -> None:
    async with guarded() as (endpoint, listener):
        made = [
            handlers.create_handler(to(listener.url, client(endpoint.url), uid=f"u{number}"))
            for number in range(3)
        ]
        attempts = [Attempt(handler, fake_time) for handler in made]
        for attempt in attempts:
            assert (await attempt.outcome(turn=0.0)).result is DeliveryResult.SUCCESS
        assert endpoint.issued == 1
        other = client(endpoint.url, audience="x")
        made.append(handlers.create_handler(to(listener.url, other)))
        await Attempt(made[-1], fake_time).outcome(turn=0.0)
        assert endpoint.issued == 2
        for handler in made:
            handler.close()


async def test_the_endpoints_certificate_is_verified(
    handlers: HandlerRegistry, fake_time: FakeTime
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    async with guarded(context) as (endpoint, listener):
        told = await failed(handlers, fake_time, endpoint.url)
        assert (told.result, told.spends_attempt) == (DeliveryResult.ERROR, False)
        assert "is not accepted" in told.detail
        assert endpoint.asked == []
        trusting = client(endpoint.url, ca_certificates=authority.cert_pem.bytes())
        handler = handlers.create_handler(to(listener.url, trusting))
        outcome = await Attempt(handler, fake_time).outcome()
        assert outcome.result is DeliveryResult.SUCCESS
        handler.close()


async def test_a_wrong_secret_holds_the_destination_and_is_not_shown(
    handlers: HandlerRegistry, fake_time: FakeTime
) -> None:
    async with guarded() as (endpoint, _):
        told = await failed(handlers, fake_time, endpoint.url, client_secret="planted-wrong")
        assert (told.result, told.hold) == (DeliveryResult.FATAL_ERROR, HoldCause.REFUSED)
        assert "HTTP 401: invalid_client" in told.detail
        assert "planted-wrong" not in told.detail


async def test_an_endpoint_that_is_down_spends_no_attempt(
    handlers: HandlerRegistry, fake_time: FakeTime
) -> None:
    async def gone(peer: Peer) -> None:
        peer.close()

    async with listening(gone) as endpoint:
        told = await failed(handlers, fake_time, endpoint.url)
    assert (told.result, told.spends_attempt, told.hold) == (DeliveryResult.ERROR, False, None)
    assert told.detail.startswith(f"localhost:{endpoint.port} gave no token: ")


async def test_an_address_that_is_not_allowed_is_not_asked(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    async with (
        guarded() as (endpoint, _),
        registry(fake_time, tmp_path, address_policy=AddressPolicy()) as handlers,
    ):
        given = to("https://93.184.216.34/", client(endpoint.url))
        handler = handlers.create_handler(given)
        told = await Attempt(handler, fake_time).outcome()
        handler.close()
        assert endpoint.connections == 0
    assert told.hold is HoldCause.ADDRESS
    assert "loopback" in told.detail


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n" + b"x" * 200_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"10000\r\n%b\r\n" % (b"x" * 65536) * 3,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000,
        b"\x00\x01 garbage \xff\r\n\r\n" * 100,
        b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"access_token":',
        b"HTTP/1.1 301 X\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_a_bad_answer_is_an_error_that_spends_no_attempt(
    handlers: HandlerRegistry, fake_time: FakeTime, answer: bytes
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)

    async with listening(script) as endpoint:
        told = await failed(handlers, fake_time, endpoint.url)
    assert (told.result, told.spends_attempt, told.hold) == (DeliveryResult.ERROR, False, None)
    assert "gave no token" in told.detail
    assert len(told.detail) < 400


async def test_an_endpoint_that_hangs_costs_its_own_destination_the_time_out(
    handlers: HandlerRegistry, fake_time: FakeTime
) -> None:
    reached, ended = asyncio.Event(), asyncio.Event()

    async def hang(peer: Peer) -> None:
        await peer.request()
        reached.set()
        await peer.closed()
        ended.set()

    async with listening(hang) as stuck, guarded() as (endpoint, listener):
        # Less than a token request may last.
        slow = to(listener.url, client(stuck.url), timeout_seconds=TIMEOUT / 2)
        handler = handlers.create_handler(slow)
        attempt = Attempt(handler, fake_time)
        await reached.wait()
        neighbor = handlers.create_handler(to(listener.url, client(endpoint.url), uid="v"))
        told = await Attempt(neighbor, fake_time).outcome(turn=0.0)
        assert told.result is DeliveryResult.SUCCESS
        fake_time.advance(TIMEOUT / 2 - 0.01)
        assert attempt.told == []
        fake_time.advance(0.02)
        (late,) = attempt.told
        assert (late.result, late.spends_attempt) == (DeliveryResult.ERROR, False)
        assert "timed out after 15 s" in late.detail
        await ended.wait()
        handler.close()
        neighbor.close()


async def test_a_listener_that_hangs_after_the_token_has_the_rest_of_the_time(
    handlers: HandlerRegistry, fake_time: FakeTime
) -> None:
    reached, asked, goes_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def token(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await goes_on.wait()
        text = b'{"access_token": "t"}'
        await peer.send(b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
        await peer.closed()

    async def hang(peer: Peer) -> None:
        await peer.request()
        reached.set()
        await peer.closed()

    async with listening(token) as endpoint, listening(hang) as listener:
        given = to(listener.url, client(endpoint.url), timeout_seconds=TIMEOUT)
        handler = handlers.create_handler(given)
        attempt = Attempt(handler, fake_time)
        await asked.wait()
        fake_time.advance(TIMEOUT / 2)
        goes_on.set()
        await reached.wait()
        fake_time.advance(TIMEOUT / 2 - 0.01)
        assert attempt.told == []
        fake_time.advance(0.02)
        (told,) = attempt.told
        assert told.result is DeliveryResult.POST_DELIVERY_ERROR
        handler.close()
