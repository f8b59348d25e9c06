"""NATS: CloudEvents as messages of a subject, stored by JetStream or passed on."""

from enum import StrEnum

from pillion_sidecar.fields import Rule, cel_matches, declared, resource, text_matching, whole
from pillion_sidecar.protocols.declaration import Protocol, Scheme, URLForm

#: Of a subject; no wildcard.
_FIRST = "[!-#%-)+,/-=?-~-]"
_TOKEN = "[!-)+,/-=?-~-]+"


class NATSDelivery(StrEnum):
    JETSTREAM = "JetStream"
    CORE = "Core"


@resource
class NATSOptions:
    subject: str = declared(
        type=text_matching(
            rf"{_FIRST}({_TOKEN})?(\.{_TOKEN})*",
            max_length=255,
            message="is not a subject that can be published to",
            remedy="Write words of printable ASCII with '.' between them, without '*' and '>', "
            "and without '$' at the start.",
        ),
        description="The subject of all messages.",
    )
    delivery: NATSDelivery = declared(
        default=NATSDelivery.JETSTREAM,
        description="What success is. JetStream: a stream has stored the message. Core: the server "
        "has received it; nobody tells whether there was a subscriber.",
    )
    tls_first: bool = declared(
        default=False,
        description="Whether the TLS handshake comes before all else, as a server with "
        "handshake_first wants it.",
    )


_PLAIN = "(?i:nats)://.*"
_is_plain = whole(_PLAIN)

_RULES = (
    Rule(
        cel="!has(self.nats) || !self.nats.tlsFirst || !has(self.destination) || "
        f"!{cel_matches('self.destination', _PLAIN)}",
        holds=lambda spec: (
            not (spec.get("nats", {}).get("tlsFirst") and _is_plain(spec.get("destination", "")))
        ),
        field="nats",
        message="has tlsFirst, and destination is without TLS",
        remedy="Begin destination with tls://, or remove tlsFirst.",
    ),
)

PROTOCOL = Protocol(
    name="NATS",
    summary="one CloudEvent as a message (NATS, JetStream)",
    manual="For NATS servers and JetStream. Each delivery is one message with one event in "
    "structured mode; [what is sent](../listeners.md#nats-messages) and what counts as success.",
    schemes=(
        Scheme("nats", 4222, is_secure=False),
        Scheme("tls", 4222, is_secure=True, starts_tls=True),
    ),
    handler="pillion_sidecar.handlers.nats.handler:create_handler",
    url_forms=(
        URLForm(
            regex="[^/]*//[^/?]*/?",
            message="has a path or a query, which NATS does not have",
            remedy="Write tls://host:port only, and the subject in nats.subject.",
        ),
    ),
    level=3,
    options=NATSOptions,
    options_required=True,
    rules=_RULES,
)
