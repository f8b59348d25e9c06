"""Standard Webhooks: headers, signatures that the public library verifies, and 410."""

import asyncio
import base64
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.config.signing import SigningKey
from pillion_sidecar.delivery.handler import (
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
    HoldCause,
)
from pillion_sidecar.handlers.authorization import StaticAuthorizer
from pillion_sidecar.handlers.redaction import DiscreetHandler
from pillion_sidecar.handlers.standard_webhooks import StandardWebhooksHandler, header_identifier
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.testing import FakeTime
from support.handlers import FakeSender, delivery, indication
from support.manual import DOCS, blocks

NEW, OLD = b"n" * 32, b"o" * 24
SEED = bytes(range(32))
HMAC, ED25519 = SigningKey(NEW, is_asymmetric=False), SigningKey(SEED, is_asymmetric=True)


@pytest.fixture
def sender() -> FakeSender:
    return FakeSender()


@pytest.fixture
def clock() -> FakeTime:
    """The library compares a request's time with the real one."""
    return FakeTime(epoch=time.time())


def made(sender: FakeSender, clock: FakeTime, *keys: SigningKey) -> StandardWebhooksHandler:
    return StandardWebhooksHandler(
        sender=sender,
        target=parse_target("http://a.example/hook"),
        authorizer=StaticAuthorizer(b"Authorization: Bearer t\r\n"),
        clock=clock,
        keys=keys or (HMAC,),
    )


def fields(sender: FakeSender, number: int = 0) -> dict[str, str]:
    pairs = (line.partition(": ") for line in sender.heads[number][1:])
    return {name: value for name, _, value in pairs}


def nothing(_outcome: DeliveryOutcome) -> None: ...


def test_the_request_has_exactly_these_headers(sender: FakeSender) -> None:
    clock = FakeTime(epoch=1_700_000_000.9)
    of = indication(identifier="a-1", languages=("de",))
    made(sender, clock).deliver(delivery(of), nothing)
    signature = fields(sender)["webhook-signature"]
    assert sender.heads[0] == [
        "POST /hook HTTP/1.1",
        "Host: a.example",
        "Accept: */*",
        "Content-Type: application/json",
        "Authorization: Bearer t",
        "Content-Language: de",
        "webhook-id: a-1",
        "webhook-timestamp: 1700000000",
        f"webhook-signature: {signature}",
        f"Content-Length: {len(sender.bodies[0])}",
    ]


@pytest.mark.parametrize(("change", "is_genuine"), [(b"", True), (b" ", False)])
def test_the_receiver_of_the_manual_verifies_it(
    sender: FakeSender, clock: FakeTime, change: bytes, is_genuine: bool
) -> None:
    (block,) = [one for one in blocks(DOCS / "listeners.md", "python") if "is_genuine" in one]
    names: dict[str, Any] = {}
    exec(block, names)
    made(sender, clock, SigningKey(OLD, is_asymmetric=False), HMAC).deliver(
        delivery(indication()), nothing
    )
    secret = "whsec_" + base64.b64encode(NEW).decode()
    body = sender.bodies[0] + change
    assert names["is_genuine"](fields(sender), body, secret) is is_genuine


def test_the_body_is_type_timestamp_and_data(sender: FakeSender, clock: FakeTime) -> None:
    body = b'{"class":"C","properties":{"IndicationTime":"20261121133000.000000+060","A":5}}'
    of = delivery(indication(body, class_name="C"), sequence_context="c", sequence_number=7)
    made(sender, clock).deliver(of, nothing)
    assert json.loads(sender.bodies[0]) == {
        "type": "org.dmtf.cim.indication.C",
        "timestamp": "2026-11-21T12:30:00Z",
        "data": {
            "class": "C",
            "properties": {
                "IndicationTime": "20261121133000.000000+060",
                "A": 5,
                "IndicationFilterName": "severe",
                "SequenceContext": "c",
                "SequenceNumber": 7,
            },
        },
    }
    assert fields(sender)["webhook-id"] == "c#7"


def test_without_a_time_of_its_own_it_has_that_of_its_acceptance(sender: FakeSender) -> None:
    clock = FakeTime(now=1000.0, epoch=1_700_000_000.0)
    handler, of = made(sender, clock), indication(accepted_at=940.0)
    for _ in range(2):
        handler.deliver(delivery(of), nothing)
        clock.advance(100)
    stamps = [json.loads(body)["timestamp"] for body in sender.bodies]
    assert stamps == ["2023-11-14T22:12:20Z"] * 2


def test_a_retry_has_the_same_identifier_and_a_time_of_its_own(
    sender: FakeSender, clock: FakeTime
) -> None:
    handler, of = made(sender, clock), indication()
    handler.prepare(of, None)
    handler.deliver(delivery(of), nothing)
    clock.advance(60)
    handler.deliver(delivery(of, attempt=2), nothing)
    first, again = fields(sender), fields(sender, 1)
    assert first["webhook-id"] == again["webhook-id"]
    assert int(again["webhook-timestamp"]) == int(first["webhook-timestamp"]) + 60
    assert first["webhook-signature"] != again["webhook-signature"]
    assert sender.bodies[0] == sender.bodies[1]


