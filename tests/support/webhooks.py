"""A listener of webhooks inside a test: what it was sent, and the answers of services."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jsonschema_rs

from support.http_listener import Peer, listening

Answer = tuple[int, bytes]

#: The bodies that services take, by their documentation: what is required, types and limits.
SCHEMAS: dict[str, dict[str, Any]] = {
    # https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    "Slack": {
        "type": "object",
        "required": ["text"],
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": 40_000},
            "unfurl_links": {"type": "boolean"},
            "unfurl_media": {"type": "boolean"},
        },
        "additionalProperties": False,
    },
    # https://learn.microsoft.com/connectors/teams, and version 1.4 of adaptivecards.io
    "Teams": {
        "type": "object",
        "required": ["type", "attachments"],
        "properties": {
            "type": {"const": "message"},
            "attachments": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["contentType", "content"],
                    "properties": {
                        "contentType": {"const": "application/vnd.microsoft.card.adaptive"},
                        "contentUrl": {"type": ["string", "null"]},
                        "content": {"$ref": "#/$defs/card"},
                    },
                    "additionalProperties": False,
                },
            },
        },
        "additionalProperties": False,
        "$defs": {
            "card": {
                "type": "object",
                "required": ["type", "version", "body"],
                "properties": {
                    "$schema": {"const": "http://adaptivecards.io/schemas/adaptive-card.json"},
                    "type": {"const": "AdaptiveCard"},
                    "version": {"enum": ["1.2", "1.3", "1.4", "1.5"]},
                    "body": {"type": "array", "items": {"$ref": "#/$defs/block"}},
                },
                "additionalProperties": False,
            },
            "block": {
                "type": "object",
                "required": ["type", "inlines"],
                "properties": {
                    "type": {"const": "RichTextBlock"},
                    "inlines": {"type": "array", "items": {"$ref": "#/$defs/run"}},
                },
                "additionalProperties": False,
            },
            "run": {
                "type": "object",
                "required": ["type", "text"],
                "properties": {
                    "type": {"const": "TextRun"},
                    "text": {"type": "string"},
                    "weight": {"enum": ["Default", "Lighter", "Bolder"]},
                    "isSubtle": {"type": "boolean"},
                },
                "additionalProperties": False,
            },
        },
    },
    # https://developer.pagerduty.com/docs/send-alert-event
    "PagerDuty": {
        "type": "object",
        "required": ["routing_key", "event_action", "payload"],
        "properties": {
            "routing_key": {"type": "string", "pattern": "^[A-Za-z0-9]{32}$"},
            "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
            "dedup_key": {"type": "string", "maxLength": 255},
            "client": {"type": "string"},
            "payload": {
                "type": "object",
                "required": ["summary", "source", "severity"],
                "properties": {
                    "summary": {"type": "string", "minLength": 1, "maxLength": 1024},
                    "source": {"type": "string", "minLength": 1},
                    "severity": {"enum": ["critical", "error", "warning", "info"]},
                    "timestamp": {"type": "string", "format": "date-time"},
                    "component": {"type": "string"},
                    "group": {"type": "string"},
                    "class": {"type": "string"},
                    "custom_details": {"type": "object"},
                },
                "additionalProperties": False,
            },
        },
        "additionalProperties": False,
    },
    # postableAlerts in api/v2/openapi.yaml of prometheus/alertmanager
    "Alertmanager": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["labels"],
            "properties": {
                "labels": {"$ref": "#/$defs/labelSet"},
                "annotations": {"$ref": "#/$defs/labelSet"},
                "startsAt": {"type": "string", "format": "date-time"},
                "endsAt": {"type": "string", "format": "date-time"},
                "generatorURL": {"type": "string", "format": "uri"},
            },
            "additionalProperties": False,
        },
        "$defs": {
            "labelSet": {
                "type": "object",
                "propertyNames": {"pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"},
                "additionalProperties": {"type": "string"},
            }
        },
    },
}
#: Maximum bytes of a body.
MOST_BYTES = {"Teams": 28 * 1024, "PagerDuty": 512 * 1024}
#: What a service answers to a body that it takes, and to another.
TAKEN: dict[str, Answer] = {
    "Slack": (200, b"ok"),
    "Teams": (202, b""),
    "PagerDuty": (202, b'{"status":"success","message":"Event processed","dedup_key":"k"}'),
    "Alertmanager": (200, b""),
}
REFUSED: dict[str, Answer] = {
    "Slack": (400, b"invalid_payload"),
    "Teams": (400, b'{"error":{"code":"InvalidRequestContent"}}'),
    "PagerDuty": (400, b'{"status":"invalid event","errors":["bad"]}'),
    "Alertmanager": (400, b'"bad data"'),
}


def complaints(service: str, body: bytes) -> list[str]:
    """What a service has against a body."""
    schema = jsonschema_rs.validator_for(SCHEMAS[service], validate_formats=True)
    found = [str(error) for error in schema.iter_errors(json.loads(body))]
    if len(body) > MOST_BYTES.get(service, len(body)):
        found.append(f"{len(body)} bytes")
    return found


class Receiver:
    """A listener's record."""

    def __init__(self, *answers: Answer, service: str = "") -> None:
        self.url = ""
        #: The fields of each head, in lower case, and the body.
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.complaints: list[str] = []
        self._answers = list(answers)
        self._service = service

    async def serve(self, peer: Peer) -> None:
        while True:
            head, body = await peer.request()
            lines = head.decode("ascii").split("\r\n")[1:]
            fields = [line.partition(": ") for line in lines if line]
            self.received.append(({name.lower(): value for name, _, value in fields}, body))
            status, said = self._answer(body)
            await peer.send(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(said)))
            await peer.send(said)

    def _answer(self, body: bytes) -> Answer:
        if self._answers:
            return self._answers.pop(0)
        if not self._service:
            return 204, b""
        found = complaints(self._service, body)
        self.complaints += found
        return REFUSED[self._service] if found else TAKEN[self._service]


@asynccontextmanager
async def receiving(*answers: Answer, service: str = "") -> AsyncIterator[Receiver]:
    """A listener that gives ``answers`` first, and then those of ``service``, or 204."""
    receiver = Receiver(*answers, service=service)
    async with listening(receiver.serve) as listener:
        receiver.url = listener.url
        yield receiver
