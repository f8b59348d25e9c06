"""Kill points: a recorded run of a deliverer's core, cut at each operation of its journal, opened
again, and judged.

Each operation is cut several times: by a ``kill -9``, which leaves what was written, and by power
cuts, which leave of what was not synced whatever a disk may make of it. Now and then the run after
the crash is cut as well.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from pillion_sidecar.journal.recovery import examine
from pillion_sidecar.journal.scan import FindingKind
from pillion_sidecar.reliability.identity import identity_digest
from pillion_sidecar.testing import FakeTime
from support.core import (
    EAST,
    ERROR,
    FATAL,
    NORTH,
    SOURCE,
    SOUTH,
    SUCCESS,
    WEST,
    Core,
    Event,
    line_of,
)
from support.crashing_files import Disk, Operation, RecordingFiles
from support.history import History

Image = dict[str, bytes]

#: Crashes drawn for each operation, beside one ``kill -9``.
POWER_CUTS = 3
#: The share of crashes whose next run crashes too, and how many runs may crash in a row.
AGAIN = 0.1
MOST_CRASHES = 3
GROUPS = (None, "a", "b")


# ---------------------------------------------------------------------- the run


@dataclass(slots=True)
class Script:
    """Does what comes into a seeded generator's mind, and lets the disk lag behind."""

    core: Core
    draw: Random
    prefix: str = "i"
    published: int = 0
    _steps: list[tuple[Callable[[], None], int]] = field(init=False)

    def __post_init__(self) -> None:
        self._steps = [
            (self.publish, 10),
            (self.answer, 24),
            (self.commit, 10),
            (self.read, 4),
            (self.wait, 2),
            (self.hold, 1),
            (self.release, 1),
            (self.end_hold, 1),
            (self.core.rest, 1),
            (self.core.move, 1),
        ]

    def run(self, steps: int) -> None:
        """Take so many steps."""
        choices, weights = zip(*self._steps, strict=True)
        for step in self.draw.choices(choices, weights, k=steps):
            step()
            if self.draw.random() < 0.7:
                self.core.turn()

    def publish(self) -> None:
        for _ in range(self.draw.choice((1, 1, 1, 4))):
            self.published += 1
            group = self.draw.choice(GROUPS)
            self.core.publish(self._identifier(), self._names(), group=group, body=self._body())

    def hold(self) -> None:
        self.published += 1
        self.core.hold(self._identifier(), self._names(), body=self._body())

    def release(self) -> None:
        if self.core.held:
            self.core.release()

    def end_hold(self) -> None:
        if self.core.held:
            self.core.end_hold()

    def answer(self) -> None:
        # East and west fail most of the time, so that their entries have to be copied forward.
        for attempt in self.draw.sample(self.core.flying, min(1, len(self.core.flying))):
            bad = 0.8 if attempt.destination in (EAST, WEST) else 0.1
            outcome = self.draw.choice((ERROR, ERROR, FATAL))
            self.core.answer(attempt, outcome if self.draw.random() < bad else SUCCESS)

    def commit(self) -> None:
        for _ in range(self.draw.choice((1, 2, 5))):
            self.core.disk(0)

    def read(self) -> None:
        self.core.disk(1)

    def wait(self) -> None:
        self.core.advance(self.draw.choice((0.01, 0.1, 5.0)))

    def _identifier(self) -> str:
        return f"{self.prefix}{self.published}"

    def _names(self) -> list[str]:
        return self.draw.choice(
            ([NORTH], [SOUTH], [NORTH, SOUTH], [EAST, WEST], [NORTH, SOUTH, EAST, WEST], [WEST])
        )

    def _body(self) -> bytes:
        return b"{" + b"x" * self.draw.randrange(10, 700) + b"}"


# ---------------------------------------------------------------------- the crashes


class Broken(AssertionError):
    """A crash after which a promise does not hold.

    ``events`` is what the world was told, ``image`` the folder after the last crash.
    """

    def __init__(self, message: str, *, events: tuple[Event, ...], image: Image) -> None:
        super().__init__(message)
        self.events = events
        self.image = image


