"""A whole deliverer against wrk, both sending 2 KB bodies to the same nginx with one worker.

    python tests/benchmarks/bench_end_to_end.py [--rounds N] [--profile FILE]

``one``: one ordered destination delivers a backlog; goal: 80 % of ``wrk -t1 -c1``.
``many``: another process publishes NDJSON, and each indication goes to the one of 32 destinations
whose filter it meets, from the first byte published to the last delivered; goal: 40 % of
``wrk -t1 -c32``. nginx itself counts what arrives. Ratios are within one round, of interleaved
rounds the median counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.bench import (
    Sidecar,
    nginx,
    report,
    requests_answered,
    resource,
    sidecar,
    write_resources,
    wrk,
)

#: Another one for each round.
PUBLISHER = str(os.getpid())
BATCH = 250
CONNECTIONS = 2
LINE_BYTES = 2048
DESTINATIONS = 32
#: Indications that a round publishes.
BACKLOG, FLOW = 40_000, 80_000
WRK_SECONDS = 1
ONE_GOAL, MANY_GOAL = 0.80, 0.40


@dataclass(frozen=True)
class Round:
    """One round: requests a second, and the deliverer's CPU for each delivery."""

    wrk: float
    pillion: float
    cpu_microseconds: float

    @property
    def ratio(self) -> float:
        return self.pillion / self.wrk


def line(run: int, number: int) -> bytes:
    """One indication of 2 KB; each goes to another of the 32 tenants than the one before."""
    properties = {
        "IndicationIdentifier": f"alert-{run:02d}-{number:012d}",
        "IndicationTime": "20130114050000.000000-300",
        "AlertType": 6,
        "PerceivedSeverity": 5,
        "ProbableCause": 52,
        "OwningEntity": f"tenant-{number % DESTINATIONS:02d}",
        "AlertingManagedElement": "WX_Station.Name='EWR',SystemName='nycflights13'",
        "SystemName": "ewr.weather.example.com",
        "Message": "Gust of 41.4 mph is above 40 mph",
        "Description": "",
    }
    text = {"class": "CIM_AlertIndication", "properties": properties}
    encoded = json.dumps(text, separators=(",", ":")).encode()
    return encoded[:-3] + b"d" * (LINE_BYTES - len(encoded)) + encoded[-3:]


# ---------------------------------------------------------------------- the publisher's process


def publish(url: str, run: int, count: int) -> None:
    """Prepare; then, when told by a line of input, publish all and wait for their delivery."""
    lines = [line(run, number) for number in range(count)]
    batches = [b"\n".join(lines[at : at + BATCH]) for at in range(0, count, BATCH)]
    batches.reverse()
    del lines
    print("ready", flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=_post_all, args=(url, batches)) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("published", flush=True)
    answer = _post(
        HTTPConnection(urlsplit(url).netloc), "/v1/flush?timeout=120&publisher=" + PUBLISHER
    )
    delivered = sum(counts["delivered"] for counts in answer["destinations"].values())
    assert answer["complete"], answer
    print("delivered", delivered, flush=True)


def _post_all(url: str, batches: list[bytes]) -> None:
    connection = HTTPConnection(urlsplit(url).netloc)
    while batches:
        answer = _post(connection, "/v1/indications?source=bench", batches.pop())
        assert answer["accepted"] == BATCH, answer


def _post(connection: HTTPConnection, path: str, body: bytes = b"") -> Any:
    headers = {"Content-Type": "application/x-ndjson", "Pillion-Publisher": PUBLISHER}
    connection.request("POST", path, body, headers)
    return json.load(connection.getresponse())


# ---------------------------------------------------------------------- the measurement


