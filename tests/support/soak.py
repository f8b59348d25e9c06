"""Rounds of a deliverer's life as a process: it is killed or stopped at random, its journal is
harmed between two runs, and at the end a history of it all is judged.

A *campaign* is one kind of harm. Each runs in a world of its own, drawn from its seed.
"""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random

import aiohttp

from support.chaos import Child, SmallDisk, free_ports, small_disk
from support.chaos_deliverer import set_clock
from support.chaos_publisher import IN_SEQUENCE
from support.history import History, Published
from support.journal_harm import Cost, Harm
from support.read_history import read_history
from support.resources import alert_filter, destination, service, subscription, write


class Campaign(StrEnum):
    """What befalls the journal beside kills and stops."""

    PLAIN = "plain"
    FLIP = "flip"
    FLIP_LAST = "flip-last"
    REMOVE = "remove"
    TEAR = "tear"
    FULL = "full"
    CLOCK = "clock"


#: Those that take what was acknowledged; without ordered groups, whose members wait for each other.
LOSSY = frozenset((Campaign.FLIP, Campaign.FLIP_LAST, Campaign.REMOVE, Campaign.TEAR))
#: Destinations whose listener always answers, and those whose listener is stopped in every second
#: round, so that a backlog stands in several segments.
STEADY = ("steady-0", "steady-1", "grouped")
SLOW = ("slow-0", "slow-1")
PLACES = frozenset((*STEADY, *SLOW))
SOURCES = ("weather", "tides")
#: Events that tell of what may have been acknowledged, and of what was not.
LOSSES = ("journal-damaged", "journal-torn")
CUTS = ("journal-unfinished",)
DISK_MEBIBYTES = 14
#: Seconds by which the wall clock is stepped at most, either way.
LONGEST_STEP = 250_000.0
#: Seconds, a backstop.
PATIENCE = 120.0


@dataclass(slots=True)
class Table:
    """What a campaign came to."""

    campaign: Campaign
    rounds: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    harms: int = 0
    fills: int = 0
    refused_starts: int = 0
    durable: int = 0
    places: int = 0
    arrivals: int = 0
    repeats: int = 0
    #: Identifiers that harms took.
    taken: int = 0
    #: (identifier, destination) that never came, and are explained by a harm that was told.
    explained: int = 0
    discarded: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ends = ", ".join(f"{name} {count}" for name, count in sorted(self.ends.items()))
        return (
            f"soak {self.campaign}: {self.rounds} rounds ({ends}), {self.harms} harms, "
            f"{self.fills} fills, {self.refused_starts} starts refused; {self.durable} acknowledged"
            f" durable, {self.places} places, {self.arrivals} arrivals, {self.repeats} repeats; "
            f"{self.taken} identifiers taken, {self.explained} places explained by what was told, "
            f"{self.discarded} discarded; {len(self.problems)} unexplained"
        )


