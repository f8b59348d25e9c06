"""Kafka against a broker of the tests' own: keys, batches, errors, and its bad days."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.handlers.kafka.codec import partition_of
from pillion_sidecar.handlers.kafka.producer import REFRESH_SECONDS
from pillion_sidecar.handlers.kafka.wire import ANSWER_LIMIT
from pillion_sidecar.handlers.transport.outgoing import OutgoingConnections
from pillion_sidecar.protocols.kafka import (
    KafkaAcks,
    KafkaCompression,
    KafkaKey,
    KafkaOptions,
    SASLMechanism,
)
from pillion_sidecar.testing import FakeTime
from support.broker_tests import turns, until
from support.handlers import delivery, indication
from support.kafka_broker import CLOSE, HANG, TOPIC, KafkaBroker, broking
from support.protocol_peers import AMPLE, BIG, TURN, Attempt, destination, registry

SUCCESS, ERROR = DeliveryResult.SUCCESS, DeliveryResult.ERROR
FATAL, POST = DeliveryResult.FATAL_ERROR, DeliveryResult.POST_DELIVERY_ERROR
LOGIN = Credentials(username="writer", password="correct horse")
#: Bytes of a description that make a batch of ten longer than those of one record.
LONG = b'{"class":"CIM_AlertIndication","properties":{"Description":"%b"}}' % (b"x" * 10_000)


class Slot:
    """Has a connection, and keeps it."""

    is_idle = is_overdue = False
    failures = 0

    @property
    def owner(self) -> object:
        return self

    def close_idle(self) -> None: ...

    def give_way(self) -> None: ...

    def admitted(self) -> None: ...


def options(**given: Any) -> KafkaOptions:
    return KafkaOptions(**{"topic": TOPIC, **given})


@asynccontextmanager
async def handling(
    time: FakeTime, url: str, *, policy: Any = None, outgoing: Any = None, **given: Any
) -> AsyncIterator[Handler]:
    chosen = {"timeout_seconds": AMPLE, "options": options(), **given}
    parts = {"address_policy": policy, "outgoing": outgoing}
    chosen_parts = {name: part for name, part in parts.items() if part is not None}
    async with registry(time, None, **chosen_parts) as made:
        handler = made.create_handler(destination("Kafka", url, **chosen))
        try:
            yield handler
        finally:
            handler.close()


async def outcomes(
    handler: Handler, time: FakeTime, deliveries: Sequence[Any]
) -> list[DeliveryOutcome]:
    """Hand deliveries over, one after the other; their outcomes, once all are told."""
    told: list[DeliveryOutcome] = []
    for one in deliveries:
        handler.deliver(one, told.append)
    while len(told) < len(deliveries):
        time.advance(TURN)
        await asyncio.sleep(0)
    return told


async def in_a_batch(
    handler: Handler, time: FakeTime, deliveries: Sequence[Any]
) -> list[DeliveryOutcome]:
    """The same, but all are in one batch, behind a first one."""
    told = await outcomes(handler, time, [delivery(), *deliveries])
    assert told[0].result is SUCCESS
    return told[1:]


def numbered(number: int, **given: Any) -> Any:
    body = b'{"class":"CIM_AlertIndication","properties":{"EventID":"%d"}}' % number
    return delivery(indication(body, identifier=f"id-{number}", **given))


def ids(broker: KafkaBroker) -> list[str]:
    return [json.loads(one.value)["id"] for one in broker.records]


def results(told: Sequence[DeliveryOutcome]) -> list[DeliveryResult]:
    return [one.result for one in told]


# What is sent.


async def test_what_waits_shares_a_batch_and_comes_in_order(fake_time: FakeTime) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        told = await outcomes(handler, fake_time, [numbered(number) for number in range(20)])
    assert told == 20 * [DeliveryOutcome(SUCCESS)]
    assert ids(broker) == [f"id-{number}" for number in range(20)]
    assert broker.batches == [1, 19]
    assert broker.metadata_requests == 1
    # One asks for the leaders, and one is to the leader.
    assert broker.connections == 2
    assert broker.acks == [-1, -1]


async def test_a_record_is_a_structured_cloud_event(fake_time: FakeTime) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        await outcomes(handler, fake_time, [numbered(7, source="//host/a")])
    (record,) = broker.records
    assert record.headers == {"content-type": b"application/cloudevents+json; charset=UTF-8"}
    assert record.key == b"a"
    event = json.loads(record.value)
    assert event["specversion"] == "1.0"
    assert event["id"] == "id-7"
    assert event["source"] == "//host/a"
    assert event["data"]["properties"]["EventID"] == "7"


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        (KafkaKey.DESTINATION, [b"a", b"a"]),
        (KafkaKey.CLASS, [b"CIM_AlertIndication", b"CIM_AlertIndication"]),
        (KafkaKey.GROUP, ["gr\0oup ü\r\n".encode(), b"CIM_AlertIndication"]),
        (KafkaKey.NONE, [None, None]),
    ],
)
async def test_the_key_is_an_option(
    fake_time: FakeTime, key: KafkaKey, keys: list[bytes | None]
) -> None:
    deliveries = [numbered(0, group="gr\0oup ü\r\n"), numbered(1)]
    async with (
        broking() as broker,
        handling(fake_time, broker.url, options=options(key=key)) as handler,
    ):
        await outcomes(handler, fake_time, deliveries)
    assert [one.key for one in broker.records] == keys
    assert ids(broker) == ["id-0", "id-1"]


async def test_equal_keys_have_one_partition_and_no_keys_have_all(fake_time: FakeTime) -> None:
    groups = [numbered(number, group=f"g{number % 5}") for number in range(20)]
    async with broking() as broker:
        broker.leaders = [None] * 3
        given = {"options": options(key=KafkaKey.GROUP)}
        async with handling(fake_time, broker.url, **given) as handler:
            await outcomes(handler, fake_time, groups)
        by_key: dict[Any, set[int]] = {}
        for one in broker.records:
            by_key.setdefault(one.key, set()).add(one.partition)
        assert len(by_key) == 5
        assert {len(partitions) for partitions in by_key.values()} == {1}
        assert len(set.union(*by_key.values())) > 1
        broker.records.clear()
        given = {"options": options(key=KafkaKey.NONE)}
        async with handling(fake_time, broker.url, **given) as handler:
            for _ in range(3):
                await outcomes(handler, fake_time, [delivery()])
        assert {one.partition for one in broker.records} == {0, 1, 2}


async def test_acknowledgement_and_compression_are_options(fake_time: FakeTime) -> None:
    chosen = options(acks=KafkaAcks.LEADER, compression=KafkaCompression.GZIP)
    long = [delivery(indication(LONG)) for _ in range(5)]
    async with broking() as broker, handling(fake_time, broker.url, options=chosen) as handler:
        told = await in_a_batch(handler, fake_time, long)
    assert results(told) == [SUCCESS] * 5
    assert broker.acks == [1, 1]
    assert 1 in broker.compression


async def test_a_large_indication_arrives(fake_time: FakeTime) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        assert (await Attempt(handler, fake_time, BIG).outcome()).result is SUCCESS
    assert len(broker.records[0].value) > len(BIG)


# What the broker says.


@pytest.mark.parametrize(
    ("code", "result", "hold", "text"),
    [
        (-1, POST, None, "UNKNOWN_SERVER_ERROR"),
        (3, FATAL, HoldCause.DESTINATION, "does not exist"),
        (5, ERROR, None, "LEADER_NOT_AVAILABLE"),
        (6, ERROR, None, "NOT_LEADER_OR_FOLLOWER"),
        (7, POST, None, "did not confirm it in time"),
        (10, ERROR, None, "max.message.bytes"),
        (19, ERROR, None, "min.insync.replicas"),
        (20, POST, None, "too few replicas were in sync"),
        (29, FATAL, HoldCause.REFUSED, "may not write to the topic"),
        (87, ERROR, None, "INVALID_RECORD"),
        (999, ERROR, None, "error 999"),
    ],
)
async def test_an_error_is_told_for_what_it_is(
    fake_time: FakeTime, code: int, result: DeliveryResult, hold: HoldCause | None, text: str
) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        broker.script.append({0: code})
        told = await Attempt(handler, fake_time).outcome()
        assert (told.result, told.hold) == (result, hold)
        assert text in told.detail
        assert told.refuses_indication == (code in (10, 87))
        assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS
    assert len(broker.records) == 1


@pytest.mark.parametrize(
    ("code", "result", "hold"),
    [
        (3, FATAL, HoldCause.DESTINATION),
        (17, FATAL, HoldCause.DESTINATION),
        (29, FATAL, HoldCause.REFUSED),
    ],
)
async def test_an_error_of_the_topic_is_told_before_anything_is_sent(
    fake_time: FakeTime, code: int, result: DeliveryResult, hold: HoldCause | None
) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        broker.topic_code = code
        told = await Attempt(handler, fake_time).outcome()
        assert (told.result, told.hold) == (result, hold)
        assert f"topic {TOPIC}" in told.detail
        assert broker.batches == []
        broker.topic_code = 0
        assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS


async def test_a_batch_that_is_too_large_is_halved(fake_time: FakeTime) -> None:
    """The record that alone is too large is refused alone; the others behind it are not sent."""
    huge = LONG.replace(b"x" * 10_000, b"x" * 40_000)
    deliveries = [
        delivery(indication(huge if number == 5 else LONG, identifier=f"id-{number}"))
        for number in range(10)
    ]
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        broker.most_bytes = 30_000
        told = await in_a_batch(handler, fake_time, deliveries)
        assert results(told) == [*[SUCCESS] * 5, *[ERROR] * 5]
        assert [one.refuses_indication for one in told[5:]] == [True, *[False] * 4]
        assert [one.spends_attempt for one in told[5:]] == [True, *[False] * 4]
        assert ids(broker)[1:] == [f"id-{number}" for number in range(5)]
        # What it takes is known now.
        before = len(broker.batches)
        await in_a_batch(handler, fake_time, deliveries[:5])
        assert max(broker.batches[before:]) <= 3


async def test_what_follows_a_failed_batch_is_not_sent(fake_time: FakeTime) -> None:
    deliveries = [delivery(indication(LONG, identifier=f"id-{number}")) for number in range(4)]
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        broker.script += [{}, {0: 10}, {0: 19}]
        told = await in_a_batch(handler, fake_time, deliveries)
    assert results(told) == [ERROR] * 4
    assert [one.spends_attempt for one in told] == [True, False, False, False]
    assert broker.batches == [1, 4, 2]


async def test_of_half_a_batch_half_is_a_success(fake_time: FakeTime) -> None:
    deliveries = [numbered(number, group=f"g{number % 5}") for number in range(10)]
    async with broking() as broker:
        broker.leaders = [None] * 2
        given = {"options": options(key=KafkaKey.GROUP)}
        async with handling(fake_time, broker.url, **given) as handler:
            broker.script += [{}, {0: 19}]
            told = await in_a_batch(handler, fake_time, deliveries)
        arrived = set(ids(broker))
    assert 1 < len(arrived) < 10
    for number, one in enumerate(told):
        assert (one.result is SUCCESS) == (f"id-{number}" in arrived)


async def test_a_leader_that_hangs_fails_only_its_own_partitions(fake_time: FakeTime) -> None:
    of_second = next(f"g{n}" for n in range(5) if partition_of(f"g{n}".encode(), 2) == 1)
    deliveries = [numbered(number, group=f"g{number % 5}") for number in range(10)]
    told: dict[int, DeliveryOutcome] = {}
    async with broking() as first, broking() as second:
        first.leaders = [None, ("127.0.0.1", second.port)]
        first.script.append(HANG)
        given = {"options": options(key=KafkaKey.GROUP), "timeout_seconds": 30.0}
        async with handling(fake_time, first.url, **given) as handler:
            # Alone in the first batch.
            for number, one in enumerate([numbered(10, group=of_second), *deliveries]):
                handler.deliver(one, partial(told.__setitem__, number - 1))
            await first.reached.wait()
            while len(second.records) < 2:
                fake_time.advance(TURN / 100)
                await asyncio.sleep(0)
            fake_time.advance(30)
            while len(told) < 11:
                fake_time.advance(TURN / 100)
                await asyncio.sleep(0)
        arrived = {*ids(first), *ids(second)}
    assert 1 < len(arrived) < 11
    for number in range(10):
        assert told[number].result is (SUCCESS if f"id-{number}" in arrived else POST)


async def test_a_leader_that_moved_is_found(fake_time: FakeTime) -> None:
    async with broking() as first, broking() as second:
        async with handling(fake_time, first.url) as handler:
            assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS
            first.leaders = [("127.0.0.1", second.port)]
            first.script.append({0: 6})
            told = await Attempt(handler, fake_time).outcome()
            assert told.result is ERROR
            assert "NOT_LEADER_OR_FOLLOWER" in told.detail
            assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS
        assert (len(first.records), len(second.records)) == (1, 1)


async def test_a_leader_that_hangs_may_have_been_replaced(fake_time: FakeTime) -> None:
    async with broking() as first, broking() as second:
        first.leaders = [("127.0.0.1", second.port)]
        async with handling(fake_time, first.url, timeout_seconds=30.0) as handler:
            second.script.append(HANG)
            attempt = Attempt(handler, fake_time)
            await second.reached.wait()
            first.leaders = [None]
            fake_time.advance(31)
            assert (await attempt.outcome(turn=0)).result is POST
            assert (await Attempt(handler, fake_time).outcome(turn=0)).result is SUCCESS
        assert (len(first.records), len(second.records)) == (1, 0)


async def test_leaders_are_asked_for_again_from_time_to_time(fake_time: FakeTime) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        for _ in range(2):
            await Attempt(handler, fake_time).outcome(turn=0)
        assert broker.metadata_requests == 1
        fake_time.advance(REFRESH_SECONDS)
        await Attempt(handler, fake_time).outcome(turn=0)
        assert broker.metadata_requests == 2


async def test_a_partition_without_a_leader_waits(fake_time: FakeTime) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        broker.leaders = []
        told = await Attempt(handler, fake_time).outcome()
    assert told.result is ERROR
    assert "has a leader" in told.detail


# Where it connects to.


async def test_another_broker_is_asked_if_the_first_does_not_answer(fake_time: FakeTime) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    async with broking() as broker:
        given = {"options": options(brokers=(f"127.0.0.1:{broker.port}",))}
        async with handling(fake_time, f"kafka://127.0.0.1:{closed}", **given) as handler:
            assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS


async def test_a_broker_that_hangs_does_not_cost_every_attempt(fake_time: FakeTime) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:
        hung.setblocking(False)
        async with broking() as broker:
            given = {
                "options": options(brokers=(f"127.0.0.1:{broker.port}",)),
                "timeout_seconds": 30.0,
            }
            url = f"kafka://127.0.0.1:{hung.getsockname()[1]}"
            async with handling(fake_time, url, **given) as handler:
                attempt = Attempt(handler, fake_time)
                accepted, _ = await asyncio.get_running_loop().sock_accept(hung)
                fake_time.advance(31)
                assert (await attempt.outcome(turn=0)).result is ERROR
                assert (await Attempt(handler, fake_time).outcome(turn=0.1)).result is SUCCESS
                accepted.close()


class _Refusing:
    def check(self, address: str) -> str | None:
        return "127.0.0.2 is not allowed" if address == "127.0.0.2" else None


async def test_an_address_that_a_broker_names_is_checked(fake_time: FakeTime) -> None:
    async with broking() as broker, handling(fake_time, broker.url, policy=_Refusing()) as handler:
        broker.leaders = [("127.0.0.2", broker.port)]
        told = await Attempt(handler, fake_time).outcome()
        assert (told.result, told.hold) == (ERROR, HoldCause.ADDRESS)
        assert "127.0.0.2 is not allowed" in told.detail
        assert broker.batches == []


async def test_a_forbidden_destination_is_held(fake_time: FakeTime) -> None:
    async with (
        broking() as broker,
        handling(fake_time, broker.url, policy=AddressPolicy()) as handler,
    ):
        told = await Attempt(handler, fake_time).outcome()
    assert told.hold is HoldCause.ADDRESS
    assert broker.connections == 0


@pytest.mark.parametrize("host", ["", "a b", "x\r\nY: z", "exa/mple", "ü.example"])
async def test_a_host_that_is_none_is_not_shown(fake_time: FakeTime, host: str) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        broker.leaders = [(host, broker.port)]
        told = await Attempt(handler, fake_time).outcome()
    assert told.hold is HoldCause.DESTINATION
    assert "an address that is none" in told.detail


async def test_a_connection_that_was_closed_meanwhile_is_replaced(fake_time: FakeTime) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS
        broker.hang_up()
        assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS
    assert len(broker.records) == 2


# Bad days.


async def test_a_connection_that_breaks_before_the_answer_leaves_it_open(
    fake_time: FakeTime,
) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        broker.script.append(CLOSE)
        told = await Attempt(handler, fake_time).outcome()
        assert told.result is POST
        assert f"broker 127.0.0.1 port {broker.port}" in told.detail
        assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS


async def test_a_leader_that_hangs_may_have_the_records(fake_time: FakeTime) -> None:
    async with (
        broking() as broker,
        handling(fake_time, broker.url, timeout_seconds=30.0) as handler,
    ):
        broker.script.append(HANG)
        attempt = Attempt(handler, fake_time)
        await broker.reached.wait()
        fake_time.advance(30.5)
        told = await attempt.outcome(turn=0)
        assert told.result is POST
        assert "timed out after 30 s" in told.detail
        # Its late answer cannot be taken for that of the next one.
        assert (await Attempt(handler, fake_time).outcome(turn=0)).result is SUCCESS


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", f"more than {ANSWER_LIMIT} bytes"),
        ((64 * 1024 * 1024).to_bytes(4, "big") + b"x" * 64, f"more than {ANSWER_LIMIT} bytes"),
        (b"\x15\x03\x03\0\x02\x02\x50", "expects TLS"),
        (b"\0\0\0\x0a\0\0\0\x01\xff\xff\xff\xff\0\0", "is not Kafka's"),
        (b"\0\0\0\0", "is not Kafka's"),
        (b"\0\0\0\x0c\0\0\0\x09\0\0\0\0\0\0\0\0", "answers another request"),
        (b"\0\0\0\x01aa", "more than it was asked"),
        (b"\0\0\0\x0c\0\0\0\x01\0\0\0\0\0\0\0\0", "UNKNOWN_SERVER_ERROR"),
    ],
)
async def test_an_answer_that_is_none_leaves_it_open(
    fake_time: FakeTime, answer: bytes, text: str
) -> None:
    async with broking() as broker, handling(fake_time, broker.url) as handler:
        broker.script.append(answer)
        told = await Attempt(handler, fake_time).outcome()
        assert told.result is POST
        assert text in told.detail
        assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS


async def test_closing_under_way_leaves_no_task(fake_time: FakeTime) -> None:
    async with broking() as broker:
        async with handling(fake_time, broker.url) as handler:
            broker.script.append(HANG)
            attempt = Attempt(handler, fake_time)
            await broker.reached.wait()
            before = asyncio.all_tasks()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks() & before) <= 2
        assert attempt.told == []


async def test_the_time_of_an_attempt_does_not_run_while_it_waits_for_a_connection(
    fake_time: FakeTime,
) -> None:
    outgoing, slot = OutgoingConnections(1), Slot()
    assert outgoing.take(slot)
    async with (
        broking() as broker,
        handling(fake_time, broker.url, outgoing=outgoing, timeout_seconds=5.0) as handler,
    ):
        told: list[DeliveryOutcome] = []
        handler.deliver(delivery(), told.append)
        await until(lambda: outgoing.is_crowded)
        for _ in range(10):
            fake_time.advance(2.0)
            await turns()
        assert told == []
        # The broker that names the leaders leads: one connection does for both.
        broker.leaders = [("localhost", broker.port)]
        outgoing.give(slot)
        await until(lambda: bool(told))
    assert results(told) == [SUCCESS]


async def test_an_attempt_that_waits_for_a_connection_can_be_closed(fake_time: FakeTime) -> None:
    outgoing, slot = OutgoingConnections(1), Slot()
    assert outgoing.take(slot)
    told: list[DeliveryOutcome] = []
    async with (
        broking() as broker,
        handling(fake_time, broker.url, outgoing=outgoing) as handler,
    ):
        handler.deliver(delivery(), told.append)
        await until(lambda: outgoing.is_crowded)
        handler.close()
        await turns()
        assert not outgoing.is_crowded
        fake_time.advance(3 * AMPLE)
        await turns()
    assert told == []


# TLS and authentication.


def server_tls(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


async def test_over_tls_each_broker_is_verified(fake_time: FakeTime) -> None:
    authority = trustme.CA()
    trusting = TLSOptions(ca_certificates=authority.cert_pem.bytes())
    async with broking(server_tls(authority, "localhost")) as broker:
        # It names itself by its address.
        async with handling(fake_time, broker.url, tls=trusting) as handler:
            told = await Attempt(handler, fake_time).outcome()
        assert told.result is ERROR
        assert "certificate of 127.0.0.1" in told.detail
        broker.leaders = [("localhost", broker.port)]
        async with handling(fake_time, broker.url, tls=trusting) as handler:
            assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS
        async with handling(fake_time, broker.url) as handler:
            told = await Attempt(handler, fake_time).outcome()
        assert "certificate" in told.detail


def plain(password: str = "correct horse") -> dict[str, Any]:
    return {
        "options": options(sasl_mechanism=SASLMechanism.PLAIN),
        "credentials": Credentials(username="writer", password=password),
    }


async def test_each_connection_authenticates(fake_time: FakeTime) -> None:
    async with broking() as broker:
        broker.users = {"writer": "correct horse"}
        async with handling(fake_time, broker.url, **plain()) as handler:
            for _ in range(2):
                assert (await Attempt(handler, fake_time).outcome()).result is SUCCESS
    assert broker.logins == 2 * [b"\0writer\0correct horse"]


async def test_a_wrong_password_holds_the_destination_and_is_not_shown(
    fake_time: FakeTime,
) -> None:
    async with broking() as broker:
        broker.users = {"writer": "another one"}
        given = plain()
        given["options"] = options(
            sasl_mechanism=SASLMechanism.PLAIN, brokers=(f"127.0.0.1:{broker.port}",)
        )
        async with handling(fake_time, broker.url, **given) as handler:
            told = await Attempt(handler, fake_time).outcome()
    assert (told.result, told.hold) == (FATAL, HoldCause.REFUSED)
    assert "SASL_AUTHENTICATION_FAILED" in told.detail
    assert "horse" not in told.detail
    # Another broker is not asked with a password that is wrong.
    assert len(broker.logins) == 1


async def test_of_a_secret_url_no_text_of_the_broker_is_shown(fake_time: FakeTime) -> None:
    async with broking() as broker:
        broker.users = {}
        given = {**plain(), "url_is_secret": True}
        async with handling(fake_time, broker.url, **given) as handler:
            told = await Attempt(handler, fake_time).outcome()
    assert "SASL_AUTHENTICATION_FAILED" in told.detail
    assert "Invalid password" not in told.detail


async def test_a_mechanism_that_is_not_offered_holds_the_destination(fake_time: FakeTime) -> None:
    async with broking() as broker:
        broker.users = {}
        async with handling(fake_time, broker.url, credentials=LOGIN) as handler:
            told = await Attempt(handler, fake_time).outcome()
    assert (told.result, told.hold) == (FATAL, HoldCause.REFUSED)
    assert "does not offer SCRAM-SHA-512: PLAIN" in told.detail


async def test_a_broker_that_expects_authentication_closes(fake_time: FakeTime) -> None:
    async with broking() as broker:
        broker.users = {}
        async with handling(fake_time, broker.url) as handler:
            told = await Attempt(handler, fake_time).outcome()
    assert told.result is ERROR
    assert "closed the connection" in told.detail


async def test_credentials_do_not_leave_the_machine_unencrypted(fake_time: FakeTime) -> None:
    async with broking() as broker:
        broker.users = {"writer": "correct horse"}
        broker.leaders = [("kafka.example.com", broker.port)]
        async with handling(fake_time, broker.url, **plain()) as handler:
            told = await Attempt(handler, fake_time).outcome()
    assert (told.result, told.hold) == (FATAL, HoldCause.DESTINATION)
    assert "unencrypted" in told.detail
    assert broker.batches == []
