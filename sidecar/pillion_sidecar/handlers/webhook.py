"""The handler of protocol Webhook: the JSON of a preset or of a template; see
:mod:`pillion_sidecar.templates`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.handlers.content import Content, identifier_of, occurred, read_content, rfc3339
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.http.authorization import Authorizer
from pillion_sidecar.handlers.http.exchange import (
    BODY_SECONDS,
    Failure,
    Headers,
    Reading,
    Sender,
    failure_outcome,
    shown,
    status_outcome,
)
from pillion_sidecar.handlers.http.posting import PostHandler
from pillion_sidecar.handlers.http.target import HTTPTarget, InvalidDestinationError
from pillion_sidecar.handlers.presets import SERVICES, Service, is_routing_key
from pillion_sidecar.handlers.standard_webhooks import header_identifier
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.protocols.webhook import PROTOCOL, Preset, WebhookOptions
from pillion_sidecar.templates import Template, TemplateError, parse_template

#: Seconds from an attempt to ``${ends}``.
ALERT_SECONDS = 3600
#: By PerceivedSeverity: 3 is Degraded/Warning, 4 Minor, 5 Major, 6 Critical, 7 Fatal.
SEVERITIES = {
    0: "warning",
    1: "warning",
    2: "info",
    3: "warning",
    4: "warning",
    5: "error",
    6: "critical",
    7: "critical",
}
_FORM = "Webhook"


@dataclass(slots=True, kw_only=True, eq=False)
class _Values:
    """What an indication's templates are filled with."""

    content: Content
    #: As published, without what a delivery sets.
    properties: dict[str, Any]
    #: By lower-case name, each without its stated type.
    by_name: dict[str, Any]


#: Gives a word's value for a delivery.
_Word: TypeAlias = Callable[[_Values, Delivery], object]


class WebhookHandler(PostHandler):
    """Delivers the filled template to one listener destination."""

    what = "the template"
    heeds_gone = True

    def __init__(
        self,
        *,
        sender: Sender,
        target: HTTPTarget,
        authorizer: Authorizer,
        clock: Clock,
        template: Template,
        service_name: str,
        service: Service | None = None,
        api_key: str | None = None,
    ) -> None:
        """``service`` None: any 2xx is success."""
        super().__init__(
            sender=sender,
            target=target,
            content_type="application/json",
            authorizer=authorizer,
            clock=clock,
        )
        self._template = template
        known = _words(service_name=service_name, api_key=api_key, clock=clock)
        self._words = {name: word for name, word in known.items() if name in template.names}
        self._service = service

    def read(self, indication: Indication, selection: Selection | None) -> _Values:
        return indication.form(_FORM, selection, partial(_values, indication))

    def render(self, delivery: Delivery) -> tuple[bytes, bytes]:
        values = self.read(delivery.indication, delivery.selection)
        set_here = {name.lower(): value for name, value in _set_here(delivery).items()}
        words = {name: word(values, delivery) for name, word in self._words.items()}
        return b"", self._template.fill(words, {**values.by_name, **set_here})

    def judge(self, status: int, headers: Headers, body: bytes) -> DeliveryOutcome:
        if 200 <= status < 300:
            service = self._service
            if service is None or service.succeeds(status, body):
                return super().judge(status, headers, body)
            detail = f"HTTP {status}, but not {service.success}"
            if body:
                detail += f": {shown(body)}"
            return DeliveryOutcome(DeliveryResult.ERROR, detail, status)
        if status == 400 and self._refuses_key(body):
            detail = f"HTTP 400: {shown(body)}"
            return DeliveryOutcome(
                DeliveryResult.FATAL_ERROR, detail, status, hold=HoldCause.CREDENTIALS
            )
        return status_outcome(status, headers, self._clock, body=body)

    def judge_incomplete(self, failure: Failure) -> DeliveryOutcome:
        service = self._service
        if service is None:
            return super().judge_incomplete(failure)
        status = failure.status or 0
        if service.answers_in_body or not service.succeeds(status, b""):
            return failure_outcome(failure)
        return super().judge_incomplete(failure)

    def _refuses_key(self, body: bytes) -> bool:
        """Whether the key is wrong, and not the indication."""
        service = self._service
        return service is not None and bool(service.key) and service.key in body.lower()


