"""Intake alone: how many indications a second one process accepts over HTTP, in NDJSON batches.

A deliverer's intake runs in a process of its own, behind a real aiohttp server on loopback, with
queues that take everything; lines have 500 B and 10 properties, 1 % are invalid and 1 % duplicates,
and every answer is checked. Prints the median of five runs.

    python tests/benchmarks/bench_intake.py [--profile]
"""

import argparse
import asyncio
import cProfile
import gc
import json
import pstats
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Container, Sequence

from aiohttp import web

from benchmarks.intake_load import BATCH, BATCHES, batches, line, publish
from pillion_cim.schema import load_schema
from pillion_sidecar.clock import LoopTimers, SystemClock
from pillion_sidecar.indication import DiscardReason, Indication, InstanceSource, Refusal, Target
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.limits import IntakeGate
from pillion_sidecar.intake.notices import HeldBack, UndeclaredClasses, UnreachedIndications
from pillion_sidecar.intake.server import create_intake
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.telemetry.metrics import Metrics
from support.bench import report

RUNS = 5
GOAL = 150_000

_TARGETS = (Target("all", "every", "siem"),)


class OneRoute:
    """Everything goes to one destination."""

    #: Whether this is a gateway.
    takes_relayed = False
    schema = load_schema()

    def relayed(self, subscription: str, instance: InstanceSource) -> Target | None:
        return _TARGETS[0]

    def knows(self, subscription: str) -> bool:
        return True

    def route(
        self, class_name: str, instance: InstanceSource, source_namespace: str | None
    ) -> Sequence[Target]:
        return _TARGETS


class TakingQueues:
    """Takes everything, as a queue whose listener keeps up."""

    def offer(
        self, indication: Indication, targets: Sequence[Target], *, completes: bool = False
    ) -> Refusal | None:
        indication.unsettled = 1
        return None

    def offer_all(
        self, indications: Sequence[Indication], targets: Sequence[Sequence[Target]]
    ) -> bool:
        return True

    def hold(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        return self.offer(indication, targets)

    def have_ended(self, targets: Sequence[Target]) -> bool:
        return False

    def release(self, indication: Indication) -> None:
        """It was taken already."""

    def discard_held(self, indication: Indication, reason: DiscardReason) -> None:
        """Nobody counts it."""

    def lose(self, indication: Indication, destination: str) -> None:
        """Nothing of it was lost."""

    def end_group(self, run: int) -> None:
        """Nothing of it was lost."""

    def end_other_groups(self, runs: Container[int]) -> None:
        """Nothing of them was lost."""

    def barrier(self, done: Callable[[], None]) -> None:
        done()


async def serve(*, profile: bool) -> None:
    """Run the intake until the parent closes our standard input."""
    clock = SystemClock()
    timers = LoopTimers(loop=asyncio.get_running_loop())
    memory = DuplicateMemory(clock=clock, window_seconds=86_400, capacity=1_000_000)
    queues = TakingQueues()
    gate = IntakeGate()
    app = create_intake(
        context=IntakeContext(
            clock=clock,
            memory=memory,
            routes=OneRoute(),
            queues=queues,
            groups=Groups(clock=clock, timers=timers, queues=queues, window_seconds=86_400),
            unreached=UnreachedIndications(timers=timers),
            held_back=HeldBack(timers=timers),
            undeclared=UndeclaredClasses(timers=timers, schema=load_schema),
        ),
        schema=load_schema(),
        timers=timers,
        gate=gate,
        observer=Metrics(clock=clock, version="benchmark"),
    )
    runner = web.AppRunner(app, access_log=None, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gate.open()
    gc.freeze()
    print(runner.addresses[0][1], flush=True)
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    if profile:
        profiler.disable()
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu": usage.ru_utime + usage.ru_stime, "rss_kib": usage.ru_maxrss}))
    await runner.cleanup()


def measure(*, profile: bool) -> None:
    command = [sys.executable, __file__, "--serve", *(["--profile"] if profile else [])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        url = f"http://127.0.0.1:{port}/v1/indications?source=nycflights13"
        rates = []
        for run in range(RUNS):
            bodies = batches(run)
            seconds = asyncio.run(publish(url, bodies))
            rates.append(BATCH * BATCHES * 98 / 100 / seconds)
        server.stdin.close()
        used = json.loads(server.stdout.readline())
    total = BATCH * BATCHES * RUNS
    rate = statistics.median(rates)
    report(
        goal=f"Intake in NDJSON batches, accepted >= {GOAL:,}/s",
        figure=f"{rate:,.0f}/s",
        met=rate >= GOAL,
        note=f"{used['cpu'] / total * 1e6:.1f} us CPU a line, client on the other core",
    )
    print(f"line                  {len(line(0, 0))} B")
    print(f"runs                  {', '.join(f'{rate:,.0f}' for rate in rates)}")
    print(f"server CPU per line   {used['cpu'] / total * 1e6:.2f} us")
    print(f"server RSS            {used['rss_kib'] / 1024:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--profile", action="store_true", help="print the server's profile")
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(profile=arguments.profile))
    else:
        measure(profile=arguments.profile)


if __name__ == "__main__":
    main()
