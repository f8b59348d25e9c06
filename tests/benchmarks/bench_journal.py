"""What the journal on disk costs a deliverer, against the same without a disk in the same run.

    python tests/benchmarks/bench_journal.py [--rounds N] [--only NAME] [--folder DIR]

``flow``: bench_end_to_end's 32 destinations with every indication on disk before it is delivered,
against wrk, and the CPU for each delivery against that in memory. ``batches``: NDJSON batches with
``ack=durable``. ``latency``: from publishing to delivery at a steady 2,000/s. ``pending``: a
million waiting indications; memory, the first delivery after a restart, and how long a scrape and
a reload hold up others' delivery meanwhile. The journals lie in ``--folder``: name one on the disk
to measure. With PILLION_BENCH_SHORT in the environment one round of each is measured, and a tenth
of what waits.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks import intake_load
from benchmarks.bench_end_to_end import DESTINATIONS, MANY_GOAL, Round, measure_many
from benchmarks.bench_end_to_end import line as flow_line
from benchmarks.bench_end_to_end import resources as flow_resources
from benchmarks.journal_load import SteadyPublisher, fdatasync_seconds, p99
from support.bench import SHORT, Sidecar, nginx, report, resource, sidecar, write_resources

CPU_GOAL = 1.5
BATCH_GOAL = 100_000
LATENCY_GOAL = 5.0
RESIDENT_GOAL, FIRST_GOAL, STALL_GOAL = 150, 5.0, 50.0

STEADY_RATE, STEADY_SECONDS = 2_000, 4.0
#: What the first ones teach both sides is left out.
WARMING_SECONDS = 1.0
IS_SHORT = bool(os.environ.get(SHORT))
PENDING = 100_000 if IS_SHORT else 1_000_000
#: Room for everything that waits.
QUEUE = 1_000_000
BATCH, BODY_BYTES = 1_000, 500
#: What the journal may take: more than twice what waits.
STORAGE = "4Gi"
PROBES_A_SECOND = 200
SCRAPES, RELOADS = 5, 4


@dataclass
class Bed:
    """Where a measurement takes place."""

    folder: Path
    #: nginx's.
    port: int
    rounds: int

    def journal(self) -> str:
        """The path of a journal that is new."""
        return str(Path(tempfile.mkdtemp(dir=self.folder, prefix="journal-")) / "journal")


# ---------------------------------------------------------------------- flow


def flow(bed: Bed) -> None:
    """Publish to deliver, 32 destinations, 2 KB, in memory and on disk in turns."""
    given = write_resources(bed.folder / "flow", [*flow_resources(bed.port, DESTINATIONS)])
    in_memory: list[Round] = []
    on_disk: list[Round] = []
    with sidecar(given) as memory, sidecar(given, "--journal", bed.journal()) as disk:
        for run in range(bed.rounds):
            in_memory.append(measure_many(bed.folder, bed.port, memory, run))
            on_disk.append(measure_many(bed.folder, bed.port, disk, run))
    ratio = statistics.median(one.ratio for one in on_disk)
    rate, without_disk = (
        statistics.median(one.pillion for one in rounds) for rounds in (on_disk, in_memory)
    )
    report(
        goal=f"On disk: 32 destinations through HTTP intake, of wrk -t1 -c32 >= {MANY_GOAL:.0%}",
        figure=f"{ratio:.0%}",
        met=ratio >= MANY_GOAL,
        note=f"{rate:,.0f}/s, in memory {without_disk:,.0f}/s",
    )
    cpus = [
        (with_disk.cpu_microseconds, without.cpu_microseconds)
        for with_disk, without in zip(on_disk, in_memory, strict=True)
    ]
    more = statistics.median(with_disk / without for with_disk, without in cpus)
    report(
        goal=f"On disk: CPU of each delivery, of that in memory <= {CPU_GOAL}",
        figure=f"{more:.2f}",
        met=more <= CPU_GOAL,
        note=f"{statistics.median(one for one, _ in cpus):.1f} us,"
        f" in memory {statistics.median(one for _, one in cpus):.1f} us",
    )


# ---------------------------------------------------------------------- batches


def batches(bed: Bed) -> None:
    """NDJSON batches that are answered once they are on disk; in memory, once accepted."""
    documents = waiting_resources(bed.port, suspended=True)
    given = write_resources(bed.folder / "batches", [*documents])
    on_disk, in_memory = [], []
    with sidecar(given) as memory, sidecar(given, "--journal", bed.journal()) as disk:
        for run in range(bed.rounds):
            in_memory.append(batch_rate(memory, "accepted", run))
            on_disk.append(batch_rate(disk, "durable", run))
    rate, cpu = (statistics.median(column) for column in zip(*on_disk, strict=True))
    accepted, cpu_accepted = (statistics.median(column) for column in zip(*in_memory, strict=True))
    ratio = statistics.median(
        durable / without for (durable, _), (without, _) in zip(on_disk, in_memory, strict=True)
    )
    report(
        goal=f"ack=durable in NDJSON batches of {BATCH:,}, 500 B >= {BATCH_GOAL:,}/s",
        figure=f"{rate:,.0f}/s",
        met=rate >= BATCH_GOAL,
        note=f"{ratio:.0%} of ack=accepted in memory, {accepted:,.0f}/s; CPU {cpu:.1f} us each,"
        f" in memory {cpu_accepted:.1f} us; to one suspended destination",
    )


def batch_rate(deliverer: Sidecar, level: str, run: int) -> tuple[float, float]:
    """Indications a second that are answered at a level, and the deliverer's CPU for each in
    microseconds; what waits then is purged."""
    bodies = intake_load.batches(run)[: 100 if IS_SHORT else None]
    url = f"{deliverer.intake_url}/v1/indications?source=bench&ack={level}"
    cpu = deliverer.cpu_seconds()
    seconds = asyncio.run(intake_load.publish(url, bodies))
    cpu = deliverer.cpu_seconds() - cpu
    purged = deliverer.request("/v1/queues/waiting/purge", body=b"")["discarded"]
    # Each is read back and logged, which must not count for the next round.
    assert deliverer.request("/drain?timeout=60", body=b"")["complete"]
    taken = len(bodies) * intake_load.BATCH * 98 // 100
    assert purged == taken, (purged, taken)
    return taken / seconds, cpu / taken * 1e6


# ---------------------------------------------------------------------- latency


def latency(bed: Bed) -> None:
    """What the disk adds to the time from publishing to delivery, as a multiple of fdatasync."""
    asyncio.run(_latency(bed))


async def _latency(bed: Bed) -> None:
    given = write_resources(bed.folder / "latency", [*flow_resources(bed.port, DESTINATIONS)])
    rounds: list[tuple[float, float, float]] = []
    medians: list[tuple[float, float]] = []
    with sidecar(given) as memory, sidecar(given, "--journal", bed.journal()) as disk:
        for run in range(bed.rounds):
            in_memory = await steady_delays(memory, run)
            bare = fdatasync_seconds(bed.folder, size=2048)
            on_disk = await steady_delays(disk, run)
            rounds.append((p99(in_memory), p99(on_disk), bare))
            medians.append((statistics.median(in_memory), statistics.median(on_disk)))
    added = statistics.median((disk - memory) / bare for memory, disk, bare in rounds)
    memories, disks, bares = (
        statistics.median(column) * 1e3 for column in zip(*rounds, strict=True)
    )
    without, with_disk = (statistics.median(column) * 1e3 for column in zip(*medians, strict=True))
    report(
        goal=f"On disk: p99 added at {STEADY_RATE:,}/s, of one fdatasync <= {LATENCY_GOAL:.0f}",
        figure=f"{added:.1f}",
        met=added <= LATENCY_GOAL,
        note=f"p99 {disks:.2f} ms, in memory {memories:.2f} ms; medians {with_disk:.2f} ms and"
        f" {without:.2f} ms; fdatasync {bares:.2f} ms",
    )


async def steady_delays(deliverer: Sidecar, run: int) -> list[float]:
    """Seconds from publishing to delivery of 2 KB at a steady rate, one at a time."""
    publisher = SteadyPublisher(deliverer.intake_url, lambda number: flow_line(run, number))
    await publisher.connect()
    await publisher.publish(
        per_second=STEADY_RATE, until=lambda now: now >= WARMING_SECONDS + STEADY_SECONDS
    )
    publisher.close()
    delays = publisher.delays()
    counted_from = delays[0][0] + WARMING_SECONDS
    return [delay for began, delay in delays if began >= counted_from]


# ---------------------------------------------------------------------- a million pending


def waiting_resources(
    port: int, *, suspended: bool, timeout: int = 10, probe: int | None = None
) -> Iterator[dict[str, Any]]:
    """A destination at which everything waits, and with ``probe`` one beside it that is idle."""
    storage = {"storage": {"sizeLimit": STORAGE}}
    yield resource("IndicationService", "default", queueSize=QUEUE, deliverer=storage)
    ports = {"waiting": port} | ({} if probe is None else {"probe": probe})
    for name, listener in ports.items():
        condition = "" if probe is None else f" WHERE OwningEntity = '{name}'"
        query = f"SELECT * FROM CIM_AlertIndication{condition}"
        yield resource("IndicationFilter", name, query=query)
        yield resource(
            "ListenerDestination",
            name,
            destination=f"http://127.0.0.1:{listener}/{name}",
            protocol="CloudEvents",
            timeoutSeconds=timeout if name == "waiting" else 10,
            suspended=suspended and name == "waiting",
        )
        yield resource(
            "IndicationSubscription",
            name,
            filterRef={"name": name},
            destinationRef={"name": name},
        )


def alert(entity: str, number: int) -> bytes:
    """An indication of 500 B for one of the two destinations."""
    properties = {
        "IndicationIdentifier": f"{entity}-{number:012d}",
        "AlertType": 6,
        "PerceivedSeverity": 5,
        "ProbableCause": 52,
        "OwningEntity": entity,
        "Description": "",
    }
    document = {"class": "CIM_AlertIndication", "properties": properties}
    encoded = json.dumps(document, separators=(",", ":")).encode()
    return encoded[:-3] + b"d" * (BODY_BYTES - len(encoded)) + encoded[-3:]


def pending(bed: Bed) -> None:
    """A million waiting: resident memory, stalls of others, the first delivery after a restart."""
    journal = bed.journal()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        folder = write_resources(bed.folder / "pending", documents_of(port, bed))
        with sidecar(folder, "--journal", journal) as deliverer:
            for first in range(0, PENDING, BATCH):
                body = b"\n".join(alert("waiting", first + one) for one in range(BATCH))
                answer = deliverer.request(
                    "/v1/indications?source=bench", body=body, content_type="application/x-ndjson"
                )
                assert answer["accepted"] == BATCH, answer
            resident = [deliverer.resident_bytes() / 2**20]
        with sidecar(folder, "--journal", journal) as deliverer:
            assert deliverer.metric("pillion_destination_queue_depth") == PENDING
            resident.append(deliverer.resident_bytes() / 2**20)
            tell_stalls(asyncio.run(stalls(deliverer, folder, port, bed)))
        write_resources(folder, documents_of(port, bed, suspended=False))
        seconds = first_delivery(listener, folder, journal)
    report(
        goal=f"{PENDING:,} pending pairs on disk: resident <= {RESIDENT_GOAL} MB",
        figure=f"{max(resident):.0f} MiB",
        met=max(resident) * 1.048576 <= RESIDENT_GOAL,
        note=f"{resident[0]:.0f} MiB when accepted, {resident[1]:.0f} MiB after a restart;"
        f" bodies of {BODY_BYTES} B, all identities remembered",
    )
    report(
        goal=f"{PENDING:,} pending pairs: first delivery after kill -9 <= {FIRST_GOAL:.0f} s",
        figure=f"{seconds:.1f} s",
        met=seconds <= FIRST_GOAL,
        note="from the start of the process",
    )


def documents_of(
    port: int, bed: Bed, *, suspended: bool = True, timeout: int = 10
) -> Sequence[dict[str, Any]]:
    return [*waiting_resources(port, suspended=suspended, timeout=timeout, probe=bed.port)]


def first_delivery(listener: socket.socket, folder: Path, journal: str) -> float:
    """Seconds from the start of a process to the first byte of a delivery."""
    arrived: list[float] = []

    def wait() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1)
            arrived.append(time.perf_counter())

    listener.settimeout(60)
    thread = threading.Thread(target=wait)
    thread.start()
    began = time.perf_counter()
    with sidecar(folder, "--journal", journal):
        thread.join()
    assert arrived, "nothing was delivered"
    return arrived[0] - began


@dataclass
class Stalls:
    """The worst delays of single deliveries, in milliseconds: beside nothing, scrapes, reloads."""

    idle: float
    scrape: float
    reload: float
    #: How long a scrape and a reload took, in milliseconds.
    scrapes: list[float] = field(default_factory=list)
    reloads: list[float] = field(default_factory=list)


async def stalls(deliverer: Sidecar, folder: Path, port: int, bed: Bed) -> Stalls:
    """Deliver probes at a steady rate while the deliverer is scraped, and while it reloads."""
    publisher = SteadyPublisher(deliverer.intake_url, lambda number: alert("probe", number))
    await publisher.connect()
    found = Stalls(0.0, 0.0, 0.0)

    async def worst(beside: Callable[[], None]) -> float:
        doing = asyncio.ensure_future(asyncio.to_thread(beside))
        await publisher.publish(
            per_second=PROBES_A_SECOND, until=lambda now: now > 1.0 and doing.done()
        )
        await doing
        return max(delay for _, delay in publisher.delays()) * 1e3

    def scrape() -> None:
        for _ in range(SCRAPES):
            began = time.perf_counter()
            with urlopen(f"{deliverer.telemetry_url}/metrics", timeout=60) as response:
                response.read()
            found.scrapes.append((time.perf_counter() - began) * 1e3)
            time.sleep(0.2)

    def reload() -> None:
        for number in range(RELOADS):
            before, began = revision(deliverer), time.perf_counter()
            write_resources(folder, documents_of(port, bed, timeout=20 + number))
            while revision(deliverer) == before:
                time.sleep(0.01)
            found.reloads.append((time.perf_counter() - began) * 1e3)

    await worst(lambda: None)
    found.idle = await worst(lambda: time.sleep(2.0))
    found.scrape = await worst(scrape)
    found.reload = await worst(reload)
    publisher.close()
    return found


def revision(deliverer: Sidecar) -> str:
    """The revision of the configuration in force."""
    with urlopen(f"{deliverer.intake_url}/v1/queues?limit=1", timeout=60) as response:
        answer: dict[str, str] = json.load(response)
        return answer["revision"]


def tell_stalls(found: Stalls) -> None:
    for what, worst, each in (
        ("scrape", found.scrape, found.scrapes),
        ("reload", found.reload, found.reloads),
    ):
        report(
            goal=f"{PENDING:,} pending: a {what} holds up delivery < {STALL_GOAL:.0f} ms",
            figure=f"{worst:.1f} ms",
            met=worst < STALL_GOAL,
            note=f"the worst delivery beside {len(each)}; beside none {found.idle:.1f} ms;"
            f" a {what} takes {statistics.median(each):.0f} ms",
        )


PARTS: dict[str, Callable[[Bed], None]] = {
    "flow": flow,
    "batches": batches,
    "latency": latency,
    "pending": pending,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1 if IS_SHORT else 3)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, nginx(Path(name)) as port:
        bed = Bed(Path(name), port, arguments.rounds)
        for part in [arguments.only] if arguments.only else PARTS:
            PARTS[part](bed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
