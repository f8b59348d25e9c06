"""A worker of the journal's that does nothing by itself."""

from collections import deque
from collections.abc import Callable
from typing import Any


class SteppedWorker:
    """A worker that does the next thing when it is told to."""

    def __init__(self) -> None:
        self._jobs: deque[
            tuple[Callable[[], Any], Callable[[Any], None], Callable[[OSError], None]]
        ] = deque()

    def submit(
        self,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._jobs.append((work, done, failed))

    def step(self) -> bool:
        """Do one thing; False where there is none."""
        if not self._jobs:
            return False
        work, done, failed = self._jobs.popleft()
        try:
            result = work()
        except OSError as error:
            failed(error)
        else:
            done(result)
        return True

    def drain(self) -> None:
        while self.step():
            pass

    def close(self) -> None:
        self.drain()
