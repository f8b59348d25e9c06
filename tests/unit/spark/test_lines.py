"""Rows become lines of JSON, and lines become requests of bounded size; none goes missing."""

import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pillion.lines import (
    Bounds,
    Invalid,
    Lines,
    body,
    body_size,
    halves,
    line_column,
    requests,
    structured_lines,
    text_lines,
)
from support.publisher import texts


def text_batch(*rows: str | None) -> Any:
    return pa.record_batch([pa.array(rows, pa.string())], names=["value"])


def structured(**columns: Any) -> tuple[list[dict[str, Any]], tuple[Invalid, ...]]:
    arrays = {k: v if isinstance(v, pa.Array) else pa.array(v) for k, v in columns.items()}
    batch = pa.record_batch(list(arrays.values()), names=list(arrays))
    found = structured_lines(batch, class_name="CIM_AlertIndication", columns={"gust": "EventID"})
    return [json.loads(line) for line in found.lines.to_pylist()], found.invalid


def refuse(invalid: Sequence[Invalid]) -> None:
    raise AssertionError(invalid)


def collect(*batches: Lines, rows: int, size: int = 10_000) -> list[list[str]]:
    return texts(list(requests(batches, bounds=Bounds(rows, size), invalid=refuse)))


def test_one_column_named_value_or_indication_holds_lines() -> None:
    assert line_column(["value"]) == "value"
    assert line_column(["indication"]) == "indication"
    assert line_column(["EventID"]) is None
    assert line_column(["value", "EventID"]) is None


def test_lines_of_json_are_taken_as_they_are() -> None:
    found = text_lines(text_batch('{"a":1}', '{"b":2}'))

    assert found.lines.to_pylist() == ['{"a":1}', '{"b":2}']
    assert found.invalid == ()


def test_a_newline_in_json_does_not_make_two_lines_of_it() -> None:
    found = text_lines(text_batch('{"a":1}', '{\n "b":\r\n "x\u2028y"}'))

    assert body(found.lines).count(b"\n") == 1
    assert json.loads(found.lines[1].as_py()) == {"b": "x\u2028y"}


def test_rows_without_text_are_invalid_and_shift_no_line() -> None:
    found = text_lines(text_batch(None, '{"a":1}', "", " \n "))

    assert found.lines.to_pylist() == ['{"a":1}']
    assert [row.reason for row in found.invalid] == ["the row holds no text"] * 3


def test_columns_become_properties_and_nulls_are_left_out() -> None:
    lines, invalid = structured(
        EventID=["gust", None], PerceivedSeverity=pa.array([5, 6], pa.int32())
    )

    assert lines == [
        {
            "class": "CIM_AlertIndication",
            "properties": {"EventID": "gust", "PerceivedSeverity": 5},
        },
        {"class": "CIM_AlertIndication", "properties": {"PerceivedSeverity": 6}},
    ]
    assert invalid == ()


def test_a_column_can_stand_for_a_property_of_another_name() -> None:
    lines, _ = structured(gust=["high"])

    assert lines[0]["properties"] == {"EventID": "high"}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_timestamps_become_cim_datetimes_in_utc_whatever_the_sessions_zone(zone: str) -> None:
    # 02:30 on that day does not exist in New York.
    moment = datetime.datetime(2013, 3, 10, 2, 30, 0, 7, tzinfo=datetime.UTC)
    times = pa.array([moment], pa.timestamp("us", zone))

    lines, _ = structured(EventTime=times, expires=times)

    assert lines[0]["properties"]["EventTime"] == "20130310023000.000007+000"
    assert lines[0]["expires"] == "2013-03-10T02:30:00.000007Z"


def test_envelope_columns_stand_beside_the_properties() -> None:
    lines, _ = structured(source=["s"], group=["g"], sourceNamespace=["root"], EventID=["e"])

    assert lines[0] == {
        "class": "CIM_AlertIndication",
        "source": "s",
        "group": "g",
        "sourceNamespace": "root",
        "properties": {"EventID": "e"},
    }


