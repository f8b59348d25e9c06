"""What a writer makes of a store's answers."""

import asyncio
import json

import pytest

from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.handlers.authorization import AuthorizationError, StaticAuthorizer, Tell
from pillion_sidecar.handlers.journals import StoreLinks, StorePost, read_answer
from pillion_sidecar.handlers.relay import CONNECTION_SECONDS
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.stores.copies import Copy, Epoch, Extent, FencedError, GapError
from pillion_sidecar.stores.messages import (
    REFUSALS,
    ClaimRequest,
    decode_request,
    encode_copy,
    refusal_details,
)
from pillion_sidecar.stores.ports import Answer, Unanswered
from pillion_sidecar.testing import FakeTime
from support.handlers import FakeSender

COPY = Copy(promised=Epoch(3, "a"), written=Epoch(2, "b"), extents=(Extent(1, 2.5, 64),))
CLAIM = ClaimRequest(number=3, claimant="a")


class Writer:
    def __init__(self, time: FakeTime, authorizer: StaticAuthorizer) -> None:
        self.sender = FakeSender()
        post = StorePost(
            self.sender,
            parse_target("http://gateway:8288/v1/journals/x"),
            authorizer=authorizer,
            clock=time,
        )
        self.stores = StoreLinks({"a": post})
        self.told: list[Answer] = []

    def send(self) -> None:
        self.stores.send("a", CLAIM, self.told.append)


@pytest.fixture
def writer(fake_time: FakeTime) -> Writer:
    return Writer(fake_time, StaticAuthorizer(b"Authorization: Bearer t\r\n"))


def test_a_request_has_its_session_and_token_and_the_answer_is_the_copy(writer: Writer) -> None:
    writer.send()
    assert writer.sender.heads[0][0] == "POST /v1/journals/x HTTP/1.1"
    assert "Authorization: Bearer t" in writer.sender.heads[0]
    assert decode_request(writer.sender.bodies[0]) == CLAIM
    writer.sender.sent[0][1].answered(200, (), encode_copy(COPY))
    assert writer.told == [COPY]


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_the_error_that_the_store_raised(name: str) -> None:
    form = REFUSALS[name]
    body = json.dumps({"error": name, "reason": "why"}).encode()
    answer = read_answer(form.status, body, wait=0.0)
    assert (type(answer), str(answer)) == (form.error, "why")


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b"", "its answer is no copy"),
        (200, b"\xc1", "its answer is no copy"),
        (404, b'{"reason": "no such path"}', "it answered HTTP 404: no such path"),
        (409, b'{"error": "unheard", "reason": "of"}', "it answered HTTP 409: of"),
        (503, b"<html>", "it answered HTTP 503"),
        (503, b"[" * 5000, "it answered HTTP 503"),
    ],
)
def test_any_other_answer_says_nothing_of_the_copy(status: int, body: bytes, reason: str) -> None:
    answer = read_answer(status, body, wait=7.0)
    assert isinstance(answer, Unanswered)
    assert answer.reason.startswith(reason)
    assert answer.retry_after == 7.0


def test_retry_after_and_failures_are_told(writer: Writer) -> None:
    writer.send()
    writer.sender.sent[0][1].answered(503, ((b"Retry-After", b"9"),), b"{}")
    writer.send()
    writer.sender.sent[1][1].failed(Failure(DeliveryResult.ERROR, "connection refused"))
    assert writer.told == [
        Unanswered(reason="it answered HTTP 503", retry_after=9.0),
        Unanswered(reason="connection refused"),
    ]


class NoToken(StaticAuthorizer):
    forgotten = 0

    def ask(self, tell: Tell) -> None:
        tell(AuthorizationError("the token cannot be read"))

    def forget(self) -> bool:
        self.forgotten += 1
        return True


async def test_without_a_token_nothing_is_sent(fake_time: FakeTime) -> None:
    writer = Writer(fake_time, NoToken())
    writer.send()
    assert writer.told == []
    await asyncio.sleep(0)
    assert writer.told == [Unanswered(reason="the token cannot be read")]
    assert writer.sender.sent == []


def test_a_token_that_is_refused_is_read_again(fake_time: FakeTime) -> None:
    authorizer = NoToken()
    post = StorePost(
        FakeSender(), parse_target("http://gateway"), authorizer=authorizer, clock=fake_time
    )
    assert isinstance(post.answer(401, (), b"", reads=False), Unanswered)
    assert authorizer.forgotten == 1


def test_connections_are_renewed_and_closed(writer: Writer, fake_time: FakeTime) -> None:
    writer.send()
    fake_time.advance(CONNECTION_SECONDS)
    writer.send()
    writer.send()
    assert writer.sender.renewals == 1
    writer.stores.close()
    writer.send()
    assert (len(writer.sender.sent), writer.sender.closed) == (3, True)


def test_a_refusal_tells_what_another_writer_has_claimed() -> None:
    fenced = FencedError("other has claimed the session", promised=Epoch(7, "other"))
    body = json.dumps(
        {"error": "fenced", "reason": str(fenced), **refusal_details(fenced)}
    ).encode()
    told = read_answer(409, body, wait=0.0)
    assert isinstance(told, FencedError)
    assert told.promised == Epoch(7, "other")
    # An earlier version tells it in words.
    told = read_answer(409, b'{"error":"fenced","reason":"other"}', wait=0.0)
    assert isinstance(told, FencedError)
    assert told.promised is None
    assert refusal_details(GapError("a gap")) == {}


def test_a_read_is_answered_with_its_bytes() -> None:
    assert read_answer(200, b"bytes", wait=0.0, reads=True) == b"bytes"
    assert isinstance(read_answer(404, b"", wait=0.0, reads=True), Unanswered)
