"""What four healthy destinations feel of four dead ones whose lifetimes end all the time.

    python tests/benchmarks/bench_mass_expiry.py [--rounds N]

500 indications a second go to eight destinations, or to the four healthy ones alone. The dead ones
refuse connections, are retried every second, and give each indication up after 5 s. The deliverer
has a journal, and its standard error is read at 100 KB a second. Each indication carries its time
of sending; the healthy listeners note its time of arrival. In each round a deliverer of each kind
is measured, one after the other, by what is sent in the 10 s after the first lifetimes have ended.

It fails where more was sent in that time than was due, by a hundredth: then the publishers were
late before, and what was measured is their catching up. Run it on a machine with nothing
else to do.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.bench_isolation import HealthyListener, p99, publish_steadily
from support.bench import free_port, report, resource, sidecar, write_resources

HEALTHY = DEAD = 4
PER_SECOND = 500
LIFETIME_SECONDS = 5
#: Until what is discarded a second is what comes in a second.
SETTLING_SECONDS = 8.0
SECONDS = 10.0
#: Deliveries to the healthy that are measured.
DUE = int(PER_SECOND * SECONDS) * HEALTHY
#: Of what is due: beyond it the publishers were late by a tenth of a second before, and more.
MOST_SHARE = 1.01
#: Bytes of standard error that are read in a second.
READ_PER_SECOND = 100_000
#: Publishing connections.
PUBLISHERS = 2
#: After the last was published, for what is under way.
REST_SECONDS = 2.0

#: When an indication was sent, and how long it took.
Arrival: TypeAlias = tuple[float, float]


def read_slowly(descriptor: int) -> None:
    """Read standard error at its pace until it ends."""
    while os.read(descriptor, READ_PER_SECOND // 10):
        time.sleep(0.1)


def resources(healthy: Sequence[int], dead: Sequence[int]) -> Iterator[dict[str, Any]]:
    yield resource("IndicationService", "default", durability="Disk", acknowledgement="Accepted")
    query = "SELECT * FROM CIM_AlertIndication"
    yield resource("IndicationFilter", "alerts", query=query)
    ports = {f"healthy-{port}": port for port in healthy} | {f"dead-{port}": port for port in dead}
    for name, port in ports.items():
        yield resource(
            "ListenerDestination",
            name,
            destination=f"http://127.0.0.1:{port}/",
            protocol="CloudEvents",
            timeoutSeconds=2,
            indicationLifetimeSeconds=LIFETIME_SECONDS,
            retry={"attempts": 10_000, "intervalSeconds": 1},
        )
        yield resource(
            "IndicationSubscription",
            name,
            filterRef={"name": "alerts"},
            destinationRef={"name": name},
        )


async def measure(
    folder: Path, arrivals: list[Arrival], ports: Sequence[int], dead: int
) -> list[float]:
    """Return the delays of the healthy deliveries of one deliverer, sorted.

    Raises RuntimeError where more was sent than was due.
    """
    documents = [*resources(ports, [free_port() for _ in range(dead)])]
    configured = write_resources(folder / "resources", documents)
    reading, writing = os.pipe()
    reader = threading.Thread(target=read_slowly, args=(reading,), daemon=True)
    reader.start()
    journal = ("--journal", str(folder / "journal"))
    with sidecar(configured, *journal, stderr=writing) as deliverer:
        os.close(writing)
        count = int((SETTLING_SECONDS + SECONDS) * PER_SECOND)
        running = asyncio.gather(
            *(
                publish_steadily(
                    deliverer, count=count, per_second=PER_SECOND, first=first, step=PUBLISHERS
                )
                for first in range(PUBLISHERS)
            )
        )
        await asyncio.sleep(SETTLING_SECONDS)
        arrivals.clear()
        began = time.perf_counter()
        await running
        await asyncio.sleep(REST_SECONDS)
        discarded = await asyncio.to_thread(deliverer.metric, "pillion_indications_discarded_total")
        assert bool(dead) == bool(discarded), f"{discarded} discarded"
    os.close(reading)
    delays = sorted(delay for sent, delay in arrivals if began <= sent < began + SECONDS)
    if len(delays) > MOST_SHARE * DUE:
        raise RuntimeError(f"{len(delays):,} were sent and {DUE:,} due: the publishers were late")
    return delays


async def compare(folder: Path, rounds: int) -> None:
    arrivals: list[Arrival] = []

    def arrived(sent: float) -> None:
        arrivals.append((sent, time.perf_counter() - sent))

    loop = asyncio.get_running_loop()
    servers = [
        await loop.create_server(lambda: HealthyListener(arrived), "127.0.0.1", 0)
        for _ in range(HEALTHY)
    ]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    alone: list[list[float]] = []
    beside: list[list[float]] = []
    for number in range(rounds):
        for found, dead in ((alone, 0), (beside, DEAD)):
            place = folder / f"{number}-{dead}"
            place.mkdir()
            found.append(await measure(place, arrivals, ports, dead))
            load = os.getloadavg()[0]
            print(f"round {number + 1}: {dead} dead, p99 {p99(found[-1]):.1f} ms, load {load:.1f}")
    for server in servers:
        server.close()
    tell(alone, beside)


def tell(alone: Sequence[Sequence[float]], beside: Sequence[Sequence[float]]) -> None:
    share = statistics.median(len(delays) / DUE for delays in beside)
    report(
        goal=f"Mass expiry: {HEALTHY} healthy beside {DEAD} dead keep {PER_SECOND}/s each",
        figure=f"{share * 100:.1f} %",
        met=share >= 0.99,
        note=f"{DUE:,} deliveries due in {SECONDS:g} s, load {os.getloadavg()[0]:.1f}",
    )
    without, with_dead = statistics.median(map(p99, alone)), statistics.median(map(p99, beside))
    report(
        goal="Mass expiry: p99 of the healthy <= 2 x theirs alone",
        figure=f"{with_dead / without:.2f} x",
        met=with_dead <= 2 * without,
        note=f"p99 {without:.1f} ms alone, {with_dead:.1f} ms beside",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(Path(folder), arguments.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
