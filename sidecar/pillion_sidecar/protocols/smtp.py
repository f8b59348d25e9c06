"""SMTP: e-mail to a mail server."""

from enum import StrEnum

from pillion_sidecar.fields import (
    Integer,
    JSONObject,
    ListOf,
    Rule,
    Text,
    cel_matches,
    cel_text,
    declared,
    matching,
    resource,
    text_matching,
    unlike,
    whole,
)
from pillion_sidecar.protocols.declaration import OptionsFault, Protocol, Scheme, URLForm
from pillion_sidecar.templates import (
    API_KEY_WORD,
    KNOWN,
    UNKNOWN_REMEDY,
    TemplateError,
    parse_text,
)

MOST_RECIPIENTS = 100
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
#: A Mailbox of RFC 5321 4.1.2 without quotes, comments and characters outside ASCII.
_ADDRESS = text_matching(
    rf"{_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL})*",
    max_length=254,
    message="is not an e-mail address",
    remedy="Write name@host in ASCII, without a display name, and an international host name in "
    "its xn-- form.",
)
_SUBJECT = Text(
    min_length=1,
    max_length=1024,
    rules=(
        matching(
            KNOWN,
            message="has a placeholder that is not known",
            remedy=UNKNOWN_REMEDY,
        ),
        unlike(
            rf"(.|[\r\n])*\$\{{([^}}]*[:|])?{API_KEY_WORD}([:|][^}}]*)?\}}(.|[\r\n])*",
            message="has the placeholder apiKey, and an e-mail has no API key",
            remedy="Remove it.",
        ),
    ),
)


class StartTLS(StrEnum):
    REQUIRED = "Required"
    OPPORTUNISTIC = "Opportunistic"
    NONE = "None"


@resource
class SMTPOptions:
    sender: str = declared(
        name="from",
        type=_ADDRESS,
        description="The address of the sender, in the envelope and in From. Messages that cannot "
        "be delivered return to it.",
    )
    recipients: tuple[str, ...] = declared(
        name="to",
        type=ListOf(item=_ADDRESS, max_items=MOST_RECIPIENTS),
        description="The addresses of the recipients, in the envelope and in To. The mail server "
        "must accept all of them.",
    )
    subject: str = declared(
        default="${severity}: ${Message|Description|class}",
        type=_SUBJECT,
        description="The subject: a text with placeholders, such as ${Message}. A message with "
        "several indications has the subject of the first one, and their number before it.",
    )
    start_tls: StartTLS = declared(
        default=StartTLS.REQUIRED,
        name="startTLS",
        description="Whether an smtp:// connection is encrypted before anything is sent. "
        "Required: always. Opportunistic: if the mail server offers it, so an attacker on the "
        "network path can prevent it. None: never. An smtps:// connection always is.",
    )
    max_bytes: int = declared(
        default=262_144,
        type=Integer(minimum=65_536, maximum=16_777_216),
        description="Maximum bytes of a message. An indication whose JSON does not fit is sent "
        "without it. At most the mail server's own limit.",
    )


def _check(options: SMTPOptions) -> OptionsFault | None:
    try:
        parse_text(options.subject)
    except TemplateError as error:
        return OptionsFault("subject", error.message, error.remedy)
    return None


_REQUIRED = cel_text(StartTLS.REQUIRED)
_NONE = cel_text(StartTLS.NONE)


def _start_tls(spec: JSONObject) -> StartTLS:
    return StartTLS(spec.get("smtp", {}).get("startTLS", StartTLS.REQUIRED))


_TLS = "(?i:smtps)://.*"
_is_tls = whole(_TLS)

_RULES = (
    Rule(
        cel=f"!has(self.smtp) || self.smtp.startTLS == {_REQUIRED} || !has(self.destination) || "
        f"!{cel_matches('self.destination', _TLS)}",
        holds=lambda spec: (
            _start_tls(spec) is StartTLS.REQUIRED or not _is_tls(spec.get("destination", ""))
        ),
        field="smtp",
        message="has startTLS, and an smtps:// connection is always encrypted",
        remedy="Remove smtp.startTLS, or begin destination with smtp://.",
    ),
    Rule(
        cel=f"!has(self.smtp) || self.smtp.startTLS == {_REQUIRED} || !has(self.credentials)",
        holds=lambda spec: _start_tls(spec) is StartTLS.REQUIRED or "credentials" not in spec,
        field="credentials",
        message="might be sent unencrypted, since smtp.startTLS is not Required",
        remedy="Remove smtp.startTLS, or credentials.",
    ),
    Rule(
        cel=f"!has(self.smtp) || self.smtp.startTLS != {_NONE} || !has(self.tls)",
        holds=lambda spec: _start_tls(spec) is not StartTLS.NONE or "tls" not in spec,
        field="tls",
        message="is written, and smtp.startTLS is None",
        remedy="Remove one of the two.",
    ),
)

PROTOCOL = Protocol(
    name="SMTP",
    summary="e-mail to a mail server",
    manual="For people, and for ticket systems that take e-mail. Each message has one indication, "
    "or those of a burst, as text and as a JSON attachment; over TLS, by STARTTLS unless the "
    "options say otherwise. [What is sent](../listeners.md#e-mail) and what counts as success.",
    # STARTTLS is required by default; without it, the rules below keep credentials secret.
    schemes=(
        Scheme("smtp", 25, is_secure=True, starts_tls=True),
        Scheme("smtps", 465, is_secure=True),
    ),
    handler="pillion_sidecar.handlers.smtp.handler:create_handler",
    url_forms=(
        URLForm(
            regex="[^/]*//[^/?]*/?",
            message="has more than a host and a port, which SMTP does not have",
            remedy="Write smtp://host:port or smtps://host:port only.",
        ),
    ),
    credentials=("basic",),
    extra="smtp",
    library="aiosmtplib",
    level=3,
    options=SMTPOptions,
    options_required=True,
    option_rules=(
        Rule(
            cel="size(self.to) > 0",
            holds=lambda options: len(options["to"]) > 0,
            field="to",
            message="is empty",
            remedy="Write the address of a recipient.",
        ),
    ),
    rules=_RULES,
    check=_check,
    most_at_once=100,
)
