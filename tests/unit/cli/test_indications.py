"""Reading what is to be published."""

import io
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_cli import indications
from pillion_cli.exits import CommandError
from pillion_cli.indications import Batch, Kind, batches, kind_of


def _read(content: bytes, kind: Kind = Kind.NDJSON, *, size: int = 1000) -> Sequence[Batch]:
    return list(batches(io.BytesIO(content), kind, size=size))


def test_lines_keep_the_numbers_that_the_file_gives_them() -> None:
    (batch,) = _read(b'{"a": 1}\n\n  \r\n{"a": 2}\r\n{"a": 3}')
    assert [item.number for item in batch.items] == [1, 4, 5]
    assert batch.body() == b'{"a": 1}\n{"a": 2}\n{"a": 3}'


def test_batches_are_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indications, "MAXIMUM_BATCH", 10)
    assert [len(batch.items) for batch in _read(b"{}\n" * 7, size=3)] == [3, 3, 1]
    sizes = [len(batch.items) for batch in _read(b"123456\n12345678901234\n12\n34\n", size=3)]
    assert sizes == [1, 1, 2]


def test_a_file_is_not_read_ahead_of_its_batches() -> None:
    stream = io.BytesIO(b"{}\n" * 100)
    next(batches(stream, Kind.NDJSON, size=2))
    assert stream.tell() <= 9


def test_a_line_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indications, "MAXIMUM_LINE", 8)
    with pytest.raises(CommandError, match="line 2 is longer than 8 bytes"):
        _read(b"{}\n" + b"x" * 9 + b"\n")


def test_a_json_array_is_sent_as_lines_numbered_by_place() -> None:
    (batch,) = _read('[{"class": "A"}, {"class": "Ü"}]'.encode(), Kind.JSON)
    assert batch.kind is Kind.NDJSON
    assert [item.number for item in batch.items] == [1, 2]
    assert batch.body().decode() == '{"class": "A"}\n{"class": "Ü"}'


@pytest.mark.parametrize("kind", [Kind.JSON, Kind.CLOUD_EVENTS])
def test_cloud_events_are_sent_as_a_batch_of_themselves(kind: Kind) -> None:
    events = [{"specversion": "1.0", "id": str(n)} for n in range(3)]
    first, second = _read(json.dumps(events).encode(), kind, size=2)
    assert first.kind is Kind.CLOUD_EVENTS
    assert json.loads(first.body()) == events[:2]
    assert json.loads(second.body()) == events[2:]


def test_a_cim_xml_message_is_sent_as_it_is() -> None:
    (batch,) = _read(b'<?xml version="1.0"?>\n<CIM/>\n', Kind.CIM_XML)
    assert batch.body() == b'<?xml version="1.0"?>\n<CIM/>\n'


def test_what_is_not_json_is_refused_with_the_place() -> None:
    with pytest.raises(CommandError, match="line 2 column"):
        _read(b'[{"a": 1},\n{]', Kind.JSON)
    with pytest.raises(CommandError, match="'a' appears twice"):
        _read(b'{"a": 1, "a": 2}', Kind.JSON)
    with pytest.raises(CommandError, match="not JSON"):
        _read(b'"\xff"', Kind.JSON)


def test_the_suffix_or_the_content_type_says_what_a_file_is() -> None:
    assert kind_of("a.JSONL", None) is Kind.NDJSON
    assert kind_of("a.json", None) is Kind.JSON
    assert kind_of("a.xml", None) is Kind.CIM_XML
    assert kind_of("-", None) is Kind.NDJSON
    assert kind_of("a.json", "text/xml; charset=utf-8") is Kind.CIM_XML
    with pytest.raises(CommandError, match="'text/plain' is not one of"):
        kind_of("a.json", "text/plain")


@given(content=st.binary(), kind=st.sampled_from(Kind))
def test_any_input_is_read_or_refused(content: bytes, kind: Kind) -> None:
    try:
        read = _read(content, kind, size=2)
    except CommandError:
        return
    assert all(batch.items for batch in read)
