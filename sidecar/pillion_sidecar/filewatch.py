"""Files that are read anew when they change, as whoever mounts them may change them: what was good
before stays until something good comes."""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

#: Device, inode, time of change (ns) and size of a file, behind any links, so that the swap of
#: ``..data`` by which Kubernetes updates a volume shows.
Look: TypeAlias = tuple[int, int, int, int]

#: The system's error numbers that say nothing of a file: it is short of descriptors or memory.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def look_at(path: str | Path) -> Look:
    """Look at a file. Raises OSError where it cannot be seen just now."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


#: Seconds between two looks at the files.
LOOK_SECONDS = 1.0

Content = TypeVar("Content")
#: A look at each file; None for one that is not there.
Seen = tuple[Look | None, ...]


class _Cancellable(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The part of ``pillion_sidecar.clock.Timers`` that is needed here: the configuration is loaded
    without the rest of the deliverer."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> _Cancellable:
        """Call back after ``delay`` seconds."""


class Unusable(Exception):
    """Files cannot be used; the text names the file and says why."""


class Following(Generic[Content]):
    """Reads files when they have changed. One look at a time."""

    def __init__(
        self,
        files: Sequence[Path],
        *,
        read: Callable[[], Content],
        changed: Callable[[Content], None],
        refused: Callable[[Unusable], None],
    ) -> None:
        """``read`` is called in a thread and raises Unusable; the other two are told on the event
        loop, once for each change."""
        self._files = files
        self._read = read
        self._changed = changed
        self._refused = refused
        self._seen: Seen | None = None

    async def look(self) -> None:
        """Look at the files once, and read them if they have changed."""
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
        # A swap while they were read may have mixed two contents: believe the next look.
        if self._status() != seen:
            return None
        self._seen = seen
        return outcome

    def _status(self) -> Seen:
        return tuple(map(_status, self._files))


async def look_again(followed: Sequence[Following[Any]], *, timers: Timers) -> None:
    """Look at files from time to time, for ever."""
    while followed:
        await pause(timers, LOOK_SECONDS)
        for following in followed:
            await following.look()


async def pause(timers: Timers, seconds: float) -> None:
    """Wait for the next look."""
    woken = asyncio.Event()
    timer = timers.call_later(seconds, woken.set)
    try:
        await woken.wait()
    finally:
        timer.cancel()


class FollowedFile:
    """Gives the content of one file, read again where it looks changed. It blocks, so it is called
    in a thread."""

    def __init__(self, path: Path, *, maximum: int = 1024 * 1024) -> None:
        """``maximum``: bytes."""
        self._path = path
        self._maximum = maximum
        self._seen: Look | None = None
        self._content = b""

    def read(self) -> bytes:
        """Return the content as it is now. Raises :class:`Unusable`."""
        seen = _status(self._path)
        if seen is None or seen != self._seen:
            self._seen = None
            self._content = read_bounded(self._path, maximum=self._maximum)
            self._seen = seen
        return self._content

    def forget(self) -> None:
        """Read it again the next time, whether it looks changed or not."""
        self._seen = None


def read_bounded(path: Path, *, maximum: int) -> bytes:
    """Return a file's content. Raises Unusable where it cannot be read, or is too long."""
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
