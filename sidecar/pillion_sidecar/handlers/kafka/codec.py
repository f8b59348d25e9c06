"""Requests and answers of Kafka's protocol, by aiokafka. Imported at the first delivery only (see
:mod:`pillion_sidecar.handlers.libraries`).

The versions are those of Kafka 1.0, which later brokers speak too, so none is negotiated.
"""

import contextlib
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from aiokafka.conn import ScramAuthenticator
from aiokafka.partitioner import murmur2
from aiokafka.protocol.admin import SaslAuthenticateRequest_v0, SaslHandShakeRequest_v1
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.produce import ProduceRequest_v5
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from pillion_sidecar.handlers.kafka.codes import Code, name_of
from pillion_sidecar.handlers.kafka.wire import (
    LENGTH_BYTES,
    AnswerError,
    Authentication,
    AuthenticationError,
)
from pillion_sidecar.handlers.transport.exchange import shown
from pillion_sidecar.protocols.kafka import KafkaAcks, KafkaCompression, SASLMechanism

CLIENT_ID = "pillion"
#: CloudEvents' Kafka binding 3.3.
HEADERS = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
#: RFC 5802 and 7677: fewer would make a password cheap to guess.
LEAST_ITERATIONS = 4096
#: Kafka's maximum; each iteration costs the deliverer time.
MOST_ITERATIONS = 16_384
_ACKS = {KafkaAcks.ALL: -1, KafkaAcks.LEADER: 1}
_COMPRESSIONS = {KafkaCompression.NONE: 0, KafkaCompression.GZIP: 1}
_MOST_MILLISECONDS = 2**31 - 1
_ITERATIONS = re.compile(rb"(?:^|,)i=([0-9]{1,9})(?:,|$)")
# A request on a connection has the answer of this number, since there is one at a time.
_NUMBER = 1


# A replica is not available; the leader is.
_REPLICA_NOT_AVAILABLE = 9


@dataclass(frozen=True, slots=True)
class Leaders:
    """Who leads the partitions of a topic."""

    #: The topic's error.
    code: int
    #: Partitions without an error, with host and port of their leader.
    addresses: Mapping[int, tuple[str, int]]
    #: The number of partitions.
    partitions: int


def metadata_request(topic: str) -> bytes:
    """Ask for the leaders of a topic, which is not created."""
    return _framed(MetadataRequest_v5([topic], False))


def read_leaders(answer: bytes, topic: str) -> Leaders:
    """Raises AnswerError."""
    metadata = _read(MetadataRequest_v5, answer)
    brokers = {node: (host or "", port) for node, host, port, _rack in metadata.brokers or ()}
    for code, name, _is_internal, partitions in metadata.topics or ():
        if name == topic:
            addresses = {
                number: brokers[leader]
                for error, number, leader, *_replicas in partitions or ()
                if leader in brokers and error in (Code.NONE, _REPLICA_NOT_AVAILABLE)
            }
            return Leaders(code, addresses, len(partitions or ()))
    raise AnswerError(f"the broker's answer does not name topic {topic}")


def partition_of(key: bytes, partitions: int) -> int:
    """As Kafka's clients choose it."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


def record_batch(
    records: Sequence[tuple[bytes | None, bytes]], *, seconds: float, compression: KafkaCompression
) -> bytes:
    """``records``: keys and values. ``seconds``: their time, since the epoch."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=_COMPRESSIONS[compression],
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        # Without a limit.
        batch_size=2**31 - 1,
    )
    milliseconds = int(seconds * 1000)
    for offset, (key, value) in enumerate(records):
        builder.append(offset, timestamp=milliseconds, key=key, value=value, headers=HEADERS)
    return bytes(builder.build())


