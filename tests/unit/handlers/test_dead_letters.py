"""A dead letter tells its listener why it is one, in what each protocol has for it."""

import json
from typing import Any

import pytest

from pillion_sidecar.config.signing import SigningKey
from pillion_sidecar.delivery.handler import Delivery
from pillion_sidecar.handlers.authorization import StaticAuthorizer
from pillion_sidecar.handlers.cloudevents import event_of, render
from pillion_sidecar.handlers.dead_letters import LONGEST, header_lines
from pillion_sidecar.handlers.nats.handler import message_identifier
from pillion_sidecar.handlers.relay import render_line
from pillion_sidecar.handlers.standard_webhooks import StandardWebhooksHandler
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.handlers.webhook import WebhookHandler
from pillion_sidecar.indication import DeadLetter
from pillion_sidecar.templates import parse_template
from pillion_sidecar.testing import FakeTime
from support.handlers import FakeSender, delivery, indication

WHY = DeadLetter("siem", "attempts-exceeded", "HTTP 503", 4, 1_800_000_000.0)
HEADERS = [
    "pilliondiscardreason: attempts-exceeded",
    "pilliondiscarddestination: siem",
    "pilliondiscarddetail: HTTP 503",
    "pilliondiscardattempts: 4",
]


def letter(why: DeadLetter | None = WHY) -> Delivery:
    return delivery(indication(identifier="a-1", source="s", dead_letter=why))


def event(of: Delivery) -> dict[str, Any]:
    rendered: dict[str, Any] = json.loads(
        render(event_of(of.indication, "default", of.indication.body), of)
    )
    return rendered


def discard_of(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name.startswith("pillion")}


def test_an_event_has_attributes() -> None:
    assert discard_of(event(letter())) == {
        "pilliondiscardreason": "attempts-exceeded",
        "pilliondiscarddestination": "siem",
        "pilliondiscarddetail": "HTTP 503",
        "pilliondiscardattempts": 4,
    }
    without = event(letter(DeadLetter("siem", "queue-full", "", 0, 0.0)))
    assert "pilliondiscarddetail" not in without
    assert discard_of(event(letter(None))) == {}


def test_a_webhook_has_headers() -> None:
    sender, clock = FakeSender(), FakeTime()
    target, authorizer = parse_target("http://a.example/hook"), StaticAuthorizer(b"")
    standard = StandardWebhooksHandler(
        sender=sender,
        target=target,
        authorizer=authorizer,
        clock=clock,
        keys=[SigningKey(b"n" * 32, is_asymmetric=False)],
    )
    words = ("Reason", "Destination", "Detail", "Attempts")
    template = json.dumps({word: f"${{discard{word}}}" for word in words})
    plain = WebhookHandler(
        sender=sender,
        target=target,
        authorizer=authorizer,
        clock=clock,
        template=parse_template(template),
        service_name="default",
    )
    for handler in (standard, plain):
        handler.deliver(letter(), lambda _: None)
        handler.deliver(letter(None), lambda _: None)
    found = [[line for line in head if "discard" in line] for head in sender.heads]
    assert found == [HEADERS, [], HEADERS, []]
    assert json.loads(sender.bodies[2]) == {
        "Reason": "attempts-exceeded",
        "Destination": "siem",
        "Detail": "HTTP 503",
        "Attempts": "4",
    }
    assert set(json.loads(sender.bodies[3]).values()) <= {None, ""}


@pytest.mark.parametrize(
    "hostile", ["a\r\nX-Evil: 1", "\x00\x7f\u2028", "ünïcode \ud800", "x" * 1_000_000, "50%"]
)
def test_hostile_texts_stay_in_one_bounded_line(hostile: str) -> None:
    lines = header_lines(DeadLetter(hostile, hostile, hostile, 1, 0.0))
    assert lines.count(b"\r\n") == 4
    assert lines.isascii()
    assert len(lines) < 3 * (3 * 4 * LONGEST + 100)
    assert all(32 <= byte < 127 for byte in lines.replace(b"\r\n", b""))
    found = discard_of(event(letter(DeadLetter(hostile, hostile, hostile, 1, 0.0))))
    assert all(len(str(value)) <= LONGEST for value in found.values())
    assert all(str(value).isprintable() for value in found.values())


def test_a_stream_tells_letters_of_two_destinations_apart() -> None:
    other = DeadLetter("noc", "queue-full", "", 0, 0.0)
    found = {message_identifier(letter(why), "default") for why in (None, WHY, other)}
    assert len(found) == 3


def test_a_relayed_line_says_it() -> None:
    of = letter()
    told = json.loads(render_line(of, epoch=0.0, in_group=True))["relay"]["discard"]
    assert told == {
        "destination": "siem",
        "reason": "attempts-exceeded",
        "detail": "HTTP 503",
        "attempts": 4,
        "at": 1_800_000_000.0,
    }
    assert "discard" not in json.loads(render_line(letter(None), epoch=0.0, in_group=True))["relay"]
