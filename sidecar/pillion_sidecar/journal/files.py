"""The files of a journal's folder: the only access to the disk.

Names are relative to the folder. Every call blocks and may raise OSError; tests substitute files
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
#: Unsupported by this file system or machine.
_NOT_HERE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LOCK_NAME = "lock"
#: A process id and a newline.
_MAXIMUM_HOLDER = 32


class JournalError(Exception):
    """The journal's folder cannot be used. Each message names the folder or file and the remedy."""


class FolderError(JournalError):
    """The folder is missing, is no folder, or is read-only."""


class LockedError(JournalError): ...


class VersionError(JournalError):
    """A newer version wrote the journal."""


class MixedError(JournalError): ...


class UnreadableError(JournalError): ...


_REMEDIES = {
    errno.ENOENT: "make its parent folder first",
    errno.ENOTDIR: "name a folder, not a file",
    errno.EISDIR: "it is a folder with the name of a file of the deliverer; move it away",
    errno.EACCES: "let the user that the deliverer runs as read, write and search it",
    errno.EPERM: "let the user that the deliverer runs as read, write and search it",
    errno.EROFS: "it is on a read-only file system; mount that writable or name another folder",
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the disk quota is used up; make room",
}


def folder_error(folder: str, error: OSError) -> FolderError:
    remedy = _REMEDIES.get(error.errno or 0, "see to the disk or name another folder")
    return FolderError(f"journal folder {folder!r}: {error.strerror or error}; {remedy}")


def path_error(folder: str, error: OSError) -> FolderError | UnreadableError:
    """Name the file that the error is about, or else the folder."""
    if error.filename is None or str(error.filename) == folder:
        return folder_error(folder, error)
    return unreadable_error(str(error.filename), error)


def unreadable_error(name: str, error: OSError) -> UnreadableError:
    remedy = _REMEDIES.get(error.errno or 0, "see to the disk")
    return UnreadableError(f"journal file {name!r}: {error.strerror or error}; {remedy}")


def version_error(name: str, version: int, known: int) -> VersionError:
    return VersionError(
        f"journal file {name!r} has layout version {version}, and this program knows {known}; "
        "start the version that wrote it, or name another folder (nothing was changed)"
    )


def mixed_error(name: str, found: str, expected: str) -> MixedError:
    return MixedError(
        f"journal file {name!r} belongs to journal {found}, the files before it to {expected}; "
        "move the files of one of them elsewhere (nothing was changed)"
    )


def misnamed_error(name: str, right: str) -> MixedError:
    return MixedError(
        f"journal file {name!r} was written as {right!r}; give it that name back "
        "(nothing was changed)"
    )


@contextmanager
def telling(name: str) -> Iterator[None]:
    """Name the file in an OSError."""
    try:
        yield
    except OSError as error:
        raise unreadable_error(name, error) from error


class ReadableFile(Protocol):
    def read(self, offset: int, size: int) -> bytes:
        """Return at most ``size`` bytes; fewer only at the end of the file."""

    def close(self) -> None: ...


class File(ReadableFile, Protocol):
    def write(self, offset: int, data: Buffer) -> None:
        """Write all of ``data`` at ``offset``; on disk only after :meth:`sync`."""

    def write_through(self, offset: int, data: Buffer) -> None:
        """Write all of ``data`` and return once it is on disk; earlier writes may not be."""

    def read_cached(self, offset: int, buffer: bytearray) -> int:
        """Fill ``buffer`` from the page cache only; return the number of bytes, 0 if that is
        unknown."""

    def sync(self) -> None:
        """Return once all writes are on disk (fdatasync)."""

    def allocate(self, offset: int, size: int) -> None:
        """Reserve space, filled with zeros, so that no later write finds the disk full."""

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it by a hole."""

    def is_named(self, name: str) -> bool: ...


class ReadableFiles(Protocol):
    def names(self) -> list[str]:
        """Return the sorted names of all files."""

    def size(self, name: str) -> int: ...

    def open(self, name: str) -> ReadableFile: ...

    def boot_id(self) -> bytes:
        """Return 16 bytes that differ after each boot, or none. Writes under the same id are in the
        files, synced or not."""


class Files(ReadableFiles, Protocol):
    def create(self, name: str) -> File: ...

    def open(self, name: str, *, writable: bool = False) -> File: ...

    def rename(self, name: str, new_name: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync_folder(self) -> None:
        """Return once all created, renamed and removed names are on disk."""


class SystemFile:
    __slots__ = ("_descriptor", "_folder", "_link", "_proc")

    def __init__(self, descriptor: int, folder: str) -> None:
        self._descriptor = descriptor
        self._folder = folder
        self._proc = f"/proc/self/fd/{descriptor}"
        #: The file's path at the last comparison with its name; empty if unknown.
        self._link = ""

    def write(self, offset: int, data: Buffer) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            offset += written
            view = view[written:]

    def write_through(self, offset: int, data: Buffer) -> None:
        # One call if possible: between two, this thread would wait for the interpreter lock.
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
            # Some file systems (tmpfs) and machines cannot tell.
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
        # Linux follows a file through renames and marks a deleted one. Without a stat: since Linux
        # 6.13 it gives the file a new time with its next write, and a commit takes half as much CPU
        # again.
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
    """The lock, held until it is released or the process ends."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def open_folder(folder: Path) -> FolderLock:
    """Create the folder if its parent exists, and lock it. Raises FolderError, LockedError."""
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
    # The folder survives a power cut like its content.
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
    # Information only: the open file holds the lock. Left out on a full disk.
    told = f"{os.getpid()}\n".encode("ascii")
    with suppress(OSError):
        os.pwrite(descriptor, told, 0)
        os.ftruncate(descriptor, len(told))
