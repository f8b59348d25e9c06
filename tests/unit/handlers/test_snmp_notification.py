"""What a notification of an indication has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyasn1.codec.ber import decoder
from pysnmp.proto import rfc1905

from pillion_sidecar.handlers.content import UNSAYABLE
from pillion_sidecar.handlers.snmp.ber import SEQUENCE, encode
from pillion_sidecar.handlers.snmp.handler import engine_id
from pillion_sidecar.handlers.snmp.notification import (
    OBJECTS,
    SEQUENCE_OBJECTS,
    NotificationFormat,
)
from pillion_sidecar.protocols.snmp import SNMPOptions
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery, indication

MIB = Path(__file__).parents[3] / "docs/assets/PILLION-MIB.txt"
BASE = "1.3.6.1.4.1.32473.1"
OVERHEAD = 100


def pairs_of(
    body: object, *, options: SNMPOptions | None = None, **given: Any
) -> list[tuple[str, Any]]:
    """Names and values, texts in bytes, as pysnmp reads them."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    identity = {"identifier": given.pop("identifier", "i-1"), "source": given.pop("source", None)}
    options = options or SNMPOptions()
    made = NotificationFormat(options, clock=FakeTime(), service_name="lab", overhead=OVERHEAD)
    of = indication(encoded, **identity, **given.pop("of", {}))
    bindings = made.bindings(delivery(of, **given))
    assert len(bindings) <= options.max_bytes - OVERHEAD
    read, rest = decoder.decode(encode(SEQUENCE, bindings), asn1Spec=rfc1905.VarBindList())
    assert rest == b""
    return [(str(one[0]), _plain(one[1])) for one in read]


def _plain(value: Any) -> Any:
    while hasattr(value, "getComponent"):
        value = value.getComponent()
    if hasattr(value, "asOctets"):
        return value.asOctets()
    return str(value) if type(value).__name__ == "ObjectIdentifier" else int(value)


def values_of(body: object, *, oid: str = BASE, **given: Any) -> dict[str, Any]:
    """Values by the names of the MIB."""
    names = {
        f"{oid}.1.{number}.0": name
        for number, name in enumerate((*OBJECTS, *SEQUENCE_OBJECTS), start=1)
    }
    return {names[name]: value for name, value in pairs_of(body, **given)[2:]}


def alert(**properties: Any) -> dict[str, Any]:
    return {"class": "CIM_AlertIndication", "properties": properties}


def test_the_objects_come_in_the_order_of_the_mib() -> None:
    pairs = pairs_of(alert(), sequence_context="here", sequence_number=2**40)
    assert pairs[:2] == [
        ("1.3.6.1.2.1.1.3.0", 0),
        ("1.3.6.1.6.3.1.1.4.1.0", f"{BASE}.0.1"),
    ]
    assert [name for name, _ in pairs[2:]] == [f"{BASE}.1.{number}.0" for number in range(1, 14)]


def test_the_mib_has_the_same_objects() -> None:
    text = MIB.read_text(encoding="ascii")
    found = re.findall(r"^(\w+) OBJECT-TYPE.*?::= \{ pillionObjects (\d+) \}$", text, re.M | re.S)
    names = (*OBJECTS, *SEQUENCE_OBJECTS)
    assert found == [(name, str(number)) for number, name in enumerate(names, start=1)]
    notification = re.search(r"^pillionIndication NOTIF.*?OBJECTS\s+\{(.*?)\}", text, re.M | re.S)
    assert notification is not None
    assert tuple(re.findall(r"\w+", notification[1])) == OBJECTS
    assert SNMPOptions().oid == BASE
    assert "pillionMIB MODULE-IDENTITY" in text
    assert "::= { enterprises 32473 1 }" in text


def test_values_are_those_of_the_indication() -> None:
    body = alert(
        PerceivedSeverity={"type": "uint16", "value": 5},
        IndicationTime="20261121133000.250000+060",
        SystemName="station-7",
        Message="Fan 3 failed",
    )
    values = values_of(body, source="lab-2", sequence_context="here", sequence_number=7)
    properties = json.loads(values.pop("pillionProperties"))
    assert properties["PerceivedSeverity"] == 5
    assert properties["SequenceNumber"] == 7
    assert values == {
        "pillionIdentifier": b"i-1",
        "pillionClass": b"CIM_AlertIndication",
        "pillionTime": b"\x07\xea\x0b\x15\x0c\x1e\x00\x02+\x00\x00",
        "pillionSeverity": 5,
        "pillionMessage": b"Fan 3 failed",
        "pillionSystem": b"station-7",
        "pillionSource": b"lab-2",
        "pillionService": b"lab",
        "pillionFilter": b"severe",
        "pillionTruncated": 2,
        "pillionSequenceContext": b"here",
        "pillionSequenceNumber": 7,
    }


