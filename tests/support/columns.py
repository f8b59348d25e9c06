"""What compact entries take."""

from array import array

from pillion_sidecar.delivery.compact_entries import CompactEntries, _Block, _Loose, _Narrow


def column_bytes(entries: CompactEntries) -> int:
    """Bytes of all columns."""
    size = 0
    for part in (*entries._blocks, entries._last):
        names = _Block.__slots__ if isinstance(part, _Block) else _Loose.__slots__
        for column in (getattr(part, name) for name in names):
            values = column.values if isinstance(column, _Narrow) else column
            size += len(values) * values.itemsize if isinstance(values, array) else 0
    return size
