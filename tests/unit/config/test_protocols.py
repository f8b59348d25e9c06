"""What the declarations of protocols come to in the schema."""

from dataclasses import replace

import pytest

from pillion_sidecar.config.schema.listener import protocol_rules
from pillion_sidecar.fields import JSONObject, Text, declared, resource
from pillion_sidecar.protocols import PROTOCOLS, Protocol
from pillion_sidecar.protocols.declaration import Scheme


@resource
class Options:
    text: str = declared(type=Text(max_length=9), description="Any.")


SYSLOG = Protocol(
    name="Syslog",
    summary="one line",
    manual="",
    schemes=(Scheme("syslog", 514, is_secure=False), Scheme("syslogs", 6514, is_secure=True)),
    handler="none:none",
    credentials=("basic",),
    options=Options,
)
RULES = protocol_rules([*PROTOCOLS.values(), SYSLOG])


def test_protocols_that_take_the_same_have_no_rules() -> None:
    alike = [replace(PROTOCOLS[name], options=None) for name in ("CIM-XML", "CloudEvents")]
    assert protocol_rules(alike) == ()


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"protocol": "Syslog", "destination": "syslogs://a/"}, None),
        ({"protocol": "Syslog", "destination": "SYSLOG://a/"}, None),
        ({"protocol": "Syslog", "destinationFrom": {}}, None),
        ({"protocol": "CIM-XML", "destination": "http://a/"}, None),
        ({"protocol": "CIM-XML", "credentials": {"bearer": {}}}, None),
        (
            {"protocol": "Syslog", "destination": "http://a/"},
            "has a scheme that Syslog does not have",
        ),
        (
            {"protocol": "CIM-XML", "destination": "syslog://a/"},
            "has a scheme that CIM-XML does not have",
        ),
        (
            {"protocol": "CloudEvents", "destination": "plugin://a/"},
            "has a scheme that CloudEvents does not have",
        ),
        ({"protocol": "Syslog", "destination": "ftp://a/"}, None),
        (
            {"protocol": "Syslog", "credentials": {"bearer": {}}},
            "holds bearer, which Syslog cannot send",
        ),
        ({"protocol": "Syslog", "syslog": {}}, None),
        (
            {"protocol": "CIM-XML", "syslog": {}},
            "has options of protocol Syslog, which is not the protocol",
        ),
    ],
)
def test_a_destination_has_what_its_protocol_takes(spec: JSONObject, told: str | None) -> None:
    broken = [rule.message for rule in RULES if not rule.holds(spec)]
    assert broken == ([] if told is None else [told])
