"""What is printed, for people and for programs."""

import json
from dataclasses import replace

from pillion_cli.listener.arrivals import Arrival, JSONReporter, Summary, TextReporter
from pillion_cli.listener.sequence import Outcome, SequenceIdentifier, Verdict

ARRIVAL = Arrival(
    class_name="CIM_AlertIndication",
    properties={
        "IndicationIdentifier": "disk-1",
        "IndicationFilterName": "severe",
        "EventID": "E\x1b[31m1",
        "Message": "m" * 100,
    },
    protocol="CIM-XML",
    path="/siem",
)
DELIVERED = Outcome(
    item=ARRIVAL,
    identifier=SequenceIdentifier("A", 7),
    verdict=Verdict.DELIVERED,
    reason="the gap outlived its lifetime",
    missing=2,
)
DUPLICATE = Outcome(item=ARRIVAL, identifier=None, verdict=Verdict.DUPLICATE, reason="came before")


def test_json_is_an_object_a_line() -> None:
    lines: list[str] = []
    reporter = JSONReporter(lines.append)
    summary = Summary(received=2)
    reporter.started("http://127.0.0.1:1")
    reporter.happened(DELIVERED)
    reporter.answered("503", path="/")
    summary.add(DELIVERED)
    summary.add(DUPLICATE)
    reporter.ended(summary)
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)
    started, happened, ended = map(json.loads, lines)
    assert started == {"listening": "http://127.0.0.1:1"}
    assert happened == {
        "verdict": "delivered",
        "reason": "the gap outlived its lifetime",
        "class": "CIM_AlertIndication",
        "identifier": "disk-1",
        "context": "A",
        "number": 7,
        "missing": 2,
        "filter": "severe",
        "protocol": "CIM-XML",
        "path": "/siem",
        "properties": dict(ARRIVAL.properties),
    }
    assert ended["summary"] == {
        "received": 2,
        "delivered": 1,
        "duplicates": 1,
        "late": 0,
        "held": 0,
        "gaps": 1,
        "missing": 2,
        "refused": 0,
        "wrong": 0,
    }


def test_text_is_short_and_harmless_to_a_terminal() -> None:
    lines: list[str] = []
    reporter = TextReporter(lines.append)
    reporter.started("http://127.0.0.1:1")
    reporter.happened(DELIVERED)
    reporter.happened(DUPLICATE)
    reporter.answered("503, as told", path="/\x07\x9b\u202e")
    anonymous = replace(DELIVERED.item, properties={})
    reporter.happened(replace(DELIVERED, item=anonymous, missing=0))
    assert "  (no identifier)  " in lines.pop()
    assert lines[0] == "http://127.0.0.1:1\n"
    assert lines[1] == "gap        2 missing, the gap outlived its lifetime\n"
    assert lines[2].startswith("delivered   CIM_AlertIndication  disk-1  A #7  EventID=")
    assert lines[3].endswith("(came before)\n")
    assert lines[4] == "answered   503, as told  /\\u0007\\u009b\\u202e\n"
    assert max(map(len, lines)) < 200
    assert all(line[:-1].isprintable() for line in lines)


def test_text_shows_values_without_their_types() -> None:
    written: list[str] = []
    severity = {"type": "uint16", "value": 6}
    arrival = Arrival(
        class_name="HP_Alert",
        properties={"PerceivedSeverity": severity},
        protocol="CIM-XML",
        path="/",
    )
    outcome = Outcome(item=arrival, identifier=None, verdict=Verdict.DELIVERED, reason="")
    TextReporter(written.append).happened(outcome)
    (line,) = written
    assert line.endswith("  PerceivedSeverity=6\n")


def test_a_deliverers_context_is_shown_by_the_beginnings_of_its_parts() -> None:
    lines: list[str] = []
    context = "default#c429ebc541013e96#51bb8442-bb01-56ef-b59f-ad3833638fca#3"
    numbered = replace(DELIVERED, identifier=SequenceIdentifier(context, 12), missing=0)
    TextReporter(lines.append).happened(numbered)
    assert "  default#c429ebc5…#51bb8442…#3 #12  " in lines[0]
