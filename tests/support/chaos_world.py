"""The world of a chaos run: its parts, the blows that fall on them, and the history at the end."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import aiohttp

from support.chaos import PATIENCE, Child, SmallDisk, Wire, free_ports, read_lines, small_disk, wire
from support.chaos_deliverer import set_clock
from support.chaos_publisher import IN_SEQUENCE
from support.history import History, Published
from support.read_history import read_history
from support.resources import alert_filter, destination, service, subscription, write

#: CloudEvents in the order of acceptance, CloudEvents in that of each group, CIM-XML.
ORDERED, GROUPED, EXPORT = "ordered", "grouped", "export"
PLACES = frozenset((ORDERED, GROUPED, EXPORT))
SOURCES = ("weather", IN_SEQUENCE)
DISK_MEBIBYTES = 24
#: Seconds by which the wall clock is stepped at most, either way.
LONGEST_STEP = 250_000.0


class Blow(NamedTuple):
    """Something that befalls a part."""

    name: str
    #: No two fall on one at once.
    victim: str
    seconds: float
    #: Where the clock is stepped to, or begins.
    amount: float


#: By name; the victim is what stands after the dash.
BLOWS = (
    *("kill-deliverer", "twice-deliverer", "term-deliverer", "pause-deliverer"),
    *(f"{what}-{name}" for what in ("kill", "pause") for name in (ORDERED, GROUPED, *SOURCES)),
    *(f"{what}-{name}.wire" for what in ("cut", "silence") for name in (ORDERED, GROUPED, "door")),
    *(f"pause-{EXPORT}", "fill-disk", "fill-disk", "step-clock", "step-clock"),
)


def schedule(seed: int, *, rounds: int) -> list[list[Blow]]:
    """The blows of each round, which fall together; the same for the same seed."""
    draw = Random(seed)
    made = []
    for _ in range(rounds):
        blows: dict[str, Blow] = {}
        # The deliverer's own crashes are what this is about.
        first = draw.choice(BLOWS[:3]) if draw.random() < 0.5 else draw.choice(BLOWS)
        for name in (first, *draw.sample(BLOWS, draw.randint(0, 2))):
            victim = name.partition("-")[2]
            amount = draw.uniform(-LONGEST_STEP, LONGEST_STEP)
            blows.setdefault(victim, Blow(name, victim, draw.uniform(0.0, 2.5), amount))
        made.append(list(blows.values()))
    return made


class World:
    """All the parts."""

    def __init__(self, folder: Path, *, disk: SmallDisk | None, stack: AsyncExitStack) -> None:
        """``disk``: where the journal is; None: in ``folder``, which is never filled."""
        self.disk = disk
        self.restarts = 0
        #: Starts that a full disk did not allow.
        self.refused_starts = 0
        self.struck: dict[str, int] = {}
        self._folder = folder
        self._stack = stack
        self._clock = folder / "clock"
        self._stop = folder / "stop"
        self._full = False
        self._wall = self._monotonic = 0.0
        self._ports = dict(zip((*sorted(PLACES), "door", "intake"), free_ports(5), strict=True))
        self._wires: dict[str, Wire] = {}
        self.deliverer = self._child(
            "deliverer",
            *("support.chaos_deliverer", str(self._clock), "sidecar"),
            *("--resources", str(folder / "resources")),
            *("--journal", str((disk.folder if disk else folder) / "journal")),
            *("--intake", f"127.0.0.1:{self._ports['intake']}", "--telemetry", "127.0.0.1:0"),
        )
        self.listeners = {
            name: self._child(
                name, "support.chaos_listener", str(self._ports[name]), str(folder / name)
            )
            for name in (ORDERED, GROUPED)
        }
        self.export = Child(
            EXPORT,
            *("pillion_cli.main", "listen", "--output", "json"),
            *("--port", str(self._ports[EXPORT])),
            folder=folder,
            greets=False,
        )
        self.publishers: dict[str, Child] = {}

    def _child(self, name: str, *command: str, greets: bool = True) -> Child:
        return Child(name, *command, folder=self._folder, greets=greets)

    def _children(self) -> dict[str, Child]:
        listeners = {**self.listeners, EXPORT: self.export}
        return {"deliverer": self.deliverer, **listeners, **self.publishers}

    # ------------------------------------------------------------------ beginning and end

    async def begin(self) -> None:
        """Start everything."""
        for name, port in (*self._ports.items(),):
            if name in (ORDERED, GROUPED, "door"):
                target = self._ports["intake"] if name == "door" else port
                (between,) = (port,) if name == "door" else free_ports(1)
                made = await self._stack.enter_async_context(wire(between, target=target))
                self._wires[name] = made
        self._write_resources()
        for child in (*self.listeners.values(), self.export):
            await child.start()
        await self._start_deliverer()
        for source in SOURCES:
            self.publishers[source] = self._child(
                source,
                *("support.chaos_publisher", f"http://127.0.0.1:{self._wires['door'].port}"),
                *(source, str(self._folder / source), str(self._stop), source),
                greets=False,
            )
            await self.publishers[source].start()

    def _write_resources(self) -> None:
        (self._folder / "resources").mkdir()
        url = "http://127.0.0.1:{}/"
        places: dict[str, dict[str, object]] = {
            ORDERED: {"protocol": "CloudEvents", "ordering": "Destination"},
            GROUPED: {"protocol": "CloudEvents", "ordering": "Group", "maxInFlight": 4},
            EXPORT: {"protocol": "CIM-XML"},
        }
        ports = {EXPORT: self._ports[EXPORT]}
        ports |= {name: self._wires[name].port for name in (ORDERED, GROUPED)}
        write(
            self._folder / "resources",
            service(
                # Small, so that segments follow each other, and little is reserved ahead of a full
                # disk.
                deliverer={"storage": {"sizeLimit": "20Mi"}},
                deliveryRetryAttempts=10_000,
                deliveryRetryIntervalSeconds=1,
                # The clock is stepped by days, and each must still know what came before.
                indicationLifetimeSeconds=0,
                duplicateWindowSeconds=100_000_000,
            ),
            alert_filter(),
            *(
                destination(
                    name, destination=url.format(ports[name]), timeoutSeconds=2, **places[name]
                )
                for name in sorted(PLACES)
            ),
            *(subscription(f"to-{name}", to=name) for name in sorted(PLACES)),
        )

    async def _start_deliverer(self) -> None:
        set_clock(self._clock, wall=self._wall, monotonic=self._monotonic)
        self.restarts += 1
        while not await self.deliverer.start():
            code = await self.deliverer.ended()
            assert self._full, f"the deliverer did not start ({code}): {self.deliverer.log()}"
            self.refused_starts += 1
            # As a kubelet would.
            await asyncio.sleep(0.2)

    async def finish(self) -> None:
        """Let everything be well, and wait until all that is pending is delivered."""
        self._stop.touch()
        for publisher in self.publishers.values():
            assert await publisher.ended() == 0, publisher.log()
        url = f"http://127.0.0.1:{self._ports['intake']}/drain?timeout={PATIENCE:g}"
        async with aiohttp.ClientSession() as session, session.post(url) as answer:
            assert (await answer.json())["complete"], await answer.text()
        self.deliverer.send(signal.SIGTERM)
        assert await self.deliverer.ended() == 0, self.deliverer.log()
        self.export.send(signal.SIGTERM)
        assert await self.export.ended() == 0, self.export.log()

    async def close(self) -> None:
        """End what still runs."""
        for child in self._children().values():
            await child.close()

    # ------------------------------------------------------------------ blows

    async def strike(self, blows: list[Blow]) -> None:
        """Let blows fall together, and make good what they broke."""
        for blow in blows:
            self.struck[blow.name] = self.struck.get(blow.name, 0) + 1
        await asyncio.gather(*(self._strike(blow) for blow in blows))

    async def _strike(self, blow: Blow) -> None:
        what, _, victim = blow.name.partition("-")
        if victim == "deliverer" and what != "pause":
            await self._crash(what, blow)
        elif victim == "disk":
            await self._fill(blow)
        elif victim == "clock":
            self._wall = blow.amount
            set_clock(self._clock, wall=self._wall, monotonic=self._monotonic)
        elif victim.endswith(".wire"):
            broken = self._wires[victim.removesuffix(".wire")]
            (broken.cut if what == "cut" else broken.silence)()
            await asyncio.sleep(blow.seconds)
            broken.mend()
        else:
            await self._hit(self._children()[victim], what, blow)

    async def _hit(self, child: Child, what: str, blow: Blow) -> None:
        if what == "pause":
            child.send(signal.SIGSTOP)
            await asyncio.sleep(blow.seconds)
            child.send(signal.SIGCONT)
            return
        await child.kill()
        await asyncio.sleep(blow.seconds / 2)
        await child.start()

    async def _crash(self, what: str, blow: Blow) -> None:
        if what == "term":
            self.deliverer.send(signal.SIGTERM)
            code = await self.deliverer.ended()
            assert code == 0, f"{code}: {self.deliverer.log()}"
        else:
            await self.deliverer.kill()
        self._monotonic = abs(blow.amount)
        if what == "twice":
            # While it reads its journal, or shortly after.
            starting = asyncio.create_task(self._start_deliverer())
            await asyncio.wait([starting], timeout=blow.seconds / 2)
            if not starting.done():
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
            await self.deliverer.close()
        await asyncio.sleep(blow.seconds / 4)
        await self._start_deliverer()

    async def _fill(self, blow: Blow) -> None:
        if self.disk is None:
            return
        self._full = True
        self.disk.fill()
        # What is reserved must be used up first.
        await asyncio.sleep(2 * blow.seconds)
        self.disk.free()
        self._full = False

    # ------------------------------------------------------------------ what came of it

    def history(self) -> History:
        """What the records say."""
        history = read_history(
            line=_line,
            publishers={source: self._folder / source for source in SOURCES},
            listeners={name: self._folder / name for name in (ORDERED, GROUPED)},
            places=PLACES,
        )
        # A kill may break a write off: then every context is a new one.
        history.renumbered = len(self.deliverer.events("journal-torn"))
        self._add_export(history)
        return history

    def _add_export(self, history: History) -> None:
        held: set[object] = set()
        for count, told in enumerate(read_lines(self._folder / f"{EXPORT}.log")):
            if "verdict" not in told or (
                told["verdict"] == "delivered" and told["identifier"] in held
            ):
                continue
            if told["verdict"] == "held":
                held.add(told["identifier"])
            history.arrive(
                EXPORT,
                str(told["identifier"]),
                told["context"],  # type: ignore[arg-type]
                told["number"],  # type: ignore[arg-type]
                # It does not tell its connections apart: repeats are judged by their numbers.
                session=f"arrival {count}",
            )

    def verdicts(self) -> list[object]:
        """What ``pillion listen`` made of the seven rules, one for each outcome."""
        lines = read_lines(self._folder / f"{EXPORT}.log")
        return [told["verdict"] for told in lines if "verdict" in told]


def _line(destination_name: str, published: Published) -> str | None:
    """Each publisher's own order, and at one destination only that of each group."""
    if destination_name == GROUPED:
        return published.group
    return published.identifier.rpartition("-")[0]


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """A world that has begun, while the context lasts."""
    async with AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk", mebibytes=DISK_MEBIBYTES))
        made = World(folder, disk=disk, stack=stack)
        stack.push_async_callback(made.close)
        await made.begin()
        yield made
