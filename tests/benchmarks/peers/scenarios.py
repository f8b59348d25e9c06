"""What every peer is put through: a burst, a steady rate, hung listeners, and kill -9.

Each measurement begins with a peer, listeners and a publisher of its own, and one event to each
listener, so that all connections are there.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.listeners import Listeners, listening
from benchmarks.peers.peer import Peer, Place, urls_of
from benchmarks.peers.publisher import Order, Published, Publisher, publishing
from benchmarks.peers.tally import delays, percentile, tally

#: Listeners, and hung ones beside them.
ONE, MANY, HUNG_BESIDE = 1, 32, 50
#: Seconds for publishing a burst, and for all of it to arrive.
PUBLISHING, ARRIVING = 10.0, 18.0
#: The steady rate: events a second, for so many seconds; the first of them do not count.
RATE, STEADY, SETTLING = 500, 6.0, 1.0
#: Seconds for the last events of a steady rate to arrive.
LATE = 4.0
#: Of each so many events for healthy listeners one more goes to a hung one.
HUNG_EVERY = 10
#: kill -9 comes when this share of the events has arrived, or after so many seconds.
KILL_SHARE, KILL_SECONDS = 0.25, 5.0
#: Seconds from the restart until what has not arrived counts as lost.
PATIENCE = 22.0
_WARM_UP = 500_000_000
_POLL = 0.02


class Unmeasured(Exception):
    """A peer that does not work as it was configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    #: Events of healthy listeners: that were to be published, that the peer has taken, and that
    #: arrived.
    offered: int
    taken: int
    arrived: int
    #: Seconds from the first event published until the last arrived, or until nobody waited longer.
    seconds: float
    #: CPU of the peer's processes, in seconds.
    cpu: float
    resident_bytes: int
    #: Milliseconds from publishing to arrival; infinite: not in time.
    median: float = math.nan
    p99: float = math.nan
    #: After a crash.
    lost: int = 0
    doubled: int = 0
    overtaken: int = 0

    @property
    def rate(self) -> float:
        return self.arrived / self.seconds

    @property
    def cpu_of_thousand(self) -> float:
        return self.cpu / self.arrived * 1000 if self.arrived else math.nan


@dataclass(frozen=True, slots=True)
class World:
    peer: Peer
    listeners: Listeners
    publisher: Publisher
    healthy: int
    hung: int

    def order(self, count: int, *, seconds: float, rate: float = 0) -> Order:
        return Order(
            first=0,
            count=count,
            rate=rate,
            seconds=seconds,
            healthy=self.healthy,
            hung=self.hung,
            hung_every=HUNG_EVERY,
        )

    def publish(self, order: Order) -> Published:
        self.publisher.start(order)
        return self.publisher.published()

    def wait_for(self, count: int, deadline: float) -> float:
        """Wait until so many events have arrived, or until the deadline; return when that was."""
        while self.listeners.count() < count:
            if (now := time.monotonic()) >= deadline:
                return now
            time.sleep(_POLL)
        return time.monotonic()

    def warm_up(self) -> None:
        """Bring one event to each healthy listener."""
        order = Order(
            first=_WARM_UP, count=self.healthy, rate=0, seconds=ARRIVING, healthy=self.healthy
        )
        taken = self.publish(order).count
        self.wait_for(taken, time.monotonic() + ARRIVING)
        arrived = len(self.listeners.take())
        if taken < self.healthy or arrived < taken:
            said = "\n".join(self.peer.processes.last_lines())
            raise Unmeasured(f"to warm up {taken} events were taken, {arrived} arrived\n{said}")


@contextmanager
def running(peer: Peer, place: Path, *, healthy: int, hung: int = 0) -> Iterator[World]:
    """A peer with its listeners and its publisher, all of them new."""
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with listening(folder, healthy=healthy, hung=hung) as listeners:
            peer.configure(Place(folder, urls_of(listeners.healthy, listeners.hung)))
            try:
                peer.start()
                module, python = peer.publisher
                log = folder / "publisher.log"
                with publishing(module, peer.address, python=python, log=log) as publisher:
                    world = World(peer, listeners, publisher, healthy, hung)
                    world.warm_up()
                    yield world
            finally:
                peer.stop()


