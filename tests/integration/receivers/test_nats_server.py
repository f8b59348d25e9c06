"""A real nats-server takes the messages, and its own client library reads what was meant."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest
import trustme

from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.protocols.nats import NATSDelivery, NATSOptions
from pillion_sidecar.testing import FakeTime
from support.broker_programs import NATS_SERVER, WITHOUT_NATS_SERVER, free_port, running
from support.handlers import delivery, indication
from support.protocol_peers import AMPLE, BIG, TURN, destination, registry

pytestmark = pytest.mark.skipif(NATS_SERVER is None, reason=WITHOUT_NATS_SERVER)
SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)
CORE = NATSOptions(subject="alerts.cim", delivery=NATSDelivery.CORE)
STORED = NATSOptions(subject="alerts.cim")


@dataclass(frozen=True)
class Server:
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def up(self, *extra: str, configuration: str = "") -> AsyncIterator[None]:
        """Run it: with JetStream, and what ``configuration`` adds."""
        file = self.folder / "server.conf"
        file.write_text(f'jetstream {{store_dir: "{self.folder}/js"}}\n{configuration}')
        assert NATS_SERVER is not None
        command = [NATS_SERVER, "-a", "127.0.0.1", "-p", str(self.port), "-c", str(file), *extra]
        async with running(command, port=self.port, folder=self.folder):
            yield


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(free_port(), tmp_path)


@asynccontextmanager
async def handling(time: FakeTime, url: str, **given: Any) -> AsyncIterator[Handler]:
    async with registry(time, None) as made:
        chosen = {"timeout_seconds": AMPLE, "options": STORED, **given}
        handler = made.create_handler(destination("NATS", url, **chosen))
        try:
            yield handler
        finally:
            handler.close()


async def outcome(
    handler: Handler, time: FakeTime, body: bytes | None = None, **given: Any
) -> DeliveryOutcome:
    told: list[DeliveryOutcome] = []
    of = indication(identifier=given.pop("identifier", "a-1"), **({"body": body} if body else {}))
    handler.deliver(delivery(of, **given), told.append)
    while not told:
        time.advance(TURN)
        await asyncio.sleep(0)
    return told[0]


async def stored(port: int, **login: Any) -> list[Any]:
    """All messages of the stream."""
    client = await nats.connect(f"nats://127.0.0.1:{port}", **login)
    try:
        stream = client.jetstream()
        count = (await stream.stream_info("alerts")).state.messages
        return [await stream.get_msg("alerts", seq=number + 1) for number in range(count)]
    finally:
        await client.close()


async def add_stream(port: int, **given: Any) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    try:
        await client.jetstream().add_stream(name="alerts", subjects=["alerts.>"], **given)
    finally:
        await client.close()


async def test_a_stream_stores_each_event_once(server: Server, fake_time: FakeTime) -> None:
    async with server.up():
        await add_stream(server.port)
        async with handling(fake_time, server.url) as handler:
            for name in ("a-1", "a-2", "a-1"):
                assert await outcome(handler, fake_time, identifier=name) == SUCCESS
            # Another filter's delivery of an indication is no repeat.
            told = await outcome(handler, fake_time, identifier="a-1", filter_name="other")
            assert told == SUCCESS
            assert (
                await outcome(
                    handler, fake_time, body=b" " * 8 + BIG[:-400_000] + b'"}}', identifier="big"
                )
                == SUCCESS
            )
        messages = await stored(server.port)
    events = [json.loads(message.data) for message in messages]
    assert [event["id"] for event in events] == ["a-1", "a-2", "a-1", "big"]
    assert {message.subject for message in messages} == {"alerts.cim"}
    assert messages[0].headers == {
        "Nats-Msg-Id": "default%0Asevere%0Aa-1",
        "content-type": "application/cloudevents+json",
    }
    assert events[0]["data"]["class"] == "CIM_AlertIndication"


async def test_without_a_stream_the_destination_is_held(
    server: Server, fake_time: FakeTime
) -> None:
    async with server.up(), handling(fake_time, server.url) as handler:
        told = await outcome(handler, fake_time)
        assert told.hold is HoldCause.DESTINATION
        assert "no stream of the server has this subject" in told.detail
        # The connection is as good as before.
        await add_stream(server.port)
        assert await outcome(handler, fake_time) == SUCCESS


async def test_a_stream_that_refuses_is_an_error(server: Server, fake_time: FakeTime) -> None:
    async with server.up():
        await add_stream(server.port, max_msgs=1, discard="new", max_msg_size=10_000)
        async with handling(fake_time, server.url) as handler:
            large = await outcome(handler, fake_time, BIG[:-500_000] + b'"}}')
            assert await outcome(handler, fake_time, identifier="a-1") == SUCCESS
            full = await outcome(handler, fake_time, identifier="a-2")
    assert (large.result, large.refuses_indication) == (DeliveryResult.ERROR, True)
    assert "message size exceeds maximum allowed" in large.detail
    assert (full.result, full.refuses_indication) == (DeliveryResult.ERROR, False)
    assert "maximum messages exceeded" in full.detail


async def test_what_is_larger_than_the_server_takes_is_refused_and_not_sent(
    server: Server, fake_time: FakeTime
) -> None:
    async with server.up(), handling(fake_time, server.url, options=CORE) as handler:
        told = await outcome(handler, fake_time, BIG)
        assert (told.result, told.refuses_indication) == (DeliveryResult.ERROR, True)
        assert "and the server takes 1048576" in told.detail
        assert await outcome(handler, fake_time) == SUCCESS


async def test_core_reaches_a_subscriber(server: Server, fake_time: FakeTime) -> None:
    async with server.up(), handling(fake_time, server.url, options=CORE) as handler:
        # Nobody subscribes.
        assert await outcome(handler, fake_time) == SUCCESS
        client = await nats.connect(server.url)
        subscription = await client.subscribe("alerts.*")
        await client.flush()
        assert await outcome(handler, fake_time, identifier="a-2") == SUCCESS
        message = await subscription.next_msg(timeout=30)
        await client.close()
    assert json.loads(message.data)["id"] == "a-2"


USERS = """
authorization {users: [
  {user: pillion, password: "open sesame"}
  {user: reader, password: "reader", permissions: {publish: "_none", subscribe: ">"}}
  {user: deaf, password: "deaf", permissions: {publish: ">", subscribe: "alerts.>"}}
]}
"""


async def test_passwords_and_permissions(server: Server, fake_time: FakeTime) -> None:
    async def told_as(user: str, password: str) -> DeliveryOutcome:
        credentials = Credentials(username=user, password=password)
        given = {"credentials": credentials, "options": CORE if user == "reader" else STORED}
        async with handling(fake_time, server.url, **given) as handler:
            return await outcome(handler, fake_time)

    async with server.up(configuration=USERS):
        good = await told_as("pillion", "open sesame")
        wrong = await told_as("pillion", "planted-secret")
        reader = await told_as("reader", "reader")
        deaf = await told_as("deaf", "deaf")
        async with handling(fake_time, server.url) as handler:
            none = await outcome(handler, fake_time)
    # It is let in; there is no stream.
    assert "no stream" in good.detail
    for told, words in (
        (wrong, "Authorization Violation"),
        (none, "Authorization Violation"),
        (reader, "Permissions Violation for Publish to"),
        (deaf, "Permissions Violation for Subscription to"),
    ):
        assert (told.result, told.hold) == (DeliveryResult.ERROR, HoldCause.REFUSED)
        assert words in told.detail
        assert "planted" not in told.detail


async def test_a_token(server: Server, fake_time: FakeTime) -> None:
    async with server.up("--auth", "open-sesame"):
        given = {"credentials": Credentials(bearer_token="open-sesame"), "options": CORE}
        async with handling(fake_time, server.url, **given) as handler:
            assert await outcome(handler, fake_time) == SUCCESS


@pytest.mark.parametrize("first", [False, True])
async def test_over_tls(server: Server, fake_time: FakeTime, first: bool) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    folder = server.folder
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    configuration = (
        f'tls {{cert_file: "{folder}/cert.pem", key_file: "{folder}/key.pem", '
        f"handshake_first: {str(first).lower()}}}"
    )
    url = f"tls://localhost:{server.port}"
    options = NATSOptions(subject="alerts", delivery=NATSDelivery.CORE, tls_first=first)
    trusting = TLSOptions(ca_certificates=authority.cert_pem.bytes())
    async with server.up(configuration=configuration):
        async with handling(fake_time, url, options=options, tls=trusting) as handler:
            for _ in range(2):
                assert await outcome(handler, fake_time) == SUCCESS
        async with handling(fake_time, url, options=options) as handler:
            told = await outcome(handler, fake_time)
            assert told.result is DeliveryResult.ERROR
            assert "certificate" in told.detail
        if not first:
            async with handling(fake_time, server.url, options=options) as handler:
                told = await outcome(handler, fake_time)
                assert told.hold is HoldCause.DESTINATION
                assert "requires TLS" in told.detail


async def test_a_restart_of_the_server_costs_no_event(server: Server, fake_time: FakeTime) -> None:
    async with handling(fake_time, server.url) as handler:
        async with server.up():
            await add_stream(server.port)
            assert await outcome(handler, fake_time, identifier="a-1") == SUCCESS
        told = await outcome(handler, fake_time, identifier="a-2")
        assert told.result is DeliveryResult.ERROR
        assert "connection refused" in told.detail
        async with server.up():
            assert await outcome(handler, fake_time, identifier="a-2") == SUCCESS
            messages = await stored(server.port)
    assert [json.loads(message.data)["id"] for message in messages] == ["a-1", "a-2"]
