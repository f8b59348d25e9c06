"""A wire told anything at all: it ends in one outcome, within its bounds, and never otherwise."""

import asyncio
import gc
import ssl
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.handlers.http.answers import BODY_LIMIT
from pillion_sidecar.handlers.http.wire import HTTPWire
from pillion_sidecar.handlers.transport.exchange import Failure, Headers
from pillion_sidecar.handlers.transport.wire import RequestWire


class FakeTransport:
    """Takes what is written; ``refuses`` as a broken connection does."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.written = b""
        self.closed = False
        self.refuses = refuses

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed or self.refuses

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_extra_info(self, name: str) -> Any:
        return None


class Owner:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Headers, bytes, bool]] = []
        self.losses: list[tuple[Failure | None, bool]] = []

    def wire_opened(self, wire: RequestWire) -> None:
        wire.send(b"request")

    def wire_answered(self, status: int, headers: Headers, body: bytes, *, keep: bool) -> None:
        self.answers.append((status, headers, body, keep))

    def wire_lost(self, failure: Failure | None, *, untaken: bool) -> None:
        self.losses.append((failure, untaken))


def opened(transport: FakeTransport) -> tuple[HTTPWire, Owner, memoryview]:
    owner = Owner()
    buffer = memoryview(bytearray(1024))
    wire = HTTPWire(owner, buffer=buffer)
    wire.connection_made(cast(asyncio.Transport, transport))
    return wire, owner, buffer


def receive(wire: HTTPWire, buffer: memoryview, data: bytes) -> None:
    buffer[: len(data)] = data
    wire.buffer_updated(len(data))


PIECES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 503 No\r\n", b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Upgrade: x\r\n",
        b"A: b\nc\r\n", b"\r\n", b"\n", b"hello", b"5\r\nhello\r\n", b"0\r\n\r\n", b"\x00",
        b"x" * 1024,
    ]
)  # fmt: skip


@given(st.lists(PIECES | st.binary(min_size=1, max_size=40), max_size=200), st.booleans())
@example([b"x" * 1024] * 200, True)
@example([b"HTTP/1.1 200 OK\r\n", b"\r\n", *[b"x" * 1024] * 199], True)
def test_any_answer_ends_in_exactly_one_outcome(pieces: list[bytes], eof: bool) -> None:
    transport = FakeTransport()
    wire, owner, buffer = opened(transport)
    for piece in pieces:
        if owner.answers or owner.losses:
            break
        receive(wire, buffer, piece)
    if eof and not transport.closed:
        wire.eof_received()
    wire.connection_lost(None)
    wire.connection_lost(ConnectionResetError())
    under_way = owner.answers + [loss for loss in owner.losses if loss[0] is not None]
    assert len(under_way) == 1
    for _, _, body, _ in owner.answers:
        assert len(body) <= BODY_LIMIT


ANSWERS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nko",
        b"HTTP/1.1 204 No Content\r\nA: 1\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + b"x" * 900,
    ]
)


@given(st.lists(st.tuples(ANSWERS, st.integers(0, 60)), min_size=1, max_size=6))
def test_an_answer_is_the_same_whether_it_has_been_seen_before_or_not(
    answers: list[tuple[bytes, int]],
) -> None:
    wire, owner, buffer = opened(FakeTransport())
    alone = []
    for answer, cut in answers:
        other, other_owner, other_buffer = opened(FakeTransport())
        receive(other, other_buffer, answer)
        alone += other_owner.answers
        for piece in (answer[:cut], answer[cut:]):
            if piece:
                receive(wire, buffer, piece)
        if len(owner.answers) < len(alone):
            break
        wire.send(b"request")
    assert owner.losses == []
    assert owner.answers == alone[: len(owner.answers)]
    assert len(owner.answers) == len(answers)


@pytest.mark.parametrize("interim", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
@pytest.mark.parametrize("version", ["0.9", "2.0"])
@pytest.mark.parametrize("status", [204, 503])
def test_an_answer_of_another_major_version_is_invalid(
    status: int, version: str, interim: bytes
) -> None:
    transport = FakeTransport()
    wire, owner, buffer = opened(transport)
    receive(wire, buffer, interim + f"HTTP/{version} {status} Done\r\n\r\n".encode())
    detail = f"HTTP {status}, but the answer is invalid: it has the version HTTP/{version}"
    assert owner.losses == [(Failure(DeliveryResult.ERROR, detail, status), False)]
    assert owner.answers == []
    assert transport.closed


@pytest.mark.parametrize("cut", range(1, 30))
def test_the_version_is_checked_in_an_answer_that_comes_in_pieces(cut: int) -> None:
    for version, taken in (("1.1", True), ("2.0", False)):
        wire, owner, buffer = opened(FakeTransport())
        buffer[5:6] = b"1"
        answer = f"HTTP/{version} 204 No Content\r\nA: 1\r\n\r\n".encode()
        receive(wire, buffer, answer[:cut])
        receive(wire, buffer, answer[cut:])
        assert bool(owner.answers) is taken


def test_an_interim_answer_of_another_major_version_is_invalid() -> None:
    wire, owner, buffer = opened(FakeTransport())
    receive(wire, buffer, b"HTTP/2.0 100 Continue\r\n\r\n")
    detail = "the answer is invalid: it is not HTTP (it has the version HTTP/2.0)"
    assert owner.losses == [(Failure(DeliveryResult.ERROR, detail), False)]


def test_a_known_answer_to_a_write_that_is_not_through_does_not_keep_the_connection() -> None:
    transport = FakeTransport()
    wire, owner, buffer = opened(transport)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    receive(wire, buffer, answer)
    wire.send(b"request")
    wire.pause_writing()
    receive(wire, buffer, answer)
    assert [keep for _, _, _, keep in owner.answers] == [True, False]
    assert transport.closed


def test_a_reset_is_a_post_delivery_error_unless_nothing_was_written() -> None:
    for refuses, result in ((False, "post-delivery-error"), (True, "error")):
        wire, owner, _ = opened(FakeTransport(refuses=refuses))
        wire.connection_lost(ConnectionResetError(104, "Connection reset by peer"))
        [(failure, untaken)] = owner.losses
        assert failure is not None
        assert failure.result == result
        assert untaken is refuses


def test_a_write_that_is_not_through_was_not_taken() -> None:
    wire, owner, _ = opened(FakeTransport())
    wire.pause_writing()
    failure = wire.give_up("timed out")
    assert failure == Failure(DeliveryResult.ERROR, "timed out before it had the request")
    assert owner.losses == []


def test_a_reset_of_a_write_that_is_not_through_says_that_it_was_not_taken() -> None:
    wire, owner, _ = opened(FakeTransport())
    wire.pause_writing()
    wire.connection_lost(ConnectionResetError(104, "Connection reset by peer"))
    [(failure, untaken)] = owner.losses
    assert failure is not None
    assert failure.result is DeliveryResult.ERROR
    assert untaken


def test_an_answer_to_a_write_that_is_not_through_does_not_keep_the_connection() -> None:
    transport = FakeTransport()
    wire, owner, buffer = opened(transport)
    wire.pause_writing()
    receive(wire, buffer, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert owner.answers == [(200, [(b"Content-Length", b"0")], b"", False)]
    assert transport.closed


@pytest.mark.parametrize(
    ("reason", "result"),
    [
        ("TLSV1_ALERT_UNKNOWN_CA", DeliveryResult.ERROR),
        ("DECRYPTION_FAILED_OR_BAD_RECORD_MAC", DeliveryResult.POST_DELIVERY_ERROR),
    ],
)
def test_a_tls_alert_says_that_the_request_was_not_taken(
    reason: str, result: DeliveryResult
) -> None:
    wire, owner, _ = opened(FakeTransport())
    error = ssl.SSLError(1, "x")
    error.reason = reason
    wire.connection_lost(error)
    [(failure, _)] = owner.losses
    assert failure is not None
    assert failure.result is result
    assert reason.replace("_", " ").lower() in failure.detail


def test_a_wire_that_was_closed_before_it_opened_closes() -> None:
    transport = FakeTransport()
    wire = HTTPWire(Owner(), buffer=memoryview(bytearray(10)))
    wire.close()
    wire.connection_made(cast(asyncio.Transport, transport))
    assert transport.closed
    assert transport.written == b""


class ClosedTransport(FakeTransport):
    """As asyncio's over TLS in Python 3.11 once the listener has closed: it is not to be closed."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        raise AssertionError("it is closed already, and after another close() abort() raises")

    def abort(self) -> None:
        self.closed = True


def test_a_transport_that_the_listener_closed_is_not_closed_again() -> None:
    transport = ClosedTransport()
    wire, owner, _ = opened(transport)
    wire.connection_lost(None)
    assert len(owner.losses) == 1
    assert transport.closed


def test_an_ended_connection_needs_no_collector() -> None:
    wire = HTTPWire(Owner(), buffer=memoryview(bytearray(64)))
    wire.connection_made(cast(asyncio.Transport, FakeTransport()))
    wire.give_up("timed out")
    wire.connection_lost(None)
    gc.collect()
    before = len([one for one in gc.get_objects() if isinstance(one, HTTPWire)])
    del wire
    assert len([one for one in gc.get_objects() if isinstance(one, HTTPWire)]) == before - 1
