"""Kafka's protocol: authentication step by step, partitions, and answers that are none."""

import base64
import hashlib
import hmac
from contextlib import suppress
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.admin import (
    SaslAuthenticateRequest_v0,
    SaslAuthenticateResponse_v0,
    SaslHandShakeRequest_v1,
    SaslHandShakeResponse_v1,
)
from aiokafka.protocol.api import RequestHeader_v1
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.handlers.kafka.codec import (
    authenticate,
    partition_of,
    read_leaders,
    read_produced,
)
from pillion_sidecar.handlers.kafka.wire import AnswerError, Authentication, AuthenticationError
from pillion_sidecar.protocols.kafka import SASLMechanism

PASSWORD = "correct horse"
SALT = b"salt" * 4


def answer(response: Any) -> bytes:
    encoded: bytes = response.encode()
    return (1).to_bytes(4, "big") + encoded


def sent(frame: bytes, request: Any) -> Any:
    data = BytesIO(frame[4:])
    RequestHeader_v1.SCHEMA.decode(data)
    return request.decode(data)


def begun(mechanism: SASLMechanism) -> tuple[Authentication, str]:
    """Shake hands; return the first message."""
    session = authenticate(mechanism, "wri=t,er", PASSWORD, quotes=True)
    assert sent(next(session), SaslHandShakeRequest_v1).mechanism == mechanism
    frame = session.send(answer(SaslHandShakeResponse_v1(0, [str(mechanism)])))
    message: bytes = sent(frame, SaslAuthenticateRequest_v0).sasl_auth_bytes
    return session, message.decode()


def challenged(session: Authentication, first: str, iterations: int) -> tuple[str, str]:
    """Send a challenge; return it and the client's proof."""
    nonce = first.rpartition("r=")[2] + "server"
    challenge = f"r={nonce},s={base64.b64encode(SALT).decode()},i={iterations}"
    frame = session.send(answer(SaslAuthenticateResponse_v0(0, None, challenge.encode())))
    proof: bytes = sent(frame, SaslAuthenticateRequest_v0).sasl_auth_bytes
    return challenge, proof.decode()


def signature(first: str, challenge: str, proof: str, password: str) -> bytes:
    """The server's, by RFC 5802 3."""
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), SALT, 4096)
    exchange = ",".join((first.removeprefix("n,,"), challenge, proof.rpartition(",p=")[0]))
    server_key = hmac.digest(key, b"Server Key", "sha512")
    return b"v=" + base64.b64encode(hmac.digest(server_key, exchange.encode(), "sha512"))


def test_scram_ends_with_the_brokers_proof() -> None:
    session, first = begun(SASLMechanism.SCRAM_SHA_512)
    assert first.startswith("n,,n=wri=3Dt=2Cer,r=")
    challenge, proof = challenged(session, first, 4096)
    final = signature(first, challenge, proof, PASSWORD)
    with pytest.raises(StopIteration):
        session.send(answer(SaslAuthenticateResponse_v0(0, None, final)))


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    session, first = begun(SASLMechanism.SCRAM_SHA_512)
    challenge, proof = challenged(session, first, 4096)
    final = signature(first, challenge, proof, "another one")
    with pytest.raises(AuthenticationError, match="proof is not valid"):
        session.send(answer(SaslAuthenticateResponse_v0(0, None, final)))


@pytest.mark.parametrize("iterations", [0, 4095, 16_385])
def test_a_challenge_that_costs_too_little_or_too_much_is_refused(iterations: int) -> None:
    session, first = begun(SASLMechanism.SCRAM_SHA_256)
    with pytest.raises(AuthenticationError, match="number of iterations"):
        challenged(session, first, iterations)


@pytest.mark.parametrize(
    "challenge",
    [b"", b"i=4096", b"r=x,s=c2FsdA==,i=4096", b"r=x,i=4096,s", b"\xff,i=4096", b"e=no"],
)
def test_a_challenge_that_is_none_is_refused(challenge: bytes) -> None:
    session, _ = begun(SASLMechanism.SCRAM_SHA_256)
    with pytest.raises(AuthenticationError):
        session.send(answer(SaslAuthenticateResponse_v0(0, None, challenge)))


def test_plain_sends_name_and_password() -> None:
    session, first = begun(SASLMechanism.PLAIN)
    assert first == f"\0wri=t,er\0{PASSWORD}"
    with pytest.raises(StopIteration):
        session.send(answer(SaslAuthenticateResponse_v0(0, None, b"")))


@pytest.mark.parametrize(
    ("key", "partition"),
    # Of Kafka's UtilsTest: murmur2 as a signed integer.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_a_key_has_the_partition_that_kafkas_clients_choose(key: bytes, partition: int) -> None:
    assert partition_of(key, 1000) == (partition & 0x7FFFFFFF) % 1000


@given(st.binary(max_size=200))
def test_any_answer_is_read_or_refused(data: bytes) -> None:
    for read in (read_leaders, read_produced):
        with suppress(AnswerError):
            read(b"\0\0\0\x01" + data, "alerts")


def test_an_answer_without_lists_is_read_or_refused() -> None:
    nothing = b"\xff\xff\xff\xff"
    number = b"\0\0\0\x01"
    with pytest.raises(AnswerError, match="does not name topic alerts"):
        read_leaders(number + bytes(4) + nothing + b"\xff\xff" + bytes(4) + nothing, "alerts")
    topic = bytes(3) + b"\x01" + bytes(2) + b"\0\x06alerts" + b"\0" + nothing
    found = read_leaders(number + bytes(4) + nothing + b"\xff\xff" + bytes(4) + topic, "alerts")
    assert (found.partitions, found.addresses) == (0, {})
    assert read_produced(number + nothing + bytes(4), "alerts") == {}
    produced = b"\0\0\0\x01" + b"\0\x06alerts" + nothing + bytes(4)
    assert read_produced(number + produced, "alerts") == {}
