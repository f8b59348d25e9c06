"""CIM datetimes (DSP0004 5.2.4)."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_cim.datetimes import CIMDateTime, parse_rfc3339, to_rfc3339
from support.cim import interval, moments


@pytest.mark.parametrize(
    "text",
    [
        "20261121133000.000000+000",
        "20240229000000.123456-720",
        "00000101000000.000000+000",
        "99991231235959.999999+999",
        "20261121******.******+060",
        "20261121133000.123***+000",
        "**************.******+000",
        "00000001060000.000000:000",
        "99999999235959.999999:000",
        "00000001******.******:000",
    ],
)
def test_what_dsp0004_allows_is_kept_as_it_is(text: str) -> None:
    assert CIMDateTime(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-21T13:30:00+00:00",
        "20261121133000.000000+00",
        "20261121133000.000000+0000",
        "20261321133000.000000+000",
        "20261100133000.000000+000",
        "20260230133000.000000+000",
        "20230229000000.000000+000",
        "20261121243000.000000+000",
        "20261121136000.000000+000",
        "20261121133060.000000+000",
        "20261121133000,000000+000",
        "20261121133000.00000x+000",
        "2026112113*000.000000+000",
        "2026****133000.000000+000",
        "20261121133000.***123+000",
        "00000001060000.000000:001",
        "00000001240000.000000:000",
        "٢0261121133000.000000+000",
        "20261121133000.000000+000\n",
        "x" * 10_000,
    ],
)
def test_anything_else_is_refused_in_bounded_words(text: str) -> None:
    with pytest.raises(ValueError, match="not a CIM datetime") as refusal:
        CIMDateTime(text)
    assert len(str(refusal.value)) < 300


@given(st.text(alphabet="0123456789*.+-:", min_size=25, max_size=25))
def test_every_accepted_text_converts_without_an_unexpected_exception(text: str) -> None:
    try:
        moment = CIMDateTime(text)
    except ValueError:
        return
    assert moment.compare(moment) == (0 if moment.is_exact else None)


@given(moments)
def test_a_point_in_time_survives_the_round_trip(moment: datetime) -> None:
    microseconds = (moment - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    # 1 January of the year 1 is day 1.
    assert CIMDateTime.from_datetime(moment).microseconds() == microseconds + 86_400_000_000


@given(st.timedeltas(min_value=timedelta(), max_value=timedelta(days=99_999_999)))
def test_an_interval_survives_the_round_trip(length: timedelta) -> None:
    assert interval(length).microseconds() == length // timedelta(microseconds=1)


@given(moments, moments)
def test_points_in_time_are_ordered_by_when_they_are(one: datetime, other: datetime) -> None:
    expected = (one > other) - (one < other)
    assert CIMDateTime.from_datetime(one).compare(CIMDateTime.from_datetime(other)) == expected


def test_offsets_count_in_the_order() -> None:
    noon = CIMDateTime("20261121120000.000000+000")
    assert noon.compare(CIMDateTime("20261121130000.000000+060")) == 0
    assert noon.compare(CIMDateTime("20261121120000.000000-060")) == -1
    assert noon.compare(CIMDateTime("00000101000000.000000+000")) == 1


@pytest.mark.parametrize(
    "other", ["00000001060000.000000:000", "20261121******.******+000", "20261121120000.000000+***"]
)
def test_what_cannot_be_compared_says_so(other: str) -> None:
    assert CIMDateTime("20261121120000.000000+000").compare(CIMDateTime(other)) is None


def test_a_python_datetime_needs_an_offset() -> None:
    with pytest.raises(ValueError, match="offset"):
        CIMDateTime.from_datetime(datetime(2026, 11, 21))


def test_an_offset_with_seconds_becomes_utc() -> None:
    moment = datetime(2026, 11, 21, 12, tzinfo=timezone(timedelta(seconds=30)))
    assert CIMDateTime.from_datetime(moment).text == "20261121115930.000000+000"


def test_rfc_3339_is_understood() -> None:
    expected = datetime(2026, 11, 21, 13, 30, 0, 250_000, tzinfo=UTC)
    assert (
        parse_rfc3339("2026-11-21T14:30:00.25+01:00").compare(CIMDateTime.from_datetime(expected))
        == 0
    )
    with pytest.raises(ValueError, match="offset"):
        parse_rfc3339("2026-11-21T14:30:00")


@given(moments)
def test_rfc_3339_tells_the_same_time_in_utc(moment: datetime) -> None:
    try:
        expected = moment.astimezone(UTC)
    except OverflowError:
        expected = None
    told = to_rfc3339(CIMDateTime.from_datetime(moment).text) if expected else None
    assert told is None or told.endswith("Z")
    assert (told and datetime.fromisoformat(told)) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("20261121143000.000000+060", "2026-11-21T13:30:00Z"),
        ("20261121133000.000123+000", "2026-11-21T13:30:00.000123Z"),
        ("00010101000000.000000+060", None),
        ("20261131000000.000000+000", None),
        ("2026112113300*.******+000", None),
        ("202611211330**.******+000", None),
        ("20261121133060.000000+000", None),
        ("20261121133000.00000x+000", None),
        ("20261121133000,000000+000", None),
        ("2026112113300٢.000000+000", None),
        ("20261121133000.000000+***", None),
        ("20261121136000.000000+000", None),
        ("00000001060000.000000:000", None),
        ("2026-11-21T13:30:00+01:00", None),
        ("", None),
    ],
)
def test_rfc_3339_says_exact_points_in_time(text: str, told: str | None) -> None:
    assert to_rfc3339(text) == told
