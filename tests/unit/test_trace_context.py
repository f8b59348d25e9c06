"""W3C Trace Context: what is taken, and what a listener gets."""

import json

import pytest

from pillion_sidecar.handlers.plugin.messages import deliver_params
from pillion_sidecar.trace_context import (
    MOST_STATE,
    TraceContext,
    event_attributes,
    header_lines,
    read_trace,
    trace_of,
)
from support.handlers import delivery, indication

IDS = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
PARENT = f"00-{IDS}-01"


@pytest.mark.parametrize(
    ("given", "state", "trace"),
    [
        (
            PARENT,
            "congo=t61rcWkgMzE,rojo=00f0",
            TraceContext(PARENT, "congo=t61rcWkgMzE,rojo=00f0"),
        ),
        (PARENT, "", TraceContext(PARENT)),
        (PARENT, " a=1 ", TraceContext(PARENT, "a=1")),
        # What cannot be forwarded of the state leaves the parent.
        (PARENT, "a" * (MOST_STATE + 1), TraceContext(PARENT)),
        (PARENT, "a=\r\nX: y", TraceContext(PARENT)),
        (PARENT, "a=ü", TraceContext(PARENT)),
        (PARENT, 7, TraceContext(PARENT)),
        # Of a later version what version 00 has.
        (f"cc-{IDS}-09-what-comes", "", TraceContext(f"00-{IDS}-09")),
    ],
)
def test_a_trace_is_read(given: str, state: object, trace: TraceContext) -> None:
    assert read_trace(given, state) == trace


@pytest.mark.parametrize(
    "given",
    [
        None,
        7,
        "",
        PARENT.upper(),
        f"ff-{IDS}-01",
        f"00-{IDS}-01-more",
        f"00-{IDS}",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        PARENT + "\r\nX: y",
        PARENT + "\n",
        "0" * 100_000,
    ],
)
def test_what_is_no_trace_is_ignored(given: object) -> None:
    assert read_trace(given, "a=1") is None


def test_a_request_has_one_parent_and_any_number_of_states() -> None:
    assert trace_of([PARENT], ["a=1", "b=2"]) == TraceContext(PARENT, "a=1,b=2")
    assert trace_of([PARENT, PARENT], []) is None
    assert trace_of([], ["a=1"]) is None


def test_a_listener_gets_it_in_headers_and_in_attributes_of_an_event() -> None:
    trace = TraceContext(PARENT, 'a="1"')
    assert header_lines(None) == b""
    assert header_lines(TraceContext(PARENT)) == f"traceparent: {PARENT}\r\n".encode()
    assert header_lines(trace).decode().splitlines()[1] == 'tracestate: a="1"'
    attributes = json.loads(b"{" + event_attributes(trace)[1:] + b"}")
    assert attributes == {"traceparent": PARENT, "tracestate": 'a="1"'}
    only = json.loads(b"{" + event_attributes(TraceContext(PARENT))[1:] + b"}")
    assert only == {"traceparent": PARENT}


def test_a_plug_in_gets_it_with_its_command() -> None:
    traced = delivery(indication(trace=TraceContext(PARENT, "a=1")))
    params = json.loads(deliver_params(traced, timeout=1.0))
    assert (params["traceparent"], params["tracestate"]) == (PARENT, "a=1")
    assert "traceparent" not in json.loads(deliver_params(delivery(), timeout=1.0))
