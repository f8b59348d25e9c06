"""The threads in which a journal waits for its disk, as the event loop sees them."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Worker(Protocol):
    """Does one thing after the other, away from the event loop."""

    def submit(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """Do ``work`` after all that was submitted before; then call ``done`` or ``failed`` on the
        event loop, in the order of submission and never from within this call."""

    def drain(self) -> None:
        """Wait until nothing is left to do, what its results submit included. Blocks."""

    def close(self) -> None:
        """Drain, and end."""


class ThreadWorker:
    """A worker that is a thread.

    An exception other than ``OSError`` is raised on the event loop, whose supervisor ends the run.
    """

    def __init__(
        self, *, name: str, call_soon_threadsafe: Callable[[Callable[[], None]], object]
    ) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._call_soon_threadsafe = call_soon_threadsafe
        self._submitted: deque[
            tuple[Future[Any], Callable[[Any], None], Callable[[OSError], None]]
        ] = deque()

    def submit(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], None],
        failed: Callable[[OSError], None],
    ) -> None:
        future = self._executor.submit(work)
        self._submitted.append((future, done, failed))
        future.add_done_callback(self._wake)

    def _wake(self, future: Future[Any]) -> None:
        self._call_soon_threadsafe(partial(self._tell, future))

    def _tell(self, future: Future[Any]) -> None:
        # A drain may have told it before.
        if self._submitted and self._submitted[0][0] is future:
            self._tell_first()

    def _tell_first(self) -> None:
        future, done, failed = self._submitted.popleft()
        error = future.exception()
        if error is None:
            done(future.result())
        elif isinstance(error, OSError):
            failed(error)
        else:
            raise error

    def drain(self) -> None:
        while self._submitted:
            self._tell_first()

    def close(self) -> None:
        self.drain()
        self._executor.shutdown()
