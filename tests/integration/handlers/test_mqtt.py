"""MQTT against a broker of the tests' own, and its bad days."""

import asyncio
import json
import socket
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from pillion_sidecar.protocols.mqtt import MQTTOptions
from pillion_sidecar.testing import FakeTime
from support import broker_tests
from support.broker_tests import (
    ERROR,
    MAYBE,
    SUCCESS,
    acknowledge_twice,
    check_address_not_allowed,
    check_unusable_url,
    server_tls,
    turns,
    until,
)
from support.mqtt_broker import ACCEPTED, PUBACK, PUBREC, listening, puback
from support.protocol_peers import AMPLE, BIG, Attempt

handling = partial(broker_tests.handling, "MQTT")


async def test_messages_share_a_connection_and_come_in_order(fake_time: FakeTime) -> None:
    async with listening() as broker, handling(fake_time, broker.url) as handler:
        for number in range(3):
            body = b'{"class":"CIM_AlertIndication","properties":{"AlertType":%d}}' % number
            assert await Attempt(handler, fake_time, body).outcome() == SUCCESS
    (client,) = broker.clients
    events = [json.loads(message.payload) for message in broker.messages]
    assert [event["data"]["properties"]["AlertType"] for event in events] == [0, 1, 2]
    assert {message.topic for message in broker.messages} == {"alerts/cim"}
    assert broker.messages[0].properties == {1: b"\x01", 3: b"application/cloudevents+json"}
    assert len(client.name) == 23
    assert client.name.isalnum()


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_the_options_reach_the_message(fake_time: FakeTime, qos: int) -> None:
    options = MQTTOptions(topic="a/b c", qos=qos, retain=True, expiry_seconds=7)
    async with (
        listening(answer=PUBREC if qos == 2 else PUBACK) as broker,
        handling(fake_time, broker.url, options=options, timeout_seconds=30.0) as handler,
    ):
        for _ in range(2):
            assert await Attempt(handler, fake_time).outcome() == SUCCESS
    for message in broker.messages:
        assert (message.topic, message.qos, message.retain) == ("a/b c", qos, True)
        assert message.properties[2] == b"\0\0\0\x07"


async def test_qos_0_waits_until_the_broker_has_read_it(fake_time: FakeTime) -> None:
    async with (
        listening(answer=None) as broker,
        handling(fake_time, broker.url, options=MQTTOptions(topic="a", qos=0)) as handler,
    ):
        attempt = Attempt(handler, fake_time)
        await broker.reached.wait()
        await turns()
        assert attempt.told == []
        broker.say(b"\xd0\x00")
        assert await attempt.outcome() == SUCCESS


async def test_a_surplus_pingresp_acknowledges_nothing(fake_time: FakeTime) -> None:
    async with (
        listening(answer=None) as broker,
        handling(fake_time, broker.url, options=MQTTOptions(topic="a", qos=0)) as handler,
    ):
        await acknowledge_twice(handler, broker, b"\xd0\x00")


async def test_qos_2_waits_for_the_second_answer(fake_time: FakeTime) -> None:
    async with (
        listening(answer=PUBREC) as broker,
        handling(fake_time, broker.url, options=MQTTOptions(topic="a", qos=2)) as handler,
    ):
        broker.answer = b"\x50\x03ID\x97"
        told = await Attempt(handler, fake_time).outcome()
        assert (told.result, "quota exceeded" in told.detail) == (ERROR, True)
        # It would be told by PUBREC alone.
        broker.answer = PUBREC + b"\x70\x03ID\x92"
        told = await Attempt(handler, fake_time).outcome()
        assert (told.result, "answers PUBREL" in told.detail) == (MAYBE, True)
        broker.answer = b"\x70\x03ID\x00"
        told = await Attempt(handler, fake_time).outcome()
        assert (told.result, "has not received" in told.detail) == (MAYBE, True)


async def test_a_broker_without_subscribers_has_the_message(fake_time: FakeTime) -> None:
    async with listening(answer=puback(0x10)) as broker, handling(fake_time, broker.url) as handler:
        told = await Attempt(handler, fake_time).outcome()
    assert told.result is DeliveryResult.SUCCESS
    assert "no subscriber" in told.detail


