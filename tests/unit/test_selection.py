"""What a list of properties leaves of an instance (D.3)."""

import json

import pytest

from pillion_sidecar.indication import selected_body, selection_of

ALERT = (
    b'{"class":"HP_Alert","superclass":"CIM_AlertIndication","properties":{"IndicationIdentifier":'
    b'"i","EventTime":null,"AlertType":5,"Bay":{"type":"uint64","value":18446744073709551615},'
    b'"Load":{"type":"real64","value":1e-7}}}'
)


def test_what_is_listed_stays_as_it_was_published() -> None:
    assert selected_body(ALERT, selection_of(["Bay", "Load", "EventTime"])) == (
        b'{"class":"HP_Alert","superclass":"CIM_AlertIndication","properties":'
        b'{"IndicationIdentifier":"i","EventTime":null,"Bay":{"type":"uint64","value":'
        b'18446744073709551615},"Load":{"type":"real64","value":1e-7}}}'
    )


def test_a_listener_can_always_recognize_date_and_relate_an_indication() -> None:
    given = {
        "IndicationIdentifier": "i",
        "indicationtime": "20261121133000.000000+000",
        "CorrelatedIndications": ["h"],
        "AlertType": 5,
    }
    body = json.dumps({"class": "CIM_AlertIndication", "properties": given}).encode()
    left = json.loads(selected_body(body, selection_of([])))["properties"]
    assert left == {name: value for name, value in given.items() if name != "AlertType"}


@pytest.mark.parametrize("listed", ["ALERTTYPE", "alerttype"])
def test_names_are_not_case_sensitive(listed: str) -> None:
    body = b'{"class":"C","properties":{"AlertType":5,"Message":"m"}}'
    left = b'{"class":"C","properties":{"AlertType":5}}'
    assert selected_body(body, selection_of([listed])) == left


def test_a_name_with_an_escape_is_the_same_name() -> None:
    body = b'{"class":"C","properties":{"Alert\\u0054ype":5}}'
    assert b"AlertType" in selected_body(body, selection_of(["AlertType"]))


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"class":"C"}', b'{"properties":[1]}'])
def test_what_is_no_instance_is_told(body: bytes) -> None:
    with pytest.raises(ValueError, match="the body is no instance"):
        selected_body(body, selection_of(["AlertType"]))
