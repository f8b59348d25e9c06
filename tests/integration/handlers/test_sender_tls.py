"""The sender over TLS: verification, client certificates, and handshakes that go nowhere."""

import asyncio
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.handlers.transport.connector import build_context
from pillion_sidecar.testing import FakeTime
from support.certificates import nameless_server
from support.http_listener import Peer, listening, ok, request, send, sending


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> TLSOptions:
    return TLSOptions(ca_certificates=authority.cert_pem.bytes())


@pytest.fixture(scope="module")
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    return _server(authority, "localhost")


def _server(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def client(trusting: TLSOptions) -> ssl.SSLContext:
    return build_context(trusting)


async def answer_all(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.send(ok())


async def test_a_listener_of_a_trusted_authority_is_delivered_to(
    fake_time: FakeTime, server_context: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    async with (
        listening(answer_all, server_context) as listener,
        sending(listener.url, fake_time, tls=client) as sender,
    ):
        for _ in range(3):
            assert (await (await send(sender)).answer())[2] == b"ok"
        assert listener.connections == 1


async def test_whoever_is_sent_to_after_a_renewal_shows_who_he_is_again(
    fake_time: FakeTime, server_context: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    async with (
        listening(answer_all, server_context) as listener,
        sending(listener.url, fake_time, tls=client) as sender,
    ):
        sender.renew()
        for _ in range(2):
            assert (await (await send(sender)).answer())[2] == b"ok"
        assert listener.connections == 1
        sender.renew()
        for _ in range(2):
            assert (await (await send(sender)).answer())[2] == b"ok"
        assert listener.connections == 2


async def test_a_large_request_is_written_over_tls(
    fake_time: FakeTime, server_context: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    async with (
        listening(answer_all, server_context) as listener,
        sending(listener.url, fake_time, tls=client) as sender,
    ):
        for _ in range(2):
            answer = await (await send(sender, request(b"x" * 3_000_000))).answer()
            assert answer[0] == 200
        assert listener.connections == 1


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_certificate_for_another_name_is_an_error_that_says_so(
    fake_time: FakeTime, authority: trustme.CA, client: ssl.SSLContext, host: str
) -> None:
    context = _server(authority, "elsewhere.example")
    async with (
        listening(answer_all, context) as listener,
        sending(listener.url.replace("localhost", host), fake_time, tls=client) as sender,
    ):
        failure = await (await send(sender)).failure()
    assert failure.result is DeliveryResult.ERROR
    assert "certificate" in failure.detail
    assert f"not valid for '{host}'; its subjectAltName must hold the name" in failure.detail


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_name_in_the_subject_alone_counts_only_where_that_is_allowed(
    fake_time: FakeTime,
    authority: trustme.CA,
    trusting: TLSOptions,
    tmp_path: Path,
    allowed: bool,
) -> None:
    context = nameless_server(authority, "localhost", tmp_path)
    client = build_context(replace(trusting, allow_common_name=allowed))
    async with (
        listening(answer_all, context) as listener,
        sending(listener.url, fake_time, tls=client) as sender,
    ):
        recorder = await send(sender)
        if allowed:
            assert (await recorder.answer())[0] == 200
            return
        failure = await recorder.failure()
    assert failure.result is DeliveryResult.ERROR
    assert "subjectAltName" in failure.detail


async def test_a_certificate_of_an_unknown_authority_is_an_error_that_says_so(
    fake_time: FakeTime, client: ssl.SSLContext
) -> None:
    context = _server(trustme.CA(), "localhost")
    async with (
        listening(answer_all, context) as listener,
        sending(listener.url, fake_time, tls=client) as sender,
    ):
        failure = await (await send(sender)).failure()
    assert failure.result is DeliveryResult.ERROR
    assert "certificate" in failure.detail


async def test_without_verification_any_certificate_will_do(fake_time: FakeTime) -> None:
    context = _server(trustme.CA(), "elsewhere.example")
    async with (
        listening(answer_all, context) as listener,
        sending(listener.url, fake_time, tls=build_context(TLSOptions(verify=False))) as sender,
    ):
        assert (await (await send(sender)).answer())[0] == 200


async def test_a_client_certificate_is_shown_where_the_listener_asks(
    fake_time: FakeTime, authority: trustme.CA, trusting: TLSOptions
) -> None:
    context = _server(authority, "localhost")
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = authority.issue_cert("deliverer")
    options = replace(
        trusting,
        client_certificate=mine.cert_chain_pems[0].bytes(),
        client_key=mine.private_key_pem.bytes(),
    )
    async with (
        listening(answer_all, context) as listener,
        sending(listener.url, fake_time, tls=build_context(options)) as sender,
    ):
        assert (await (await send(sender)).answer())[0] == 200


async def test_a_client_certificate_that_is_missing_is_an_error(
    fake_time: FakeTime, authority: trustme.CA, client: ssl.SSLContext
) -> None:
    context = _server(authority, "localhost")
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    def refuse() -> None:
        # In TLS 1.3 the client is through before the server has looked for its certificate.
        connection, _ = server.accept()
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(connection, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://localhost:{server.getsockname()[1]}/"
        async with sending(url, fake_time, tls=client) as sender:
            recorder = await send(sender)
            await asyncio.to_thread(refuse)
            failure = await recorder.failure()
    assert failure.result is DeliveryResult.ERROR
    assert "certificate required" in failure.detail


async def test_a_handshake_that_stalls_is_given_up_at_the_deadline(
    fake_time: FakeTime, client: ssl.SSLContext
) -> None:
    greeted = asyncio.Event()
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.some()
        greeted.set()
        await peer.closed()
        gone.set()

    async with listening(script) as listener:
        url = listener.url.replace("http:", "https:")
        async with sending(url, fake_time, tls=client) as sender:
            recorder = await send(sender)
            await greeted.wait()
            fake_time.advance(30.0)
            failure = await recorder.failure()
            await gone.wait()
    assert failure.result is DeliveryResult.ERROR
    assert failure.detail.startswith(
        "timed out after 30 s while shaking hands (TLS) with 127.0.0.1"
    )


async def test_a_listener_that_closes_in_the_handshake_is_an_error(
    fake_time: FakeTime, client: ssl.SSLContext
) -> None:
    async def script(peer: Peer) -> None:
        await peer.some()
        peer.close()

    async with listening(script) as listener:
        url = listener.url.replace("http:", "https:")
        async with sending(url, fake_time, tls=client) as sender:
            failure = await (await send(sender)).failure()
    assert failure.result is DeliveryResult.ERROR
    assert f"no connection to 127.0.0.1 port {listener.port}" in failure.detail
    assert "closed the connection" in failure.detail


async def test_a_listener_without_tls_is_an_error(
    fake_time: FakeTime, client: ssl.SSLContext
) -> None:
    async def script(peer: Peer) -> None:
        await peer.some()
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.closed()

    async with listening(script) as listener:
        url = listener.url.replace("http:", "https:")
        async with sending(url, fake_time, tls=client) as sender:
            failure = await (await send(sender)).failure()
    assert failure.result is DeliveryResult.ERROR
    assert failure.detail.startswith("TLS handshake with 127.0.0.1")


async def test_an_idle_connection_that_says_good_bye_is_replaced(
    fake_time: FakeTime, server_context: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(ok())
        peer.close()

    async with (
        listening(script, server_context) as listener,
        sending(listener.url, fake_time, tls=client) as sender,
    ):
        for _ in range(3):
            assert (await (await send(sender)).answer())[0] == 200
        assert listener.connections == 3


async def test_an_answer_cut_off_over_tls_leaves_the_outcome_open(
    fake_time: FakeTime, server_context: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        peer.close()

    async with (
        listening(script, server_context) as listener,
        sending(listener.url, fake_time, tls=client) as sender,
    ):
        failure = await (await send(sender)).failure()
    assert (failure.result, failure.status) == (DeliveryResult.POST_DELIVERY_ERROR, 200)
