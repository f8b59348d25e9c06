"""Reads what a store needs from the journal's own folder."""

from collections.abc import Callable
from functools import partial

from pillion_sidecar.journal.files import File, Files
from pillion_sidecar.journal.identities import identities_name
from pillion_sidecar.journal.ports import Worker
from pillion_sidecar.journal.records import FRAME
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    MAXIMUM_NUMBER,
    claimed_size,
    segment_name,
    segment_of,
)
from pillion_sidecar.stores.tail import whole_records


class FolderReader:
    """A ``LogReader``. Its worker also removes the segments, so that none goes during a read."""

    def __init__(self, files: Files, *, worker: Worker) -> None:
        self._files = files
        self._worker = worker

    def read(self, position: int, size: int, done: Callable[[bytes], None]) -> None:
        work = partial(_read, self._files, position, size)
        self._worker.submit(work, done, lambda _: done(b""))

    def identities(self, number: int, done: Callable[[bytes], None]) -> None:
        self._worker.submit(
            partial(_read_identities, self._files, number), done, lambda _: done(b"")
        )


def _read_identities(files: Files, number: int) -> bytes:
    name = identities_name(number)
    file = files.open(name)
    try:
        return file.read(0, files.size(name))
    finally:
        file.close()


def _read(files: Files, position: int, size: int) -> bytes:
    number, offset = segment_of(position)
    file = files.open(segment_name(number))
    try:
        data = file.read(offset, size)
        end = whole_records(position, data, size)
        return data[:end] if end else _long_record(file, offset)
    finally:
        file.close()


def _long_record(file: File, offset: int) -> bytes:
    """Return one record, with the header if it is the first."""
    begin = offset or HEADER_SIZE
    frame = file.read(begin, FRAME.size)
    size = claimed_size(frame, 0, MAXIMUM_NUMBER) if len(frame) == FRAME.size else None
    return b"" if size is None else file.read(offset, begin - offset + size)
