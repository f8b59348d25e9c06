"""The same work for Pillion and for its peers, in one run, on one machine: ``make bench-peers``.

    python -m benchmarks.peers [--events N] [--only PEER …] [--scenarios NAME …] [--write]
    python -m benchmarks.peers --fetch

Prints the tables of ``docs/peers.md``, and with ``--write`` puts them there, with the plot. A peer
that this machine lacks is skipped, and the tables say so; ``--fetch`` gets what can be had. No
scenario takes longer than half a minute.
"""

import argparse
import json
import os
import platform
import signal
import sys
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path

from benchmarks.peers import programs, tables
from benchmarks.peers.arq_redis import ArqWorker
from benchmarks.peers.celery_redis import CeleryWorker
from benchmarks.peers.nats_jetstream import NatsWorker
from benchmarks.peers.peer import Peer
from benchmarks.peers.pillion import in_memory, on_disk
from benchmarks.peers.rsyslog import Rsyslog
from benchmarks.peers.scenarios import SCENARIOS, Figures, Unmeasured
from benchmarks.peers.syslog_ng import SyslogNg
from support.bench import interpreter

EVENTS = 20_000


def all_peers() -> list[Peer]:
    return [
        on_disk(),
        in_memory(),
        SyslogNg(),
        Rsyslog(),
        NatsWorker(),
        ArqWorker(),
        CeleryWorker(),
    ]


def measure(peer: Peer, names: list[str], events: int) -> tables.Row:
    """Put one peer through the scenarios."""
    if (missing := peer.missing()) is not None:
        print(f"{peer.name} is skipped: {missing}", flush=True)
        return tables.Row(peer.name, missing, {})
    figures: dict[str, Figures] = {}
    for name in names:
        began = time.monotonic()
        try:
            figures[name] = SCENARIOS[name].run(peer, programs.RUNS, events)
        except (Unmeasured, RuntimeError) as error:
            print(f"{peer.name}, {SCENARIOS[name].title}: {error}", file=sys.stderr, flush=True)
            continue
        one = figures[name]
        took, load = time.monotonic() - began, os.getloadavg()[0]
        told = f"{one.arrived:,} of {one.taken:,} in {one.seconds:.1f} s"
        print(f"{peer.name}, {SCENARIOS[name].title}: {told} ({took:.0f} s, load {load:.1f})")
        sys.stdout.flush()
    return tables.Row(peer.name, None, figures)


def how(events: int) -> str:
    """When and where it was measured."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = f"{os.cpu_count()} cores, {python}, Linux {platform.release().split('-')[0]}"
    load = f"load {os.getloadavg()[2]:.0f} at the end"
    return f"Measured on {date.today()}, {events:,} events a burst, {machine}, {load}."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--only", nargs="*", default=[], metavar="PEER")
    parser.add_argument("--scenarios", nargs="*", default=list(SCENARIOS), choices=SCENARIOS)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/peers.md")
    parser.add_argument("--fetch", action="store_true", help="get the peers' programs, and end")
    arguments = parser.parse_args()
    if arguments.fetch:
        programs.fetch()
        return 0
    # So that what it has started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(interpreter(), flush=True)
    programs.RUNS.mkdir(parents=True, exist_ok=True)
    rows = [
        measure(peer, arguments.scenarios, arguments.events)
        for peer in all_peers()
        if not arguments.only or peer.name in arguments.only
    ]
    results = programs.RUNS / "results.json"
    results.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    text = tables.tables(rows)
    print("\n" + text)
    if arguments.write:
        tables.write(Path("docs/peers.md"), text, how(arguments.events))
        programs.draw(results, Path("docs/assets/peers.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
