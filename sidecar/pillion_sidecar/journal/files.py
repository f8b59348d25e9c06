"""The files of a journal's folder: all that the journal does to a disk, and nothing else does.

Names are relative to the folder. Every call may raise OSError, and blocks; a test stands in files
that crash, tear and reorder.
"""

import errno
import os
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Protocol, TypeAlias
from uuid import UUID

Buffer: TypeAlias = bytes | bytearray | memoryview

#: A call that this file system, or this machine, does not know.
_NOT_HERE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


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

    def identity(self) -> Hashable:
        """Return what tells it from every other file."""

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

    def identity(self, name: str) -> Hashable:
        """Return what tells the file of a name from every other: that of the open file."""

    def sync_folder(self) -> None:
        """Return once all that was created, renamed and removed is on disk."""

    def boot_id(self) -> bytes:
        """Return 16 bytes that differ after each start of the machine; none where they are unknown.
        What was written under the same id is in the files, synced or not."""


class SystemFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_link", "_proc", "_watch")

    def __init__(self, descriptor: int, watch: Callable[["SystemFile", Hashable], None]) -> None:
        """``watch`` is called with the identity when that is asked for."""
        self._descriptor = descriptor
        self._proc = f"/proc/self/fd/{descriptor}"
        self._watch = watch
        #: Where the file was when its identity was asked for; empty where nobody can say.
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

    def identity(self) -> Hashable:
        self._link = self._where()
        found = os.fstat(self._descriptor)
        identity = found.st_dev, found.st_ino
        self._watch(self, identity)
        return identity

    def stayed_at(self, path: str) -> bool:
        """Whether the file is certainly where it was when its identity was asked for, and that is
        at ``path``."""
        link = self._link
        return link.endswith(path[path.rindex("/") :]) and self._where() == link

    def _where(self) -> str:
        # Linux follows the file through renames, its folders' too, and marks what was deleted.
        try:
            return os.readlink(self._proc)
        except OSError:
            return ""

    def close(self) -> None:
        self._link = ""
        os.close(self._descriptor)


class SystemFiles:
    """A folder of the operating system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._prefix = f"{folder}/"
        #: The file whose identity was asked for last, and that identity.
        self._watched: tuple[SystemFile, Hashable] | None = None

    def _watch(self, file: SystemFile, identity: Hashable) -> None:
        self._watched = file, identity

    def names(self) -> list[str]:
        with os.scandir(self._folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def size(self, name: str) -> int:
        return (self._folder / name).stat().st_size

    def create(self, name: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return SystemFile(os.open(self._folder / name, flags, 0o600), self._watch)

    def open(self, name: str, *, writable: bool = False) -> File:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        return SystemFile(os.open(self._folder / name, flags), self._watch)

    def rename(self, name: str, new_name: str) -> None:
        os.replace(self._folder / name, self._folder / new_name)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()

    def identity(self, name: str) -> Hashable:
        path = self._prefix + name
        if self._watched is not None and self._watched[0].stayed_at(path):
            # Without a stat: Linux 6.13 gives a file that was looked at a new time with its next
            # write, and a commit then takes half as much CPU again.
            return self._watched[1]
        found = os.stat(path)
        return found.st_dev, found.st_ino

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
