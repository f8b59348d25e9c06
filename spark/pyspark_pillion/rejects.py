"""Where the invalid rows of a task attempt go: into the message of its commit, or to a file."""

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Protocol

import pyarrow.fs

from pyspark_pillion.deliverer import shortened
from pyspark_pillion.errors import InvalidIndicationsError
from pyspark_pillion.lines import Invalid

#: Maximum invalid rows that are quoted, of a task and of a save.
QUOTED = 5
#: Maximum reasons that are counted apart, of a task and of a save.
REASONS = 20
_OTHERS = "other reasons"
#: Bytes of rejects held in memory before they go to a temporary file.
_IN_MEMORY = 1024 * 1024
#: pyarrow's types of object stores: there a directory is only a part of a name.
_WITHOUT_DIRECTORIES = frozenset({"s3", "gcs", "abfs"})


@dataclass(slots=True)
class Summary:
    """Invalid rows: how many, for which reasons, and some of them. Pickled, and bounded."""

    count: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    quoted: list[str] = field(default_factory=list)

    def add(self, rows: Sequence[Invalid]) -> None:
        self.count += len(rows)
        for row in rows:
            if len(self.quoted) < QUOTED:
                self.quoted.append(f"{_told(row)}, in {shortened(row.line)}")
            self._count(shortened(_told(row)), 1)

    def merge(self, other: "Summary") -> None:
        self.count += other.count
        self.quoted += other.quoted[: QUOTED - len(self.quoted)]
        for reason, count in other.reasons.items():
            self._count(reason, count)

    def _count(self, reason: str, count: int) -> None:
        if reason not in self.reasons and len(self.reasons) >= REASONS:
            reason = _OTHERS
        self.reasons[reason] = self.reasons.get(reason, 0) + count

    def check(self, *, where: str) -> None:
        """Raises InvalidIndicationsError unless all rows were valid."""
        if not self.count:
            return
        reasons = [f"{count} x {why}" for why, count in Counter(self.reasons).most_common()]
        raise InvalidIndicationsError(
            f"{self.count} rows of the {where} are no indications; the others are published"
            " (option onInvalid can reject them instead):\n"
            + "\n".join(reasons)
            + "\nfor example:\n"
            + "\n".join(self.quoted)
        )


def _told(row: Invalid) -> str:
    # A deliverer's reason begins with the field itself.
    named = not row.field or row.reason.startswith(row.field)
    return row.reason if named else f"{row.field}: {row.reason}"


class Rejects(Protocol):
    """Receives the invalid rows of one task attempt."""

    #: Rows that were written away.
    count: int
    #: Rows that fail the save.
    summary: Summary

    def add(self, rows: Sequence[Invalid]) -> None: ...

    def keep(self) -> None:
        """Publish the rows, at the success of the attempt."""

    def drop(self) -> None:
        """Delete rows that were not kept, at the end of the attempt."""


class FailAtCommit:
    """Collects invalid rows for the driver, which fails the save once: a task that failed for them
    would run again for nothing."""

    def __init__(self) -> None:
        self.count = 0
        self.summary = Summary()

    def add(self, rows: Sequence[Invalid]) -> None:
        self.summary.add(rows)

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        pass


def _rows(rows: Sequence[Invalid]) -> str:
    shown = [{"line": row.line, "reason": row.reason, "field": row.field} for row in rows]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in shown)


class RejectsFile:
    """Writes ``DIRECTORY/NAME.ndjson`` atomically.

    Each line is ``{"line", "reason", "field"}``, with the text of the row as ``line``.
    """

    def __init__(self, *, directory: str, name: str) -> None:
        self.count = 0
        self.summary = Summary()
        self._directory = directory
        self._path = os.path.join(directory, f"{name}.ndjson")
        self._temporary = os.path.join(directory, f".{name}.ndjson.tmp")
        self._file: IO[str] | None = None

    def add(self, rows: Sequence[Invalid]) -> None:
        if self._file is None:
            os.makedirs(self._directory, exist_ok=True)
            self._file = open(self._temporary, "w", encoding="utf-8")  # noqa: SIM115
        self._file.write(_rows(rows))
        self.count += len(rows)

    def keep(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
            os.replace(self._temporary, self._path)

    def drop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            os.unlink(self._temporary)


class RejectsObject:
    """Writes the same to a file system of pyarrow, such as an object store, where a file appears
    when it is closed. Nothing is there before the attempt has succeeded."""

    def __init__(self, *, find: Callable[[], tuple[Any, str]], name: str) -> None:
        """``find`` returns the file system and the directory; it may ask the network."""
        self.count = 0
        self.summary = Summary()
        self._find = find
        self._name = name
        self._file: Any = None

    def add(self, rows: Sequence[Invalid]) -> None:
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._file.write(_rows(rows).encode())
        self.count += len(rows)

    def keep(self) -> None:
        if self._file is None:
            return
        self._file.seek(0)
        system, directory = self._find()
        if system.type_name not in _WITHOUT_DIRECTORIES:
            system.create_dir(directory, recursive=True)
        path = f"{directory.rstrip('/')}/{self._name}.ndjson"
        with system.open_output_stream(path) as stream:
            shutil.copyfileobj(self._file, stream)
        self.drop()

    def drop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def rejects_at(path: str | None, *, name: str) -> Rejects:
    """Return where the invalid rows of one task attempt go: ``path`` is option rejectsPath."""
    if path is None:
        return FailAtCommit()
    if "://" not in path:
        return RejectsFile(directory=path, name=name)
    return RejectsObject(find=partial(pyarrow.fs.FileSystem.from_uri, path), name=name)
