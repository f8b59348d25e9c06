"""Apache Kafka takes the records, and its consumer reads them."""

import asyncio
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaConsumer
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.protocols.kafka import (
    KafkaCompression,
    KafkaKey,
    KafkaOptions,
    SASLMechanism,
)
from pillion_sidecar.testing import FakeTime
from pillion_testbed.control_plane import free_ports
from pillion_testbed.kafka import Node, jars, open_node
from pillion_testbed.processes import Running
from support.handlers import delivery, indication
from support.kafka_topics import create_topic
from support.protocol_peers import AMPLE, TURN, destination, registry

pytestmark = [
    pytest.mark.skipif(not jars().exists(), reason="Kafka is missing: make receivers fetches it"),
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is missing"),
    pytest.mark.timeout(180),
]
SUCCESS, ERROR = DeliveryResult.SUCCESS, DeliveryResult.ERROR
PASSWORD = "correct horse"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
TEXT = 'Wind: 41 < 60 & "gusty"\r\n\0 – ünïcode\\'


def _keys(authority: trustme.CA, file: Path) -> None:
    """Write a key and its certificate in the form that Kafka reads."""
    issued = authority.issue_cert("localhost")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(written + issued.cert_chain_pems[0].bytes())


def _properties(ports: Sequence[int], keys: Path) -> dict[str, str]:
    opened, safe, controller = ports
    listener = "listener.name.safe"
    return {
        **open_node(opened, controller),
        "listeners": f"OPEN://127.0.0.1:{opened},SAFE://127.0.0.1:{safe},"
        f"CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"OPEN://localhost:{opened},SAFE://localhost:{safe}",
        "listener.security.protocol.map": "OPEN:PLAINTEXT,SAFE:SASL_SSL,CONTROLLER:PLAINTEXT",
        f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{listener}.plain.sasl.jaas.config": f'{PLAIN_LOGIN} required user_writer="{PASSWORD}" '
        f'user_reader="{PASSWORD}";',
        f"{listener}.scram-sha-256.sasl.jaas.config": f"{SCRAM_LOGIN} required;",
        f"{listener}.scram-sha-512.sasl.jaas.config": f"{SCRAM_LOGIN} required;",
        f"{listener}.ssl.keystore.type": "PEM",
        f"{listener}.ssl.keystore.location": str(keys),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:writer",
        # A request for metadata would create a topic here.
        "auto.create.topics.enable": "true",
    }


@dataclass(slots=True)
class Kafka:
    node: Node
    running: Running
    port: int
    safe_port: int
    authority: trustme.CA

    @property
    def url(self) -> str:
        return f"kafka://localhost:{self.port}"

    async def topic(self, name: str, **given: Any) -> str:
        return await create_topic(self.port, name, **given)

    async def read(self, topic: str, count: int) -> list[Any]:
        """Return so many records, by partition and in order."""
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=f"localhost:{self.port}", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            records = [await consumer.getone() for _ in range(count)]
        finally:
            await consumer.stop()
        return sorted(records, key=lambda one: (one.partition, one.offset))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("kafka")
    authority = trustme.CA()
    _keys(authority, folder / "keys.pem")
    ports = free_ports(3)
    node = Node(folder, _properties(ports, folder / "keys.pem"))
    node.format({"writer": PASSWORD})
    made = Kafka(node, node.start(), ports[0], ports[1], authority)
    try:
        yield made
    finally:
        made.running.stop()
        node.close()


async def outcomes(
    handler: Handler, time: FakeTime, deliveries: Sequence[Any]
) -> list[DeliveryOutcome]:
    told: list[DeliveryOutcome] = []
    for one in deliveries:
        handler.deliver(one, told.append)
    while len(told) < len(deliveries):
        time.advance(TURN)
        # Other processes have to work meanwhile.
        await asyncio.sleep(0.001)
    return told


async def deliver(
    time: FakeTime, url: str, deliveries: Sequence[Any], **given: Any
) -> list[DeliveryOutcome]:
    async with registry(time, None) as made:
        chosen = {"timeout_seconds": AMPLE, **given}
        handler = made.create_handler(destination("Kafka", url, **chosen))
        told = await outcomes(handler, time, deliveries)
        handler.close()
    return told


def numbered(count: int, *, size: int = 0) -> list[Any]:
    properties = {"Message": TEXT, "Description": size * "x"}
    body = json.dumps({"class": "CIM_AlertIndication", "properties": properties}).encode()
    return [
        delivery(indication(body, identifier=f"id-{number}", group=f"g{number % 7}"))
        for number in range(count)
    ]


def results(told: Sequence[DeliveryOutcome]) -> set[DeliveryResult]:
    return {one.result for one in told}


async def test_all_arrive_in_order(kafka: Kafka, fake_time: FakeTime) -> None:
    topic = await kafka.topic("in-order", partitions=3)
    told = await deliver(fake_time, kafka.url, numbered(1200), options=KafkaOptions(topic=topic))
    assert results(told) == {SUCCESS}
    records = await kafka.read(topic, 1200)
    assert len({one.partition for one in records}) == 1
    events = [json.loads(one.value) for one in records]
    assert [one["id"] for one in events] == [f"id-{number}" for number in range(1200)]
    assert events[0]["data"]["properties"]["Message"] == TEXT
    assert records[0].key == b"a"
    assert dict(records[0].headers)["content-type"].startswith(b"application/cloudevents+json")


