"""For each protocol a good peer and one that hangs, for the contract that all handlers keep.

To add a protocol, write two context managers that yield a Peer, and a line in ADAPTERS.
"""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

from pillion_cim.schema import load_schema
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.config.signing import SigningKey
from pillion_sidecar.config.usm import SNMPCredentials
from pillion_sidecar.delivery.handler import DeliveryOutcome, Handler
from pillion_sidecar.handlers.appending import append
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.protocols.kafka import KafkaOptions
from pillion_sidecar.protocols.mqtt import MQTTOptions
from pillion_sidecar.protocols.nats import NATSOptions
from pillion_sidecar.protocols.smtp import SMTPOptions, StartTLS
from pillion_sidecar.protocols.snmp import SNMPOptions, SNMPVersion
from pillion_sidecar.protocols.syslog import SyslogOptions
from pillion_sidecar.protocols.webhook import WebhookOptions
from pillion_sidecar.settings import PluginEndpoint
from pillion_sidecar.testing import FakeTime
from support import mail_server, mqtt_broker, nats_server, snmp_receiver, syslog_listener
from support.handlers import delivery, indication
from support.http_listener import Peer as Connection
from support.http_listener import listening as scripted
from support.http_listener import ok
from support.kafka_broker import HANG, TOPIC, broking
from support.listening import listening

#: Fake seconds of a turn in which a peer may answer.
TURN = 0.01
#: Seconds of an attempt at a good peer, which no turns use up.
AMPLE = 1_000_000.0
#: Seconds of an attempt at a peer that hangs; the long one lets another peer answer meanwhile.
TIMEOUT = 30.0
LONG = 3600.0
PLUG_INS = ("good", "stuck")
MAIL = SMTPOptions(
    sender="pillion@station.example",
    recipients=("on-call@ops.example",),
    start_tls=StartTLS.NONE,
)
SCHEMA = load_schema()
#: No peer's system acknowledges so much unread.
BIG = b'{"class":"CIM_AlertIndication","properties":{"AlertType":5,"Description":"%b"}}' % (
    b"x" * 1024 * 1024
)


@dataclass(frozen=True, slots=True)
class Peer:
    url: str
    #: What no message may show if the URL is from a Secret.
    secrets: tuple[str, ...]
    #: Set when an attempt has reached the peer.
    reached: asyncio.Event = field(default_factory=asyncio.Event)


PeerContext: TypeAlias = AbstractAsyncContextManager[Peer]


@dataclass(frozen=True, slots=True)
class Adapter:
    #: Takes whatever comes.
    good: Callable[[Path], PeerContext]
    #: Sets ``reached``, and lets the attempt wait. It is sent BIG.
    hung: Callable[[Path], PeerContext]
    #: Seconds beyond the time-out in which the peer may itself say that it has passed (S2.4).
    grace: float = 0.0
    #: What a destination of the protocol needs besides its URL.
    given: Mapping[str, Any] = field(default_factory=dict)


# HTTP.


def _network_peer(url: str) -> Peer:
    return Peer(url, (url, "localhost", url.rstrip("/").rpartition(":")[2]))


@asynccontextmanager
async def _good_http(_: Path) -> AsyncIterator[Peer]:
    async with listening() as listener:
        yield _network_peer(listener.url)


