"""The shorter way decides as the complete one does, and no input raises anything unexpected."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pillion_sidecar.intake.bodies import LineDecoder
from pillion_sidecar.intake.decoding import (
    Decoded,
    LineError,
    decode_object,
    parse_expires,
    parse_json,
)
from pillion_sidecar.intake.fast_path import FastPath
from support.intake import SCHEMA, alert

FAST = FastPath(SCHEMA)
DECODER = LineDecoder(SCHEMA, maximum_line_bytes=1 << 20)

_TEXT = st.text(max_size=8) | st.sampled_from(
    ["20261121133000.000000+000", "20260229000000.000000+000", "20241231235959.999999-720", "a:b"]
)
_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**63 - 1, 2**63, 2**64 - 1]),
    st.floats(allow_nan=True, allow_infinity=True),
    _TEXT,
    st.lists(_TEXT | st.none() | st.integers(), max_size=3),
    st.fixed_dictionaries({"type": st.sampled_from(["uint16", "string"]), "value": _TEXT}),
)
_NAMES = st.sampled_from(
    [
        *SCHEMA.get("CIM_AlertIndication").types,  # type: ignore[union-attr]
        "alerttype",
        "Vendor_X",
    ]
)
_ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "source": _TEXT,
        "sourceNamespace": _TEXT,
        "group": _TEXT,
        "expires": _TEXT | st.just("2026-11-21T13:30:00Z"),
        "sequence": st.sampled_from([0, 1, -1, 2**63 - 2, 2**63 - 1, 2**64, 1.0, True, None, "1"]),
        "last": st.booleans() | st.none(),
        "ordered": st.booleans() | st.just(1),
        "groupExpires": _TEXT | st.sampled_from(["2026-11-21T13:30:00Z", "2026-11-21T13:30:01Z"]),
        "groupMaxIdleSeconds": st.sampled_from(
            [60, 0.5, 0, -1, 2_592_001, True, 10**400, None, "60"]
        ),
    },
)


@st.composite
def written_lines(draw: st.DrawFn) -> bytes:
    """Lines in any spelling: nearly valid, with members in any order, and some given twice."""
    properties = dict(alert("x")["properties"])
    properties.update(draw(st.dictionaries(_NAMES, _VALUES, max_size=3)))
    envelope = draw(_ENVELOPES)
    ascii_only = draw(st.booleans())
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :"), (",", "\t:")]))

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=ascii_only, separators=separators)

    members = [(text(name), text(value)) for name, value in properties.items()]
    members += draw(st.lists(st.sampled_from(members), max_size=1))
    comma, colon = separators
    inner = "{" + comma.join(name + colon + value for name, value in members) + "}"
    outer = [('"class"', '"CIM_AlertIndication"'), ('"properties"', inner)]
    outer += [(text(name), text(value)) for name, value in envelope.items()]
    outer = draw(st.permutations(outer))
    written = "{" + comma.join(name + colon + value for name, value in outer) + "}"
    return written.encode("utf-8", "surrogatepass")


def complete(line: bytes) -> Decoded | LineError:
    try:
        return decode_object(parse_json(line), schema=SCHEMA)
    except LineError as error:
        return error


@given(written_lines())
@example(json.dumps(alert("x", Message="a:b", EventID='"quoted": text')).encode())
@example(
    b'{"class":"CIM_AlertIndication","properties":{"AlertType" :1,"AlertType":1,'
    b'"PerceivedSeverity":5,"ProbableCause":52}}'
)
def test_the_shorter_way_gives_what_the_complete_one_gives(line: bytes) -> None:
    slow = complete(line)
    try:
        fast = FAST.decode(line)
    except LineError:
        assert isinstance(slow, LineError)
        return
    if fast is None:
        return
    assert isinstance(slow, Decoded), slow
    assert fast.instance() == slow.instance()
    assert json.loads(fast.body) == json.loads(slow.body)
    for name in (
        "class_name",
        "identifier",
        "source",
        "source_namespace",
        "group",
        "expires",
        "member",
    ):
        assert getattr(fast, name) == getattr(slow, name), name


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(line: bytes) -> None:
    with pytest.raises(LineError):
        DECODER.decode(line)


@given(written_lines(), st.integers(0, 400), st.binary(max_size=3))
def test_a_damaged_line_is_decoded_or_refused(line: bytes, at: int, damage: bytes) -> None:
    try:
        decoded = DECODER.decode(line[:at] + damage + line[at + 1 :])
    except LineError:
        return
    assert json.loads(decoded.body).keys() == {"class", "properties"}


@pytest.mark.parametrize("beside", [{}, {"source": "s"}, {"sourceNamespace": "root/cimv2"}])
def test_a_body_begins_and_ends_with_its_braces(beside: dict[str, str]) -> None:
    line = json.dumps(alert("x", Message="a:b") | beside).encode()
    for written in (line + b" ", b"\t " + line, line + b"\r", b" " + line + b"  "):
        decoded = FAST.decode(written)
        assert decoded is not None
        assert (decoded.body[:1], decoded.body[-1:]) == (b"{", b"}")


@pytest.mark.parametrize(
    "line",
    [
        json.dumps(alert("x")),
        json.dumps(alert("x"), separators=(",", ":")),
        json.dumps(alert("x", IndicationTime="20240131000000.000000+060", EventID="a:b")),
        json.dumps(alert("ü", Message='an "ordinary" quote'), ensure_ascii=False),
        json.dumps(alert("x") | {"source": "s", "expires": "2026-11-21T13:30:00Z"}),
        json.dumps(alert("x") | {"group": "g", "sequence": 3, "ordered": True, "last": False}),
        json.dumps(
            alert("x")
            | {
                "group": "g",
                "sequence": 0,
                "groupExpires": "2026-11-21T13:30:00Z",
                "groupMaxIdleSeconds": 60,
            }
        ),
    ],
)
def test_usual_lines_take_the_shorter_way(line: str) -> None:
    assert FAST.decode(line.encode()) is not None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01t01:00:00.25+01:00", 0.25),
    ],
)
def test_expires_is_an_rfc_3339_time(text: str, seconds: float) -> None:
    assert parse_expires(text) == seconds


@pytest.mark.parametrize("text", ["", "1970-01-01", "1970-01-01T00:00:10", "2026-13-01T00:00:00Z"])
def test_what_is_no_rfc_3339_time_is_refused(text: str) -> None:
    with pytest.raises(LineError, match="RFC 3339"):
        parse_expires(text)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        (b"class: CIM_AlertIndication", "write one JSON object a line"),
        (b"<INSTANCE/>", "write one JSON object a line"),
        (b'{"class": "a"}\n{"class": "b"}', "send several lines as application/x-ndjson"),
        (b'{"clas": "CIM_AlertIndication"}', "did you mean class?"),
    ],
)
def test_a_line_that_is_none_is_refused_with_a_remedy(line: bytes, remedy: str) -> None:
    refused = complete(line)
    assert isinstance(refused, LineError)
    assert remedy in str(refused)


@pytest.mark.parametrize(
    ("member", "remedy"),
    [
        ("AlertType", "put AlertType into properties"),
        ("alerttyp", "put AlertType into properties"),
        ("clas", "did you mean class?"),
        ("x" * 5000, "use class, expires, group, "),
    ],
)
def test_a_member_that_is_none_is_told_with_what_was_meant(member: str, remedy: str) -> None:
    line = {"class": "CIM_AlertIndication", member: 5, "properties": {}}
    with pytest.raises(LineError) as refusal:
        decode_object(line, schema=SCHEMA)
    assert str(refusal.value).startswith(f"unknown member {member[:40]!r}; {remedy}")
