"""Debian's mosquitto takes the messages, and its subscriber reads what was meant."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.protocols.mqtt import MQTTOptions
from pillion_sidecar.testing import FakeTime
from support.broker_programs import (
    MOSQUITTO,
    MOSQUITTO_SUB,
    WITHOUT_MOSQUITTO,
    free_port,
    running,
)
from support.handlers import delivery, indication
from support.protocol_peers import AMPLE, BIG, TURN, destination, registry

pytestmark = pytest.mark.skipif(
    MOSQUITTO is None or MOSQUITTO_SUB is None, reason=WITHOUT_MOSQUITTO
)
SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)
#: Topic, QoS, retained, content type, format, expiry, payload.
FORMAT = "%t|%q|%r|%C|%F|%E|%p"


@dataclass(frozen=True)
class Broker:
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def up(self, configuration: str = "allow_anonymous true") -> AsyncIterator[None]:
        file = self.folder / "mosquitto.conf"
        file.write_text(f"listener {self.port} 127.0.0.1\nuser root\n{configuration}\n")
        assert MOSQUITTO is not None
        command = [MOSQUITTO, "-c", str(file)]
        async with running(command, port=self.port, folder=self.folder):
            yield

    @asynccontextmanager
    async def subscribed(self, *extra: str) -> AsyncIterator[asyncio.StreamReader]:
        """The lines of a subscriber."""
        assert MOSQUITTO_SUB is not None
        command = [MOSQUITTO_SUB, "-V", "5", "-h", "127.0.0.1", "-p", str(self.port), "-t", "#"]
        command += ["-q", "2", "-d", "-F", FORMAT, *extra]
        process = await asyncio.create_subprocess_exec(
            "stdbuf", "-oL", *command, stdout=subprocess.PIPE, limit=8 * len(BIG)
        )
        assert process.stdout is not None
        try:
            while not (await process.stdout.readline()).startswith(b"Subscribed"):
                pass
            yield process.stdout
        finally:
            process.terminate()
            await process.wait()


async def message(lines: asyncio.StreamReader) -> list[str]:
    while True:
        line = (await lines.readline()).decode()
        assert line, "the subscriber has ended"
        if line.startswith("alerts/cim|"):
            return line.rstrip("\n").split("|", 6)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(free_port(), tmp_path)


@asynccontextmanager
async def handling(time: FakeTime, url: str, **given: Any) -> AsyncIterator[Handler]:
    options = MQTTOptions(topic="alerts/cim", **given.pop("options", {}))
    async with registry(time, None) as made:
        chosen = {"timeout_seconds": AMPLE, "options": options, **given}
        handler = made.create_handler(destination("MQTT", url, **chosen))
        try:
            yield handler
        finally:
            handler.close()


async def outcome(handler: Handler, time: FakeTime, **given: Any) -> DeliveryOutcome:
    told: list[DeliveryOutcome] = []
    handler.deliver(delivery(indication(**{"identifier": "a-1", **given})), told.append)
    while not told:
        time.advance(TURN)
        await asyncio.sleep(0)
    return told[0]


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_subscriber_reads_the_events(broker: Broker, fake_time: FakeTime, qos: int) -> None:
    options = {"qos": qos, "expiry_seconds": 600}
    async with (
        broker.up(),
        broker.subscribed() as lines,
        handling(fake_time, broker.url, options=options) as handler,
    ):
        for number in range(3):
            assert await outcome(handler, fake_time, identifier=f"a-{number}") == SUCCESS
            topic, got_qos, _, media_type, form, expiry, payload = await message(lines)
            assert (topic, int(got_qos), form) == ("alerts/cim", qos, "1")
            assert (media_type, expiry) == ("application/cloudevents+json", "600")
            assert json.loads(payload)["id"] == f"a-{number}"
        assert (await outcome(handler, fake_time, body=BIG)).result is DeliveryResult.SUCCESS
        assert len((await message(lines))[-1]) > len(BIG)


async def test_without_a_subscriber_it_is_a_success_that_says_so(
    broker: Broker, fake_time: FakeTime
) -> None:
    async with broker.up(), handling(fake_time, broker.url) as handler:
        told = await outcome(handler, fake_time)
    assert told.result is DeliveryResult.SUCCESS
    assert "no subscriber" in told.detail


async def test_what_is_retained_is_told_later(broker: Broker, fake_time: FakeTime) -> None:
    async with broker.up():
        async with handling(fake_time, broker.url, options={"retain": True}) as handler:
            assert (await outcome(handler, fake_time)).result is DeliveryResult.SUCCESS
        async with broker.subscribed() as lines:
            assert (await message(lines))[2] == "1"


async def test_what_the_broker_cannot_take_is_not_sent(broker: Broker, fake_time: FakeTime) -> None:
    configuration = "allow_anonymous true\nmax_packet_size 2000\nmax_qos 1\nretain_available false"
    async with broker.up(configuration):
        async with handling(fake_time, broker.url) as handler:
            told = await outcome(handler, fake_time, body=BIG)
            assert (told.result, told.refuses_indication) == (DeliveryResult.ERROR, True)
            assert "the broker takes 2000" in told.detail
            assert (await outcome(handler, fake_time)).result is DeliveryResult.SUCCESS
        for options, words in (({"retain": True}, "retains no"), ({"qos": 2}, "QoS 1 at most")):
            async with handling(fake_time, broker.url, options=options) as handler:
                told = await outcome(handler, fake_time)
            assert told.hold is HoldCause.DESTINATION
            assert words in told.detail


async def test_passwords_and_rights(broker: Broker, fake_time: FakeTime) -> None:
    users, rights = broker.folder / "users", broker.folder / "rights"
    for name in ("pillion", "reader"):
        command = ["mosquitto_passwd", "-b", *([] if users.exists() else ["-c"]), str(users)]
        await asyncio.to_thread(subprocess.run, [*command, name, "open sesame"], check=True)
    rights.write_text("user pillion\ntopic alerts/#\nuser reader\ntopic read alerts/#\n")

    async def told_as(name: str, password: str) -> DeliveryOutcome:
        credentials = Credentials(username=name, password=password)
        async with handling(fake_time, broker.url, credentials=credentials) as handler:
            return await outcome(handler, fake_time)

    async with broker.up(f"password_file {users}\nacl_file {rights}"):
        assert (await told_as("pillion", "open sesame")).result is DeliveryResult.SUCCESS
        wrong = await told_as("pillion", "planted-secret")
        reader = await told_as("reader", "open sesame")
        async with handling(fake_time, broker.url) as handler:
            none = await outcome(handler, fake_time)
    for told in (wrong, reader, none):
        assert (told.result, told.hold) == (DeliveryResult.ERROR, HoldCause.REFUSED)
        assert "not authorized" in told.detail
        assert "planted" not in told.detail


async def test_over_tls_with_a_client_certificate(broker: Broker, fake_time: FakeTime) -> None:
    authority, folder = trustme.CA(), broker.folder
    issued, own = authority.issue_cert("localhost"), authority.issue_cert("pillion.example")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    configuration = (
        f"cafile {folder}/ca.pem\ncertfile {folder}/cert.pem\nkeyfile {folder}/key.pem\n"
        "require_certificate true\nallow_anonymous true"
    )
    url = f"mqtts://localhost:{broker.port}"
    trusting = TLSOptions(ca_certificates=authority.cert_pem.bytes())
    known = TLSOptions(
        ca_certificates=authority.cert_pem.bytes(),
        client_certificate=own.cert_chain_pems[0].bytes(),
        client_key=own.private_key_pem.bytes(),
    )
    async with broker.up(configuration):
        async with handling(fake_time, url, tls=known) as handler:
            assert (await outcome(handler, fake_time)).result is DeliveryResult.SUCCESS
        async with handling(fake_time, url, tls=trusting) as handler:
            assert (await outcome(handler, fake_time)).result is DeliveryResult.ERROR


async def test_a_restart_of_the_broker_is_an_error_and_then_a_success(
    broker: Broker, fake_time: FakeTime
) -> None:
    async with handling(fake_time, broker.url) as handler:
        async with broker.up():
            assert (await outcome(handler, fake_time)).result is DeliveryResult.SUCCESS
        told = await outcome(handler, fake_time)
        assert told.result is DeliveryResult.ERROR
        assert "connection refused" in told.detail
        async with broker.up():
            assert (await outcome(handler, fake_time)).result is DeliveryResult.SUCCESS
