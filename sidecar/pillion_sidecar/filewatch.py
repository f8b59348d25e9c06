"""Files that are read anew when they change, as whoever mounts them may change them: what was good
before stays until something good comes."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from pillion_sidecar.clock import Timers
from pillion_sidecar.config.looking import Look, look_at

#: Seconds between two looks at the files.
LOOK_SECONDS = 1.0

Content = TypeVar("Content")
#: A look at each file; None for one that is not there.
Seen = tuple[Look | None, ...]


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
        woken = asyncio.Event()
        timer = timers.call_later(LOOK_SECONDS, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()
        for following in followed:
            await following.look()


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