@dataclass(slots=True)
class Campaign:
    """All crashes of one recorded run."""

    seed: int
    points: int = 0
    #: Runs that were themselves cut, or opened again after all was delivered.
    reopened: int = 0
    acknowledged: int = 0

    def run(self, *, steps: int, files: Callable[[], RecordingFiles] = RecordingFiles) -> None:
        """Record a run, and cut it at each of its operations.

        Raises :class:`Broken` at the first promise that does not hold.
        """
        draw = Random(self.seed)
        core = Core(files(), draw=draw, time=FakeTime())
        Script(core, draw).run(steps)
        core.rest()
        self.acknowledged = sum(event.what == "acknowledge" for event in core.events)
        self.cut(core, {}, (), draw)

    def cut(self, core: Core, began: Image, before: tuple[Event, ...], draw: Random) -> None:
        """Cut a run, which began with this image after these events, at each operation."""
        disk = Disk(began)
        for index, operation in enumerate([*core.files.operations, None]):
            told = (*before, *(event for event in core.events if event.after <= index))
            for name, image, boots in _images(disk, operation, draw, boots=1):
                self.points += 1
                where = f"seed {self.seed}, point {self.points}: {name} at operation {index}"
                where = f"{where} ({operation})"
                chance = Random(f"{self.seed}/{self.points}")
                self.judge(image, told, chance, where, crashes=1, boots=boots)
            if operation is not None:
                disk.tell(operation)

    def judge(
        self,
        image: Image,
        before: tuple[Event, ...],
        draw: Random,
        where: str,
        *,
        crashes: int,
        boots: int,
    ) -> None:
        """Open what a crash has left, and see that every promise holds. ``boots``: how often the
        machine was started."""
        try:
            files = RecordingFiles(image, boots=boots)
            core = Core(files, draw=draw, time=_later(draw))
            told = _check_opened(core, before, image, boots=boots)
            if draw.random() < AGAIN:
                # Life goes on, and is cut again.
                Script(core, draw, prefix=f"{crashes}-").run(draw.randrange(60))
                if crashes < MOST_CRASHES:
                    self._cut_again(core, image, told, draw, where, crashes=crashes, boots=boots)
            core.deliver_all()
            core.rest()
            told = (*told, Event(0, "restart", ()), *core.events)
            problems = history_of(told).problems()
            if not problems and draw.random() < AGAIN:
                self._check_rest(core, told)
        except AssertionError as error:
            if isinstance(error, Broken):
                raise
            raise Broken(f"{where}: {error}", events=before, image=image) from error
        except Exception as error:
            error.add_note(where)
            raise
        if problems:
            raise Broken(f"{where}: {problems[:5]}", events=told, image=image)

    def _cut_again(
        self,
        core: Core,
        image: Image,
        before: tuple[Event, ...],
        draw: Random,
        where: str,
        *,
        crashes: int,
        boots: int,
    ) -> None:
        operations = core.files.operations
        at = draw.randint(0, len(operations))
        disk = Disk(image)
        for operation in operations[:at]:
            disk.tell(operation)
        told = (
            *before,
            Event(0, "restart", ()),
            *(event for event in core.events if event.after <= at),
        )
        begun = (*operations, None)[at]
        name, left, boots = draw.choice(list(_images(disk, begun, draw, boots=boots)))
        self.reopened += 1
        again = f"{where}, then {name} at operation {at} of the run after"
        self.judge(left, told, draw, again, crashes=crashes + 1, boots=boots)

    def _check_rest(self, core: Core, told: tuple[Event, ...]) -> None:
        """After a clean end nothing is pending, and nothing comes again."""
        core.service.close()
        core.journal.close()
        self.reopened += 1
        after = Core(RecordingFiles(core.files.image()), draw=core.draw, time=_later(core.draw))
        assert not after.service.pending, "something is pending after all was delivered"
        after.deliver_all()
        problems = history_of((*told, Event(0, "restart", ()), *after.events)).problems()
        assert not problems, problems[:5]


def _images(
    disk: Disk, begun: Operation | None, draw: Random, *, boots: int
) -> Iterator[tuple[str, Image, int]]:
    """Yield crashes, what each leaves, and how often the machine was started by then."""
    yield "a kill", disk.after_kill(begun, draw), boots
    for _ in range(POWER_CUTS):
        yield "a power cut", disk.after_power_cut(begun, draw), boots + 1


def _later(draw: Random) -> FakeTime:
    """The time of another run: the monotonic clock begins anywhere, the wall clock was stepped."""
    return FakeTime(
        now=draw.uniform(1.0, 1_000_000.0), epoch=1_700_000_000.0 + draw.uniform(-600.0, 600.0)
    )


def history_of(events: tuple[Event, ...]) -> History:
    """The books of what the world was told."""
    history = History(line=line_of, moving=frozenset((EAST,)))
    for event in events:
        getattr(history, event.what)(*event.given)
    return history


def _check_opened(
    core: Core, before: tuple[Event, ...], image: Image, *, boots: int
) -> tuple[Event, ...]:
    """Return the events, and that all contexts are new ones where a write was torn."""
    recovered = core.recovered
    if recovered.damaged:
        assert boots > 1, "a kill alone has begun new contexts"
        kinds = {finding.kind for finding in examine(RecordingFiles(image, boots=boots)).findings}
        # None where a start that was itself broken off has cut it.
        assert kinds <= {FindingKind.TORN}, "damage was reported, and there was none"
    assert not recovered.lost, f"lost: {recovered.lost}"
    for event in before:
        if event.what == "acknowledge":
            digest = identity_digest(SOURCE, event.given[0])
            assert digest is not None
            assert core.memory.find(digest) is not None, f"{event.given[0]} is not remembered"
    return (*before, Event(0, "renumber", ())) if recovered.damaged else before
