"""The trace of a publisher (W3C Trace Context). It travels with the indication to its listeners, in
the HTTP headers of both names and in CloudEvents' extension of distributed tracing."""

import re
from collections.abc import Sequence

import msgspec

PARENT, STATE = "traceparent", "tracestate"
#: Characters of a state. A longer one is left out, as the recommendation allows.
MOST_STATE = 512
_PARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-"
    r"(?P<fields>(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(?P<more>-.*)?"
)
_STATE = re.compile(r"[\x20-\x7e]*")
_encode = msgspec.json.encode


class TraceContext(msgspec.Struct, frozen=True, gc=False, array_like=True):
    #: ``traceparent`` of version 00.
    parent: str
    #: ``tracestate``; may be empty.
    state: str = ""


def read_trace(parent: object, state: object = "") -> TraceContext | None:
    """Return None without a valid ``traceparent``: a trace is never a reason to refuse."""
    if not isinstance(parent, str) or (match := _PARENT.fullmatch(parent)) is None:
        return None
    if match["version"] == "00" and match["more"]:
        return None
    if not isinstance(state, str) or len(state) > MOST_STATE or not _STATE.fullmatch(state):
        state = ""
    return TraceContext(f"00-{match['fields']}", state.strip())


def trace_of(parents: Sequence[str], states: Sequence[str]) -> TraceContext | None:
    """Return the trace of a request, given all its headers of both names."""
    return read_trace(parents[0], ",".join(states)) if len(parents) == 1 else None


def header_fields(trace: TraceContext) -> dict[str, str]:
    fields = {PARENT: trace.parent}
    if trace.state:
        fields[STATE] = trace.state
    return fields


def header_lines(trace: TraceContext | None) -> bytes:
    """Return header lines, each with its CRLF."""
    if trace is None:
        return b""
    return "".join(f"{name}: {value}\r\n" for name, value in header_fields(trace).items()).encode()


def event_attributes(trace: TraceContext) -> bytes:
    """Return members of a CloudEvent in JSON, each with a comma before it."""
    members = b',"%b":"%b"' % (PARENT.encode(), trace.parent.encode())
    if trace.state:
        members += b',"%b":%b' % (STATE.encode(), _encode(trace.state))
    return members
