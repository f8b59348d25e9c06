"""The threads in which a journal waits for its disk."""

from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias

from pillion_sidecar.journal.ports import Result

#: The work, and the callbacks for its result and its error.
_Job: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None], Callable[[OSError], None]]
#: A job, its result and what it raised.
_Finished: TypeAlias = tuple[_Job, Any, Exception | None]


class ThreadWorker:
    """A worker thread.

    It runs little Python, since each step takes the interpreter lock from the event loop. An
    exception other than ``OSError`` is raised on the event loop, whose supervisor ends the run.
    """

    def __init__(
        self, *, name: str, call_soon_threadsafe: Callable[[Callable[[], None]], object]
    ) -> None:
        self._call_soon_threadsafe = call_soon_threadsafe
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._finished: SimpleQueue[_Finished] = SimpleQueue()
        self._under_way = 0
        # A daemon: an unclosed worker has crashed, and a crash at any moment is recoverable.
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._under_way += 1
        self._jobs.put((work, done, failed))

    def _work(self) -> None:
        jobs, finished, wake = self._jobs, self._finished, self._call_soon_threadsafe
        while (job := jobs.get()) is not None:
            try:
                finished.put((job, job[0](), None))
            except Exception as error:  # noqa: BLE001 - raised again on the event loop
                finished.put((job, None, error))
            # The event loop may be closed: then ``drain`` calls the callbacks.
            with suppress(RuntimeError):
                wake(self._finish_one)

    def _finish_one(self, *, waits: bool = False) -> None:
        # ``drain`` may have called its callbacks before.
        if not waits and self._finished.empty():
            return
        (_, done, failed), result, error = self._finished.get()
        self._under_way -= 1
        if error is None:
            done(result)
        elif isinstance(error, OSError):
            failed(error)
        else:
            raise error

    def drain(self) -> None:
        while self._under_way:
            self._finish_one(waits=True)

    def close(self) -> None:
        try:
            self.drain()
        finally:
            self._jobs.put(None)
            self._thread.join()
