"""What a syslog message says of an indication, and that no value gets out of its place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.handlers.content import UNSAYABLE
from pillion_sidecar.handlers.syslog.message import MessageFormat
from pillion_sidecar.protocols.syslog import FACILITIES, SyslogMessage, SyslogOptions
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery, indication
from support.syslog_listener import Message, frames, message

ID = "pillion@32473"


def body(**properties: Any) -> bytes:
    instance = {"class": "CIM_AlertIndication", "properties": properties}
    return json.dumps(instance, separators=(",", ":"), ensure_ascii=False).encode()


def sent(
    options: SyslogOptions | None = None, *, of: dict[str, Any] | None = None, **properties: Any
) -> Message:
    """The one message of a delivery; ``of``: the indication's and the delivery's values."""
    values = dict(of or {})
    around = {
        name: values.pop(name)
        for name in ("filter_name", "sequence_context", "sequence_number", "correlated")
        if name in values
    }
    made = MessageFormat(options or SyslogOptions(), clock=FakeTime()).frame(
        delivery(indication(body(**properties), **values), **around)
    )
    (only,) = frames(made)
    return message(only)


@pytest.mark.parametrize(
    ("severity", "expected"),
    [(0, 5), (1, 5), (2, 6), (3, 4), (4, 3), (5, 2), (6, 1), (7, 1), (8, 5), (None, 5), ("6", 5)],
)
def test_the_severity_is_that_of_rfc_5674(severity: object, expected: int) -> None:
    assert sent(PerceivedSeverity=severity).severity == expected


def test_without_a_severity_it_is_a_notice() -> None:
    assert sent(AlertType=5).severity == 5


@pytest.mark.parametrize(("name", "number"), FACILITIES.items())
def test_the_facility_is_an_option(name: str, number: int) -> None:
    assert sent(SyslogOptions(facility=name)).facility == number


def test_the_head_says_who_what_and_when() -> None:
    told = sent(
        SyslogOptions(app_name="alerts"),
        of={"class_name": "CIM_" + 40 * "A"},
        SystemName="host 1\n",
        IndicationTime="20261121133000.250000+060",
    )
    assert (told.host, told.app, told.id) == ("host_1_", "alerts", "CIM_" + 28 * "A")
    assert told.time == "2026-11-21T12:30:00.250000Z"


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-11-21T13:30:00.5+01:00", "2026-11-21T12:30:00.500000Z"),
        ("2026112113****.******+060", "2023-11-14T22:13:10Z"),
        (None, "2023-11-14T22:13:10Z"),
        (7, "2023-11-14T22:13:10Z"),
    ],
)
def test_without_a_point_in_time_it_is_the_time_of_acceptance(time: object, expected: str) -> None:
    # Ten seconds ago on the fake clock.
    assert sent(of={"accepted_at": 990.0}, IndicationTime=time).time == expected


def test_the_source_stands_for_a_missing_system() -> None:
    assert sent(of={"source": "/weather/7"}).host == "/weather/7"
    assert sent(of={"source": "/weather/7"}, SystemName="").host == "/weather/7"
    assert sent(of={"source": 300 * "h"}).host == 255 * "h"


def test_a_text_is_the_message_and_properties_are_parameters() -> None:
    too_long: dict[str, Any] = {"N" * 33: 1}
    told = sent(
        of={
            "identifier": "i-1",
            "filter_name": "severe",
            "sequence_context": "c",
            "sequence_number": 3,
        },
        IndicationIdentifier="i-1",
        AlertType=5,
        Message="Fan 3\nfailed",
        Description="d",
        OtherValues=[1, None, 'a"b'],
        Typed={"type": "uint16", "value": 9},
        Nothing=None,
        **too_long,
    )
    assert told.text == "Fan 3 failed"
    assert told.data == {
        ID: {
            "class": "CIM_AlertIndication",
            "identifier": "i-1",
            "filter": "severe",
            "context": "c",
            "sequence": "3",
            "AlertType": "5",
            "Message": "Fan 3\\u000afailed",
            "Description": "d",
            "OtherValues": '[1, null, "a\\"b"]',
            "Typed": "9",
        }
    }


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"Description": "d"}, "d"),
        ({"Message": " ", "Description": "d"}, "d"),
        ({"Message": 5}, "CIM_AlertIndication"),
        ({}, "CIM_AlertIndication"),
    ],
)
def test_without_a_message_the_text_is_the_next_best(
    properties: dict[str, Any], expected: str
) -> None:
    assert sent(**properties).text == expected


def test_json_is_the_instance_as_a_cloud_event_has_it() -> None:
    told = sent(
        SyslogOptions(message=SyslogMessage.JSON, structured_data_id="a@1"),
        of={"identifier": "i-1", "correlated": True},
        AlertType=5,
        Message="a\u2028b\x7f",
    )
    assert json.loads(told.text) == {
        "class": "CIM_AlertIndication",
        "properties": {
            "AlertType": 5,
            "Message": "a\u2028b\x7f",
            "IndicationFilterName": "severe",
            "CorrelatedIndications": ["i-1"],
        },
    }
    assert told.text.isprintable()
    assert told.data == {
        "a@1": {"class": "CIM_AlertIndication", "identifier": "i-1", "filter": "severe"}
    }


def test_the_first_language_is_told() -> None:
    assert sent(of={"languages": ("de", "en")}).data["meta"] == {"language": "de"}


@pytest.mark.parametrize("wrong", [b"[]", b"{}", body(Message="a").replace(b'a"}', b'\\ud800"}')])
def test_a_body_that_is_no_instance_or_no_unicode_is_refused(wrong: bytes) -> None:
    made = MessageFormat(SyslogOptions(), clock=FakeTime())
    with pytest.raises(UNSAYABLE):
        made.frame(delivery(indication(wrong)))


_ANY = st.text(max_size=40) | st.sampled_from(
    ['"]', "\\", '\\"] evil', "\n<34>1 - - - - - - x", "\0", "] [x y=", "12 <34>1"]
)


@given(
    text=_ANY, identifier=_ANY, filter_name=_ANY, source=_ANY, is_json=st.booleans(), system=_ANY
)
def test_no_value_gets_out_of_its_place(
    text: str, identifier: str, filter_name: str, source: str, is_json: bool, system: str
) -> None:
    kind = SyslogMessage.JSON if is_json else SyslogMessage.TEXT
    given_body = body(Message=text, SystemName=system, Other=text)
    around = {"identifier": identifier, "source": source or None}
    made = MessageFormat(SyslogOptions(message=kind), clock=FakeTime()).frame(
        delivery(indication(given_body, **around), filter_name=filter_name)
    )
    (only,) = frames(made)
    assert only.decode().isprintable()
    told = message(only)
    assert list(told.data) == [ID]
    parameters = {"class", "identifier", "filter"}
    if not is_json:
        parameters |= {"Message", "SystemName", "Other"}
    assert set(told.data[ID]) == parameters


@pytest.mark.parametrize("kind", SyslogMessage)
def test_a_message_has_at_most_so_many_bytes(kind: SyslogMessage) -> None:
    options = SyslogOptions(message=kind, max_bytes=1024)
    told = MessageFormat(options, clock=FakeTime()).frame(
        delivery(indication(body(SystemName="h", Short="a", Long=900 * "é", Message=900 * "é")))
    )
    (only,) = frames(told)
    assert len(only) in (1023, 1024)
    # Whole: the text is cut, and a parameter that does not fit is left out.
    found = message(only)
    assert ("Short" in only.decode()) is True
    assert found.host == "h"
    if kind is SyslogMessage.TEXT:
        assert ' Long="' not in only.decode()
