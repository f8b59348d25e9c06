"""Files that are read again when they change; good content stays in force until better comes."""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

#: Device, inode, time of change (ns) and size of a file, links resolved, so that Kubernetes' swap
#: of ``..data`` is visible.
Look: TypeAlias = tuple[int, int, int, int]

#: Error numbers of a shortage of descriptors or memory, which say nothing of a file.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def look_at(path: str | Path) -> Look:
    """Raises OSError if it cannot be seen now."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


#: Seconds between two checks.
LOOK_SECONDS = 1.0

Content = TypeVar("Content")
#: Status of each file; None for a missing one.
Seen = tuple[Look | None, ...]


class _Cancellable(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The needed part of ``pillion_sidecar.clock.Timers``: the configuration can be loaded without
    the deliverer."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> _Cancellable: ...


class Unusable(Exception):
    """A file cannot be used; the text has its name and the reason."""


class Following(Generic[Content]):
    """Reads files when they have changed. One check at a time."""

    def __init__(
        self,
        files: Sequence[Path],
        *,
        read: Callable[[], Content],
        changed: Callable[[Content], None],
        refused: Callable[[Unusable], None],
    ) -> None:
        """``read`` runs in a thread and raises Unusable; the others run on the event loop, once for
        each change."""
        self._files = files
        self._read = read
        self._changed = changed
        self._refused = refused
        self._seen: Seen | None = None

    async def look(self) -> None:
        """Check the files once, and read them if they have changed."""
        outcome = await asyncio.to_thread(self._look)
        if isinstance(outcome, Unusable):
            self._refused(outcome)
        elif outcome is not None:
            self._changed(outcome)

    def _look(self) -> Content | Unusable | None:
        seen = self._status()
        if seen == self._seen:
            return None
        outcome: Content | Unusable
        try:
            outcome = self._read()
        except Unusable as error:
            outcome = error
        # A swap during the read may have mixed two contents: check again later.
        if self._status() != seen:
            return None
        self._seen = seen
        return outcome

    def _status(self) -> Seen:
        return tuple(map(_status, self._files))


async def look_again(followed: Sequence[Following[Any]], *, timers: Timers) -> None:
    while followed:
        await pause(timers, LOOK_SECONDS)
        for following in followed:
            await following.look()


async def pause(timers: Timers, seconds: float) -> None:
    woken = asyncio.Event()
    timer = timers.call_later(seconds, woken.set)
    try:
        await woken.wait()
    finally:
        timer.cancel()


class FollowedFile:
    """The content of one file, read again after a change. Blocks: call it in a thread."""

    def __init__(self, path: Path, *, maximum: int = 1024 * 1024) -> None:
        """``maximum``: bytes."""
        self._path = path
        self._maximum = maximum
        self._seen: Look | None = None
        self._content = b""

    def read(self) -> bytes:
        """Raises :class:`Unusable`."""
        seen = _status(self._path)
        if seen is None or seen != self._seen:
            self._seen = None
            self._content = read_bounded(self._path, maximum=self._maximum)
            self._seen = seen
        return self._content

    def forget(self) -> None:
        self._seen = None


def read_bounded(path: Path, *, maximum: int) -> bytes:
    """Raises Unusable if the file is unreadable or too long."""
    try:
        with path.open("rb") as file:
            content = file.read(maximum + 1)
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror or error}") from None
    if len(content) > maximum:
        raise Unusable(f"{path}: longer than {maximum} bytes")
    return content


def _status(path: Path) -> Look | None:
    try:
        return look_at(path)
    except OSError:
        return None
