"""Webhook: JSON of a template, for services with a format of their own."""

from enum import StrEnum
from typing import Any

from pillion_sidecar.fields import (
    JSONObject,
    Rule,
    Text,
    cel_text,
    declared,
    matching,
    resource,
)
from pillion_sidecar.protocols.declaration import (
    HTTP_CREDENTIALS,
    OptionsFault,
    Protocol,
    http_schemes,
)
from pillion_sidecar.templates import (
    API_KEY,
    JSON_LIKE,
    KNOWN,
    LONGEST,
    UNKNOWN_REMEDY,
    TemplateError,
    parse_template,
)


class Preset(StrEnum):
    """Services whose format is known; see :mod:`pillion_sidecar.handlers.presets`."""

    SLACK = "Slack"
    TEAMS = "Teams"
    PAGER_DUTY = "PagerDuty"
    ALERTMANAGER = "Alertmanager"


TEMPLATE = Text(
    min_length=1,
    max_length=LONGEST,
    rules=(
        matching(
            JSON_LIKE,
            message="is no JSON object or array",
            remedy="Write JSON; placeholders stand inside its texts, in quotes.",
        ),
        matching(
            KNOWN,
            when=JSON_LIKE,
            message="has a placeholder that is not known",
            remedy=UNKNOWN_REMEDY,
        ),
    ),
)


@resource
class WebhookOptions:
    preset: Preset | None = declared(
        default=None,
        description="The service whose format the body has, instead of template.",
    )
    template: str | None = declared(
        default=None,
        type=TEMPLATE,
        description="The body: JSON whose texts may contain placeholders, such as ${Message}.",
    )


def _check(options: WebhookOptions) -> OptionsFault | None:
    if options.template is None:
        return None
    try:
        parse_template(options.template)
    except TemplateError as error:
        return OptionsFault("template", error.message, error.remedy)
    return None


#: Characters of a PagerDuty routing key.
ROUTING_KEY = 32


def is_routing_key(key: str) -> bool:
    return len(key) == ROUTING_KEY and key.isascii() and key.isalnum()


def _check_credentials(options: WebhookOptions, credentials: Any) -> OptionsFault | None:
    if options.preset is not Preset.PAGER_DUTY or is_routing_key(credentials.api_key):
        return None
    message = f"is no routing key of PagerDuty, which has {ROUTING_KEY} letters and digits"
    return OptionsFault("apiKey", message, "Put the integration's key into the Secret.")


_PAGER_DUTY = f"self.webhook.preset == {cel_text(Preset.PAGER_DUTY)}"
#: Whether the body contains the API key.
_CONTAINS_KEY = (
    f"(has(self.webhook) && ((has(self.webhook.preset) && {_PAGER_DUTY}) || "
    f"(has(self.webhook.template) && self.webhook.template.contains({cel_text(API_KEY)}))))"
)
_HAS_KEY = "(has(self.credentials) && has(self.credentials.apiKey))"


def _contains_key(spec: JSONObject) -> bool:
    webhook = spec.get("webhook", {})
    return webhook.get("preset") == Preset.PAGER_DUTY or API_KEY in webhook.get("template", "")


def _has_key(spec: JSONObject) -> bool:
    return "apiKey" in spec.get("credentials", {})


_KEY_RULES = (
    Rule(
        cel=f"!{_CONTAINS_KEY} || {_HAS_KEY}",
        holds=lambda spec: not _contains_key(spec) or _has_key(spec),
        field="credentials",
        message="has no apiKey, which the body of webhook needs",
        remedy="Name the Secret with the key in credentials.apiKey.",
    ),
    Rule(
        cel=f"!has(self.webhook) || !{_HAS_KEY} || {_CONTAINS_KEY}",
        holds=lambda spec: "webhook" not in spec or not _has_key(spec) or _contains_key(spec),
        field="credentials",
        message="has apiKey, which the body of webhook does not contain",
        remedy="Remove it, or write ${apiKey} in webhook.template.",
    ),
)

PROTOCOL = Protocol(
    name="Webhook",
    summary="JSON in the format of a service, or of your template",
    manual="For Slack, Microsoft Teams, PagerDuty and Alertmanager, and for any service that takes "
    "JSON. One `POST` for each delivery carries the body of a preset, or of a template with "
    "placeholders; [what is sent](../listeners.md#webhook-requests), the grammar of templates, "
    "and what counts as success.",
    schemes=http_schemes(),
    handler="pillion_sidecar.handlers.webhook:create_handler",
    credentials=(*HTTP_CREDENTIALS, "apiKey"),
    takes_proxy=True,
    level=3,
    options=WebhookOptions,
    options_required=True,
    option_rules=(
        Rule(
            cel="has(self.preset) != has(self.template)",
            holds=lambda options: ("preset" in options) != ("template" in options),
            message="has both preset and template, or neither",
            remedy="Write exactly one of the two.",
        ),
    ),
    rules=_KEY_RULES,
    check=_check,
    check_credentials=_check_credentials,
)
