"""The engines that could keep a journal, each behind the same few calls.

All keep the same records (``journal.records``), by id. Two of them are no part of Pillion and need
not be there: :func:`open_store` raises ImportError then.
"""

import importlib
import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from pillion_sidecar.journal.files import File, SystemFiles
from pillion_sidecar.journal.records import (
    DELIVERED,
    Kind,
    Settlement,
    encode_commit,
    encode_settlements,
    read_frame,
)

SEGMENT_BYTES = 16 << 20
#: What a record is taken to have where what is live is estimated.
RECORD_BYTES = 640
#: How much of a segment is read at a time.
CHUNK_BYTES = 1 << 20
#: Of the maps and bounds that an engine wants to know; more than any run here needs.
MOST_BYTES = 16 << 30


class Store(Protocol):
    """An engine. What ``append`` and ``settle`` took is on disk when they return."""

    def append(self, first: int, records: Sequence[bytes]) -> None:
        """Keep records; their ids are ``first`` and those that follow."""

    def settle(self, settled: Sequence[tuple[int, int]]) -> None:
        """Forget records: destination, id."""

    def records(self) -> Iterator[bytes | memoryview]:
        """Give every record that is kept, in the order of their ids."""

    def close(self) -> None:
        """Release it."""


class SegmentStore:
    """Pillion's own: records appended to segment files, settlements among them.

    A segment goes when nothing in it is pending. Where that leaves more than twice the live bytes
    and one segment, what is pending in the oldest one is written again at the end.
    """

    def __init__(self, folder: Path) -> None:
        self._files = SystemFiles(folder)
        self._number = len(self._files.names()) - 1
        self._commit = 0
        self._at = 0
        self._file: File
        #: For each record, by its id less ``_first``: its segment, its offset there, if pending.
        self._first = 0
        self._segments = array("I")
        self._offsets = array("I")
        self._live = bytearray()
        #: For each segment, oldest first: records that are pending.
        self._pending: dict[int, int] = {}
        self._begin()

    def append(self, first: int, records: Sequence[bytes]) -> None:
        self._first = self._first or first
        at = self._write(records)
        for record in records:
            self._segments.append(self._number)
            self._offsets.append(at)
            at += len(record)
        self._live += b"\1" * len(records)
        self._pending[self._number] += len(records)
        self._at = at

    def settle(self, settled: Sequence[tuple[int, int]]) -> None:
        record = encode_settlements([Settlement(place, DELIVERED, one) for place, one in settled])
        self._at = self._write([record]) + len(record)
        for _, one in settled:
            index = one - self._first
            self._live[index] = 0
            self._pending[self._segments[index]] -= 1
        self._reclaim()

    def records(self) -> Iterator[bytes | memoryview]:
        for name in self._files.names():
            yield from _indications(self._files.open(name))

    def close(self) -> None:
        self._file.truncate(self._at)
        self._file.close()

    def _write(self, records: Sequence[bytes]) -> int:
        """Write behind a commit record; return where the first record lies."""
        self._commit += 1
        commit = encode_commit(self._commit, 0.0)
        data = b"".join((commit, *records))
        if self._at + len(data) > SEGMENT_BYTES:
            self._file.truncate(self._at)
            self._file.sync()
            self._file.close()
            self._begin()
        self._file.write(self._at, data)
        self._file.sync()
        return self._at + len(commit)

    def _begin(self) -> None:
        self._number += 1
        self._file = self._files.create(f"{self._number:016x}.segment")
        self._file.allocate(0, SEGMENT_BYTES)
        self._files.sync_folder()
        self._pending[self._number] = 0
        self._at = 0

    def _reclaim(self) -> None:
        """Remove segments from the oldest on while they hold nothing, or must not any more."""
        while len(self._pending) > 1:
            oldest = next(iter(self._pending))
            if self._pending[oldest]:
                live = sum(self._pending.values()) * RECORD_BYTES
                if (len(self._pending) - 1) * SEGMENT_BYTES <= 2 * live:
                    return
                self._copy_forward(oldest)
            self._files.remove(f"{oldest:016x}.segment")
            del self._pending[oldest]

    def _copy_forward(self, segment: int) -> None:
        moved = [
            index
            for index, alive in enumerate(self._live)
            if alive and self._segments[index] == segment
        ]
        file = self._files.open(f"{segment:016x}.segment")
        records = [_record_at(file, self._offsets[index]) for index in moved]
        file.close()
        at = self._write(records)
        for index, record in zip(moved, records, strict=True):
            self._segments[index], self._offsets[index] = self._number, at
            at += len(record)
        self._pending[self._number] += len(moved)
        self._at = at