class Soak:
    """One campaign's world."""

    def __init__(
        self, campaign: Campaign, folder: Path, *, draw: Random, disk: SmallDisk | None
    ) -> None:
        self.table = Table(campaign)
        self._campaign = campaign
        self._folder = folder
        self._draw = draw
        self._disk = disk
        self._clock = folder / "clock"
        self._stop = folder / "stop"
        self.journal = (disk.folder if disk else folder) / "journal"
        self._harm = Harm(self.journal, draw)
        self._wall = self._monotonic = 0.0
        #: Identifiers whose records a harm took that was told, and problems found on the way.
        self._taken: set[str] = set()
        names = (*STEADY, *SLOW)
        self._ports = dict(zip((*names, "intake"), free_ports(len(names) + 1), strict=True))
        self._deliverer = self._child(
            "deliverer",
            *("support.chaos_deliverer", str(self._clock), "sidecar"),
            *("--resources", str(folder / "resources"), "--journal", str(self.journal)),
            *("--intake", f"127.0.0.1:{self._ports['intake']}", "--telemetry", "127.0.0.1:0"),
        )
        self._listeners = {
            kind: self._child(kind, "support.chaos_listener", *self._listening(places))
            for kind, places in (("steady", STEADY), ("slow", SLOW))
        }
        self._publishers: list[Child] = []
        self._filling: asyncio.Task[None] | None = None

    def _child(self, name: str, *command: str, greets: bool = True) -> Child:
        return Child(name, *command, folder=self._folder, greets=greets)

    def _listening(self, places: tuple[str, ...]) -> list[str]:
        return [part for name in places for part in (str(self._ports[name]), self._record(name))]

    def _record(self, name: str) -> str:
        return str(self._folder / name)

    @property
    def _sources(self) -> tuple[str, ...]:
        return SOURCES if self._campaign in LOSSY else (*SOURCES, IN_SEQUENCE)

    # ------------------------------------------------------------------ beginning and end

    async def begin(self) -> None:
        """Start everything."""
        self._write_resources()
        for listener in self._listeners.values():
            assert await listener.start()
        await self._start()
        for source in self._sources:
            publisher = self._child(
                source,
                *("support.chaos_publisher", f"http://127.0.0.1:{self._ports['intake']}"),
                *(source, self._record(source), str(self._stop), f"{source}{self._draw.random()}"),
                greets=False,
            )
            self._publishers.append(publisher)
            await publisher.start()

    def _write_resources(self) -> None:
        (self._folder / "resources").mkdir()
        grouped = {"ordering": "Group", "maxInFlight": 4}
        write(
            self._folder / "resources",
            service(
                deliverer={"storage": {"sizeLimit": "20Mi" if self._disk is None else "14Mi"}},
                deliveryRetryAttempts=10_000,
                deliveryRetryIntervalSeconds=1,
                indicationLifetimeSeconds=0,
                duplicateWindowSeconds=100_000_000,
                queueFullPolicy="Reject",
            ),
            alert_filter(),
            *(
                destination(
                    name,
                    destination=f"http://127.0.0.1:{self._ports[name]}/",
                    protocol="CloudEvents",
                    timeoutSeconds=2,
                    **(grouped if name == "grouped" else {}),
                )
                for name in sorted(PLACES)
            ),
            *(subscription(f"to-{name}", to=name) for name in sorted(PLACES)),
        )

    async def _start(self) -> None:
        """Start the deliverer until it runs, as a kubelet would."""
        set_clock(self._clock, wall=self._wall, monotonic=self._monotonic)
        started = self._count_told("deliverer-started")
        while not await self._deliverer.start():
            code = await self._deliverer.ended()
            self.table.refused_starts += 1
            if self.table.refused_starts > 3:
                raise AssertionError(f"it did not start ({code}): {self._deliverer.log()}")
            await asyncio.sleep(0.2)
        # Its log is written behind its output; this comes after all that the start has found.
        async with asyncio.timeout(PATIENCE):
            while self._count_told("deliverer-started") == started:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)

    async def finish(self) -> None:
        """Let everything be well, and wait until all that is pending is delivered."""
        self._wake()
        self._stop.touch()
        for publisher in self._publishers:
            assert await asyncio.wait_for(publisher.ended(), PATIENCE) == 0, publisher.log()
        url = f"http://127.0.0.1:{self._ports['intake']}/drain?timeout={PATIENCE:g}"
        async with aiohttp.ClientSession() as session, session.post(url) as answer:
            assert (await answer.json())["complete"], await answer.text()
        self._deliverer.send(signal.SIGTERM)
        assert await self._deliverer.ended() == 0, self._deliverer.log()

    async def close(self) -> None:
        """End what still runs."""
        for child in (self._deliverer, *self._listeners.values(), *self._publishers):
            await child.close()

    # ------------------------------------------------------------------ rounds

    async def round(self, number: int) -> None:
        """Let it run, end it somehow, harm its journal, and start it again."""
        self.table.rounds += 1
        if number % 2:
            self._listeners["slow"].send(signal.SIGSTOP)
        else:
            self._wake()
        if self._campaign is Campaign.FULL:
            self._fill()
        await asyncio.sleep(self._draw.uniform(0.2, 0.9))
        if self._campaign is Campaign.CLOCK and self._draw.random() < 0.5:
            # While it runs.
            self._wall = self._draw.uniform(-LONGEST_STEP, LONGEST_STEP)
            set_clock(self._clock, wall=self._wall, monotonic=self._monotonic)
        await self._end()
        if self._campaign is Campaign.CLOCK:
            self._wall = self._draw.uniform(-LONGEST_STEP, LONGEST_STEP)
        self._monotonic = self._draw.uniform(0, LONGEST_STEP)
        cost = await asyncio.to_thread(self._do_harm)
        before = [self._count_told(*kinds) for kinds in (LOSSES, CUTS)]
        await self._start()
        if self._disk is not None:
            self._disk.free()
        if cost is not None:
            losses, cuts = (self._count_told(*kinds) for kinds in (LOSSES, CUTS))
            self._judge(cost, losses=losses - before[0], cuts=cuts - before[1])

    def _wake(self) -> None:
        self._listeners["slow"].send(signal.SIGCONT)

    def _fill(self) -> None:
        """Others take the room, down to a few pages, and all of it now and then."""
        if self._disk is None:
            return
        self.table.fills += 1
        self._disk.fill(leave=self._draw.choice((0, 0, 4096, 65_536)))

    async def _end(self) -> None:
        how = self._draw.choice(
            ("kill", "kill", "kill-in-start", "kill-after-term", "stop", "term")
        )
        self.table.ends[how] += 1
        if how == "stop":
            self._deliverer.send(signal.SIGSTOP)
            await asyncio.sleep(self._draw.uniform(0, 0.5))
            self._deliverer.send(signal.SIGCONT)
        if how in ("term", "kill-after-term"):
            self._deliverer.send(signal.SIGTERM)
            pause = PATIENCE if how == "term" else self._draw.uniform(0, 0.3)
            ending = asyncio.create_task(self._deliverer.ended())
            await asyncio.wait([ending], timeout=pause)
            if ending.done():
                return
            ending.cancel()
        await self._deliverer.close()
        if how == "kill-in-start":
            await self._break_off_a_start()

    async def _break_off_a_start(self) -> None:
        starting = asyncio.create_task(self._deliverer.start())
        await asyncio.wait([starting], timeout=self._draw.uniform(0.1, 1.5))
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await self._deliverer.close()

    def _do_harm(self) -> Cost | None:
        does = {
            Campaign.FLIP: self._harm.flip,
            Campaign.FLIP_LAST: self._harm.flip_last,
            Campaign.REMOVE: self._harm.remove,
            Campaign.TEAR: self._harm.tear,
        }.get(self._campaign)
        if does is None or self._draw.random() < 0.3:
            return None
        cost = does()
        self.table.harms += cost.told
        return cost

    def _count_told(self, *events: str) -> int:
        return sum(len(self._deliverer.events(event)) for event in events)

    def _judge(self, cost: Cost, *, losses: int, cuts: int) -> None:
        told = losses if cost.acknowledged else losses + cuts
        if cost.told and not told:
            self.table.problems.append(f"not told: {cost}")
        if cost.identifiers and not cost.told:
            self.table.problems.append(f"costs what it must not: {cost}")
        self._taken |= cost.identifiers

    # ------------------------------------------------------------------ what came of it

    def judge(self) -> Table:
        """Read the records, and fill the table."""
        history = read_history(
            line=_line,
            publishers={source: self._folder / source for source in self._sources},
            listeners={name: Path(self._record(name)) for name in sorted(PLACES)},
            places=PLACES,
        )
        for line in self._deliverer.events("indication-discarded"):
            event = json.loads(line)
            history.discard(event["destination"], event["identifier"])
            self.table.discarded += 1
        history.renumbered = self._count_told(*LOSSES)
        history.taken = self._taken
        self._fill_table(history)
        return self.table

    def _fill_table(self, history: History) -> None:
        table = self.table
        table.durable = len(history.acknowledged)
        table.places = table.durable * len(PLACES)
        table.arrivals, table.repeats = history.arrivals(), history.repeats()
        table.taken = len(self._taken)
        for lost in history.lost_places():
            if lost[1] in self._taken:
                table.explained += 1
            else:
                table.problems.append(f"{lost[0]}: {lost[1]} is lost")
        table.problems += [*history.misordered(), *history.misnumbered()]
        if self._campaign in (Campaign.PLAIN, Campaign.CLOCK, Campaign.FULL):
            table.problems += self._deliverer.events("journal-damaged")


def _line(destination_name: str, published: Published) -> str | None:
    """Each publisher's own order, and at one destination only that of each group."""
    if destination_name == "grouped":
        return published.group
    return published.identifier.rpartition("-")[0]


@asynccontextmanager
async def soak(campaign: Campaign, folder: Path, *, seed: str) -> AsyncIterator[Soak]:
    """A world that has begun, while the context lasts."""
    async with AsyncExitStack() as stack:
        disk = None
        if campaign is Campaign.FULL:
            disk = stack.enter_context(small_disk(folder / "disk", mebibytes=DISK_MEBIBYTES))
        made = Soak(campaign, folder, draw=Random(f"{campaign}/{seed}"), disk=disk)
        stack.push_async_callback(made.close)
        await made.begin()
        yield made
