"""The cases of the rules about credentials that a protocol cannot send; see
``support.resource_cases``."""

from pillion_sidecar.protocols import PROTOCOLS, Protocol
from support.resource_rules import Case
from support.resources import JSON

_SECRET: JSON = {"secretRef": {"name": "a"}}
BLOCKS: JSON = {
    "apiKey": _SECRET,
    "basic": _SECRET,
    "bearer": _SECRET,
    "oauth2": {"tokenURL": "https://id.example/token", **_SECRET},
    "signing": {"secretRefs": [{"name": "a"}]},
    "snmp": _SECRET,
}
OPTIONS: JSON = {
    "Kafka": {"kafka": {"topic": "alerts"}},
    "MQTT": {"mqtt": {"topic": "alerts"}},
    "NATS": {"nats": {"subject": "alerts"}},
    "SMTP": {"smtp": {"from": "pillion@station.example", "to": ["on-call@ops.example"]}},
    "Webhook": {"webhook": {"preset": "Slack"}},
}


def _cannot_send(protocol: Protocol, kind: str) -> Case:
    # A written URL would break the rule about TLS, too.
    spec = {
        "protocol": protocol.name,
        "destinationFrom": {"secretKeyRef": {"name": "a"}},
        **OPTIONS.get(protocol.name, {}),
    }
    required = {name: BLOCKS[name] for name in protocol.required_credentials}
    return Case(
        kind="ListenerDestination",
        field="spec.credentials",
        says=f"holds {kind}, which {protocol.name} cannot send",
        refused={**spec, "credentials": {**required, kind: BLOCKS[kind]}},
        mended={**spec, "credentials": required} if required else spec,
    )


CREDENTIAL_CASES = tuple(
    _cannot_send(protocol, kind)
    for protocol in PROTOCOLS.values()
    for kind in BLOCKS
    if kind not in protocol.credentials
)