@pytest.mark.parametrize(
    ("answer", "result", "hold", "words"),
    [
        (puback(0x97, b"full\r\nup"), ERROR, None, "quota exceeded (0x97): full"),
        (puback(0x87), ERROR, HoldCause.REFUSED, "not authorized"),
        (puback(0x90), ERROR, HoldCause.DESTINATION, "topic name invalid"),
        (puback(0xFF), ERROR, None, "unspecified error (0xff)"),
        (b"\x40\x03ID\x80", ERROR, None, "unspecified error"),
        (b"\x40\x02\xff\xff", MAYBE, None, "not under way"),
        (b"\x40\x01I", MAYBE, None, "not complete"),
        (b"\x40\x05ID\x80\x7f\x1f", MAYBE, None, "not complete"),
        (b"\x40\x07ID\x80\x03\x1f\xff\xff", MAYBE, None, "not complete"),
        (b"\x40\x06ID\x80\x02\x7e\x00", MAYBE, None, "unknown property"),
        (b"\x50\x02ID", MAYBE, None, "unexpected packet"),
        (b"\x30\x03\x00\x00\x00", MAYBE, None, "unexpected packet"),
        (b"\x00\x00", MAYBE, None, "unexpected packet"),
        (b"\x40\xff\xff\xff\x7f", MAYBE, None, "longer than"),
        (b"\x40\xff\xff\xff\xff\x7f", MAYBE, None, "does not speak MQTT"),
        (b"\xe0\x00", MAYBE, None, "ends the connection"),
        (b"\xe0\x01\x8b", MAYBE, None, "server shutting down"),
        (b"\xe0\x01\x87", ERROR, HoldCause.REFUSED, "not authorized"),
    ],
)
async def test_another_answer_is_told(
    fake_time: FakeTime,
    answer: bytes,
    result: DeliveryResult,
    hold: HoldCause | None,
    words: str,
) -> None:
    async with (
        listening(answer=answer) as broker,
        handling(fake_time, broker.url, timeout_seconds=30.0) as handler,
    ):
        told = await Attempt(handler, fake_time).outcome()
        assert (told.result, told.hold) == (result, hold)
        assert words in told.detail
        broker.answer = PUBACK
        assert await Attempt(handler, fake_time).outcome() == SUCCESS


@pytest.mark.parametrize("reason", [0x95, 0x99])
async def test_a_refusal_of_one_message_is_about_it_alone(fake_time: FakeTime, reason: int) -> None:
    async with (
        listening(answer=puback(reason)) as broker,
        handling(fake_time, broker.url) as handler,
    ):
        told = await Attempt(handler, fake_time).outcome()
    assert (told.result, told.hold, told.refuses_indication) == (ERROR, None, True)


CREDENTIALS, DESTINATION = HoldCause.REFUSED, HoldCause.DESTINATION


@pytest.mark.parametrize(
    ("connack", "hold", "words"),
    [
        (b"\x20\x03\x00\x86\x00", CREDENTIALS, "bad user name or password"),
        (b"\x20\x03\x00\x87\x00", CREDENTIALS, "not authorized"),
        (b"\x20\x03\x00\x88\x00", None, "server unavailable"),
        (b"\x20\x02\x00\x01", DESTINATION, "does not speak MQTT 5"),
        (b"\x20\x03\x00\x84\x00", DESTINATION, "unsupported protocol version"),
        (b"\x20\x05\x00\x00\x02\x24\x00", DESTINATION, "QoS 0 at most"),
        (b"\x20\x05\x00\x00\x02\x25\x00", DESTINATION, "retains no messages"),
        (b"\x20\x02\x00\x00", None, "CONNACK is not complete"),
        (b"\x20\x04\x00\x00\x05\x1f", None, "not complete"),
        (b"\xe0\x02\x9c\x00", None, "use another server"),
        (PUBACK, None, "sends no CONNACK"),
        (b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 99, None, "sends no CONNACK"),
        (b"x" * 70_000, None, "sends no CONNACK"),
    ],
)
async def test_a_login_that_fails_sends_no_message(
    fake_time: FakeTime, connack: bytes, hold: HoldCause | None, words: str
) -> None:
    options = MQTTOptions(topic="a", retain=True)
    async with (
        listening(connack=connack) as broker,
        handling(fake_time, broker.url, options=options, timeout_seconds=30.0) as handler,
    ):
        told = await Attempt(handler, fake_time).outcome()
    assert (told.result, told.hold) == (ERROR, hold)
    assert words in told.detail
    assert broker.messages == []


