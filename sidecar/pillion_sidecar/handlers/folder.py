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
#: Maximum bytes that share a sync; a longer line has its own.
MOST_BYTES = 1024 * 1024
_Appended: TypeAlias = tuple[int, AppendError | None]


@dataclass(slots=True, eq=False)
class _Waiting:
    line: Line
    progress: Progress
    outcome: asyncio.Future[None]


class DeliveryFolder:
    """Writes one batch of lines to a file at a time; lines that come meanwhile share the next
    sync. Destinations may share a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: By the name of each file that is being written: the lines for the next batch.
        self._waiting: dict[str, deque[_Waiting]] = {}
        # Its threads start when they are needed.
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="pillion-files")

    async def append(self, name: str, line: Line, progress: Progress) -> None:
        """Return when the line is on the disk. Raises AppendError."""
        mine = _Waiting(line, progress, asyncio.get_running_loop().create_future())
        waiting = self._waiting.get(name)
        if waiting is None:
            waiting = self._waiting[name] = deque([mine])
            self._write(name)
        else:
            waiting.append(mine)
        try:
            await mine.outcome
        finally:
            # An attempt that has ended is not written later.
            if mine in waiting:
                waiting.remove(mine)

    def close(self) -> None:
        """End the threads when they have written what they have begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _write(self, name: str) -> None:
        batch = _batch(self._waiting[name])
        for one in batch:
            one.progress.doing = "writing to the disk"
            one.progress.is_handed_over = True
        lines = [one.line for one in batch]
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._threads, append, self._path, name, lines)
        writing.add_done_callback(partial(self._written, name, batch))

    def _written(
        self, name: str, batch: Sequence[_Waiting], writing: asyncio.Future[_Appended]
    ) -> None:
        if writing.cancelled():
            # The deliverer ends.
            return
        failure: BaseException | None = writing.exception()
        done = 0
        if failure is None:
            done, failure = writing.result()
        for number, one in enumerate(batch):
            if one.outcome.done():
                continue
            if number < done:
                one.outcome.set_result(None)
            else:
                assert failure is not None
                one.outcome.set_exception(failure)
        if self._waiting[name]:
            self._write(name)
        else:
            del self._waiting[name]


def _batch(waiting: deque[_Waiting]) -> list[_Waiting]:
    batch = [waiting.popleft()]
    size = len(batch[0].line.text)
    while waiting and size + len(waiting[0].line.text) <= MOST_BYTES:
        size += len(waiting[0].line.text)
        batch.append(waiting.popleft())
    return batch
