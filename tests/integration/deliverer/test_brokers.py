"""Message brokers behind a whole deliverer: outages, and changes while a message is under way."""

import json
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.delivery.handler import HOLD_RETRY_SECONDS
from support import mqtt_broker, nats_server
from support.resources import JSON, secret
from support.running import Running, alert, alerts, listener, resources, running

PROTOCOLS = pytest.mark.parametrize("protocol", ["NATS", "MQTT"])
GOOD: dict[str, Any] = {"NATS": nats_server.STORED, "MQTT": mqtt_broker.PUBACK}


def listening(protocol: str, **given: Any) -> AbstractAsyncContextManager[Any]:
    made = nats_server.listening if protocol == "NATS" else mqtt_broker.listening
    return made(**given)


def to(protocol: str, url: str, place: str = "alerts", **spec: Any) -> JSON:
    options = {"nats": {"subject": place}} if protocol == "NATS" else {"mqtt": {"topic": place}}
    return listener("bus", url, protocol=protocol, **options, **spec)


def received(broker: Any) -> list[str]:
    return [json.loads(message.payload)["id"] for message in broker.messages]


async def failed(run: Running, times: int) -> None:
    await run.failed("bus", times)
    run.time.advance(30)


@PROTOCOLS
async def test_an_outage_loses_nothing_and_keeps_the_order(tmp_path: Path, protocol: str) -> None:
    async with (
        listening(protocol) as broker,
        running(tmp_path, *resources(to(protocol, broker.url))) as run,
    ):
        await run.publish(*alerts(0, 2))
        await run.delivered("bus", 2)
        # It takes a message, and ends without an answer.
        broker.reached.clear()
        broker.answer = None
        await run.publish(*alerts(2, 3))
        await broker.reached.wait()
        broker.hang_up()
        broker.answer = GOOD[protocol]
        await failed(run, 1)
        await run.settled()
    assert received(broker) == ["0", "1", "2", "2", "3", "4"]


@PROTOCOLS
async def test_a_change_while_a_message_is_under_way(tmp_path: Path, protocol: str) -> None:
    async with (
        listening(protocol, answer=None) as broker,
        running(tmp_path, *resources(to(protocol, broker.url, "old"))) as run,
    ):
        await run.publish(*alerts(0, 2))
        await broker.reached.wait()
        broker.answer = GOOD[protocol]
        await run.reload(*resources(to(protocol, broker.url, "new")))
        broker.hang_up()
        await failed(run, 1)
        await run.settled()
    places = [
        message.subject if protocol == "NATS" else message.topic for message in broker.messages
    ]
    assert received(broker) == ["0", "0", "1"]
    assert places == ["old", "new", "new"]


@PROTOCOLS
async def test_a_wrong_password_holds_the_destination_until_it_is_changed(
    tmp_path: Path, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    refusal: dict[str, dict[str, bytes]] = {
        "NATS": {"refusal": b"-ERR 'Authorization Violation'\r\n"},
        "MQTT": {"connack": b"\x20\x03\x00\x86\x00"},
    }

    def login(password: str) -> JSON:
        return secret("login", {"username": "pillion", "password": password})

    async with listening(protocol, **refusal[protocol]) as broker:
        credentials = {"basic": {"secretRef": {"name": "login"}}}
        documents = resources(to(protocol, broker.url, credentials=credentials))
        async with running(tmp_path, *documents, login("planted-wrong")) as run:
            await run.publish(alert("a"))
            health = run.queue("bus").health
            await run.until(lambda: health.hold is not None and health.next_attempt_at is not None)
            run.time.advance(HOLD_RETRY_SECONDS)
            for name, value in (("refusal", b""), ("connack", mqtt_broker.ACCEPTED)):
                if hasattr(broker, name):
                    setattr(broker, name, value)
            await run.reload(*documents, login("right"))
            await run.settled()
    assert received(broker) == ["a"]
    assert "planted" not in caplog.text
