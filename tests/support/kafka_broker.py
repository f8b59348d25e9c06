"""A Kafka broker of a test's own: metadata, produce and SASL PLAIN, by aiokafka's codec."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from aiokafka.protocol.admin import (
    SaslAuthenticateRequest_v0,
    SaslAuthenticateResponse_v0,
    SaslHandShakeRequest_v1,
    SaslHandShakeResponse_v1,
)
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.metadata import MetadataRequest_v5, MetadataResponse_v5
from aiokafka.protocol.produce import ProduceRequest_v5, ProduceResponse_v5
from aiokafka.record import MemoryRecords

REQUESTS = {
    (one.API_KEY, one.API_VERSION): one
    for one in (
        MetadataRequest_v5,
        ProduceRequest_v5,
        SaslAuthenticateRequest_v0,
        SaslHandShakeRequest_v1,
    )
}
TOPIC = "alerts"
#: Instead of error codes.
HANG = "hang"
CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Record:
    partition: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, bytes]


class KafkaBroker:
    """Keeps what it confirms."""

    def __init__(self) -> None:
        self.url = ""
        self.port = 0
        self.connections = 0
        self.records: list[Record] = []
        #: The number of records of each batch that came.
        self.batches: list[int] = []
        self.metadata_requests = 0
        self.compression: list[int] = []
        self.acks: list[int] = []
        #: What it says of the next batches: error codes by partition, or HANG, CLOSE, or the bytes
        #: of an answer.
        self.script: deque[dict[int, int] | str | bytes] = deque()
        self.reached = asyncio.Event()
        #: Error code of the topic.
        self.topic_code = 0
        #: The leader of each partition: host and port; None: this broker.
        self.leaders: list[tuple[str, int] | None] = [None]
        #: Names and passwords; None: no authentication.
        self.users: dict[str, str] | None = None
        self.logins: list[bytes] = []
        #: Maximum bytes of a batch.
        self.most_bytes = 2**30
        self._writers: set[asyncio.StreamWriter] = set()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        is_known = self.users is None
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                data = BytesIO(await reader.readexactly(length))
                key, version, number, _client = RequestHeader_v1.SCHEMA.decode(data)
                request = REQUESTS[key, version].decode(data)
                is_sasl = isinstance(request, SaslHandShakeRequest_v1 | SaslAuthenticateRequest_v0)
                if is_sasl == is_known:
                    break
                answer = self._answer(request)
                if isinstance(answer, SaslAuthenticateResponse_v0):
                    is_known = answer.error_code == 0
                if answer == HANG:
                    await reader.read()
                    break
                if answer == CLOSE:
                    break
                if not isinstance(answer, bytes):
                    body = number.to_bytes(4, "big") + answer.encode()
                    answer = len(body).to_bytes(4, "big") + body
                writer.write(answer)
        self._writers.discard(writer)
        writer.close()

    def _answer(self, request: Any) -> Any:
        if isinstance(request, MetadataRequest_v5):
            return self._metadata(request)
        if isinstance(request, ProduceRequest_v5):
            return self._produced(request)
        if isinstance(request, SaslHandShakeRequest_v1):
            code = 0 if request.mechanism == "PLAIN" else 33
            return SaslHandShakeResponse_v1(code, ["PLAIN"])
        return self._authenticated(request)

    def _authenticated(self, request: Any) -> Any:
        self.logins.append(request.sasl_auth_bytes)
        _, user, password = request.sasl_auth_bytes.split(b"\0")
        assert self.users is not None
        if self.users.get(user.decode()) == password.decode():
            return SaslAuthenticateResponse_v0(0, None, b"")
        return SaslAuthenticateResponse_v0(58, "Authentication failed: Invalid password", b"")

    def _metadata(self, request: Any) -> Any:
        assert not request.allow_auto_topic_creation
        self.metadata_requests += 1
        here = ("127.0.0.1", self.port)
        addresses = list(dict.fromkeys(one or here for one in self.leaders))
        brokers = [(node, host, port, None) for node, (host, port) in enumerate(addresses)]
        partitions: list[Any] = [
            (0, number, addresses.index(one or here), [0], [0], [])
            for number, one in enumerate(self.leaders)
        ]
        (name,) = request.topics
        topics = [(self.topic_code, name, False, [] if self.topic_code else partitions)]
        return MetadataResponse_v5(0, brokers, "cluster", 0, topics)

    def _produced(self, request: Any) -> Any:
        ((name, partitions),) = request.topics
        self.acks.append(request.required_acks)
        self.reached.set()
        said = self.script.popleft() if self.script else {}
        answers = []
        for number, messages in partitions:
            records = self._read(number, messages)
            self.batches.append(len(records))
            code = 10 if len(messages) > self.most_bytes else 0
            if isinstance(said, dict):
                code = said.get(number, code)
                self.records += [] if code else records
            answers.append((number, code, 0, -1, 0))
        if not isinstance(said, dict):
            return said
        return ProduceResponse_v5([(name, answers)], 0)

    def _read(self, number: int, messages: bytes) -> list[Record]:
        batches = MemoryRecords(messages)
        batch = batches.next_batch()
        assert batch is not None
        assert batch.validate_crc()
        self.compression.append(batch.compression_type)
        records = [Record(number, one.key, one.value, dict(one.headers)) for one in batch]
        assert not batches.has_next()
        return records


@asynccontextmanager
async def broking(tls: ssl.SSLContext | None = None) -> AsyncIterator[KafkaBroker]:
    """Listen on a port of loopback while the context lasts."""
    broker = KafkaBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=tls)
    broker.port = server.sockets[0].getsockname()[1]
    broker.url = f"{'kafka' if tls is None else 'kafkas'}://localhost:{broker.port}"
    try:
        yield broker
    finally:
        server.close()
        broker.hang_up()
        await server.wait_closed()
        for _ in range(5):
            await asyncio.sleep(0)
