"""Webhooks: presets, templates, limits of services, and values that attack them."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pillion_cim.schema import load_schema
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.handlers.authorization import StaticAuthorizer
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.http.oauth2 import TokenSources
from pillion_sidecar.handlers.plugin_slots import LinkSlots
from pillion_sidecar.handlers.presets import SERVICES
from pillion_sidecar.handlers.redaction import DiscreetHandler
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.sender import SharedParts
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.handlers.webhook import WebhookHandler, create_handler
from pillion_sidecar.protocols.webhook import Preset, WebhookOptions
from pillion_sidecar.templates import parse_template
from pillion_sidecar.testing import FakeTime
from support.handlers import FakeSender, delivery, indication
from support.webhooks import SCHEMAS, complaints

KEY = "R0UTINGkey0123456789abcdefABCDEF"
ALERT: dict[str, Any] = {
    "IndicationTime": "20261121133000.250000+060",
    "AlertType": 5,
    "PerceivedSeverity": 6,
    "ProbableCause": 52,
    "Message": "Fan <1> & 2 failed",
    "SystemName": "rack-7",
    "AlertingManagedElement": {"type": "string", "value": "Fan.1"},
    "EventID": "fan-1",
}
PRESETS = [Preset.SLACK, Preset.TEAMS, Preset.PAGER_DUTY, Preset.ALERTMANAGER]


def alert(**given: Any) -> Delivery:
    properties = {name: value for name, value in {**ALERT, **given}.items() if value is not None}
    body = json.dumps({"class": "CIM_AlertIndication", "properties": properties}).encode()
    return delivery(indication(body, identifier="a-1", source="urn:lab"))


class Sent:
    """A handler, and what it sends."""

    def __init__(self, preset: Preset | None = None, template: str = "", key: str = KEY) -> None:
        self.sender = FakeSender()
        # 2026-11-21T12:31:00Z
        self.clock = FakeTime(epoch=1_795_264_260.0)
        service = None if preset is None else SERVICES[preset]
        self.handler = WebhookHandler(
            sender=self.sender,
            target=parse_target("http://a.example/hook"),
            authorizer=StaticAuthorizer(b"Authorization: Bearer t\r\n"),
            clock=self.clock,
            template=parse_template(template or ("" if service is None else service.template)),
            service_name="default",
            service=service,
            api_key=key,
        )
        self.outcomes: list[DeliveryOutcome] = []

    def deliver(self, of: Delivery) -> Any:
        self.handler.deliver(of, self.outcomes.append)
        return json.loads(self.sender.bodies[-1].decode("utf-8"))

    def answer(self, status: int, body: bytes = b"") -> DeliveryOutcome:
        self.handler.deliver(alert(), self.outcomes.append)
        self.sender.sent[-1][1].answered(status, [(b"Retry-After", b"7")], body)
        return self.outcomes[-1]

    def fail(self, failure: Failure) -> DeliveryOutcome:
        self.handler.deliver(alert(), self.outcomes.append)
        self.sender.sent[-1][1].failed(failure)
        return self.outcomes[-1]


def test_the_request_has_exactly_these_headers() -> None:
    sent = Sent(Preset.SLACK)
    sent.deliver(alert())
    assert sent.sender.heads[0] == [
        "POST /hook HTTP/1.1",
        "Host: a.example",
        "Accept: */*",
        "Content-Type: application/json",
        "Authorization: Bearer t",
        f"Content-Length: {len(sent.sender.bodies[0])}",
    ]


def test_a_message_of_slack_has_its_entities() -> None:
    text = Sent(Preset.SLACK).deliver(alert())["text"]
    assert text == (
        "*critical* Fan &lt;1&gt; &amp; 2 failed\nCIM_AlertIndication, rack-7, "
        "2026-11-21T12:30:00.250000Z"
    )


def test_a_card_of_teams_has_runs_of_text() -> None:
    (attachment,) = Sent(Preset.TEAMS).deliver(alert(Message="[a](https://evil.example)"))[
        "attachments"
    ]
    runs = [run for block in attachment["content"]["body"] for run in block["inlines"]]
    assert [run["text"] for run in runs] == [
        "critical: ",
        "[a](https://evil.example)",
        "CIM_AlertIndication, rack-7, 2026-11-21T12:30:00.250000Z",
    ]
    assert {run["type"] for run in runs} == {"TextRun"}


def test_an_event_of_pagerduty_has_the_key_and_its_incident() -> None:
    event = Sent(Preset.PAGER_DUTY).deliver(alert())
    details = event["payload"].pop("custom_details")
    assert details == {"properties": {**ALERT, "IndicationFilterName": "severe"}}
    assert event == {
        "routing_key": KEY,
        "event_action": "trigger",
        "dedup_key": "a-1",
        "client": "Pillion",
        "payload": {
            "summary": "Fan <1> & 2 failed",
            "source": "rack-7",
            "severity": "critical",
            "timestamp": "2026-11-21T12:30:00.250000Z",
            "component": "Fan.1",
            "group": "severe",
            "class": "CIM_AlertIndication",
        },
    }


def test_a_correlated_indication_belongs_to_the_incident_of_the_first() -> None:
    event = Sent(Preset.PAGER_DUTY).deliver(alert(CorrelatedIndications=["a.0", "b"]))
    assert event["dedup_key"] == "a%2E0"
    # What marks a retry is no correlation.
    retry = alert()
    retry.correlated = True
    assert Sent(Preset.PAGER_DUTY).deliver(retry)["dedup_key"] == "a-1"


@pytest.mark.parametrize(
    ("properties", "action"),
    [
        ({"PerceivedSeverity": 2, "CorrelatedIndications": ["a.0"]}, "resolve"),
        ({"PerceivedSeverity": 2}, "trigger"),
        ({"PerceivedSeverity": 4, "CorrelatedIndications": ["a.0"]}, "trigger"),
    ],
)
def test_the_end_of_an_alert_resolves_its_incident(properties: dict[str, Any], action: str) -> None:
    assert Sent(Preset.PAGER_DUTY).deliver(alert(**properties))["event_action"] == action


def test_an_alert_of_alertmanager_ends_an_hour_after_the_attempt() -> None:
    (found,) = Sent(Preset.ALERTMANAGER).deliver(alert(Description="The fan stands still."))
    assert found == {
        "labels": {
            "alertname": "CIM_AlertIndication",
            "severity": "critical",
            "service": "default",
            "source": "urn:lab",
            "filter": "severe",
            "system": "rack-7",
            "element": "Fan.1",
            "alert_type": "5",
            "probable_cause": "52",
            "event_id": "fan-1",
        },
        "annotations": {
            "summary": "Fan <1> & 2 failed",
            "description": "The fan stands still.",
            "identifier": "a-1",
        },
        "startsAt": "2026-11-21T12:30:00.250000Z",
        "endsAt": "2026-11-21T13:31:00Z",
    }


@pytest.mark.parametrize(
    "time", ["20261121133100.500000+000", "20261121150000.000000+000", "99991231235959.999999+000"]
)
def test_no_alert_ends_before_it_starts(time: str) -> None:
    (found,) = Sent(Preset.ALERTMANAGER).deliver(alert(IndicationTime=time))
    assert found["endsAt"] == found["startsAt"]


@pytest.mark.parametrize(
    ("severity", "expected"),
    [
        *((0, "warning"), (1, "warning"), (2, "info"), (3, "warning"), (4, "warning")),
        *((5, "error"), (6, "critical"), (7, "critical"), (99, "info"), (None, "info")),
        *(("6", "info"), ({"type": "uint16", "value": 6}, "critical"), ([6], "info")),
    ],
)
def test_the_severity_is_one_of_four(severity: object, expected: str) -> None:
    event = Sent(Preset.PAGER_DUTY).deliver(alert(PerceivedSeverity=severity))
    assert event["payload"]["severity"] == expected


ATTACKS = (
    '"', '"}', "\\", '\\"', "\n\r\t\x00\x1f\x7f\u2028", "${Message}", "${apiKey}", "${$}",
    "<!channel>", "<https://evil.example|ok>", "\U0001f6a8", "]}}", "ü" * 100_000,
    '"' * 200_000, "\x00" * 200_000, "&" * 100_000,
)  # fmt: skip
TEXTS = ("Message", "Description", "SystemName", "AlertingManagedElement", "EventID")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda text: ascii(text[:9]))
def test_whatever_a_value_is_the_service_takes_the_body(preset: Preset, attack: str) -> None:
    sent = Sent(preset)
    of = alert(**dict.fromkeys(TEXTS, attack))
    of = delivery(
        indication(of.indication.body, identifier=attack, source=attack), filter_name=attack
    )
    body = sent.deliver(of)
    assert complaints(preset, sent.sender.bodies[-1]) == []
    if preset is Preset.PAGER_DUTY:
        assert body["routing_key"] == KEY
        assert body.keys() == {"routing_key", "event_action", "dedup_key", "client", "payload"}
        del body["routing_key"]
    assert KEY not in json.dumps(body)
    if preset is Preset.SLACK:
        assert not set(body["text"]) & {"<", ">"}


@pytest.mark.parametrize("preset", PRESETS)
def test_an_indication_without_anything_is_taken(preset: Preset) -> None:
    sent = Sent(preset)
    sent.deliver(delivery(indication(b'{"class":"C","properties":{}}', class_name="C")))
    assert complaints(preset, sent.sender.bodies[-1]) == []


def test_a_template_has_properties_and_words() -> None:
    template = """
    {"a": "${Message}", "b": ["${AlertType}", "${json:AlertType}", "${json:Nope}", "${Nope}"],
     "c": "${IndicationFILTERname} ${filterName} ${SequenceContext} ${sequenceNumber}",
     "d": "${identifier} ${source} ${service}", "e": "${json:properties}", "f": "${apiKey}"}
    """
    of = alert()
    of.sequence_context, of.sequence_number = "c", 7
    set_here = {"IndicationFilterName": "severe", "SequenceContext": "c", "SequenceNumber": 7}
    assert Sent(template=template).deliver(of) == {
        "a": "Fan <1> & 2 failed",
        "b": ["5", 5, None, ""],
        "c": "severe severe c 7",
        "d": "a-1 urn:lab default",
        "e": {**ALERT, **set_here},
        "f": KEY,
    }


def test_a_publishers_property_is_none_that_a_delivery_sets() -> None:
    of = alert(IndicationFilterName="theirs", sequenceNumber=9)
    template = '["${IndicationFilterName}", "${SequenceNumber}", "${json:properties}"]'
    name, number, properties = Sent(template=template).deliver(of)
    assert (name, number) == ("severe", "")
    assert properties == {**ALERT, "IndicationFilterName": "severe"}


def test_an_indication_is_prepared_once_and_a_retry_is_the_same() -> None:
    sent, of = Sent(Preset.PAGER_DUTY), indication(identifier="i")
    sent.handler.prepare(of, None)
    kept = dict(of.rendered or {})
    sent.deliver(delivery(of))
    sent.clock.advance(60)
    sent.deliver(delivery(of, attempt=2))
    assert of.rendered == kept
    assert sent.sender.sent[0][0] == sent.sender.sent[1][0]


# ---------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("preset", "status", "body"),
    [
        (Preset.SLACK, 200, b"ok"),
        (Preset.SLACK, 200, b"ok\n"),
        (Preset.TEAMS, 202, b""),
        (Preset.PAGER_DUTY, 202, b'{"status":"success"}'),
        (Preset.ALERTMANAGER, 200, b""),
        (None, 200, b""),
        (None, 299, b"anything"),
    ],
)
def test_what_a_service_calls_success(preset: Preset | None, status: int, body: bytes) -> None:
    outcome = Sent(preset, template='{"a": 1}' if preset is None else "").answer(status, body)
    assert outcome == DeliveryOutcome(DeliveryResult.SUCCESS, "", status)


@pytest.mark.parametrize(
    ("preset", "status", "body", "detail"),
    [
        (
            Preset.SLACK,
            200,
            b"no\nthing",
            "HTTP 200, but not HTTP 200 and the text ok: no thing",
        ),
        (Preset.SLACK, 202, b"ok", "HTTP 202, but not HTTP 200 and the text ok: ok"),
        (Preset.TEAMS, 200, b"failed", "HTTP 200, but not HTTP 202: failed"),
        (Preset.PAGER_DUTY, 200, b"", "HTTP 200, but not HTTP 202"),
        (Preset.ALERTMANAGER, 204, b"", "HTTP 204, but not HTTP 200"),
        (Preset.SLACK, 404, b"no_service", "HTTP 404: no_service"),
        (Preset.ALERTMANAGER, 500, b"x" * 999, "HTTP 500: " + "x" * 200),
    ],
)
def test_anything_else_is_an_error(preset: Preset, status: int, body: bytes, detail: str) -> None:
    outcome = Sent(preset).answer(status, body)
    assert outcome == DeliveryOutcome(DeliveryResult.ERROR, detail, status)


@pytest.mark.parametrize("status", [429, 503])
def test_a_listeners_retry_after_is_told(status: int) -> None:
    assert Sent(Preset.SLACK).answer(status).retry_after == 7.0


def test_a_refused_body_is_about_the_indication_and_a_refused_key_holds() -> None:
    refused = Sent(Preset.PAGER_DUTY).answer(400, b'{"errors":["\'payload\' is missing"]}')
    assert (refused.result, refused.refuses_indication) == (DeliveryResult.ERROR, True)
    body = b'{"errors":["Length of \'routing_key\' is incorrect"]}'
    key = Sent(Preset.PAGER_DUTY).answer(400, body)
    assert (key.result, key.hold) == (DeliveryResult.FATAL_ERROR, HoldCause.REFUSED)
    assert "routing_key" in key.detail
    assert Sent(Preset.SLACK).answer(400, body).hold is None


def test_an_incomplete_answer_is_success_where_its_status_says_so() -> None:
    failure = Failure(DeliveryResult.POST_DELIVERY_ERROR, "broke", 200, in_body=True)
    assert Sent(template="{}").fail(failure).result is DeliveryResult.SUCCESS
    assert Sent(Preset.ALERTMANAGER).fail(failure).result is DeliveryResult.SUCCESS
    # The body of Slack decides, and 200 is no success of PagerDuty.
    for preset in (Preset.SLACK, Preset.PAGER_DUTY):
        assert Sent(preset).fail(failure).result is DeliveryResult.POST_DELIVERY_ERROR
    for of in (None, Preset.ALERTMANAGER):
        outcome = Sent(of, template="{}").fail(replace(failure, status=503))
        assert outcome.result is DeliveryResult.POST_DELIVERY_ERROR
    early = replace(failure, in_body=False)
    assert Sent(template="{}").fail(early).result is DeliveryResult.POST_DELIVERY_ERROR


def test_gone_holds_the_destination() -> None:
    assert Sent(Preset.SLACK).answer(410, b"channel_is_archived").hold is HoldCause.DESTINATION


def test_an_answer_that_quotes_the_key_is_not_shown() -> None:
    sent = Sent(Preset.PAGER_DUTY)
    handler = DiscreetHandler(sent.handler, credentials=[Credentials(api_key=KEY)])
    handler.deliver(alert(), sent.outcomes.append)
    sent.sender.sent[-1][1].answered(400, [], b"Invalid routing key " + KEY.encode())
    (outcome,) = sent.outcomes
    assert outcome.hold is HoldCause.REFUSED
    assert KEY[:8] not in outcome.detail
    assert "is not shown" in outcome.detail


@pytest.mark.parametrize("body", [b'{"class":"C"}', b'{"class":"C","properties":{"A":"\\ud83d"}}'])
async def test_what_is_no_instance_is_fatal_and_told_later(body: bytes) -> None:
    sent = Sent(Preset.SLACK)
    outcome: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()
    broken = indication(body)
    sent.handler.prepare(broken, None)
    sent.handler.deliver(delivery(broken), outcome.set_result)
    assert not outcome.done()
    assert (await outcome).result is DeliveryResult.FATAL_ERROR
    assert sent.sender.sent == []


# ---------------------------------------------------------------------- from a destination


class NoResolver:
    """Is not asked."""

    async def resolve(self, host: str) -> list[str]:
        raise AssertionError(host)


@pytest.fixture
def create(fake_time: FakeTime) -> Callable[[WebhookOptions | None, str | None], Handler]:
    parts = SharedParts(clock=fake_time, timers=fake_time, resolver=NoResolver())
    context = HandlerContext(
        parts=parts,
        address_policy=AddressPolicy(),
        schema=load_schema(),
        service_name="default",
        plugins={},
        plugin_links=LinkSlots(timers=fake_time),
        tokens=TokenSources(parts, address_policy=AddressPolicy()),
    )

    def create_from(options: WebhookOptions | None, key: str | None) -> Handler:
        destination = ListenerDestination(
            name="a",
            uid="u",
            destination="https://a.example/",
            protocol="Webhook",
            options=options,
            credentials=None if key is None else Credentials(api_key=key),
        )
        return create_handler(destination, context)

    return create_from


Create = Callable[[WebhookOptions | None, str | None], Handler]


@pytest.mark.parametrize(
    ("options", "key", "says", "cause"),
    [
        (None, None, "neither preset nor template", HoldCause.DESTINATION),
        (WebhookOptions(template="{"), None, "line 1, column 2", HoldCause.DESTINATION),
        (WebhookOptions(preset=Preset.PAGER_DUTY), None, "apiKey", HoldCause.CREDENTIALS),
        (WebhookOptions(template='["\\u0024{apiKey}"]'), None, "apiKey", HoldCause.CREDENTIALS),
        (
            WebhookOptions(preset=Preset.PAGER_DUTY),
            KEY[1:],
            "32 letters and digits",
            HoldCause.CREDENTIALS,
        ),
    ],
)
def test_what_cannot_be_sent_holds_the_destination(
    create: Create, options: WebhookOptions | None, key: str | None, says: str, cause: HoldCause
) -> None:
    with pytest.raises(InvalidDestinationError, match=says) as caught:
        create(options, key)
    assert caught.value.cause is cause
    assert KEY[1:] not in str(caught.value)


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_has_a_handler_and_a_schema(create: Create, preset: Preset) -> None:
    key = KEY if preset is Preset.PAGER_DUTY else None
    assert isinstance(create(WebhookOptions(preset=preset), key), WebhookHandler)
    assert set(SCHEMAS) == set(PRESETS) == set(SERVICES)
