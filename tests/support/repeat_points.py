"""Kill points of a redrive and of a replay: a run is cut at each operation of the journal's files
and at each write of the history, opened again, and judged."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.history import HistoryBodies, HistoryPolicy
from pillion_sidecar.config.schema.replay import IndicationReplay
from pillion_sidecar.delivery.redrive import Redriver
from pillion_sidecar.delivery.replay import Replays
from pillion_sidecar.history.files import HistoryFiles
from pillion_sidecar.history.outcome import OutcomeQuery
from pillion_sidecar.history.pending import pending_in
from pillion_sidecar.history.recorder import History
from pillion_sidecar.testing import FakeTime
from support.crashing_files import Operation, RecordingFiles
from support.delivery import FATAL_ERROR, SUCCESS, destination, subscription
from support.on_disk import OnDisk

#: Lost before the run that is cut.
LOST = 12
OPS, NEW = destination("ops"), destination("new")
WEEK = 604_800.0
DISCARDED = OutcomeQuery(result="discarded")
AFTERNOON = IndicationReplay(name="afternoon", uid="r-1", destination_name="new", since=0.0)


class Arrival(NamedTuple):
    identifier: str | None
    is_marked: bool


class Cut(NamedTuple):
    """What a kill at one operation leaves."""

    where: str
    journal: dict[str, bytes]
    history: dict[str, bytes]
    #: What the listeners had by then.
    arrived: tuple[Arrival, ...]


@dataclass(slots=True)
class World:
    """A deliverer over a folder of the history and the files of a journal, whose operations it
    records."""

    folder: Path
    journal: dict[str, bytes] = field(default_factory=dict)
    arrived: tuple[Arrival, ...] = ()
    cuts: list[Cut] = field(default_factory=list)
    is_cut: bool = False
    deliverer: OnDisk = field(init=False)
    history: History = field(init=False)

    def __post_init__(self) -> None:
        time = FakeTime()
        files = RecordingFiles(self.journal, failing=self._failing)
        self.history = History(clock=time, timers=time)
        self.history.configure(HistoryPolicy(bodies=HistoryBodies.ALL), size=1 << 20)
        self.deliverer = OnDisk(files, time=time, history=self.history)
        kept = HistoryFiles(self.folder, size=1 << 20, seconds=WEEK)
        is_pending = pending_in(self.deliverer.recovered, journal_id=self.deliverer.journal.id)
        opened = kept.open(is_pending)
        worker = self.deliverer.workers[0]
        self.history.use(
            kept, opened, self.folder, worker=worker, commit=self.deliverer.journal.commit
        )
        submit = worker.submit

        def noted(work: Callable[[], Any], *then: Any) -> None:
            def do() -> Any:
                self._cut(f"{work}")
                return work()

            submit(do, *then)

        worker.submit = noted  # type: ignore[method-assign,assignment]
        self.deliverer.apply([OPS, NEW], [subscription("to-ops", "ops")])

    def _failing(self, operation: Operation) -> OSError | None:
        self._cut(str(operation))
        return None

    def _cut(self, where: str) -> None:
        if self.is_cut:
            history = {path.name: path.read_bytes() for path in self.folder.iterdir()}
            files = self.deliverer.files
            assert isinstance(files, RecordingFiles)
            self.cuts.append(Cut(where, files.image(), history, self.all_arrived))

    @property
    def all_arrived(self) -> tuple[Arrival, ...]:
        now = [
            Arrival(one.indication.identifier, one.correlated)
            for handler in self.deliverer.created
            for one in handler.attempts
        ]
        return (*self.arrived, *now)

    def lose(self) -> None:
        """Have the listener refuse everything, and forget that it did."""
        self.deliverer.answer = FATAL_ERROR
        for handler in self.deliverer.created:
            handler.answer = FATAL_ERROR
        for number in range(LOST):
            assert self.deliverer.give(f"i{number}", "to-ops") is None
        self.deliverer.rest()
        assert self.history.settled == LOST
        self.deliverer.answer = SUCCESS
        for handler in self.deliverer.created:
            handler.answer = SUCCESS
            handler.attempts.clear()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the deliverer work until a condition holds."""
        for _ in range(100_000):
            if condition():
                return
            self.deliverer.run()
            await asyncio.sleep(0)
            self.deliverer.advance(0.05)
        raise AssertionError("it hangs")

    def end(self) -> None:
        """As a kill does."""
        self.is_cut = False
        self.history.close()


Do = Callable[[World], Awaitable[None]]


async def redrive(world: World) -> None:
    """Redrive all, as the command does."""
    deliverer = world.deliverer
    redriver = Redriver(
        history=world.history,
        targets=deliverer.service,
        identities=deliverer.memory,
        clock=deliverer.time,
        is_durable=lambda: True,
    )
    after, has_more = 0, True
    while has_more:
        asked = redriver.redrive(DISCARDED, after=after, through=None, limit=4, dry_run=False)
        task = asyncio.create_task(asked)
        await world.until(task.done)
        answer = task.result()
        after, has_more = answer.next, answer.more
    await world.until(lambda: not deliverer.service.pending)
    deliverer.rest()


async def replay(world: World) -> None:
    """Replay all, until it is complete."""
    deliverer = world.deliverer
    clock: Clock = deliverer.time
    replays = Replays(
        history=world.history,
        targets=deliverer.service,
        identities=deliverer.memory,
        clock=clock,
        timers=deliverer.time,
        is_durable=lambda: True,
    )
    deliverer.service.follow_replays(replays.settled)
    replays.configure({AFTERNOON.name: AFTERNOON}, selects={})
    task = asyncio.create_task(replays.run())
    await world.until(lambda: task.done() or replays.statuses()[0].state == "Complete")
    task.cancel()
    deliverer.rest()
    found = replays.statuses()[0]
    assert (found.selected, found.replayed, found.delivered) == (LOST, LOST, LOST), found
    assert (found.discarded, found.detail) == (0, ""), found


async def cut_everywhere(do: Do, folder: Path) -> Iterator[tuple[Cut, World]]:
    """Run it once, and after each cut of that run once more; return each with its end."""
    first = folder / "first"
    first.mkdir()
    world = World(first)
    world.lose()
    world.is_cut = True
    await do(world)
    world.end()
    judged = []
    for number, cut in enumerate(world.cuts):
        again = folder / str(number)
        again.mkdir()
        for name, content in cut.history.items():
            (again / name).write_bytes(content)
        opened = World(again, journal=cut.journal, arrived=cut.arrived)
        await do(opened)
        opened.end()
        shutil.rmtree(again)
        judged.append((cut, opened))
    return iter(judged)
