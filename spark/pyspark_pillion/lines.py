"""Arrow batches to lines of JSON, and lines to requests of bounded size.

Lines stay in Arrow arrays: joining them costs a tenth of what Python strings would. A line never
holds a newline and never is blank, since an answer names lines by their number.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_pillion.errors import PillionError

#: Fields of a line beside ``class`` and ``properties``; no CIM property has such a name.
ENVELOPE = ("source", "sourceNamespace", "group", "expires")

#: Before a line whose identity is null: no JSON begins with it, so it is sent nowhere.
NULL_IDENTITY = "!"
_NULL_IDENTITY = "all values of its identity are null; add a column to it, or leave the row out"

#: The columns that hold whole lines.
LINE_COLUMNS = ("value", "indication")


@dataclass(frozen=True, slots=True)
class Invalid:
    """A row that is not a valid indication; ``field`` is the invalid property, if it is known."""

    line: str
    reason: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows as lines (an Arrow string array without nulls), and the rows that cannot be lines."""

    lines: Any
    invalid: tuple[Invalid, ...] = ()


def line_column(names: Sequence[str]) -> str | None:
    """Return the name of the column that holds whole lines; None where rows are structured."""
    return names[0] if len(names) == 1 and names[0] in LINE_COLUMNS else None


def text_lines(batch: Any) -> Lines:
    """Read lines from a batch with one string column of JSON objects."""
    column = batch.column(0)
    if not len(column):
        return Lines(column)
    plain = column.null_count == 0 and pc.all(pc.starts_with(column, "{")).as_py()
    if plain and not _has_newline(column):
        return Lines(column)
    return _normalised(column.to_pylist(), column.type)


def _has_newline(column: Any) -> bool:
    # Over the raw buffer: a search line by line takes twenty times as long. The buffer of a slice
    # may have a newline of other rows; that only costs time.
    data = column.buffers()[2]
    return data is not None and b"\n" in data.to_pybytes()


def _normalised(texts: Sequence[str | None], kind: Any) -> Lines:
    """Replace newlines: they are only white space between the tokens of JSON."""
    kept: list[str] = []
    invalid: list[Invalid] = []
    for text in texts:
        line = (text or "").replace("\r", " ").replace("\n", " ").strip()
        if line.startswith(NULL_IDENTITY):
            line = line.removeprefix(NULL_IDENTITY)
            invalid.append(Invalid(line, _NULL_IDENTITY, "identity"))
        elif line:
            kept.append(line)
        else:
            invalid.append(Invalid("" if text is not None else "null", "the row holds no text"))
    return Lines(pa.array(kept, kind), tuple(invalid))


class ValueRefusedError(PillionError, ValueError):
    """A value that JSON or CIM cannot hold."""


def structured_lines(batch: Any, *, class_name: str, columns: Mapping[str, str]) -> Lines:
    """Make lines of columns, which ``columns`` maps to property names where they differ.

    Nulls are omitted. A row with NaN or infinity is invalid: JSON has neither.
    """
    names = [columns.get(name, name) for name in batch.schema.names]
    values = [
        _values(column, rfc3339=name in ENVELOPE)
        for name, column in zip(names, batch.columns, strict=True)
    ]
    start = {"class": class_name}
    kept: list[str] = []
    invalid: list[Invalid] = []
    for row in zip(*values, strict=True):
        try:
            kept.append(_line(start, names, row))
        except ValueRefusedError as error:
            shown = json.dumps(dict(zip(names, row, strict=True)), default=str, ensure_ascii=False)
            invalid.append(Invalid(shown, str(error)))
    return Lines(pa.array(kept, pa.large_string()), tuple(invalid))


def _line(start: Mapping[str, str], names: Sequence[str], row: Sequence[Any]) -> str:
    line: dict[str, Any] = dict(start)
    properties: dict[str, Any] = {}
    for name, value in zip(names, row, strict=True):
        if value is None:
            continue
        try:
            found = _plain(value)
        except ValueRefusedError as error:
            raise ValueRefusedError(f"{name} {error}") from None
        (line if name in ENVELOPE else properties)[name] = found
    line["properties"] = properties
    return json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueRefusedError(f"is {value}, which no CIM real holds")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value


def _values(column: Any, *, rfc3339: bool) -> Sequence[Any]:
    if pa.types.is_timestamp(column.type):
        column = (_rfc3339 if rfc3339 else cim_datetimes)(column)
    found: Sequence[Any] = column.to_pylist()
    return found


def cim_datetimes(column: Any) -> Any:
    """Turn timestamps with a zone into CIM datetime text in UTC (DSP0004 5.2.4)."""
    return pc.strftime(_utc(column), format="%Y%m%d%H%M%S+000")


def _rfc3339(column: Any) -> Any:
    return pc.strftime(_utc(column), format="%Y-%m-%dT%H:%M:%SZ")


def _utc(column: Any) -> Any:
    # Through the number, so that the session's zone and a zone database do not matter.
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))


@dataclass(frozen=True, slots=True)
class Bounds:
    rows: int
    size: int


def requests(
    batches: Iterable[Lines], *, bounds: Bounds, invalid: Callable[[Sequence[Invalid]], None]
) -> Iterator[Any]:
    """Yield arrays of lines in order, within ``bounds`` unless a single line is longer.

    Small batches are joined. Memory holds at most one batch and one request.
    """
    held: list[Any] = []
    rows = 0
    for batch in batches:
        if batch.invalid:
            invalid(batch.invalid)
        held.append(batch.lines)
        rows += len(batch.lines)
        if rows >= bounds.rows:
            lines = _joined(held)
            whole = rows - rows % bounds.rows
            yield from _cut(lines.slice(0, whole), bounds)
            held, rows = [lines.slice(whole)], rows - whole
    if rows:
        yield from _cut(_joined(held), bounds)


def _joined(held: Sequence[Any]) -> Any:
    return held[0] if len(held) == 1 else pa.concat_arrays(held)


def _cut(lines: Any, bounds: Bounds) -> Iterator[Any]:
    for start in range(0, len(lines), bounds.rows):
        yield from halves(lines.slice(start, bounds.rows), bounds.size)


def halves(lines: Any, size: int) -> Iterator[Any]:
    """Parts of at most ``size`` bytes, by halving."""
    if len(lines) > 1 and body_size(lines) > size:
        middle = len(lines) // 2
        yield from halves(lines.slice(0, middle), size)
        yield from halves(lines.slice(middle), size)
    elif len(lines):
        yield lines


def body_size(lines: Any) -> int:
    return int(pc.sum(pc.binary_length(lines)).as_py() or 0) + max(0, len(lines) - 1)


def body(lines: Any) -> bytes:
    offsets = pa.array([0, len(lines)], pa.int32())
    listed = pa.ListArray.from_arrays(offsets, lines)
    joined = pc.binary_join(listed, pa.scalar("\n", lines.type))
    return bytes(joined[0].as_buffer())
