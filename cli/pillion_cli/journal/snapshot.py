"""A journal's folder as it is at one moment, for reading; a deliverer may be running on it.

Every file is opened before anything is read, so what the deliverer removes meanwhile stays
readable.
"""

import errno
import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NoReturn

from pillion_cli.exits import CommandError, Exit
from pillion_sidecar.journal.files import Buffer, File, SystemFiles, folder_error, unreadable_error
from pillion_sidecar.journal.identities import identities_name as name_of_identities
from pillion_sidecar.journal.identities import identities_numbers
from pillion_sidecar.journal.marks import MARKS_NAME, MARKS_SIZE, SEGMENT_MARKS_SIZE
from pillion_sidecar.journal.segments import segment_name, segment_numbers

#: How often the folder is listed anew because a file was removed before it was opened.
_LISTINGS = 20


class Snapshot:
    """Segments and files of identities, opened; to be closed.

    Raises :class:`CommandError` where the folder cannot be read or is no journal.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = SystemFiles(folder)
        self._open: dict[str, tuple[File, int]] = {}
        self._others: dict[str, int] = {}
        self._marks = b""
        with ExitStack() as self._stack:
            self._take()
            # Complete; the caller closes it.
            self._stack = self._stack.pop_all()

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ------------------------------------------------------------------ queries

    def names(self) -> list[str]:
        return sorted([*self._open, *([MARKS_NAME] if self._marks else [])])

    def others(self) -> dict[str, int]:
        return self._others

    def is_folder(self, name: str) -> bool:
        """Return whether a folder stands where a file should be."""
        return (self.folder / name).is_dir()

    def size(self, name: str) -> int:
        """Return the length that a file had when it was opened, in bytes."""
        return len(self._marks) if name == MARKS_NAME else self._open[name][1]

    def open(self, name: str, *, writable: bool = False) -> File:
        """Return a file; closing it changes nothing."""
        if writable:
            _refuse()
        if name == MARKS_NAME:
            return _MarksFile(self._marks)
        return _OpenFile(*self._open[name])

    def create(self, name: str) -> File:
        _refuse()

    def rename(self, name: str, new_name: str) -> None:
        _refuse()

    def remove(self, name: str) -> None:
        _refuse()

    def sync_folder(self) -> None:
        _refuse()

    def boot_id(self) -> bytes:
        return self._files.boot_id()

    # ------------------------------------------------------------------ taking it

    def _take(self) -> None:
        for _ in range(_LISTINGS):
            marks = self._read_marks()
            names = self._list()
            wanted = [segment_name(number) for number in segment_numbers(names)]
            wanted += [name_of_identities(number) for number in identities_numbers(names)]
            try:
                self._open = {name: self._open_one(name) for name in wanted}
                self._others = {name: self._files.size(name) for name in set(names) - set(wanted)}
            except FileNotFoundError:
                # Others may have gone with it. What was pending in them lies further on by now.
                self._stack.close()
                continue
            if self._read_marks()[:SEGMENT_MARKS_SIZE] == marks[:SEGMENT_MARKS_SIZE]:
                self._marks = marks
                return
            # Segments were begun or removed meanwhile.
            self._stack.close()
        raise CommandError(f"{self.folder} changes faster than it can be read; try again")

    def _read_marks(self) -> bytes:
        try:
            with closing(self._files.open(MARKS_NAME)) as file:
                return file.read(0, MARKS_SIZE)
        except OSError:
            # A version that keeps none, a folder of that name, or a journal that cannot be read,
            # which is reported below.
            return b""

    def _list(self) -> list[str]:
        try:
            names = self._files.names()
        except FileNotFoundError as error:
            raise CommandError(
                f"there is no folder {self.folder}; name the one that pillion sidecar --journal was"
                " given",
                code=Exit.USAGE,
            ) from error
        except OSError as error:
            failure = folder_error(str(self.folder), error)
            raise CommandError(str(failure), code=Exit.USAGE) from error
        if not segment_numbers(names) and MARKS_NAME not in names:
            raise CommandError(
                f"{self.folder} is no journal: there is no segment in it; name the folder that "
                "pillion sidecar --journal was given",
                code=Exit.USAGE,
            )
        return names

    def _open_one(self, name: str) -> tuple[File, int]:
        try:
            file = self._files.open(name)
            self._stack.callback(file.close)
            return file, self._files.size(name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CommandError(str(unreadable_error(name, error)), code=Exit.USAGE) from error


class _OpenFile:
    """A file that others close, read as far as it went when it was opened."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size

    def write_through(self, offset: int, data: Buffer) -> None:
        _refuse()

    def read_cached(self, offset: int, buffer: bytearray) -> int:
        return 0

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, max(0, min(size, self._size - offset)))

    def write(self, offset: int, data: Buffer) -> None:
        _refuse()

    def sync(self) -> None:
        _refuse()

    def allocate(self, offset: int, size: int) -> None:
        _refuse()

    def truncate(self, size: int) -> None:
        _refuse()

    def is_named(self, name: str) -> NoReturn:
        _refuse()

    def close(self) -> None:
        pass


class _MarksFile(_OpenFile):
    """The marks, as they were when the segments were opened."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


def _refuse() -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
