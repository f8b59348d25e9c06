"""The lines of the log that are still to be written: bounded, and nobody waits for room."""

import logging
import threading
from collections import deque

#: Lines and characters that may be buffered.
BUFFERED_RECORDS = 10_000
BUFFERED_BYTES = 4 << 20

#: Of the room, what records of a level and all below it may take: a flood of one level leaves the
#: rest to those that matter more.
_SHARES = ((logging.ERROR, 1.0), (logging.WARNING, 0.875), (0, 0.5))


class LineBuffer:
    """Lines in order, from any thread to one."""

    def __init__(self, *, records: int = BUFFERED_RECORDS, size: int = BUFFERED_BYTES) -> None:
        """``size``: characters."""
        self._records = records
        self._most = size
        self._lines: deque[str] = deque()
        self._size = 0
        self._ended = False
        self._changed = threading.Condition(threading.Lock())
        #: Lines that found no room.
        self.dropped = 0
        # Those of them that no line has told yet, by level.
        self._untold: dict[str, int] = {}

    def offer(self, line: str, level: int) -> None:
        """Take a line where there is room for one of its level; else count it."""
        with self._changed:
            if self._ended or not self._has_room(len(line), level):
                self._count(level)
                return
            self._lines.append(line)
            self._size += len(line)
            self._changed.notify()

    def drop(self, level: int) -> None:
        """Count a record that has no line."""
        with self._changed:
            self._count(level)

    def _has_room(self, size: int, level: int) -> bool:
        share = next(share for least, share in _SHARES if level >= least)
        return len(self._lines) < self._records * share and self._size + size <= self._most * share

    def _count(self, level: int) -> None:
        self.dropped += 1
        name = logging.getLevelName(level)
        self._untold[name] = self._untold.get(name, 0) + 1

    def take(self) -> str | None:
        """Return the next line, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._ended)
            if not self._lines:
                return None
            line = self._lines.popleft()
            self._size -= len(line)
            return line

    def take_dropped(self) -> dict[str, int]:
        """Return how many lines of each level were dropped and not told yet, once there is room
        for every level again; else nothing."""
        with self._changed:
            if not self._untold or not self._has_room(0, 0):
                return {}
            untold, self._untold = self._untold, {}
            return untold

    def end(self) -> None:
        """Take no more lines; :meth:`take` ends once all are taken."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Count what is left, and give it up."""
        with self._changed:
            self.dropped += len(self._lines)
            self._lines.clear()
            self._size = 0