@asynccontextmanager
async def _good_webhook(_: Path) -> AsyncIterator[Peer]:
    async def script(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.send(ok())

    async with scripted(script) as listener:
        yield _network_peer(listener.url)


@asynccontextmanager
async def _hung_http(_: Path) -> AsyncIterator[Peer]:
    peers: list[Peer] = []

    async def script(connection: Connection) -> None:
        await connection.request()
        peers[0].reached.set()
        await connection.closed()

    async with scripted(script) as listener:
        peers.append(_network_peer(listener.url))
        yield peers[0]


# Syslog.


@asynccontextmanager
async def _good_syslog(_: Path) -> AsyncIterator[Peer]:
    async with syslog_listener.listening() as listener:
        yield _network_peer(listener.url)


@asynccontextmanager
async def _hung_syslog(_: Path) -> AsyncIterator[Peer]:
    """It accepts the connection and never reads."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.setblocking(False)
        peer = _network_peer(f"syslog://localhost:{server.getsockname()[1]}")
        accepted = []

        async def accept() -> None:
            accepted.append((await asyncio.get_running_loop().sock_accept(server))[0])
            peer.reached.set()

        accepting = asyncio.create_task(accept())
        try:
            yield peer
        finally:
            accepting.cancel()
            for connection in accepted:
                connection.close()


# Kafka.


@asynccontextmanager
async def _good_kafka(_: Path) -> AsyncIterator[Peer]:
    async with broking() as broker:
        yield _network_peer(broker.url)


@asynccontextmanager
async def _hung_kafka(_: Path) -> AsyncIterator[Peer]:
    async with broking() as broker:
        broker.script += [HANG] * 10
        secrets = (broker.url, "localhost", "127.0.0.1", str(broker.port))
        yield Peer(broker.url, secrets, reached=broker.reached)


# SNMP.


@asynccontextmanager
async def _good_snmp(_: Path) -> AsyncIterator[Peer]:
    async with snmp_receiver.receiving() as receiver:
        yield _network_peer(receiver.url)


@asynccontextmanager
async def _hung_snmp(_: Path) -> AsyncIterator[Peer]:
    async with snmp_receiver.receiving(answers=False) as receiver:
        peer = _network_peer(receiver.url)
        yield Peer(peer.url, peer.secrets, receiver.arrived)


# Message brokers.


@asynccontextmanager
async def _good_nats(_: Path) -> AsyncIterator[Peer]:
    async with nats_server.listening() as server:
        yield _network_peer(server.url)


@asynccontextmanager
async def _hung_nats(_: Path) -> AsyncIterator[Peer]:
    """It takes the message, and never acknowledges it."""
    async with nats_server.listening(answer=None) as server:
        yield replace(_network_peer(server.url), reached=server.reached)


@asynccontextmanager
async def _good_mqtt(_: Path) -> AsyncIterator[Peer]:
    async with mqtt_broker.listening() as broker:
        yield _network_peer(broker.url)


@asynccontextmanager
async def _hung_mqtt(_: Path) -> AsyncIterator[Peer]:
    """It takes the message, and never acknowledges it."""
    async with mqtt_broker.listening(answer=None) as broker:
        yield replace(_network_peer(broker.url), reached=broker.reached)


# E-mail.


@asynccontextmanager
async def _good_smtp(_: Path) -> AsyncIterator[Peer]:
    async with mail_server.serving() as server:
        yield _network_peer(server.url)


@asynccontextmanager
async def _hung_smtp(_: Path) -> AsyncIterator[Peer]:
    """It takes the message and does not answer."""
    peers: list[Peer] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"220 mail.example\r\n")
            while (line := await reader.readline()) != b".\r\n" and line:
                if line[:4] in (b"EHLO", b"MAIL", b"RCPT"):
                    writer.write(b"250 OK\r\n")
                elif line[:4] == b"DATA":
                    writer.write(b"354 Go on\r\n")
                    peers[0].reached.set()
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    peers.append(_network_peer(f"smtp://localhost:{server.sockets[0].getsockname()[1]}"))
    try:
        yield peers[0]
    finally:
        server.close()
        await server.wait_closed()
        for _turn in range(20):
            await asyncio.sleep(0)


# Files.


@asynccontextmanager
async def _good_file(_: Path) -> AsyncIterator[Peer]:
    yield Peer("file:///good.ndjson", ("good",))


@asynccontextmanager
async def _hung_file(_: Path) -> AsyncIterator[Peer]:
    """The disk of one file hangs."""
    peer, goes_on = Peer("file:///stuck.ndjson", ("stuck",)), threading.Event()
    loop = asyncio.get_running_loop()

    def hang(folder: Path, name: str, lines: Any) -> Any:
        if name == "stuck.ndjson":
            loop.call_soon_threadsafe(peer.reached.set)
            goes_on.wait()
        return append(folder, name, lines)

    with patch("pillion_sidecar.handlers.folder.append", hang):
        try:
            yield peer
        finally:
            goes_on.set()


# Plug-ins.


def _answer(writer: asyncio.StreamWriter, request: Any, result: Any) -> None:
    message = {"jsonrpc": "2.0", "id": request["id"], "result": result}
    writer.write(json.dumps(message).encode() + b"\n")


@asynccontextmanager
async def _plug_in(file: Path, peer: Peer, *, answers: bool) -> AsyncIterator[Peer]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                request = json.loads(line)
                if request["method"] == "initialize":
                    _answer(writer, request, {"protocolVersion": 1, "name": "test", "version": "1"})
                elif request["method"] == "deliver" and answers:
                    _answer(writer, request, {"outcome": "success"})
                elif request["method"] == "deliver":
                    peer.reached.set()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, file, limit=8 * len(BIG))
    try:
        yield peer
    finally:
        server.close()
        for _ in range(20):
            await asyncio.sleep(0)


def _good_plug_in(folder: Path) -> PeerContext:
    return _plug_in(folder / "good.sock", Peer("plugin://good", ("good",)), answers=True)


def _hung_plug_in(folder: Path) -> PeerContext:
    return _plug_in(folder / "stuck.sock", Peer("plugin://stuck", ("stuck",)), answers=False)


ADAPTERS = {
    "CIM-XML": Adapter(_good_http, _hung_http),
    "CloudEvents": Adapter(_good_http, _hung_http),
    "StandardWebhooks": Adapter(
        _good_webhook,
        _hung_http,
        given={"credentials": Credentials(signing=(SigningKey(b"0" * 32, is_asymmetric=False),))},
    ),
    "Webhook": Adapter(
        _good_webhook, _hung_http, given={"options": WebhookOptions(template='{"a": "${class}"}')}
    ),
    "Syslog": Adapter(
        _good_syslog, _hung_syslog, given={"options": SyslogOptions(max_bytes=2 * len(BIG))}
    ),
    "Kafka": Adapter(_good_kafka, _hung_kafka, given={"options": KafkaOptions(topic=TOPIC)}),
    "SNMP": Adapter(
        _good_snmp,
        _hung_snmp,
        given={
            "credentials": Credentials(snmp=SNMPCredentials(community="sunny-side")),
            "options": SNMPOptions(version=SNMPVersion.V2C),
        },
    ),
    "MQTT": Adapter(_good_mqtt, _hung_mqtt, given={"options": MQTTOptions(topic="alerts/cim")}),
    "NATS": Adapter(_good_nats, _hung_nats, given={"options": NATSOptions(subject="alerts.cim")}),
    "File": Adapter(_good_file, _hung_file),
    "SMTP": Adapter(_good_smtp, _hung_smtp, given={"options": MAIL}),
    "Plugin": Adapter(_good_plug_in, _hung_plug_in, grace=5.0),
}


# Attempts.


class Attempt:
    """One attempt, and whatever is told of it."""

    def __init__(self, handler: Handler, time: FakeTime, body: bytes | None = None) -> None:
        self.told: list[DeliveryOutcome] = []
        self._time = time
        of = indication() if body is None else indication(body)
        handler.deliver(delivery(of), self.told.append)

    async def outcome(self, *, turn: float = TURN) -> DeliveryOutcome:
        """Let turns of so many seconds pass until the outcome is told."""
        while not self.told:
            self._time.advance(turn)
            await asyncio.sleep(0)
        return self.told[0]


@asynccontextmanager
async def registry(
    time: FakeTime, folder: Path | None, **given: Any
) -> AsyncIterator[HandlerRegistry]:
    """Handlers with real sockets and files, on fake time."""
    resolver = Resolver()
    plugins = {}
    if folder is not None:
        plugins = {name: PluginEndpoint(socket=folder / f"{name}.sock") for name in PLUG_INS}
    policy = AddressPolicy(allow_loopback=True)
    values = {"address_policy": policy, "resolver": resolver, **given}
    made = HandlerRegistry(
        clock=time,
        timers=time,
        schema=SCHEMA,
        service_name="default",
        delivery_folder=folder,
        plugins=plugins,
        **values,
    )
    try:
        yield made
    finally:
        made.close()
        await resolver.close()


def destination(protocol: str, url: str, **given: Any) -> ListenerDestination:
    needed = ADAPTERS[protocol].given if protocol in ADAPTERS else {}
    return ListenerDestination(
        **{"name": "a", "uid": "u", "destination": url, "protocol": protocol, **needed, **given}
    )
