"""The files of a journal's folder: all that the journal does to a disk, and nothing else does.

Names are relative to the folder. Every call may raise OSError, and blocks; a test stands in files
that crash, tear and reorder.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeAlias
from uuid import UUID

Buffer: TypeAlias = bytes | bytearray | memoryview
#: A call that this file system, or this machine, does not know.
_NOT_HERE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
LOCK_NAME = "lock"
#: A process id and a line end.
_MAXIMUM_HOLDER = 32


class JournalError(Exception):
    """The journal's folder cannot be used as it is.

    Each message names the folder or file and the remedy.
    """


class FolderError(JournalError):
    """The folder is missing, is none, or must not be written."""


class LockedError(JournalError):
    """Another process has the journal open."""


class VersionError(JournalError):
    """The journal was written by a newer version."""


class MixedError(JournalError):
    """The folder holds files of more than one journal."""


class UnreadableError(JournalError):
    """The disk failed while the journal was opened."""


_REMEDIES = {
    errno.ENOENT: "make its parent folder first",
    errno.ENOTDIR: "name a folder, not a file",
    errno.EACCES: "let the user that the deliverer runs as read, write and search it",
    errno.EPERM: "let the user that the deliverer runs as read, write and search it",
    errno.EROFS: "it is on a read-only file system; mount that writable or name another folder",
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the disk quota is used up; make room",
}


def folder_error(folder: str, error: OSError) -> FolderError:
    """Return what to say of a folder that cannot be opened."""
    remedy = _REMEDIES.get(error.errno or 0, "see to the disk or name another folder")
    return FolderError(f"journal folder {folder!r}: {error.strerror or error}; {remedy}")


def unreadable_error(name: str, error: OSError) -> UnreadableError:
    """Return what to say of a file that could not be read or repaired."""
    remedy = _REMEDIES.get(error.errno or 0, "see to the disk")
    return UnreadableError(f"journal file {name!r}: {error.strerror or error}; {remedy}")


def version_error(name: str, version: int, known: int) -> VersionError:
    """Return what to say of a file that a newer version wrote."""
    return VersionError(
        f"journal file {name!r} has layout version {version}, and this program knows {known}; "
        "start the version that wrote it, or name another folder (nothing was changed)"
    )


def mixed_error(name: str, found: str, expected: str) -> MixedError:
    """Return what to say of a file that belongs to another journal."""
    return MixedError(
        f"journal file {name!r} belongs to journal {found}, the files before it to {expected}; "
        "move the files of one of them elsewhere (nothing was changed)"
    )


def misnamed_error(name: str, right: str) -> MixedError:
    """Return what to say of a file that has the name of another."""
    return MixedError(
        f"journal file {name!r} was written as {right!r}; give it that name back "
        "(nothing was changed)"
    )


@contextmanager
def telling(name: str) -> Iterator[None]:
    """Say of which file an OSError is."""
    try:
        yield
    except OSError as error:
        raise unreadable_error(name, error) from error


def is_full(error: OSError) -> bool:
    """Whether a call failed because the disk, or a quota, is used up."""
    return error.errno in _FULL


class File(Protocol):
    """One open file."""

    def write(self, offset: int, data: Buffer) -> None:
        """Write all of ``data`` at ``offset``; on disk only after :meth:`sync`."""

    def write_through(self, offset: int, data: Buffer) -> None:
        """Write all of ``data`` at ``offset``, and return once it is on disk; of what was written
        before nothing is said."""

    def read(self, offset: int, size: int) -> bytes:
        """Return at most ``size`` bytes from ``offset``; fewer only at the end of the file."""

    def read_cached(self, offset: int, buffer: bytearray) -> int:
        """Fill ``buffer`` from ``offset`` with what can be had without the disk; return how many
        bytes that are, 0 where it is not known to be none."""

    def sync(self) -> None:
        """Return once all that was written is on disk (fdatasync)."""

    def allocate(self, offset: int, size: int) -> None:
        """Reserve room, filled with zeros, so that no later write can find the disk full."""

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it by zeros that take no room."""

    def is_named(self, name: str) -> bool:
        """Whether the folder still has this file under ``name``."""

    def close(self) -> None:
        """Release the file."""


class Files(Protocol):
    """The folder."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    def size(self, name: str) -> int:
        """Return the length of a file in bytes."""

    def create(self, name: str) -> File:
        """Create a file that does not exist."""

    def open(self, name: str, *, writable: bool = False) -> File:
        """Open a file that exists."""

    def rename(self, name: str, new_name: str) -> None:
        """Give a file another name, in place of the file that has it."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def sync_folder(self) -> None:
        """Return once all that was created, renamed and removed is on disk."""

    def boot_id(self) -> bytes:
        """Return 16 bytes that differ after each start of the machine; none where they are unknown.
        What was written under the same id is in the files, synced or not."""


class SystemFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_folder", "_link", "_proc")

    def __init__(self, descriptor: int, folder: str) -> None:
        self._descriptor = descriptor
        self._folder = folder
        self._proc = f"/proc/self/fd/{descriptor}"
        #: Where the file was when it was last compared with its name; empty if unknown.
        self._link = ""

    def write(self, offset: int, data: Buffer) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            offset += written
            view = view[written:]

    def write_through(self, offset: int, data: Buffer) -> None:
        # In one call where it can be: between two, this thread would have to wait for the
        # interpreter.
        try:
            written = os.pwritev(self._descriptor, [data], offset, os.RWF_DSYNC)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            written = 0
        if written < len(data):
            self.write(offset + written, memoryview(data)[written:])
            self.sync()

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) in (0, size):
            return data
        # A signal, or the end of the file.
        return data + self.read(offset + len(data), size - len(data))

    def read_cached(self, offset: int, buffer: bytearray) -> int:
        try:
            return os.preadv(self._descriptor, [buffer], offset, os.RWF_NOWAIT)
        except OSError as error:
            # Some file systems cannot tell (tmpfs), and some machines.
            if error.errno == errno.EAGAIN or error.errno in _NOT_HERE:
                return 0
            raise

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def allocate(self, offset: int, size: int) -> None:
        os.posix_fallocate(self._descriptor, offset, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def is_named(self, name: str) -> bool:
        # Linux follows a file through renames, its folders' too, and marks a deleted one. Without
        # a stat: Linux 6.13 gives a file that was looked at a new time with its next write, and a
        # commit then takes half as much CPU again.
        try:
            link = os.readlink(self._proc)
        except OSError:
            link = ""
        if link and link == self._link and link.endswith(f"/{name}"):
            return True
        try:
            found = os.stat(f"{self._folder}/{name}")
        except FileNotFoundError:
            return False
        if not os.path.samestat(found, os.fstat(self._descriptor)):
            return False
        self._link = link
        return True

    def close(self) -> None:
        os.close(self._descriptor)


class SystemFiles:
    """A folder of the operating system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        with os.scandir(self._folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def size(self, name: str) -> int:
        return (self._folder / name).stat().st_size

    def create(self, name: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return SystemFile(os.open(self._folder / name, flags, 0o600), str(self._folder))

    def open(self, name: str, *, writable: bool = False) -> File:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        return SystemFile(os.open(self._folder / name, flags), str(self._folder))

    def rename(self, name: str, new_name: str) -> None:
        os.replace(self._folder / name, self._folder / new_name)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()

    def sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def boot_id(self) -> bytes:
        try:
            return UUID(_BOOT_ID.read_text(encoding="ascii").strip()).bytes
        except (OSError, ValueError):
            return b""


class FolderLock:
    """The lock, held.

    One process at a time has a journal open: held until it is released or the process ends, however
    it ends.
    """

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
