"""Syslog against a listener of the tests' own: TCP, TLS, and its bad days."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.handlers.syslog.wire import PROBATION
from pillion_sidecar.protocols.syslog import SyslogMessage, SyslogOptions
from pillion_sidecar.testing import FakeTime
from support.protocol_peers import AMPLE, BIG, Attempt, destination, registry
from support.syslog_listener import listening


@asynccontextmanager
async def handling(time: FakeTime, url: str, **given: Any) -> AsyncIterator[Handler]:
    async with registry(time, None) as made:
        chosen = {"timeout_seconds": AMPLE, **given}
        handler = made.create_handler(destination("Syslog", url, **chosen))
        try:
            yield handler
        finally:
            handler.close()


def server_tls(authority: trustme.CA, *names: str, clients: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    if clients:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def trusting(authority: trustme.CA, **given: Any) -> TLSOptions:
    return TLSOptions(ca_certificates=authority.cert_pem.bytes(), **given)


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_messages_share_a_connection_and_come_in_order(fake_time: FakeTime) -> None:
    async with listening() as listener, handling(fake_time, listener.url) as handler:
        for _ in range(3):
            told = await Attempt(handler, fake_time).outcome()
            assert told == DeliveryOutcome(DeliveryResult.SUCCESS)
        assert listener.connections == 1
    assert [one.text for one in listener.messages] == 3 * ["CIM_AlertIndication"]


async def test_only_the_first_message_of_a_connection_waits(fake_time: FakeTime) -> None:
    async with listening() as listener, handling(fake_time, listener.url) as handler:
        first = Attempt(handler, fake_time)
        await turns(2000)
        assert first.told == []
        fake_time.advance(PROBATION + 1)
        await turns()
        assert len(first.told) == 1
        begun = fake_time.monotonic()
        assert (await Attempt(handler, fake_time).outcome()).result is DeliveryResult.SUCCESS
        assert fake_time.monotonic() - begun < PROBATION


async def test_the_options_reach_the_message(fake_time: FakeTime) -> None:
    options = SyslogOptions(facility="daemon", app_name="x", message=SyslogMessage.JSON)
    async with (
        listening() as listener,
        handling(fake_time, listener.url, options=options) as handler,
    ):
        await Attempt(handler, fake_time).outcome()
    (told,) = listener.messages
    assert (told.facility, told.app, told.text[0]) == (3, "x", "{")


async def test_a_message_larger_than_all_buffers_arrives_whole(fake_time: FakeTime) -> None:
    options = SyslogOptions(message=SyslogMessage.JSON, max_bytes=2 * len(BIG))
    async with (
        listening() as listener,
        handling(fake_time, listener.url, options=options) as handler,
    ):
        told = await Attempt(handler, fake_time, 8 * b" " + BIG).outcome()
    assert told.result is DeliveryResult.SUCCESS
    assert len(listener.messages[0].text) > len(BIG)


async def test_over_tls_the_certificate_is_verified(fake_time: FakeTime) -> None:
    authority = trustme.CA()
    async with listening(server_tls(authority, "localhost")) as listener:
        given = {"tls": trusting(authority)}
        async with handling(fake_time, listener.url, **given) as handler:
            for _ in range(2):
                assert (
                    await Attempt(handler, fake_time).outcome()
                ).result is DeliveryResult.SUCCESS
        async with handling(fake_time, listener.url) as handler:
            told = await Attempt(handler, fake_time).outcome()
    assert told.result is DeliveryResult.ERROR
    assert "certificate" in told.detail
    assert len(listener.messages) == 2


async def test_the_server_name_is_an_option(fake_time: FakeTime) -> None:
    authority = trustme.CA()
    given = {"tls": trusting(authority, server_name="logs.example")}
    async with (
        listening(server_tls(authority, "logs.example")) as listener,
        handling(fake_time, listener.url, **given) as handler,
    ):
        assert (await Attempt(handler, fake_time).outcome()).result is DeliveryResult.SUCCESS


async def test_a_client_certificate_is_presented(fake_time: FakeTime) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("deliverer.example")
    given = {
        "tls": trusting(
            authority,
            client_certificate=own.cert_chain_pems[0].bytes(),
            client_key=own.private_key_pem.bytes(),
        )
    }
    async with (
        listening(server_tls(authority, "localhost", clients=True)) as listener,
        handling(fake_time, listener.url, **given) as handler,
    ):
        assert (await Attempt(handler, fake_time).outcome()).result is DeliveryResult.SUCCESS


async def test_a_client_that_is_refused_after_the_handshake_is_told(fake_time: FakeTime) -> None:
    authority = trustme.CA()
    async with (
        listening(server_tls(authority, "localhost", clients=True)) as listener,
        handling(fake_time, listener.url, tls=trusting(authority)) as handler,
    ):
        attempt = Attempt(handler, fake_time)
        # No time passes: the alert comes during the probation.
        await attempt.outcome(turn=0.0)
    assert attempt.told[0].result in (DeliveryResult.ERROR, DeliveryResult.POST_DELIVERY_ERROR)
    assert listener.messages == []


async def test_a_connection_that_was_closed_meanwhile_is_replaced(fake_time: FakeTime) -> None:
    async with listening() as listener, handling(fake_time, listener.url) as handler:
        await Attempt(handler, fake_time).outcome()
        listener.hang_up()
        told = await Attempt(handler, fake_time).outcome()
        assert told.result is DeliveryResult.SUCCESS
        assert listener.connections == 2
    assert len(listener.messages) == 2


async def test_an_idle_connection_is_closed(fake_time: FakeTime) -> None:
    async with listening() as listener, handling(fake_time, listener.url) as handler:
        await Attempt(handler, fake_time).outcome()
        fake_time.advance(AMPLE + 61)
        await turns()
        await Attempt(handler, fake_time).outcome()
        assert listener.connections == 2


async def one_connection(server: socket.socket) -> socket.socket:
    connection, _ = await asyncio.get_running_loop().sock_accept(server)
    return connection


@asynccontextmanager
async def accepting() -> AsyncIterator[tuple[str, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.setblocking(False)
        yield f"syslog://localhost:{server.getsockname()[1]}", server


@pytest.mark.parametrize("resets", [False, True])
async def test_a_listener_that_closes_after_the_first_message_is_no_success(
    fake_time: FakeTime, resets: bool
) -> None:
    async with accepting() as (url, server), handling(fake_time, url) as handler:
        attempt = Attempt(handler, fake_time)
        with await one_connection(server) as connection:
            await asyncio.get_running_loop().sock_recv(connection, 65536)
            if resets:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await attempt.outcome(turn=0.0)
    (told,) = attempt.told
    assert told.result is DeliveryResult.POST_DELIVERY_ERROR
    assert "the listener may have the message" in told.detail
    assert ("reset" in told.detail) == resets


async def test_a_listener_that_closes_before_it_had_the_message_is_an_error(
    fake_time: FakeTime,
) -> None:
    async with accepting() as (url, server), handling(fake_time, url) as handler:
        attempt = Attempt(handler, fake_time, BIG)
        with await one_connection(server) as connection:
            await asyncio.get_running_loop().sock_recv(connection, 16)
            # It reads no more, and says so without a reset.
            connection.shutdown(socket.SHUT_WR)
            await attempt.outcome(turn=0.0)
    (told,) = attempt.told
    assert told.result is DeliveryResult.ERROR
    assert told.detail == "the listener closed the connection before it had the message"


async def test_after_a_time_out_the_rest_of_a_message_is_not_sent(fake_time: FakeTime) -> None:
    async with (
        accepting() as (url, server),
        handling(fake_time, url, timeout_seconds=30.0) as handler,
    ):
        attempt = Attempt(handler, fake_time, BIG)
        with await one_connection(server) as connection:
            await turns()
            fake_time.advance(31)
            await turns()
            (told,) = attempt.told
            received = await drained(connection)
    assert told.result in (DeliveryResult.ERROR, DeliveryResult.POST_DELIVERY_ERROR)
    assert "timed out after 30 s" in told.detail
    assert received < len(BIG)


async def drained(connection: socket.socket) -> int:
    """Read until the peer ends the connection; return the number of bytes."""
    loop, received = asyncio.get_running_loop(), 0
    try:
        while data := await loop.sock_recv(connection, 65536):
            received += len(data)
    except ConnectionResetError:
        pass
    return received


async def test_nobody_listening_is_an_error(fake_time: FakeTime) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    async with handling(fake_time, f"syslog://localhost:{port}") as handler:
        told = await Attempt(handler, fake_time).outcome()
    assert told.result is DeliveryResult.ERROR
    assert "connection refused" in told.detail


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("syslog://localhost/path", "has a path or a query"),
        ("syslog://localhost?x=1", "has a path or a query"),
        ("http://localhost/", "use syslog or syslogs"),
        ("syslog://", "there is no host"),
        ("syslog://localhost:99999", "port"),
    ],
)
async def test_a_url_that_syslog_cannot_have_holds_the_destination(
    fake_time: FakeTime, url: str, words: str
) -> None:
    async with handling(fake_time, url) as handler:
        told = await Attempt(handler, fake_time).outcome()
    assert (told.result, told.hold) == (DeliveryResult.FATAL_ERROR, HoldCause.DESTINATION)
    assert words in told.detail


async def test_an_address_that_is_not_allowed_holds_the_destination(fake_time: FakeTime) -> None:
    async with registry(fake_time, None, address_policy=AddressPolicy()) as made:
        handler = made.create_handler(destination("Syslog", "syslog://localhost"))
        told = await Attempt(handler, fake_time).outcome()
        handler.close()
    assert told.hold is HoldCause.ADDRESS


async def test_what_syslog_cannot_express_is_fatal(fake_time: FakeTime) -> None:
    async with handling(fake_time, "syslog://localhost") as handler:
        told = await Attempt(handler, fake_time, b"[]").outcome()
    assert told.result is DeliveryResult.FATAL_ERROR
    assert told.hold is None