@pytest.mark.parametrize("identifier", ["a-1", "ü.b c\r\nX: y", "#", "x" * 5000, "\ud83d", "%"])
def test_the_public_library_verifies_it(
    sender: FakeSender, clock: FakeTime, identifier: str
) -> None:
    body = json.dumps({"class": "C", "properties": {"Message": 'ü "\u2028 \x00'}}).encode()
    made(sender, clock).deliver(delivery(indication(body, identifier=identifier)), nothing)
    assert len(sender.heads[0]) == 9
    secret = "whsec_" + base64.b64encode(NEW).decode()
    verified = Webhook(secret).verify(sender.bodies[0], fields(sender))
    assert verified["data"]["properties"]["Message"] == 'ü "\u2028 \x00'
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        Webhook(OLD).verify(sender.bodies[0], fields(sender))
    forged = {**fields(sender), "webhook-id": "other"}
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        Webhook(secret).verify(sender.bodies[0], forged)


def test_each_secret_has_a_signature(sender: FakeSender, clock: FakeTime) -> None:
    handler = made(sender, clock, HMAC, ED25519, SigningKey(OLD, is_asymmetric=False))
    handler.deliver(delivery(), nothing)
    head, body = fields(sender), sender.bodies[0]
    for secret in (NEW, OLD):
        Webhook(secret).verify(body, head)
    versions, texts = zip(
        *(one.split(",") for one in head["webhook-signature"].split(" ")), strict=True
    )
    assert versions == ("v1", "v1a", "v1")
    signed = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + body
    public = Ed25519PrivateKey.from_private_bytes(SEED).public_key()
    # Raises InvalidSignature.
    public.verify(base64.b64decode(texts[1]), signed)


@given(st.text(st.characters(exclude_categories=[])))
def test_an_identifier_separates_nothing_and_ends_no_header(identifier: str) -> None:
    sent = header_identifier(identifier)
    assert sent.isascii()
    assert not set(sent) & set(". \r\n")
    assert sent.isprintable()
    assert len(sent) <= 255


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_success(sender: FakeSender, clock: FakeTime, status: int) -> None:
    outcomes: list[DeliveryOutcome] = []
    made(sender, clock).deliver(delivery(), outcomes.append)
    sender.sent[0][1].answered(status, [], b"")
    assert outcomes == [DeliveryOutcome(DeliveryResult.SUCCESS, "", status)]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (302, {}),
        (404, {}),
        (422, {"refuses_indication": True}),
        (429, {"retry_after": 7.0}),
        (503, {"retry_after": 7.0}),
    ],
)
def test_another_status_is_an_error(
    sender: FakeSender, clock: FakeTime, status: int, expected: dict[str, Any]
) -> None:
    outcomes: list[DeliveryOutcome] = []
    made(sender, clock).deliver(delivery(), outcomes.append)
    sender.sent[0][1].answered(status, [(b"Retry-After", b"7")], b"")
    error = DeliveryOutcome(DeliveryResult.ERROR, f"HTTP {status}", status, **expected)
    assert outcomes == [error]


def test_a_failure_is_the_outcome(sender: FakeSender, clock: FakeTime) -> None:
    outcomes: list[DeliveryOutcome] = []
    made(sender, clock).deliver(delivery(), outcomes.append)
    sender.sent[0][1].failed(Failure(DeliveryResult.POST_DELIVERY_ERROR, "gone"))
    lost = DeliveryOutcome(DeliveryResult.POST_DELIVERY_ERROR, "gone", cause=FailureCause.RESET)
    assert outcomes == [lost]


def test_410_holds_the_destination(sender: FakeSender, clock: FakeTime) -> None:
    outcomes: list[DeliveryOutcome] = []
    made(sender, clock).deliver(delivery(), outcomes.append)
    sender.sent[0][1].answered(410, [], b"")
    assert (outcomes[0].hold, outcomes[0].status) == (HoldCause.DESTINATION, 410)
    assert "HTTP 410" in outcomes[0].detail


async def test_what_is_no_instance_is_fatal_and_told_later(
    sender: FakeSender, clock: FakeTime
) -> None:
    outcome: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()
    broken = indication(b'{"class":"C"}')
    handler = made(sender, clock)
    handler.prepare(broken, None)
    handler.deliver(delivery(broken), outcome.set_result)
    assert not outcome.done()
    assert (await outcome).result is DeliveryResult.FATAL_ERROR
    assert sender.sent == []


def test_closing_releases_the_connections(sender: FakeSender, clock: FakeTime) -> None:
    handler = made(sender, clock)
    handler.close()
    assert sender.closed
    handler.deliver(delivery(), nothing)
    assert sender.sent == []


@pytest.mark.parametrize("secret", [NEW, SEED])
def test_an_answer_that_quotes_a_secret_is_not_shown(
    sender: FakeSender, clock: FakeTime, secret: bytes
) -> None:
    handler = DiscreetHandler(
        made(sender, clock), credentials=[Credentials(signing=(HMAC, ED25519))]
    )
    outcomes: list[DeliveryOutcome] = []
    handler.deliver(delivery(), outcomes.append)
    quoted = base64.b64encode(secret)
    sender.sent[0][1].answered(302, [(b"Location", b"/?" + quoted[8:24])], b"")
    assert outcomes[0].detail.startswith("HTTP 302: the listener's answer quotes")
    assert quoted.decode()[8:16] not in outcomes[0].detail
