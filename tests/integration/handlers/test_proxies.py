"""Listeners behind an HTTP proxy, over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.config.schema.oauth2 import OAuth2
from pillion_sidecar.config.schema.proxy import ConnectTo, Proxy
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.protocols import PROTOCOLS
from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, listening, ok
from support.http_proxy import ACCOUNT, proxying
from support.name_server import name_server
from support.protocol_peers import ADAPTERS, AMPLE, TIMEOUT, Attempt, destination, registry
from support.token_endpoint import CLIENT, guarded

HTTP = ("CIM-XML", "CloudEvents", "Webhook", "StandardWebhooks")
LOGIN = Credentials(**ACCOUNT)
#: The proxy alone is at an address of loopback that is allowed.
PUBLIC = "93.184.216.34"


class LoopbackIs:
    """A policy by which one address of loopback is as any other."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed

    def check(self, address: str, /) -> str | None:
        return None if address in self._allowed else AddressPolicy().check(address)


@pytest_asyncio.fixture
async def handlers(fake_time: FakeTime, tmp_path: Path) -> AsyncIterator[HandlerRegistry]:
    async with registry(fake_time, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def serving(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(authority: trustme.CA, **given: Any) -> TLSOptions:
    return TLSOptions(ca_certificates=authority.cert_pem.bytes(), **given)


def behind(url: str, proxy_url: str, protocol: str = "CloudEvents", **given: Any) -> Any:
    proxy = Proxy(
        url=proxy_url,
        credentials=given.pop("login", None),
        connect_to=given.pop("connect_to", ConnectTo.ADDRESS),
    )
    return destination(protocol, url, proxy=proxy, **{"timeout_seconds": AMPLE, **given})


class Counting:
    """A listener that takes everything."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    async def serve(self, peer: Peer) -> None:
        while True:
            self.heads.append((await peer.request())[0])
            await peer.send(ok())


async def outcome(handlers: HandlerRegistry, time: FakeTime, given: Any) -> DeliveryOutcome:
    handler = handlers.create_handler(given)
    told = await Attempt(handler, time).outcome(turn=0.0)
    handler.close()
    return told


@pytest.mark.parametrize("protocol", HTTP)
async def test_a_plain_listener_is_sent_its_whole_url(
    handlers: HandlerRegistry, fake_time: FakeTime, protocol: str
) -> None:
    taken = Counting()
    async with proxying(account=True) as proxy, listening(taken.serve) as listener:
        given = behind(f"{listener.url}in?a=b", proxy.url, protocol, login=LOGIN)
        handler = handlers.create_handler(given)
        for _ in range(2):
            told = await Attempt(handler, fake_time).outcome(turn=0.0)
            assert told.result is DeliveryResult.SUCCESS or protocol == "CIM-XML"
        handler.close()
    assert proxy.asked == [f"POST {listener.url}in?a=b HTTP/1.1"]
    assert [head.count(b"Proxy-Authorization: Basic ") for head in taken.heads] == [1, 1]
    assert all(b"Host: localhost:%d\r\n" % listener.port in head for head in taken.heads)


@pytest.mark.parametrize("protocol", HTTP)
async def test_an_https_listener_is_reached_by_a_tunnel_that_is_kept(
    handlers: HandlerRegistry, fake_time: FakeTime, authority: trustme.CA, protocol: str
) -> None:
    taken = Counting()
    async with (
        proxying(account=True) as proxy,
        listening(taken.serve, serving(authority, "localhost")) as listener,
    ):
        given = behind(listener.url, proxy.url, protocol, login=LOGIN, tls=trusting(authority))
        handler = handlers.create_handler(given)
        for _ in range(2):
            told = await Attempt(handler, fake_time).outcome(turn=0.0)
            assert told.result is DeliveryResult.SUCCESS or protocol == "CIM-XML"
        handler.close()
    assert proxy.asked == [f"CONNECT 127.0.0.1:{listener.port} HTTP/1.1"]
    # The listener is shown neither the proxy nor its credentials.
    assert not any(b"Proxy" in head or b"http" in head.split()[1] for head in taken.heads)


async def test_a_tunnel_leads_to_the_name_where_the_proxy_wants_names(
    handlers: HandlerRegistry, fake_time: FakeTime, authority: trustme.CA
) -> None:
    context = serving(authority, "localhost")
    async with proxying() as proxy, listening(Counting().serve, context) as listener:
        given = behind(listener.url, proxy.url, tls=trusting(authority), connect_to=ConnectTo.NAME)
        told = await outcome(handlers, fake_time, given)
    assert told.result is DeliveryResult.SUCCESS
    assert proxy.asked == [f"CONNECT localhost:{listener.port} HTTP/1.1"]


async def test_the_listeners_certificate_is_verified_in_the_tunnel(
    handlers: HandlerRegistry, fake_time: FakeTime, authority: trustme.CA
) -> None:
    context = serving(authority, "other.example")
    taken = Counting()
    async with proxying() as proxy, listening(taken.serve, context) as listener:
        given = behind(listener.url, proxy.url, tls=trusting(authority))
        told = await outcome(handlers, fake_time, given)
        assert told.result is DeliveryResult.ERROR
        assert "the certificate of the listener behind the proxy is not accepted" in told.detail
        named = trusting(authority, server_name="other.example")
        told = await outcome(handlers, fake_time, behind(listener.url, proxy.url, tls=named))
        assert told.result is DeliveryResult.SUCCESS
    assert len(taken.heads) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("connect_to", ConnectTo)
async def test_the_policy_of_addresses_holds_for_what_is_behind_the_proxy(
    fake_time: FakeTime, tmp_path: Path, scheme: str, connect_to: ConnectTo
) -> None:
    async with (
        name_server("169.254.169.254") as (server, nameservers),
        proxying() as proxy,
    ):
        resolver = Resolver(nameservers=nameservers)
        policy = LoopbackIs("127.0.0.1")
        async with registry(
            fake_time, tmp_path, address_policy=policy, resolver=resolver
        ) as handlers:
            given = behind(f"{scheme}://hooks.example/", proxy.url, connect_to=connect_to)
            told = await outcome(handlers, fake_time, given)
        assert server.questions
        await resolver.close()
    assert told.hold is HoldCause.ADDRESS
    assert "cloud metadata" in told.detail
    assert proxy.asked == []


async def test_the_policy_of_addresses_holds_for_the_proxy(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    async with (
        proxying() as proxy,
        registry(fake_time, tmp_path, address_policy=AddressPolicy()) as handlers,
    ):
        told = await outcome(handlers, fake_time, behind(f"https://{PUBLIC}/", proxy.url))
    assert told.hold is HoldCause.ADDRESS
    assert told.detail.startswith("the proxy: 127.0.0.1 is a loopback address")
    assert proxy.asked == []


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("login", [None, Credentials(username="pillion", password="wrong-planted")])
async def test_credentials_that_the_proxy_refuses_hold_the_destination(
    handlers: HandlerRegistry, fake_time: FakeTime, scheme: str, login: Credentials | None
) -> None:
    async with proxying(account=True) as proxy:
        given = behind(f"{scheme}://{PUBLIC}/", proxy.url, login=login)
        told = await outcome(handlers, fake_time, given)
    assert told.hold is HoldCause.REFUSED
    assert "HTTP 407" in told.detail
    assert "planted" not in told.detail


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_listener_that_the_proxy_does_not_reach_is_an_error(
    handlers: HandlerRegistry, fake_time: FakeTime, scheme: str
) -> None:
    async with proxying() as proxy:
        proxy.leads_to = ("127.0.0.1", 1)
        told = await outcome(handlers, fake_time, behind(f"{scheme}://{PUBLIC}/", proxy.url))
    assert (told.result, told.hold, told.spends_attempt) == (DeliveryResult.ERROR, None, True)
    assert "HTTP 502" in told.detail


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "closed the connection without an answer"),
        (b"garbage\r\n\r\n", "is not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "longer than 16384 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "in front of the listener's"),
        (b"HTTP/1.1 403 planted\r\nX: planted\r\n\r\nplanted", "HTTP 403"),
        (b"HTTP/1.1 504 X\r\n\r\n", "HTTP 504"),
    ],
)
async def test_a_bad_answer_of_the_proxy_is_an_error(
    handlers: HandlerRegistry, fake_time: FakeTime, answer: bytes, says: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.some()
        await peer.send(answer)

    async with listening(script) as proxy:
        given = behind(f"https://{PUBLIC}/", proxy.url.rstrip("/"))
        told = await outcome(handlers, fake_time, given)
    assert (told.result, told.hold) == (DeliveryResult.ERROR, None)
    assert says in told.detail
    assert "planted" not in told.detail


async def test_a_proxy_that_is_down_is_named(
    handlers: HandlerRegistry, fake_time: FakeTime
) -> None:
    told = await outcome(handlers, fake_time, behind(f"https://{PUBLIC}/", "http://127.0.0.1:1"))
    assert told.result is DeliveryResult.ERROR
    assert told.detail == "the proxy: connection refused by 127.0.0.1 port 1"


async def test_a_proxy_that_hangs_costs_the_time_out_and_no_socket_stays(
    handlers: HandlerRegistry, fake_time: FakeTime
) -> None:
    reached, ended = asyncio.Event(), asyncio.Event()

    async def hang(peer: Peer) -> None:
        await peer.some()
        reached.set()
        await peer.closed()
        ended.set()

    async with listening(hang) as proxy:
        given = behind(f"https://{PUBLIC}/", proxy.url.rstrip("/"), timeout_seconds=TIMEOUT)
        handler = handlers.create_handler(given)
        attempt = Attempt(handler, fake_time)
        await reached.wait()
        fake_time.advance(TIMEOUT - 0.01)
        assert attempt.told == []
        fake_time.advance(0.02)
        (told,) = attempt.told
        assert told.detail == "timed out after 30 s while waiting for the proxy's tunnel"
        await ended.wait()
        handler.close()


async def test_a_url_from_a_secret_is_not_shown_behind_a_proxy(
    handlers: HandlerRegistry, fake_time: FakeTime, authority: trustme.CA
) -> None:
    context = serving(authority, "other.example")
    async with proxying() as proxy, listening(Counting().serve, context) as listener:
        given = behind(listener.url, proxy.url, tls=trusting(authority), url_is_secret=True)
        told = await outcome(handlers, fake_time, given)
    assert told.result is DeliveryResult.ERROR
    assert [one for one in ("localhost", str(listener.port)) if one in told.detail] == []


async def test_an_answer_that_quotes_the_proxys_credentials_is_not_shown(
    handlers: HandlerRegistry, fake_time: FakeTime
) -> None:
    async def script(peer: Peer) -> None:
        head, _ = await peer.request()
        quoted = head.partition(b"Proxy-Authorization: ")[2].split(b"\r\n")[0]
        body = quoted + b" planted-proxy-word"
        await peer.send(b"HTTP/1.1 407 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    async with listening(script) as proxy:
        given = behind(f"http://{PUBLIC}/", proxy.url.rstrip("/"), "Webhook", login=LOGIN)
        told = await outcome(handlers, fake_time, given)
    assert told.hold is HoldCause.REFUSED
    assert told.detail == "the proxy refuses the credentials (HTTP 407)"


async def test_a_token_is_asked_for_through_the_proxy(
    handlers: HandlerRegistry, fake_time: FakeTime
) -> None:
    async with proxying(account=True) as proxy, guarded() as (endpoint, taken):
        # Of this machine by another name, which is asked for without a proxy.
        token_url = endpoint.url.replace("//localhost:", "//localhost.:")
        client = OAuth2(
            token_url=token_url,
            client_id=CLIENT["clientId"],
            client_secret=CLIENT["clientSecret"],
        )
        given = behind(taken.url, proxy.url, login=LOGIN, credentials=Credentials(oauth2=client))
        told = await outcome(handlers, fake_time, given)
    assert told.result is DeliveryResult.SUCCESS
    assert [line.split()[1] for line in proxy.asked] == [token_url, taken.url]


def test_every_protocol_over_http_is_tested_here() -> None:
    assert set(HTTP) == {one.name for one in PROTOCOLS.values() if one.takes_proxy}
    assert set(HTTP) <= set(ADAPTERS)