def burst(world: World, events: int) -> Figures:
    """As many as the peer takes, and how fast they arrive."""
    processes = world.peer.processes
    cpu, began = processes.cpu_seconds(), time.monotonic()
    published = world.publish(world.order(events, seconds=PUBLISHING))
    ended = world.wait_for(published.count, began + ARRIVING)
    cpu, resident = processes.cpu_seconds() - cpu, processes.resident_bytes()
    arrivals = world.listeners.take()
    counted = tally(range(published.count), arrivals)
    if not counted.lost:
        ended = max(one.arrived for one in arrivals) / 1e9
    return Figures(
        offered=events,
        taken=published.count,
        arrived=counted.arrived,
        seconds=ended - began,
        cpu=cpu,
        resident_bytes=resident,
        doubled=counted.doubled,
        overtaken=counted.overtaken,
    )


def steady(world: World, events: int) -> Figures:
    """At a modest rate: from publishing to arrival."""
    processes = world.peer.processes
    seconds = min(STEADY, events / RATE + SETTLING)
    cpu, began = processes.cpu_seconds(), time.monotonic()
    order = world.order(int(RATE * seconds), seconds=seconds + LATE, rate=RATE)
    published = world.publish(order)
    ended = world.wait_for(published.count, time.monotonic() + LATE)
    cpu, resident = processes.cpu_seconds() - cpu, processes.resident_bytes()
    first = int(RATE * SETTLING)
    arrivals = world.listeners.take()
    counted = tally(range(published.count), arrivals)
    times = delays(one for one in arrivals if one.number >= first)
    times += [math.inf] * (order.count - first - len(times))
    return Figures(
        offered=order.count,
        taken=published.count,
        arrived=counted.arrived,
        seconds=ended - began,
        cpu=cpu,
        resident_bytes=resident,
        median=percentile(times, 0.5),
        p99=percentile(times, 0.99),
        doubled=counted.doubled,
        overtaken=counted.overtaken,
    )


def killed(world: World, events: int) -> Figures:
    """kill -9 of all of a peer's processes amid a burst, and a start right after it."""
    peer, listeners = world.peer, world.listeners
    began = time.monotonic()
    world.publisher.start(world.order(events, seconds=PUBLISHING + KILL_SECONDS))
    world.wait_for(int(events * KILL_SHARE), began + KILL_SECONDS)
    peer.kill()
    peer.start()
    restarted = time.monotonic()
    published = world.publisher.published()
    ended = world.wait_for(published.count, restarted + PATIENCE)
    # Some of what arrived arrived twice: others are still to come.
    while tally(range(published.count), arrivals := listeners.copy()).lost:
        if (ended := time.monotonic()) >= restarted + PATIENCE:
            break
        time.sleep(10 * _POLL)
    counted = tally(range(published.count), arrivals)
    return Figures(
        offered=events,
        taken=published.count,
        arrived=counted.arrived,
        seconds=ended - began,
        cpu=math.nan,
        resident_bytes=peer.processes.resident_bytes(),
        lost=counted.lost,
        doubled=counted.doubled,
        overtaken=counted.overtaken,
    )


@dataclass(frozen=True, slots=True)
class Scenario:
    title: str
    measure: Callable[[World, int], Figures]
    healthy: int
    hung: int = 0

    def run(self, peer: Peer, place: Path, events: int) -> Figures:
        with running(peer, place, healthy=self.healthy, hung=self.hung) as world:
            return self.measure(world, events)


SCENARIOS: Mapping[str, Scenario] = {
    "burst-1": Scenario("a burst to 1 listener", burst, ONE),
    "steady-1": Scenario("a steady rate to 1 listener", steady, ONE),
    "burst-32": Scenario("a burst to 32 listeners", burst, MANY),
    "steady-32": Scenario("a steady rate to 32 listeners", steady, MANY),
    "burst-hung": Scenario("a burst, 50 of 82 hung", burst, MANY, HUNG_BESIDE),
    "steady-hung": Scenario("a steady rate, 50 of 82 hung", steady, MANY, HUNG_BESIDE),
    "killed": Scenario("kill -9 in a burst to 32 listeners", killed, MANY),
}