def _words(*, service_name: str, api_key: str | None, clock: Clock) -> dict[str, _Word]:
    """What fills each word; a template uses few of them."""

    def correlation(values: _Values, delivery: Delivery) -> object:
        correlated = values.content.correlated or [None]
        return header_identifier(str(correlated[0] or identifier_of(values.content, delivery)))

    def time(values: _Values, delivery: Delivery) -> str:
        return occurred(values.content, delivery.indication, clock)

    return {
        "apiKey": lambda _values, _delivery: api_key,
        "class": lambda _values, delivery: delivery.indication.class_name,
        "correlation": correlation,
        "ends": lambda values, delivery: _later(
            rfc3339(clock.time() + ALERT_SECONDS), time(values, delivery)
        ),
        "filterName": lambda _values, delivery: delivery.filter_name,
        "identifier": lambda values, delivery: identifier_of(values.content, delivery),
        "properties": lambda values, delivery: {**values.properties, **_set_here(delivery)},
        "sequenceContext": lambda _values, delivery: delivery.sequence_context,
        "sequenceNumber": lambda _values, delivery: delivery.sequence_number,
        "service": lambda _values, _delivery: service_name,
        "severity": lambda values, _delivery: _severity(values.by_name.get("perceivedseverity")),
        "source": lambda _values, delivery: delivery.indication.source or service_name,
        "time": time,
    }


def _set_here(delivery: Delivery) -> dict[str, object]:
    """The properties that a delivery sets."""
    found: dict[str, object] = {"IndicationFilterName": delivery.filter_name}
    if delivery.sequence_context is not None and delivery.sequence_number is not None:
        found["SequenceContext"] = delivery.sequence_context
        found["SequenceNumber"] = delivery.sequence_number
    return found


def _values(indication: Indication, body: bytes) -> _Values:
    content = read_content(indication, body)
    properties = _decoded(content.body)["properties"]
    by_name = {name.lower(): _without_type(value) for name, value in properties.items()}
    return _Values(content=content, properties=properties, by_name=by_name)


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        # It refuses halves of surrogate pairs, and numbers that are no double.
        return json.loads(body)


def _without_type(value: Any) -> Any:
    is_stated = isinstance(value, dict) and value.keys() >= {"type", "value"}
    return value["value"] if is_stated else value


def _later(ends: str, begins: str) -> str:
    """The later one of two times in UTC; the second one may have fractions of a second."""
    return begins if begins[: len(ends) - 1] >= ends[:-1] else ends


def _severity(value: object) -> str:
    return SEVERITIES.get(value, "info") if isinstance(value, int) else "info"


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    options, credentials = destination.options, destination.credentials
    if not isinstance(options, WebhookOptions):
        raise InvalidDestinationError("webhook has neither preset nor template")
    service = None if options.preset is None else SERVICES[options.preset]
    text = options.template or "" if service is None else service.template
    try:
        template = parse_template(text)
    except TemplateError as error:
        raise InvalidDestinationError(f"webhook.template: {error}. {error.remedy}") from None
    target = context.target(destination, PROTOCOL)
    decides = service is not None and service.answers_in_body
    reading = Reading(errors=True, body_seconds=None if decides else BODY_SECONDS)
    return WebhookHandler(
        sender=context.sender(destination, target, reading=reading),
        target=target,
        authorizer=context.authorizer(destination),
        clock=context.parts.clock,
        template=template,
        service_name=context.service_name,
        service=service,
        api_key=_api_key(template, options.preset, credentials),
    )


def _api_key(
    template: Template, preset: Preset | None, credentials: Credentials | None
) -> str | None:
    if "apiKey" not in template.names:
        return None
    key = None if credentials is None else credentials.api_key
    if not key:
        raise InvalidDestinationError(
            "webhook needs credentials.apiKey", cause=HoldCause.CREDENTIALS
        )
    if preset is Preset.PAGER_DUTY and not is_routing_key(key):
        raise InvalidDestinationError(
            "credentials.apiKey is no routing key of PagerDuty, which has 32 letters and digits",
            cause=HoldCause.CREDENTIALS,
        )
    return key