async def test_groups_keep_their_order_over_partitions(kafka: Kafka, fake_time: FakeTime) -> None:
    topic = await kafka.topic("groups", partitions=3)
    options = KafkaOptions(topic=topic, key=KafkaKey.GROUP, compression=KafkaCompression.GZIP)
    assert results(await deliver(fake_time, kafka.url, numbered(70), options=options)) == {SUCCESS}
    records = await kafka.read(topic, 70)
    assert len({one.partition for one in records}) > 1
    for group in range(7):
        mine = [one for one in records if one.key == f"g{group}".encode()]
        events = [json.loads(one.value)["id"] for one in mine]
        assert events == [f"id-{number}" for number in range(group, 70, 7)]
        assert len({one.partition for one in mine}) == 1


@pytest.mark.parametrize("mechanism", SASLMechanism)
async def test_each_mechanism_authenticates_over_tls(
    kafka: Kafka, fake_time: FakeTime, mechanism: SASLMechanism
) -> None:
    topic = await kafka.topic(f"by-{mechanism}")
    given: dict[str, Any] = {
        "options": KafkaOptions(topic=topic, sasl_mechanism=mechanism),
        "tls": TLSOptions(ca_certificates=kafka.authority.cert_pem.bytes()),
    }
    url = f"kafkas://localhost:{kafka.safe_port}"
    right = Credentials(username="writer", password=PASSWORD)
    told = await deliver(fake_time, url, numbered(3), credentials=right, **given)
    assert results(told) == {SUCCESS}
    wrong = Credentials(username="writer", password="another one")
    (told_wrong,) = await deliver(fake_time, url, numbered(1), credentials=wrong, **given)
    assert told_wrong.hold is HoldCause.REFUSED
    assert "SASL_AUTHENTICATION_FAILED" in told_wrong.detail
    (told_none,) = await deliver(fake_time, url, numbered(1), **given)
    assert told_none.result is ERROR


async def test_who_may_not_write_is_held(kafka: Kafka, fake_time: FakeTime) -> None:
    topic = await kafka.topic("closed")
    given: dict[str, Any] = {
        "options": KafkaOptions(topic=topic, sasl_mechanism=SASLMechanism.PLAIN),
        "tls": TLSOptions(ca_certificates=kafka.authority.cert_pem.bytes()),
        "credentials": Credentials(username="reader", password=PASSWORD),
    }
    url = f"kafkas://localhost:{kafka.safe_port}"
    (told,) = await deliver(fake_time, url, numbered(1), **given)
    assert told.hold is HoldCause.REFUSED
    assert "TOPIC_AUTHORIZATION_FAILED" in told.detail


async def test_a_topic_is_not_created(kafka: Kafka, fake_time: FakeTime) -> None:
    await kafka.topic("ready")
    for _ in range(2):
        (told,) = await deliver(
            fake_time, kafka.url, numbered(1), options=KafkaOptions(topic="missing")
        )
        assert told.hold is HoldCause.DESTINATION
        assert "UNKNOWN_TOPIC_OR_PARTITION" in told.detail


async def test_batches_fit_the_topic(kafka: Kafka, fake_time: FakeTime) -> None:
    topic = await kafka.topic("small", max_message_bytes="20000")
    deliveries = [*numbered(20, size=5_000), *numbered(1, size=30_000), *numbered(2)]
    told = await deliver(fake_time, kafka.url, deliveries, options=KafkaOptions(topic=topic))
    assert [one.result for one in told[:20]] == [SUCCESS] * 20
    assert told[20].refuses_indication
    assert [(one.result, one.spends_attempt) for one in told[21:]] == [(ERROR, False)] * 2
    records = await kafka.read(topic, 20)
    assert [json.loads(one.value)["id"] for one in records[:20]] == [f"id-{n}" for n in range(20)]


async def test_killed_and_revived_it_has_all_in_order(kafka: Kafka, fake_time: FakeTime) -> None:
    topic = await kafka.topic("revived")
    deliveries = numbered(20)
    async with registry(fake_time, None) as made:
        given = {"timeout_seconds": AMPLE, "options": KafkaOptions(topic=topic)}
        handler = made.create_handler(destination("Kafka", kafka.url, **given))
        assert results(await outcomes(handler, fake_time, deliveries[:10])) == {SUCCESS}
        kafka.running.stop()
        failed = await outcomes(handler, fake_time, deliveries[10:])
        assert SUCCESS not in results(failed)
        kafka.running = kafka.node.start()
        waiting = deliveries[10:]
        while waiting:
            told = await outcomes(handler, fake_time, waiting)
            waiting = waiting[sum(one.result is SUCCESS for one in told) :]
        handler.close()
    records = await kafka.read(topic, 20)
    ids = [json.loads(one.value)["id"] for one in records]
    assert list(dict.fromkeys(ids)) == [f"id-{number}" for number in range(20)]