def test_decimals_become_numbers() -> None:
    lines, _ = structured(A=pa.array([Decimal("3.00"), Decimal("2.50")], pa.decimal128(10, 2)))

    assert [line["properties"]["A"] for line in lines] == [3, 2.5]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_has_not_makes_the_row_invalid(number: float) -> None:
    lines, invalid = structured(A=[1.5, number], EventID=["good", "bad"])

    assert [line["properties"]["EventID"] for line in lines] == ["good"]
    assert invalid[0].reason.startswith("A is ")
    assert '"bad"' in invalid[0].line


def test_arrays_and_structs_are_kept_with_the_nulls_of_arrays() -> None:
    lines, invalid = structured(A=[["x", None]], B=[{"c": 1, "d": None}])

    assert lines[0]["properties"] == {"A": ["x", None], "B": {"c": 1}}
    assert invalid == ()
    assert structured(A=[[float("nan")]])[1][0].reason.startswith("A is nan")


def test_requests_hold_so_many_rows_and_small_batches_are_put_together() -> None:
    batches = [
        Lines(pa.array(part, pa.string())) for part in (["a"], ["b", "c"], [], ["d", "e", "f", "g"])
    ]

    assert collect(*batches, rows=3) == [["a", "b", "c"], ["d", "e", "f"], ["g"]]


def test_a_request_is_halved_until_it_is_short_enough() -> None:
    batch = Lines(pa.array(["a" * 10, "b" * 10, "c" * 30, "d"]))

    assert collect(batch, rows=4, size=21) == [["a" * 10, "b" * 10], ["c" * 30], ["d"]]


def test_invalid_rows_are_told_before_anything_of_their_batch_is_sent() -> None:
    told: list[Invalid] = []
    batches = [Lines(pa.array(["a"]), (Invalid("", "no"),))]

    sent = list(requests(batches, bounds=Bounds(5, 100), invalid=told.extend))

    assert (texts(sent), told) == ([["a"]], [Invalid("", "no")])


def test_nothing_makes_no_request() -> None:
    assert collect(rows=5) == []
    assert collect(text_lines(text_batch()), rows=5) == []


json_texts = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.lists(st.dictionaries(st.text(), json_texts, max_size=3), max_size=8), max_size=5),
    st.integers(1, 7),
    st.integers(1, 200),
    st.sampled_from([None, 1]),
)
def test_every_row_arrives_once_and_in_order(
    batches: list[list[dict[str, Any]]], rows: int, size: int, indent: int | None
) -> None:
    given_rows = [row for batch in batches for row in batch]
    lines = [
        text_lines(text_batch(*(json.dumps(row, ensure_ascii=False, indent=indent) for row in b)))
        for b in batches
    ]

    sent = list(requests(lines, bounds=Bounds(rows, size), invalid=refuse))
    bodies = [body(part) for part in sent]

    assert [json.loads(line) for b in bodies for line in b.split(b"\n")] == given_rows
    assert all(len(part) <= rows for part in sent)
    assert all(len(part) == 1 or body_size(part) <= size for part in sent)
    assert [len(b) for b in bodies] == [body_size(part) for part in sent]


@given(st.lists(st.text(), max_size=20), st.integers(1, 50))
def test_halving_keeps_every_line(lines: list[str], size: int) -> None:
    parts = texts(list(halves(pa.array(lines, pa.string()), size)))

    assert [line for part in parts for line in part] == lines


moments = st.datetimes(
    min_value=datetime.datetime(1, 1, 2),
    max_value=datetime.datetime(9999, 12, 30),
    timezones=st.sampled_from([datetime.UTC, ZoneInfo("America/New_York")]),
)


@given(moments)
def test_any_moment_keeps_its_microseconds(moment: datetime.datetime) -> None:
    lines, _ = structured(EventTime=pa.array([moment], pa.timestamp("us", "America/New_York")))

    text = lines[0]["properties"]["EventTime"]
    assert len(text) == 25
    utc = moment.astimezone(datetime.UTC)
    assert text == f"{utc.year:04d}" + utc.strftime("%m%d%H%M%S.%f") + "+000"
