"""Rows that are not valid indications: fail, or write them to a file."""

import json
import os
from collections.abc import Sequence
from typing import IO, Protocol

from pyspark_pillion.answers import shortened
from pyspark_pillion.errors import InvalidIndicationsError
from pyspark_pillion.lines import Invalid

QUOTED = 5


class Rejects(Protocol):
    """Takes the invalid rows of one task attempt."""

    #: How many were taken.
    count: int

    def add(self, rows: Sequence[Invalid]) -> None:
        """Take invalid rows, or raise InvalidIndicationsError."""

    def keep(self) -> None:
        """The attempt has succeeded: what was taken becomes visible."""

    def drop(self) -> None:
        """The attempt is over; what was not kept goes."""


class FailOnInvalid:
    """Takes none: the first ones fail the task."""

    count = 0

    def add(self, rows: Sequence[Invalid]) -> None:
        quoted = [f"{_told(row)}, in {shortened(row.line)}" for row in rows[:QUOTED]]
        more = f"\n(and {len(rows) - QUOTED} more of this request)" if len(rows) > QUOTED else ""
        raise InvalidIndicationsError(
            "rows are no indications (option onInvalid can reject them instead):\n"
            + "\n".join(quoted)
            + more
        )

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        pass


def _told(row: Invalid) -> str:
    # A deliverer's reason begins with the field itself.
    named = not row.field or row.reason.startswith(row.field)
    return row.reason if named else f"{row.field}: {row.reason}"


class RejectsFile:
    """Writes them to ``DIRECTORY/NAME.ndjson``, which appears complete or not at all.

    Each line is ``{"line", "reason", "field"}``, the first being the row's own text.
    """

    def __init__(self, *, directory: str, name: str) -> None:
        self.count = 0
        self._directory = directory
        self._path = os.path.join(directory, f"{name}.ndjson")
        self._temporary = os.path.join(directory, f".{name}.ndjson.tmp")
        self._file: IO[str] | None = None

    def add(self, rows: Sequence[Invalid]) -> None:
        if self._file is None:
            os.makedirs(self._directory, exist_ok=True)
            self._file = open(self._temporary, "w", encoding="utf-8")  # noqa: SIM115
        for row in rows:
            shown = {"line": row.line, "reason": row.reason, "field": row.field}
            self._file.write(json.dumps(shown, ensure_ascii=False) + "\n")
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
