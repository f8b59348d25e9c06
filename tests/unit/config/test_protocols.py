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


PAGER = Protocol(
    name="Pager",
    summary="one line",
    manual="",
    schemes=(Scheme("pager", 514, is_secure=False), Scheme("pagers", 6514, is_secure=True)),
    handler="none:none",
    credentials=("basic",),
    options=Options,
)
HTTP = (PROTOCOLS["CIM-XML"], PROTOCOLS["CloudEvents"])
RULES = protocol_rules([*HTTP, PROTOCOLS["Plugin"], PAGER])


def test_protocols_that_take_the_same_have_no_rules() -> None:
    alike = [replace(protocol, options=None) for protocol in HTTP]
    assert protocol_rules(alike) == ()


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"protocol": "Pager", "destination": "pagers://a/"}, None),
        ({"protocol": "Pager", "destination": "PAGER://a/"}, None),
        ({"protocol": "Pager", "destinationFrom": {}}, None),
        ({"protocol": "CIM-XML", "destination": "http://a/"}, None),
        ({"protocol": "CIM-XML", "credentials": {"bearer": {}}}, None),
        (
            {"protocol": "Pager", "destination": "http://a/"},
            "has a scheme that Pager does not have",
        ),
        (
            {"protocol": "CIM-XML", "destination": "pager://a/"},
            "has a scheme that CIM-XML does not have",
        ),
        (
            {"protocol": "CloudEvents", "destination": "plugin://a/"},
            "has a scheme that CloudEvents does not have",
        ),
        ({"protocol": "Pager", "destination": "ftp://a/"}, None),
        (
            {"protocol": "Pager", "credentials": {"bearer": {}}},
            "holds bearer, which Pager cannot send",
        ),
        ({"protocol": "Pager", "pager": {}}, None),
        (
            {"protocol": "CIM-XML", "pager": {}},
            "has options of protocol Pager, which is not the protocol",
        ),
    ],
)
def test_a_destination_has_what_its_protocol_takes(spec: JSONObject, told: str | None) -> None:
    broken = [rule.message for rule in RULES if not rule.holds(spec)]
    assert broken == ([] if told is None else [told])
