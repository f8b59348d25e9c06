"""What the history costs a deliverer: its CPU with and without one, at 0, 1 and 100 % discards.

    python tests/benchmarks/bench_history.py [--rounds N]

Deliverers with a journal take the same indications of 2 KB and deliver them to one nginx, in turns:
one that keeps no outcome at all, one with the default, and one that keeps all bodies. What is
discarded is for a suspended destination whose queue of one gives way. Ratios are within one round;
the median counts. All CPU of a process counts, its threads included.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.bench_end_to_end import line
from benchmarks.bench_single import cpu_microseconds
from support.bench import Sidecar, nginx, report, resource, sidecar, write_resources

#: Indications of one turn, and lines of one request.
COUNT, LINES = 2_000, 250
#: Goals: of the CPU without a history.
GOALS = {"Discarded": 1.08, "All": 1.25}
#: Percent of the indications that are discarded.
SHARES = (0, 1, 100)
WITHOUT = """
from pillion_sidecar.history.recorder import History
History.add = lambda self, outcome: None
History.keeps_body = lambda self, result: False
"""


def resources(port: int, bodies: str) -> Iterator[dict[str, Any]]:
    yield resource("IndicationService", "default", history={"bodies": bodies})
    for name, severity, more in (
        ("kept", 5, {}),
        (
            "lost",
            6,
            {"suspended": True, "queueSize": 1, "queueFullPolicy": "DiscardOldest"},
        ),
    ):
        query = f"SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity = {severity}"
        yield resource("IndicationFilter", name, query=query)
        yield resource(
            "ListenerDestination",
            name,
            destination=f"http://127.0.0.1:{port}/",
            protocol="CloudEvents",
            **more,
        )
        yield resource(
            "IndicationSubscription",
            name,
            filterRef={"name": name},
            destinationRef={"name": name},
        )


def lines(run: int, share: int) -> list[bytes]:
    """Of one turn; ``share`` percent are for the destination that discards."""
    made = [line(run, number) for number in range(COUNT)]
    every = 100 // share if share else COUNT + 1
    return [
        one if number % every else one.replace(b'"PerceivedSeverity":5', b'"PerceivedSeverity":6')
        for number, one in enumerate(made, start=int(not share))
    ]


def settled(process: Sidecar) -> int:
    names = ("pillion_indications_delivered_total", "pillion_indications_discarded_total")
    return int(sum(process.metric(name) for name in names))


def take_turn(process: Sidecar, share: int, run: int) -> float:
    """Publish, wait until all but the last discard is settled; return microseconds for each."""
    given, before = lines(run, share), settled(process)
    began = cpu_microseconds(process.pid)
    for begin in range(0, COUNT, LINES):
        process.request(
            "/v1/indications?source=bench&ack=durable",
            body=b"\n".join(given[begin : begin + LINES]),
            content_type="application/x-ndjson",
        )
    while settled(process) < before + COUNT - 1:
        time.sleep(0.05)
    return (cpu_microseconds(process.pid) - began) / COUNT


def measure(folder: Path, share: int, rounds: int) -> dict[str, float]:
    """Return the CPU of each history, of that without one."""
    with ExitStack() as stack:
        port = stack.enter_context(nginx(folder))
        processes = {}
        for name, first in (("None", WITHOUT), ("Discarded", ""), ("All", "")):
            given = write_resources(folder / name, [*resources(port, name)])
            journal = str(folder / f"journal-{name}")
            processes[name] = stack.enter_context(sidecar(given, "--journal", journal, first=first))
        ratios: dict[str, list[float]] = {name: [] for name in GOALS}
        for run in range(rounds + 1):
            costs = {name: take_turn(one, share, run) for name, one in processes.items()}
            print(share, {name: round(cost, 1) for name, cost in costs.items()}, flush=True)
            # The first one warms up.
            for name in GOALS if run else ():
                ratios[name].append(costs[name] / costs["None"])
    return {name: statistics.median(found) for name, found in ratios.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    for share in SHARES:
        with tempfile.TemporaryDirectory() as folder:
            ratios = measure(Path(folder), share, rounds)
        for name, goal in GOALS.items():
            report(
                goal=f"A history with bodies {name}, {share} % discards: CPU, of none <= {goal}",
                figure=f"{ratios[name]:.2f}",
                met=ratios[name] <= goal,
                note="intake, journal and delivery of 2 KB to nginx",
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
