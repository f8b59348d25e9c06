"""Outcomes as the tests make them, and what takes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pillion_sidecar.history.files import HistoryFiles
from pillion_sidecar.history.outcome import Outcome, OutcomeQuery, OutcomeResult
from pillion_sidecar.history.reading import Kept, read_all
from pillion_sidecar.history.recorder import History
from pillion_sidecar.testing import FakeTime
from support.stepped import SteppedWorker

#: Seconds since the epoch: 2026-11-22T09:00:00Z.
BEGAN = 1_795_338_000.0
WEEK = 604_800.0
EVERY = OutcomeQuery()


def outcome(order: int, **fields: Any) -> Outcome:
    settings: dict[str, Any] = {
        "time": BEGAN + order,
        "result": "discarded",
        "destination": "siem",
        "subscription": "to-siem",
        "class_name": "CIM_AlertIndication",
        "reason": "queue-full",
        "source": "test",
        "identifier": f"i{order}",
        "accepted": BEGAN,
        "sequence_context": "default#journal-1#siem#1",
        "sequence_number": order,
        "queue": 3,
        "number": order,
        "id": 100 + order,
        **fields,
    }
    return Outcome(**settings)


class KeptOutcomes:
    """A history that keeps every outcome in a list."""

    def __init__(self, *, bodies: bool = False) -> None:
        self.all: list[Outcome] = []
        self._bodies = bodies

    def add(self, outcome: Outcome) -> None:
        self.all.append(outcome)

    is_behind = False

    def keeps_body(self, result: OutcomeResult) -> bool:
        return self._bodies

    def once_written(self, then: Callable[[], None]) -> None:
        raise AssertionError("it is never behind")

    @property
    def discards(self) -> list[Outcome]:
        return [one for one in self.all if one.result == OutcomeResult.DISCARDED]


class Recording:
    """A history with files, and its worker."""

    def __init__(
        self,
        folder: Path,
        time: FakeTime,
        *,
        alone: bool = False,
        size: int = 1 << 20,
        files: HistoryFiles | None = None,
        is_pending: Callable[[Outcome], bool] = lambda _: False,
    ) -> None:
        self.folder = folder
        self.files = files or HistoryFiles(folder, size=size, seconds=WEEK)
        self.worker = SteppedWorker()
        self.opened = self.files.open(is_pending)
        self.history = History(clock=time, timers=time)
        #: Has the journal commit soon; nothing by default.
        self.asks: Callable[[], None] = lambda: None
        commit = None if alone else lambda: self.asks()
        self.history.use(self.files, self.opened, folder, worker=self.worker, commit=commit)
        self.worker.drain()

    def add(self, *outcomes: Outcome) -> None:
        for one in outcomes:
            self.history.add(one)

    def commit(self) -> None:
        """As a journal does: write, commit, and say that it is settled."""
        settled = self.history.write()
        self.worker.drain()
        if settled is not None:
            settled()

    def crash(self) -> None:
        self.files.close()


def identifiers(folder: Path, query: OutcomeQuery = EVERY) -> list[str | None]:
    return [one.outcome.identifier for one in read_all(Kept(folder=folder), query)]


def numbers(folder: Path) -> list[int]:
    return [one.number for one in read_all(Kept(folder=folder), EVERY)]
