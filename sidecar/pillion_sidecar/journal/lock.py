"""The lock of a journal's folder: one process at a time has it open. Held until it is released or
the process ends, however it ends."""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from pillion_sidecar.journal.errors import JournalError, LockedError, folder_error

LOCK_NAME = "lock"
#: A process id and a line end.
_MAXIMUM_HOLDER = 32


class FolderLock:
    """The lock, held."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let another process have the folder. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def open_folder(folder: Path) -> FolderLock:
    """Make the folder where its parent exists, and lock it.

    Raises FolderError, LockedError.
    """
    try:
        _make(folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(folder / LOCK_NAME, flags, 0o600)
    except FileExistsError as error:
        raise folder_error(
            str(folder), NotADirectoryError(errno.ENOTDIR, "Not a directory")
        ) from error
    except OSError as error:
        raise folder_error(str(folder), error) from error
    try:
        _take(descriptor, folder)
    except JournalError:
        os.close(descriptor)
        raise
    return FolderLock(descriptor)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    # After a power cut the folder is there as surely as what it holds.
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, _MAXIMUM_HOLDER, 0).decode("ascii", "replace").strip()
        raise LockedError(
            f"journal folder {str(folder)!r} is in use by process {holder or 'unknown'}; "
            "stop that one, or name another folder"
        ) from error
    except OSError as error:
        raise folder_error(str(folder), error) from error
    # Only told to people: what holds the lock is the open file. A full disk leaves it out.
    told = f"{os.getpid()}\n".encode("ascii")
    with suppress(OSError):
        os.pwrite(descriptor, told, 0)
        os.ftruncate(descriptor, len(told))
