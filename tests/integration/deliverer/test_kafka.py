"""A deliverer with a Kafka destination: batches, a reload, and a wrong password."""

import json
import logging
from pathlib import Path

import pytest

from support.kafka_broker import HANG, TOPIC, KafkaBroker, broking
from support.resources import JSON, secret
from support.running import alert, alerts, listener, resources, running

PASSWORD = "correct horse battery"


def topic(broker: KafkaBroker, name: str = TOPIC, **options: str) -> JSON:
    given = {"credentials": {"basic": {"secretRef": {"name": "login"}}}} if broker.users else {}
    return listener(
        "topic", broker.url, protocol="Kafka", kafka={"topic": name, **options}, **given
    )


def ids(broker: KafkaBroker) -> list[str]:
    return [json.loads(one.value)["id"] for one in broker.records]


async def test_a_backlog_arrives_in_batches_and_in_order(tmp_path: Path) -> None:
    async with broking() as broker, running(tmp_path, *resources(topic(broker))) as run:
        await run.publish(*alerts(0, 1200))
        await run.settled()
    assert ids(broker) == [str(number) for number in range(1200)]
    assert len(broker.batches) < 120
    assert {one.key for one in broker.records} == {b"topic"}


async def test_what_is_under_way_at_a_reload_arrives_by_the_new_options(tmp_path: Path) -> None:
    async with broking() as broker, running(tmp_path, *resources(topic(broker))) as run:
        broker.script.append(HANG)
        await run.publish(*alerts(0, 10))
        await broker.reached.wait()
        await run.reload(*resources(topic(broker, compression="Gzip")))
        broker.hang_up()
        await run.failed("topic", 1)
        run.retry("topic")
        await run.settled()
    assert list(dict.fromkeys(ids(broker))) == [str(number) for number in range(10)]
    assert 1 in broker.compression


async def test_a_wrong_password_pauses_the_destination_and_is_shown_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with broking() as broker:
        broker.users = {"writer": PASSWORD}
        to = topic(broker, saslMechanism="PLAIN")
        wrong = secret("login", {"username": "writer", "password": PASSWORD[::-1]})
        async with running(tmp_path, *resources(to), wrong) as run:
            await run.publish(alert("a"))
            health = run.queue("topic").health
            await run.until(lambda: health.hold is not None and health.next_attempt_at is not None)
            found = (await run.get("/v1/queues/topic")).document["pause"]
            assert found["cause"] == "refused-credentials"
            assert "SASL_AUTHENTICATION_FAILED" in found["message"]
            assert PASSWORD[::-1] not in json.dumps((await run.get("/v1/queues/topic")).document)
            right = secret("login", {"username": "writer", "password": PASSWORD})
            await run.reload(*resources(to), right)
            await run.settled()
    assert ids(broker) == ["a"]
    assert PASSWORD[::-1] not in caplog.text
    assert PASSWORD not in caplog.text
