"""A worker of the journal's that does nothing by itself."""

from collections import deque
from collections.abc import Callable
from typing import Any

from pillion_sidecar.journal.ports import Result


class SteppedWorker:
    """Implements ``Worker``; does one thing whenever it is told to."""

    def __init__(self) -> None:
        self.jobs: deque[
            tuple[Callable[[], Any], Callable[[Any], None], Callable[[OSError], None]]
        ] = deque()

    def submit(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self.jobs.append((work, done, failed))

    def step(self) -> bool:
        """Do the next thing and tell of it; False where there is none."""
        if not self.jobs:
            return False
        work, done, failed = self.jobs.popleft()
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