def _record_at(file: File, offset: int) -> bytes:
    data = file.read(offset, 8192)
    frame = read_frame(data, 0, len(data))
    assert frame is not None
    return data[: frame.size]


def _indications(file: File) -> Iterator[memoryview]:
    """Every INDICATION of a segment, each checked."""
    offset, rest = 0, b""
    while chunk := file.read(offset, CHUNK_BYTES):
        offset += len(chunk)
        data = memoryview(rest + chunk)
        at, end = 0, len(data)
        while (frame := read_frame(data, at, end)) is not None:
            if frame.kind == Kind.INDICATION:
                yield data[at : at + frame.size]
            at += frame.size
        rest = bytes(data[at:])
    file.close()


class SqliteStore:
    """SQLite: a table by id in write-ahead mode, each transaction synchronised."""

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "journal", isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS record (id INTEGER PRIMARY KEY, content BLOB NOT NULL)"
        )

    def append(self, first: int, records: Sequence[bytes]) -> None:
        self._change("INSERT INTO record VALUES (?, ?)", list(enumerate(records, start=first)))

    def settle(self, settled: Sequence[tuple[int, int]]) -> None:
        self._change("DELETE FROM record WHERE id = ?", [(one,) for _, one in settled])

    def records(self) -> Iterator[bytes]:
        for (content,) in self._database.execute("SELECT content FROM record ORDER BY id"):
            yield content

    def close(self) -> None:
        self._database.close()

    def _change(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(statement, rows)
        self._database.execute("COMMIT")


class LmdbStore:
    """LMDB: a B+ tree in a memory map, each transaction synchronised."""

    def __init__(self, folder: Path) -> None:
        lmdb: Any = importlib.import_module("lmdb")
        self._environment = lmdb.open(str(folder), map_size=MOST_BYTES)

    def append(self, first: int, records: Sequence[bytes]) -> None:
        with self._environment.begin(write=True) as transaction:
            rows = [(_key(one), record) for one, record in enumerate(records, start=first)]
            transaction.cursor().putmulti(rows, append=True)

    def settle(self, settled: Sequence[tuple[int, int]]) -> None:
        with self._environment.begin(write=True) as transaction:
            for _, one in settled:
                transaction.delete(_key(one))

    def records(self) -> Iterator[memoryview]:
        with self._environment.begin(buffers=True) as transaction:
            for _, value in transaction.cursor():
                yield value

    def close(self) -> None:
        self._environment.close()


class RocksStore:
    """RocksDB by rocksdict: a log-structured merge tree, each write synchronised."""

    def __init__(self, folder: Path) -> None:
        self._module: Any = importlib.import_module("rocksdict")
        options = self._module.Options(raw_mode=True)
        options.create_if_missing(True)
        self._database = self._module.Rdict(str(folder / "journal"), options)
        self._synchronised = self._module.WriteOptions()
        self._synchronised.sync = True

    def append(self, first: int, records: Sequence[bytes]) -> None:
        batch = self._module.WriteBatch(raw_mode=True)
        for one, record in enumerate(records, start=first):
            batch.put(_key(one), record)
        self._database.write(batch, self._synchronised)

    def settle(self, settled: Sequence[tuple[int, int]]) -> None:
        batch = self._module.WriteBatch(raw_mode=True)
        for _, one in settled:
            batch.delete(_key(one))
        self._database.write(batch, self._synchronised)

    def records(self) -> Iterator[bytes]:
        yield from self._database.values()

    def close(self) -> None:
        self._database.close()


def _key(record_id: int) -> bytes:
    return record_id.to_bytes(8, "big")


STORES: dict[str, Callable[[Path], Store]] = {
    "own segments": SegmentStore,
    "SQLite FULL": SqliteStore,
    "LMDB": LmdbStore,
    "RocksDB": RocksStore,
}
