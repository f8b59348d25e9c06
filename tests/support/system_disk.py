"""A folder of the operating system on a disk that is held up, full or broken as a test says."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pillion_sidecar.journal.files import Buffer, File, SystemFiles


class SystemDisk:
    """What a test does to a disk; ``files`` stands in for ``SystemFiles``."""

    def __init__(self) -> None:
        #: Nothing new can be reserved; what is reserved can be written.
        self.full = False
        #: What the next sync, and each one after it, fails with.
        self.broken: OSError | None = None
        #: Set while a sync is held.
        self.holding = threading.Event()
        self._going_on = threading.Event()
        self._going_on.set()

    def files(self, folder: Path) -> SystemFiles:
        return _Files(folder, self)

    def hold(self) -> None:
        """Let no sync return until :meth:`go_on`."""
        self._going_on.clear()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no sync return for a while."""
        self.hold()
        try:
            yield
        finally:
            self.go_on()

    def go_on(self) -> None:
        """Let all syncs return."""
        self._going_on.set()

    def break_down(self) -> None:
        """Fail for good."""
        self.broken = OSError(errno.EIO, os.strerror(errno.EIO))

    def synced(self) -> None:
        """A file has been synced."""
        if not self._going_on.is_set():
            self.holding.set()
            self._going_on.wait()
            self.holding.clear()
        if self.broken is not None:
            raise self.broken

    def reserve(self) -> None:
        """Room is to be reserved."""
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _Files(SystemFiles):
    def __init__(self, folder: Path, disk: SystemDisk) -> None:
        super().__init__(folder)
        self._disk = disk

    def create(self, name: str) -> File:
        return _File(super().create(name), self._disk)

    def open(self, name: str, *, writable: bool = False) -> File:
        return _File(super().open(name, writable=writable), self._disk)


class _File:
    def __init__(self, file: File, disk: SystemDisk) -> None:
        self._file = file
        self._disk = disk

    def write(self, offset: int, data: Buffer) -> None:
        self._file.write(offset, data)

    def write_through(self, offset: int, data: Buffer) -> None:
        self.write(offset, data)
        self.sync()

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, size)

    def read_cached(self, offset: int, buffer: bytearray) -> int:
        return self._file.read_cached(offset, buffer)

    def sync(self) -> None:
        self._file.sync()
        self._disk.synced()

    def allocate(self, offset: int, size: int) -> None:
        self._disk.reserve()
        self._file.allocate(offset, size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def is_named(self, name: str) -> bool:
        return self._file.is_named(name)

    def close(self) -> None:
        self._file.close()
