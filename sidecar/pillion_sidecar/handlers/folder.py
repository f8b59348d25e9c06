"""The delivery folder: the lines of all destinations, appended by a few threads."""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from pillion_sidecar.handlers.appending import AppendError, Line, append
from pillion_sidecar.handlers.coroutine import Progress

#: Threads, and so files that are open, of all destinations. A file whose disk hangs takes one.
MOST_THREADS = 16
_Appended: TypeAlias = tuple[int, AppendError | None]


@dataclass(slots=True, eq=False)
class _Waiting:
    lines: Sequence[Line]
    progress: Progress
    appended: asyncio.Future[_Appended]


class DeliveryFolder:
    """Writes to a file for one destination at a time. Destinations may share a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: By the name of each file that is being written: who is next.
        self._waiting: dict[str, deque[_Waiting]] = {}
        # Its threads start when they are needed.
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="pillion-files")

    async def append(self, name: str, lines: Sequence[Line], progress: Progress) -> _Appended:
        """Append lines in order. Return how many are on the disk, and why the next one is not."""
        mine = _Waiting(lines, progress, asyncio.get_running_loop().create_future())
        waiting = self._waiting.get(name)
        if waiting is None:
            self._waiting[name] = deque()
            self._write(name, mine)
        else:
            waiting.append(mine)
        try:
            return await mine.appended
        finally:
            # An attempt that has ended is not written later.
            if mine in self._waiting.get(name, ()):
                self._waiting[name].remove(mine)

    def close(self) -> None:
        """End the threads when they have written what they have begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _write(self, name: str, one: _Waiting) -> None:
        one.progress.doing = "writing to the disk"
        one.progress.is_handed_over = True
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._threads, append, self._path, name, one.lines)
        writing.add_done_callback(partial(self._written, name, one))

    def _written(self, name: str, one: _Waiting, writing: asyncio.Future[_Appended]) -> None:
        if writing.cancelled():
            # The deliverer ends.
            return
        failure = writing.exception()
        if one.appended.done():
            pass
        elif failure is not None:
            one.appended.set_exception(failure)
        else:
            one.appended.set_result(writing.result())
        if waiting := self._waiting[name]:
            self._write(name, waiting.popleft())
        else:
            del self._waiting[name]
