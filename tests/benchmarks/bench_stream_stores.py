"""A deliverer whose journal a stream of three nats-servers keeps, beside one without stores, all in
one run.

    python tests/benchmarks/bench_stream_stores.py [--rounds N] [--lines N]

Batches of lines of 500 B are published, with ``ack=stable`` to the one and ``ack=durable`` to the
other, and nothing is delivered. The servers sync each message (``sync_interval: always``).
Everything is on one machine. CPU is that of all threads of a process, for each indication. Ratios
are within one round, and the median round counts.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bench_single import cpu_microseconds
from benchmarks.bench_stores import BATCHES, bodies, documents, median, publish, tell
from support.bench import Sidecar, sidecar, write_resources
from support.nats_cluster import STREAM, SUBJECT, NATSCluster, clustered

#: Goals.
DELIVERER, SERVERS = 1.4, 1.0
#: Nobody listens there, and nothing is delivered.
NOWHERE = "http://127.0.0.1:9/"


@dataclass(frozen=True)
class Turn:
    rate: float
    #: Microseconds for each indication: of the deliverer, and of all servers together.
    deliverer: float
    servers: float


def deliverer(cluster: NATSCluster | None) -> list[dict[str, Any]]:
    """Its resources."""
    given = [*documents(url=NOWHERE, suspended=True)]
    if cluster is not None:
        member = {
            "name": "nats",
            "servers": [cluster.url(at) for at in range(3)],
            "stream": STREAM,
            "subject": SUBJECT,
            "syncInterval": "Always",
        }
        given[0]["spec"]["stores"] = {"groups": [{"name": "all", "members": [{"nats": member}]}]}
    return given


def take_turn(process: Sidecar, servers: Sequence[int], *, ack: str, lines: int, name: str) -> Turn:
    batches = BATCHES[lines]
    given, count = bodies(name, lines=lines, batches=batches), lines * batches
    pids = [process.pid, *servers]
    before = [*map(cpu_microseconds, pids)]
    seconds = publish(process.intake_url, given, ack=ack, lines=lines)
    # The slowest server goes on.
    time.sleep(0.3)
    used = [(cpu_microseconds(pid) - then) / count for pid, then in zip(pids, before, strict=True)]
    return Turn(count / seconds, used[0], sum(used[1:]))


def ship(folder: Path, cluster: NATSCluster, *, rounds: int, sizes: Sequence[int]) -> None:
    servers = [one.pid for one in cluster.processes.values()]
    with ExitStack() as stack:
        alone, shipped = (
            stack.enter_context(
                sidecar(
                    write_resources(folder / name, deliverer(stream)),
                    *("--journal", str(folder / f"journal-{name}")),
                )
            )
            for name, stream in (("alone", None), ("shipped", cluster))
        )
        for lines in sizes:
            turns = []
            # The first round warms up.
            for number in range(rounds + 1):
                name = f"{number}-{lines}"
                one = take_turn(alone, (), ack="durable", lines=lines, name=name)
                other = take_turn(shipped, servers, ack="stable", lines=lines, name=name)
                print(lines, one, other, flush=True)
                turns.append((one, other))
            _tell(turns[1:], f"ack=stable by three nats-servers, batches of {lines:,}, 500 B")


def _tell(turns: Sequence[tuple[Turn, Turn]], what: str) -> None:
    tell(
        f"{what}: CPU of the deliverer, of one without stores",
        median(shipped.deliverer / alone.deliverer for alone, shipped in turns),
        None,
        DELIVERER,
        f"{median(shipped.deliverer for _, shipped in turns):.1f} us; rate "
        f"{median(shipped.rate / alone.rate for alone, shipped in turns):.2f} of ack=durable",
    )
    tell(
        "the same: CPU of all servers together, of the deliverer's",
        median(shipped.servers / shipped.deliverer for _, shipped in turns),
        None,
        SERVERS,
        f"{median(shipped.servers for _, shipped in turns):.1f} us",
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lines", type=int, choices=sorted(BATCHES))
    arguments = parser.parse_args()
    sizes = [arguments.lines] if arguments.lines else [*BATCHES]
    with tempfile.TemporaryDirectory() as name:
        async with clustered(Path(name)) as cluster:
            await asyncio.to_thread(ship, Path(name), cluster, rounds=arguments.rounds, sizes=sizes)


if __name__ == "__main__":
    asyncio.run(main())
