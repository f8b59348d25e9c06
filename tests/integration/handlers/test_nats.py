"""NATS against a server of the tests' own, and its bad days."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.protocols.nats import NATSDelivery, NATSOptions
from pillion_sidecar.testing import FakeTime
from support import broker_tests
from support.broker_tests import (
    ERROR,
    FATAL,
    MAYBE,
    SUCCESS,
    acknowledge_twice,
    check_address_not_allowed,
    check_unusable_url,
    server_tls,
    turns,
    until,
)
from support.handlers import delivery, indication
from support.nats_server import INFO, listening
from support.protocol_peers import AMPLE, BIG, Attempt

CORE = NATSOptions(subject="alerts.cim", delivery=NATSDelivery.CORE)


handling = partial(broker_tests.handling, "NATS")


async def told_of(handler: Handler, of: Delivery) -> DeliveryOutcome:
    told: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()
    handler.deliver(of, told.set_result)
    return await told


def trusting(authority: trustme.CA, **given: Any) -> TLSOptions:
    return TLSOptions(ca_certificates=authority.cert_pem.bytes(), **given)


async def test_messages_share_a_connection_and_come_in_order(fake_time: FakeTime) -> None:
    async with listening() as server, handling(fake_time, server.url) as handler:
        for number in range(3):
            body = b'{"class":"CIM_AlertIndication","properties":{"AlertType":%d}}' % number
            assert await Attempt(handler, fake_time, body).outcome() == SUCCESS
        assert server.connections == 1
    events = [json.loads(message.payload) for message in server.messages]
    assert [event["data"]["properties"]["AlertType"] for event in events] == [0, 1, 2]
    assert {message.subject for message in server.messages} == {"alerts.cim"}


async def test_a_retry_has_the_identifier_of_the_first_attempt(fake_time: FakeTime) -> None:
    of = indication()
    async with listening() as server, handling(fake_time, server.url) as handler:
        for _ in range(2):
            assert await told_of(handler, delivery(of)) == SUCCESS
    first, second = (message.headers["Nats-Msg-Id"] for message in server.messages)
    assert first == second


async def test_each_source_and_filter_has_identifiers_of_its_own(fake_time: FakeTime) -> None:
    async with listening() as server, handling(fake_time, server.url) as handler:
        for source, name in (("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")):
            of = delivery(indication(identifier="1", source=source), filter_name=name)
            assert await told_of(handler, of) == SUCCESS
    sent = [message.headers["Nats-Msg-Id"] for message in server.messages]
    assert sent == ["a%0Ax%0A1", "b%0Ax%0A1", "a%0Ay%0A1", "a%0Ax%0A1"]


@pytest.mark.parametrize("planted", ["a\r\nPUB x 0\r\n\r\n", "ü€ \x00 : \t", "a" * 5000, ""])
async def test_no_value_ends_a_header(fake_time: FakeTime, planted: str) -> None:
    of = indication(identifier=planted, source=f"s{planted}")
    async with listening() as server, handling(fake_time, server.url) as handler:
        assert await told_of(handler, delivery(of, filter_name=f"f{planted}")) == SUCCESS
    (message,) = server.messages
    assert sorted(message.headers) == ["Nats-Msg-Id", "content-type"]
    assert len(message.headers["Nats-Msg-Id"]) <= 255
    assert json.loads(message.payload)["id"] == planted


async def test_core_waits_until_the_server_has_read_it(fake_time: FakeTime) -> None:
    async with (
        listening(answer=None) as server,
        handling(fake_time, server.url, options=CORE) as handler,
    ):
        attempt = Attempt(handler, fake_time)
        await server.reached.wait()
        await turns()
        assert attempt.told == []
        server.say(b"PONG\r\n")
        assert await attempt.outcome() == SUCCESS


async def test_a_surplus_pong_acknowledges_nothing(fake_time: FakeTime) -> None:
    async with (
        listening(answer=None) as server,
        handling(fake_time, server.url, options=CORE) as handler,
    ):
        await acknowledge_twice(handler, server, b"PONG\r\n")


async def test_a_pong_that_nobody_asked_for_ends_the_connection(fake_time: FakeTime) -> None:
    async with listening() as server, handling(fake_time, server.url) as handler:
        await Attempt(handler, fake_time).outcome()
        server.say(b"PONG\r\n")
        await until(lambda: not server.writers)
        assert await Attempt(handler, fake_time).outcome() == SUCCESS


async def test_the_pings_of_a_server_are_answered(fake_time: FakeTime) -> None:
    answer = b"PING\r\n+OK\r\nMSG _INBOX.other 1 2\r\n{}\r\nINFO {}\r\n"
    answer += b'MSG REPLY 1 31\r\n{"stream":"alerts","seq":1    }\r\n'
    async with listening(answer=answer) as server, handling(fake_time, server.url) as handler:
        for _ in range(2):
            assert await Attempt(handler, fake_time).outcome() == SUCCESS


@pytest.mark.parametrize(
    ("answer", "result", "words"),
    [
        ({"error": {"code": 503, "err_code": 10008, "description": "no space"}}, ERROR, "no space"),
        ({"error": {}}, ERROR, "without a code"),
        ({"stream": 1}, MAYBE, "not an acknowledgement"),
        ({"stream": "", "seq": 1}, MAYBE, "not an acknowledgement"),
        ({"stream": "alerts", "seq": 0}, MAYBE, "not an acknowledgement"),
        (b"MSG REPLY 1 4\r\nnope\r\n", MAYBE, "not an acknowledgement"),
        (b"MSG REPLY 1 4\r\n[{}]\r\n", MAYBE, "not an acknowledgement"),
        (b"HMSG REPLY 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", FATAL, "no stream"),
        (b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n", ERROR, "refuses: Permissions"),
        (b"-ERR 'Maximum Payload Violation'\r\n", ERROR, "larger than the server takes"),
        (b"-ERR 'Stale Connection'\r\n", MAYBE, "Stale Connection; the broker may have"),
        (b"MSG REPLY 1 999999999\r\n", MAYBE, "longer than 65536"),
        (b"MSG REPLY 1\r\n", MAYBE, "no length"),
        (b"MSG REPLY 1 -1\r\n", MAYBE, "no length"),
        (b"HMSG REPLY 1 9 3\r\n", MAYBE, "longer than"),
        (b"MSG REPLY 1 1\r\nabc", MAYBE, "does not end where"),
        (b"\x00" * 70_000, MAYBE, "longer than 65536"),
        (b"HTTP/1.1 400 Bad Request\r\n", MAYBE, "does not speak NATS"),
        (b"\xff\r\n", MAYBE, "does not speak NATS"),
    ],
)
async def test_another_answer_is_told(
    fake_time: FakeTime, answer: Any, result: DeliveryResult, words: str
) -> None:
    async with listening(answer=answer) as server, handling(fake_time, server.url) as handler:
        told = await Attempt(handler, fake_time).outcome()
        assert told.result is result
        assert words in told.detail
        server.answer = {"stream": "alerts", "seq": 7}
        assert await Attempt(handler, fake_time).outcome() == SUCCESS


async def test_64_megabytes_are_not_kept(fake_time: FakeTime) -> None:
    async with (
        listening(answer=b"x" * (64 << 20)) as server,
        handling(fake_time, server.url) as handler,
    ):
        told = await Attempt(handler, fake_time).outcome()
    assert "line is longer" in told.detail


@pytest.mark.parametrize(
    ("given", "hold", "words"),
    [
        ({"refusal": b"-ERR 'Authorization Violation'\r\n"}, HoldCause.REFUSED, "Author"),
        ({"refusal": b"-ERR 'maximum connections exceeded'\r\n"}, None, "maximum connections"),
        ({"info": {**INFO, "tls_required": True}}, HoldCause.DESTINATION, "requires TLS"),
        ({"info": {**INFO, "headers": False}}, HoldCause.DESTINATION, "no message headers"),
        (
            {"injected": b"-ERR 'Secure Connection - TLS Required'\r\n"},
            HoldCause.DESTINATION,
            "TLS",
        ),
    ],
)
async def test_a_login_that_fails_sends_no_message(
    fake_time: FakeTime, given: Any, hold: HoldCause | None, words: str
) -> None:
    async with listening(**given) as server, handling(fake_time, server.url) as handler:
        told = await Attempt(handler, fake_time).outcome()
    assert (told.result, told.hold) == (ERROR, hold)
    assert words in told.detail
    assert server.messages == []


async def test_credentials_are_sent_and_not_shown(fake_time: FakeTime) -> None:
    refusal = b"-ERR 'Authorization Violation of planted-secret'\r\n"
    for credentials, sent in (
        (Credentials(username="u", password="planted-secret"), ("user", "pass")),
        (Credentials(bearer_token="planted-secret"), ("auth_token",)),
    ):
        async with (
            listening(refusal=refusal) as server,
            handling(fake_time, server.url, credentials=credentials) as handler,
        ):
            told = await Attempt(handler, fake_time).outcome()
        assert told.hold is HoldCause.REFUSED
        assert "planted" not in told.detail
        assert server.logins[0][sent[-1]] == "planted-secret"


async def test_nothing_that_a_server_says_is_shown_if_the_url_is_secret(
    fake_time: FakeTime,
) -> None:
    answer: Any
    for answer in ({"error": {"description": "planted"}}, b"-ERR 'planted'\r\n"):
        async with (
            listening(answer=answer) as server,
            handling(fake_time, server.url, url_is_secret=True) as handler,
        ):
            told = await Attempt(handler, fake_time).outcome()
        assert "planted" not in told.detail


async def test_a_larger_message_than_the_server_takes_is_not_sent(fake_time: FakeTime) -> None:
    async with (
        listening(info={**INFO, "max_payload": 1000}) as server,
        handling(fake_time, server.url) as handler,
    ):
        attempt = Attempt(handler, fake_time, BIG)
        assert attempt.told == []
        told = await attempt.outcome()
        assert (told.result, told.refuses_indication) == (ERROR, True)
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
        assert server.connections == 1


async def test_a_connection_that_was_closed_meanwhile_is_replaced(fake_time: FakeTime) -> None:
    async with listening() as server, handling(fake_time, server.url) as handler:
        await Attempt(handler, fake_time).outcome()
        server.hang_up()
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
        assert server.connections == 2
    assert len(server.messages) == 2


async def test_a_server_in_lame_duck_mode_is_left(fake_time: FakeTime) -> None:
    async with listening() as server, handling(fake_time, server.url) as handler:
        await Attempt(handler, fake_time).outcome()
        server.say(b'INFO {"ldm": true}\r\n')
        await until(lambda: not server.writers)
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
        assert server.connections == 2


async def test_an_idle_connection_is_closed(fake_time: FakeTime) -> None:
    async with listening() as server, handling(fake_time, server.url) as handler:
        await Attempt(handler, fake_time).outcome()
        fake_time.advance(AMPLE + 61)
        await until(lambda: not server.writers)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it sends no INFO"),
        (b"INFO nonsense\r\n", "it sends no INFO"),
        (b"INFO " + b"[" * 60_000 + b"\r\n", "it sends no INFO"),
        (b"PONG\r\nMSG a 1 0\r\n\r\n", "it sends no INFO"),
        (b"", "waiting for the server's INFO"),
    ],
)
async def test_a_peer_that_is_no_server_is_an_error(
    fake_time: FakeTime, said: bytes, words: str
) -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    peer = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with peer, handling(fake_time, f"nats://localhost:{_port(peer)}") as handler:
        told = await Attempt(handler, fake_time).outcome()
    assert told.result is ERROR
    assert words in told.detail


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def test_a_silent_server_costs_the_time_out(fake_time: FakeTime) -> None:
    connected = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    for scheme, words in (("nats", "while waiting for the server's INFO"), ("tls", "before TLS")):
        peer = await asyncio.start_server(hold, "127.0.0.1", 0)
        url = f"{scheme}://localhost:{_port(peer)}"
        async with peer, handling(fake_time, url, timeout_seconds=30.0) as handler:
            attempt = Attempt(handler, fake_time)
            await connected.wait()
            await turns()
            fake_time.advance(31)
            await turns()
            (told,) = attempt.told
        assert told.result is ERROR
        assert words in told.detail
        connected.clear()


@pytest.mark.parametrize("first", [False, True])
async def test_over_tls_the_certificate_is_verified(fake_time: FakeTime, first: bool) -> None:
    authority = trustme.CA()
    options = NATSOptions(subject="alerts", tls_first=first)
    async with listening(server_tls(authority, "nats.example"), tls_first=first) as server:
        given = {"tls": trusting(authority, server_name="nats.example"), "options": options}
        async with handling(fake_time, server.url, **given) as handler:
            for _ in range(2):
                assert await Attempt(handler, fake_time).outcome() == SUCCESS
        for tls in (TLSOptions(), trusting(authority)):
            async with handling(fake_time, server.url, options=options, tls=tls) as handler:
                told = await Attempt(handler, fake_time).outcome()
            assert told.result is ERROR
            assert "certificate" in told.detail
    assert len(server.messages) == 2
    assert len(server.logins) == 1


@pytest.mark.parametrize("injected", [b"-ERR 'planted'\r\n", b"PING"])
async def test_nothing_is_taken_from_before_tls(fake_time: FakeTime, injected: bytes) -> None:
    async with (
        listening(info={**INFO, "tls_required": True}, injected=injected) as server,
        handling(fake_time, server.url.replace("nats:", "tls:"), timeout_seconds=30.0) as handler,
    ):
        told = await Attempt(handler, fake_time).outcome()
    assert "more than INFO before TLS" in told.detail
    assert server.logins == []


async def test_no_password_is_sent_where_the_server_offers_no_tls(fake_time: FakeTime) -> None:
    async with listening() as server:
        url = server.url.replace("nats:", "tls:")
        credentials = Credentials(username="u", password="secret")
        given = {"credentials": credentials, "timeout_seconds": 30.0}
        async with handling(fake_time, url, **given) as handler:
            told = await Attempt(handler, fake_time).outcome()
    assert told.hold is HoldCause.DESTINATION
    assert "offers no TLS" in told.detail
    assert server.logins == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nats://localhost/subject", "has a path or a query"),
        ("http://localhost/", "use nats or tls"),
        ("nats://", "there is no host"),
        ("nats://u:planted@localhost", "must not hold credentials"),
    ],
)
async def test_a_url_that_nats_cannot_have_holds_the_destination(
    fake_time: FakeTime, url: str, words: str
) -> None:
    await check_unusable_url("NATS", fake_time, url, words)


async def test_an_address_that_is_not_allowed_holds_the_destination(fake_time: FakeTime) -> None:
    await check_address_not_allowed("NATS", fake_time, "nats://localhost")


async def test_what_no_event_can_express_is_fatal(fake_time: FakeTime) -> None:
    async with handling(fake_time, "nats://localhost") as handler:
        told = await Attempt(handler, fake_time, b"[]").outcome()
    assert told.result is DeliveryResult.FATAL_ERROR
    assert told.hold is None