async def test_what_else_a_broker_says_at_login_is_read(fake_time: FakeTime) -> None:
    properties = b"\x11\0\0\0\0\x21\0\x14\x24\x01\x25\x01\x27\0\0\x03\xe8\x12\0\x01c\x22\0\x0a"
    properties += b"\x28\x01\x29\x01\x2a\x01\x13\0\x3c\x26\0\x01a\0\x01b\x1f\0\x02ok"
    connack = bytes([0x20, 3 + len(properties), 0, 0, len(properties)]) + properties
    async with listening(connack=connack) as broker, handling(fake_time, broker.url) as handler:
        attempt = Attempt(handler, fake_time, BIG)
        assert attempt.told == []
        told = await attempt.outcome()
        assert (told.result, told.refuses_indication) == (ERROR, True)
        assert "and the broker takes 1000" in told.detail
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
        assert len(broker.clients) == 1
    assert len(broker.messages) == 1


async def test_credentials_are_sent_and_not_shown(fake_time: FakeTime) -> None:
    connack = b"\x20\x15\x00\x86\x12\x1f\x00\x0fplanted-secret!"
    for credentials, sent in (
        (Credentials(username="ü", password="planted-secret"), ("ü".encode(), b"planted-secret")),
        (Credentials(bearer_token="planted-secret"), (None, b"planted-secret")),
    ):
        async with (
            listening(connack=connack) as broker,
            handling(fake_time, broker.url, credentials=credentials) as handler,
        ):
            told = await Attempt(handler, fake_time).outcome()
        assert told.hold is HoldCause.REFUSED
        assert "planted" not in told.detail
        (client,) = broker.clients
        assert (client.username, client.password) == sent


async def test_a_password_that_mqtt_cannot_carry_holds_the_destination(
    fake_time: FakeTime,
) -> None:
    given = {"credentials": Credentials(username="u", password="p" * 70_000)}
    async with handling(fake_time, "mqtt://localhost", **given) as handler:
        told = await Attempt(handler, fake_time).outcome()
    assert told.hold is HoldCause.CREDENTIALS


async def test_nothing_that_a_broker_says_is_shown_if_the_url_is_secret(
    fake_time: FakeTime,
) -> None:
    given: Any
    for given in (
        {"answer": puback(0x97, b"planted")},
        {"connack": b"\x20\x0d\x00\x86\x0a\x1f\x00\x07planted"},
        {"answer": b"\xe0\x0c\x8b\x0a\x1f\x00\x07planted"},
    ):
        async with (
            listening(**given) as broker,
            handling(fake_time, broker.url, url_is_secret=True) as handler,
        ):
            told = await Attempt(handler, fake_time).outcome()
        assert told.result in (ERROR, MAYBE)
        assert "planted" not in told.detail


async def test_a_connection_that_was_closed_meanwhile_is_replaced(fake_time: FakeTime) -> None:
    async with listening() as broker, handling(fake_time, broker.url) as handler:
        await Attempt(handler, fake_time).outcome()
        broker.hang_up()
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
        broker.say(b"\xe0\x01\x8b")
        await until(lambda: not broker.writers)
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
    first, second, third = broker.clients
    assert len({first.name, second.name, third.name}) == 3
    assert len(broker.messages) == 3


async def test_an_idle_connection_says_good_bye(fake_time: FakeTime) -> None:
    async with listening() as broker, handling(fake_time, broker.url) as handler:
        await Attempt(handler, fake_time).outcome()
        fake_time.advance(AMPLE + 61)
        await until(lambda: not broker.writers)
        assert broker.others == [14]


async def test_no_connection_is_silent_for_longer_than_it_says(fake_time: FakeTime) -> None:
    for timeout, keep_alive in ((30.0, 90), (AMPLE, 65_535)):
        async with (
            listening() as broker,
            handling(fake_time, broker.url, timeout_seconds=timeout) as handler,
        ):
            await Attempt(handler, fake_time).outcome()
        assert [client.keep_alive for client in broker.clients] == [keep_alive]