class Publisher:
    """A process that publishes when told to, and says how far it is."""

    def __init__(self, deliverer: Sidecar, *, run: int, count: int) -> None:
        command = [sys.executable, __file__, "--publish", deliverer.intake_url]
        self._process = subprocess.Popen(
            [*command, "--run", str(run), "--count", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.expect("ready")

    def start(self) -> None:
        """Let it publish."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def expect(self, word: str) -> str:
        """Wait until it says so; return what else the line says."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said.startswith(word), f"the publisher said {said!r}"
        return said.removeprefix(word).strip()

    def end(self) -> None:
        self._process.wait()


def measure_one(folder: Path, port: int, deliverer: Sidecar, run: int) -> Round:
    """The rate at which a backlog goes to one ordered destination, once all of it is there."""
    publisher = Publisher(deliverer, run=run, count=BACKLOG)
    theirs = wrk(folder, port, connections=1, seconds=WRK_SECONDS)
    publisher.start()
    publisher.expect("published")
    answered, cpu, began = requests_answered(port), deliverer.cpu_seconds(), time.perf_counter()
    publisher.expect("delivered")
    seconds = time.perf_counter() - began
    count, cpu = requests_answered(port) - answered - 1, deliverer.cpu_seconds() - cpu
    publisher.end()
    return Round(theirs, count / seconds, cpu / count * 1e6)


def measure_many(folder: Path, port: int, deliverer: Sidecar, run: int) -> Round:
    """The rate from publishing to delivery, through 32 filters to as many destinations."""
    publisher = Publisher(deliverer, run=run, count=FLOW)
    theirs = wrk(folder, port, connections=DESTINATIONS, seconds=WRK_SECONDS)
    answered, cpu, began = requests_answered(port), deliverer.cpu_seconds(), time.perf_counter()
    publisher.start()
    publisher.expect("published")
    delivered = int(publisher.expect("delivered"))
    seconds = time.perf_counter() - began
    count, cpu = requests_answered(port) - answered - 1, deliverer.cpu_seconds() - cpu
    assert delivered == FLOW == count, (delivered, count)
    publisher.end()
    return Round(theirs, count / seconds, cpu / count * 1e6)


def resources(port: int, destinations: int) -> Iterator[dict[str, Any]]:
    """So many destinations at nginx, each with the filter of its tenant."""
    yield resource("IndicationService", "default", queueSize=200_000)
    for number in range(destinations):
        name = f"tenant-{number:02d}"
        condition = f" WHERE OwningEntity = '{name}'" if destinations > 1 else ""
        yield resource(
            "ListenerDestination",
            name,
            destination=f"http://127.0.0.1:{port}/{name}",
            protocol="CloudEvents",
        )
        yield resource(
            "IndicationFilter", name, query=f"SELECT * FROM CIM_AlertIndication{condition}"
        )
        yield resource(
            "IndicationSubscription",
            name,
            filterRef={"name": name},
            destinationRef={"name": name},
        )


def tell(name: str, rounds: Sequence[Round], goal: float) -> None:
    ratio = statistics.median(one.ratio for one in rounds)
    wrk_rate = statistics.median(one.wrk for one in rounds)
    rate = statistics.median(one.pillion for one in rounds)
    cpu = statistics.median(one.cpu_microseconds for one in rounds)
    report(
        goal=f"{name} >= {goal:.0%}",
        figure=f"{ratio:.0%}",
        met=ratio >= goal,
        note=f"{rate:,.0f}/s of wrk's {wrk_rate:,.0f}/s; {cpu:.1f} us CPU each",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publish", help=argparse.SUPPRESS)
    parser.add_argument("--run", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["one", "many"])
    arguments = parser.parse_args()
    if arguments.publish:
        publish(arguments.publish, arguments.run, arguments.count)
        return 0
    with tempfile.TemporaryDirectory() as name, nginx(Path(name)) as port:
        folder = Path(name)
        one = write_resources(folder / "one", [*resources(port, 1)])
        many = write_resources(folder / "many", [*resources(port, DESTINATIONS)])
        with sidecar(one) as for_one, sidecar(many) as for_many:
            ones, manies = [], []
            for run in range(arguments.rounds):
                if arguments.only != "many":
                    ones.append(measure_one(folder, port, for_one, run))
                if arguments.only != "one":
                    manies.append(measure_many(folder, port, for_many, run))
        if ones:
            tell("One ordered destination, of wrk -t1 -c1", ones, ONE_GOAL)
        if manies:
            tell("32 destinations through HTTP intake, of wrk -t1 -c32", manies, MANY_GOAL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
