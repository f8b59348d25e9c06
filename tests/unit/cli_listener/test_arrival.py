"""Bodies that are indications, and bodies that are not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_cli.listener.arrivals import Arrival, ArrivalError, read_cloud_events
from pillion_cli.listener.sequence import SequenceIdentifier

EVENT = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}


def event(properties: dict[str, Any]) -> bytes:
    data = {"class": "CIM_AlertIndication", "properties": properties}
    return json.dumps({**EVENT, "data": data}).encode()


def read_one(body: bytes, *, path: str) -> Arrival:
    (arrival,) = read_cloud_events(body, is_batch=False, path=path)
    return arrival


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"SequenceContext": "A", "SequenceNumber": 7}, SequenceIdentifier("A", 7)),
        ({"sequencecontext": "A", "SEQUENCENUMBER": "7"}, SequenceIdentifier("A", 7)),
        (
            {"SequenceContext": "A", "SequenceNumber": {"type": "sint64", "value": 7}},
            SequenceIdentifier("A", 7),
        ),
        ({"SequenceContext": "A"}, None),
        ({"SequenceContext": None, "SequenceNumber": 7}, None),
        ({}, None),
    ],
)
def test_the_sequence_is_found(
    properties: dict[str, Any], expected: SequenceIdentifier | None
) -> None:
    assert read_one(event(properties), path="/").sequence() == expected


@pytest.mark.parametrize(
    ("context", "number"),
    [("A", "x"), ("A", 1.5), ("A", True), ("A", 2**63), (5, 1), ("A", "9" * 19)],
)
def test_a_sequence_of_another_type_is_refused(context: Any, number: Any) -> None:
    arrival = read_one(event({"SequenceContext": context, "SequenceNumber": number}), path="/")
    with pytest.raises(ArrivalError, match="Sequence"):
        arrival.sequence()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "no specversion"),
        (json.dumps({**EVENT, "id": ""}).encode(), "no id"),
        (json.dumps({**EVENT, "specversion": "0.3"}).encode(), "only 1.0"),
        (json.dumps(EVENT).encode(), "no indication"),
        (json.dumps({**EVENT, "data": {"class": 1, "properties": {}}}).encode(), "no indication"),
        (json.dumps({**EVENT, "data": {"class": "x", "properties": []}}).encode(), "no indication"),
    ],
)
def test_what_is_no_indication_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(ArrivalError, match=reason):
        read_one(body, path="/")


def test_a_batch_is_read_in_order_and_refused_as_a_whole() -> None:
    first, second = (event({"AlertType": number}).decode() for number in (1, 2))
    arrivals = read_cloud_events(f"[{first},{second}]".encode(), is_batch=True, path="/")
    assert [arrival.properties["AlertType"] for arrival in arrivals] == [1, 2]
    with pytest.raises(ArrivalError, match="no JSON object"):
        read_cloud_events(f"[{first},5]".encode(), is_batch=True, path="/")
    with pytest.raises(ArrivalError, match="no JSON array"):
        read_cloud_events(first.encode(), is_batch=True, path="/")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    body=st.binary(max_size=60)
    | json_values.map(lambda value: json.dumps({**EVENT, "data": value}).encode())
    | st.fixed_dictionaries({"SequenceContext": json_values, "SequenceNumber": json_values}).map(
        event
    )
)
def test_nothing_but_an_arrival_error_comes_out(body: bytes) -> None:
    try:
        arrival = read_one(body, path="/")
        found = arrival.sequence()
    except ArrivalError as error:
        message = str(error)
        assert message
    else:
        assert found is None or found.number in range(-(2**63), 2**63)