def produce_request(
    topic: str, batches: Mapping[int, bytes], *, acks: KafkaAcks, timeout: float
) -> bytes:
    """``batches``: of partitions. ``timeout``: seconds that the leader waits for replicas."""
    milliseconds = min(int(timeout * 1000), _MOST_MILLISECONDS)
    topics = [(topic, list(batches.items()))]
    return _framed(ProduceRequest_v5(None, _ACKS[acks], milliseconds, topics))


def read_produced(answer: bytes, topic: str) -> Mapping[int, int]:
    """Return the error codes of partitions. Raises AnswerError."""
    produced = _read(ProduceRequest_v5, answer)
    return {
        number: code
        for name, partitions in produced.topics or ()
        if name == topic
        for number, code, *_offsets in partitions or ()
    }


def authenticate(
    mechanism: SASLMechanism, username: str, password: str, *, quotes: bool
) -> Authentication:
    """SASL on a new connection. ``quotes``: errors have the broker's text. Raises
    AuthenticationError and AnswerError."""
    answer = _read(SaslHandShakeRequest_v1, (yield _framed(SaslHandShakeRequest_v1(mechanism))))
    if answer.error_code == Code.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(map(str, answer.enabled_mechanisms or ())) if quotes else ""
        raise _refusal(f"the broker does not offer {mechanism}", offered)
    if answer.error_code != Code.NONE:
        raise _refusal(f"the broker does not authenticate: {name_of(answer.error_code)}", "")
    steps = _steps(mechanism, username, password)
    message: bytes | None = next(steps)
    while message is not None:
        request = SaslAuthenticateRequest_v0(message)
        answer = _read(SaslAuthenticateRequest_v0, (yield _framed(request)))
        if answer.error_code != Code.NONE:
            detail = f"the broker does not accept the credentials: {name_of(answer.error_code)}"
            raise _refusal(detail, answer.error_message if quotes else "")
        message = _next(steps, answer.sasl_auth_bytes or b"")


def _refusal(detail: str, quotation: str | None) -> AuthenticationError:
    suffix = f": {shown(quotation.encode())}" if quotation else ""
    return AuthenticationError(detail + suffix)


_Steps = Generator[bytes, bytes, None]


def _steps(mechanism: SASLMechanism, username: str, password: str) -> _Steps:
    if mechanism is SASLMechanism.PLAIN:
        # RFC 4616.
        yield f"\0{username}\0{password}".encode()
        return
    scram = ScramAuthenticator(
        loop=None,
        sasl_plain_username=username,
        sasl_plain_password=password,
        sasl_mechanism=str(mechanism),
    ).authenticator_scram()
    first, _ = next(scram)
    challenge = yield first
    found = _ITERATIONS.search(challenge)
    if found is None or not LEAST_ITERATIONS <= int(found[1]) <= MOST_ITERATIONS:
        raise AuthenticationError(
            "the broker's challenge has no usable number of iterations"
            f" ({LEAST_ITERATIONS:,} to {MOST_ITERATIONS:,})"
        )
    final, _ = scram.send(challenge)
    # It ends, or raises ValueError if the broker does not know the password.
    with contextlib.suppress(StopIteration):
        scram.send((yield final))


def _next(steps: _Steps, answer: bytes) -> bytes | None:
    try:
        return steps.send(answer)
    except StopIteration:
        return None
    except (ValueError, KeyError) as error:
        raise AuthenticationError("the broker's proof is not valid") from error


def _framed(request: Any) -> bytes:
    head = request.build_request_header(correlation_id=_NUMBER, client_id=CLIENT_ID)
    message: bytes = head.encode() + request.encode()
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def _read(request: Any, answer: bytes) -> Any:
    """Read the answer to a request of a class."""
    read = BytesIO(answer)
    try:
        number = int.from_bytes(read.read(LENGTH_BYTES), "big")
        decoded = request.RESPONSE_TYPE.decode(read)
    except Exception:  # noqa: BLE001 - aiokafka documents none
        raise AnswerError("the broker's answer is not Kafka's") from None
    if number != _NUMBER:
        raise AnswerError("the broker answers another request")
    return decoded