@pytest.mark.parametrize("qos", [0, 1])
async def test_the_keep_alive_of_a_broker_is_kept(fake_time: FakeTime, qos: int) -> None:
    options = MQTTOptions(topic="a", qos=qos)
    async with (
        # Its Server Keep Alive is 10 seconds.
        listening(connack=b"\x20\x06\x00\x00\x03\x13\x00\x0a", answer=None) as broker,
        handling(fake_time, broker.url, options=options) as handler,
    ):
        attempt = Attempt(handler, fake_time)
        await broker.reached.wait()
        await turns()
        # QoS 0 has one of its own.
        pings = 4 if qos == 0 else 3
        fake_time.advance(30)
        await until(lambda: broker.others.count(12) == pings)
        # The answers to pings are none to the message.
        broker.say(b"\xd0\x00" * 3)
        await turns()
        assert attempt.told == []
        broker.say(b"\xd0\x00" if qos == 0 else b"\x40\x02\x00\x01")
        assert await attempt.outcome() == SUCCESS


async def test_over_tls_the_certificate_is_verified(fake_time: FakeTime) -> None:
    authority = trustme.CA()
    trusting = TLSOptions(ca_certificates=authority.cert_pem.bytes())
    async with listening(server_tls(authority, "localhost")) as broker:
        async with handling(fake_time, broker.url, tls=trusting) as handler:
            for _ in range(2):
                assert await Attempt(handler, fake_time).outcome() == SUCCESS
        async with handling(fake_time, broker.url) as handler:
            told = await Attempt(handler, fake_time).outcome()
    assert told.result is ERROR
    assert "certificate" in told.detail
    assert len(broker.clients) == 1


async def test_a_silent_broker_costs_the_time_out(fake_time: FakeTime) -> None:
    async with (
        listening(connack=b"") as broker,
        handling(fake_time, broker.url, timeout_seconds=30.0) as handler,
    ):
        told = await Attempt(handler, fake_time).outcome()
    assert told.result is ERROR
    assert told.detail == "timed out after 30 s while waiting for the broker's CONNACK"


async def test_after_a_time_out_the_rest_of_a_message_is_not_sent(fake_time: FakeTime) -> None:
    loop, received = asyncio.get_running_loop(), 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.setblocking(False)
        url = f"mqtt://localhost:{server.getsockname()[1]}"
        async with handling(fake_time, url, timeout_seconds=30.0) as handler:
            attempt = Attempt(handler, fake_time, BIG[:-3] + b"x" * (16 << 20) + BIG[-3:])
            connection, _ = await loop.sock_accept(server)
            with connection:
                await loop.sock_recv(connection, 4096)
                # It lets the client in, and reads no more.
                await loop.sock_sendall(connection, ACCEPTED)
                received += len(await loop.sock_recv(connection, 16))
                fake_time.advance(31)
                await turns()
                (told,) = attempt.told
                with suppress(ConnectionResetError):
                    while data := await loop.sock_recv(connection, 65536):
                        received += len(data)
    assert told.result is ERROR
    assert told.detail == "timed out after 30 s before it had the message"
    # No more than the systems' buffers held.
    assert received < 16 << 20


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mqtt://localhost/topic", "has a path or a query"),
        ("http://localhost/", "use mqtt or mqtts"),
        ("mqtt://", "there is no host"),
    ],
)
async def test_a_url_that_mqtt_cannot_have_holds_the_destination(
    fake_time: FakeTime, url: str, words: str
) -> None:
    await check_unusable_url("MQTT", fake_time, url, words)


async def test_an_address_that_is_not_allowed_holds_the_destination(fake_time: FakeTime) -> None:
    await check_address_not_allowed("MQTT", fake_time, "mqtt://localhost")


async def test_a_large_message_arrives_whole(fake_time: FakeTime) -> None:
    async with listening() as broker, handling(fake_time, broker.url) as handler:
        assert await Attempt(handler, fake_time, BIG).outcome() == SUCCESS
    (message,) = broker.messages
    assert len(message.payload) > len(BIG)
    assert json.loads(message.payload)["data"]["properties"]["Description"][:3] == "xxx"
