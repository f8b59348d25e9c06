"""The handler of protocol Webhook: the JSON of a preset or of a template; see
:mod:`pillion_sidecar.templates`."""

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
from pillion_sidecar.handlers.authorization import Authorizer
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.dead_letters import header_lines
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.filling import Filling, Values, values_of
from pillion_sidecar.handlers.http.answers import BODY_SECONDS, Reading, status_outcome
from pillion_sidecar.handlers.http.posting import PostHandler
from pillion_sidecar.handlers.presets import SERVICES, Service
from pillion_sidecar.handlers.transport.exchange import (
    Failure,
    Headers,
    Sender,
    failure_outcome,
    shown,
)
from pillion_sidecar.handlers.transport.target import HTTPTarget
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.protocols.webhook import (
    PROTOCOL,
    Preset,
    WebhookOptions,
    is_routing_key,
)
from pillion_sidecar.templates import Template, TemplateError, parse_template


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
        self._filling = Filling(
            template.names, service_name=service_name, clock=clock, api_key=api_key
        )
        self._service = service

    def read(self, indication: Indication, selection: Selection | None) -> Values:
        return values_of(indication, selection)

    def render(self, delivery: Delivery) -> tuple[bytes, bytes]:
        values = self.read(delivery.indication, delivery.selection)
        fields = header_lines(delivery.indication.dead_letter)
        return fields, self._template.fill(*self._filling.of(values, delivery))

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
                DeliveryResult.FATAL_ERROR, detail, status, hold=HoldCause.REFUSED
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