@pytest.mark.parametrize("stated", [None, -1, 8, 2**70, "5", [5], True])
def test_what_is_no_severity_is_unknown(stated: object) -> None:
    expected = 1 if stated is True else 0
    assert values_of(alert(PerceivedSeverity=stated))["pillionSeverity"] == expected


def test_the_oid_is_an_option() -> None:
    options = SNMPOptions(oid="1.3.6.1.4.1.999999999.1")
    pairs = pairs_of(alert(), options=options)
    assert pairs[1][1] == "1.3.6.1.4.1.999999999.1.0.1"
    assert pairs[2][0] == "1.3.6.1.4.1.999999999.1.1.1.0"


def test_control_characters_are_escaped() -> None:
    values = values_of(
        alert(Message="one\ntwo\x1b[0m", SystemName="a\nb", A="\u202e\x7f"),
        identifier="i\n2",
        filter_name="f\x00",
        source="s\r\n",
    )
    assert values["pillionMessage"] == b"one two [0m"
    assert values["pillionSystem"] == rb"a\u000ab"
    assert values["pillionIdentifier"] == rb"i\u000a2"
    assert values["pillionFilter"] == rb"f\u0000"
    assert values["pillionSource"] == rb"s\u000d\u000a"
    text = values["pillionProperties"].decode()
    assert text.isprintable()
    assert json.loads(text)["A"] == "\u202e\x7f"


def test_a_property_that_does_not_fit_is_left_out_and_others_are_not() -> None:
    values = values_of(alert(Message="m", Long="x" * 2000, Short=1))
    properties = json.loads(values["pillionProperties"])
    assert "Long" not in properties
    assert (properties["Message"], properties["Short"]) == ("m", 1)
    assert values["pillionTruncated"] == 1


def test_a_long_text_is_cut_between_two_characters() -> None:
    values = values_of(alert(Message="€" * 2000, SystemName="€" * 100))
    assert values["pillionSystem"].decode() == "€" * 85
    message = values["pillionMessage"].decode()
    assert set(message) == {"€"}
    assert values["pillionProperties"] in (b"", b"{}")
    assert values["pillionTruncated"] == 1


def test_the_longest_option_holds_a_long_message() -> None:
    options = SNMPOptions(max_bytes=65507)
    values = values_of(alert(Message="m" * 60_000), options=options)
    assert len(values["pillionMessage"]) == 60_000
    assert values["pillionTruncated"] == 1


_TEXTS = st.text(max_size=600)


@given(
    _TEXTS,
    _TEXTS,
    _TEXTS,
    st.dictionaries(st.text(max_size=20), st.one_of(_TEXTS, st.integers(), st.none())),
    st.integers(1024, 2000),
)
def test_nothing_breaks_the_limit(
    message: str, system: str, name: str, others: dict[str, Any], most: int
) -> None:
    body = alert(**{**others, "Message": message, "SystemName": system})
    oid = "1.3.6.1.4.1.999999999.999999999.999999999.999999999"
    values = values_of(
        body,
        oid=oid,
        options=SNMPOptions(max_bytes=most, oid=oid),
        identifier=name,
        filter_name=name,
        source=name,
        sequence_context=name,
        sequence_number=2**63 - 1,
    )
    assert len(values) == 13
    for value in values.values():
        if isinstance(value, bytes) and value != values["pillionTime"]:
            value.decode()


@pytest.mark.parametrize("body", [b"{}", b'{"class":"A"}', b"[]", b"{"])
def test_what_is_no_instance_cannot_be_said(body: bytes) -> None:
    with pytest.raises(UNSAYABLE):
        pairs_of(body)


def test_the_engine_is_the_services_or_the_option() -> None:
    assert engine_id(SNMPOptions(), "lab").hex() == "80007ed9046c6162"
    assert len(engine_id(SNMPOptions(), 100 * "l")) == 32
    assert engine_id(SNMPOptions(engine_id="0x80000000AB"), "lab").hex() == "80000000ab"
