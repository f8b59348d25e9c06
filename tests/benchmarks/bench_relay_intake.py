"""The relay's cost at a gateway: what intake accepts of sidecars beside what it accepts of
publishers.

The same lines and batches as in ``bench_intake.py``, to ``/v1/relay`` of one process and to
``/v1/indications`` of another in turns, so that both meet the same machine.

    python tests/benchmarks/bench_relay_intake.py [--profile]
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time

from benchmarks.bench_intake import OneRoute, serve
from benchmarks.intake_load import BATCH, line, publish
from support.bench import report

RUNS = 5
BATCHES = 100
GOAL = 1.6


def relayed(plain: bytes, number: int) -> bytes:
    """A line as a sidecar relays it, with its end."""
    return plain[:-1] + (
        b',"source":"nycflights13","relay":{"subscription":"8a5b8f0e-6d53-4d6c-9f0a-2f1f6a3f2d11",'
        b'"acceptedAt":%.6f,"context":"default#2fde122a363bea383693e1f569f2425b#147e16cf-15e4#3",'
        b'"number":%d}}\n' % (time.time(), number)
    )


def batches(run: int, *, is_relayed: bool) -> list[bytes]:
    """The bodies of one turn."""
    made = []
    for first in range(0, BATCH * BATCHES, BATCH):
        lines = ((number, line(run, number)) for number in range(first, first + BATCH))
        made.append(
            b"".join(
                relayed(plain, number) if is_relayed else plain + b"\n" for number, plain in lines
            )
        )
    return made


class Server:
    """A process with an intake, which only one path of is asked."""

    def __init__(self, path: str, *, profile: bool) -> None:
        command = [sys.executable, __file__, "--serve", *(["--profile"] if profile else [])]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self._url = f"http://127.0.0.1:{port}/v1/{path}"
        self.rates: list[float] = []

    def turn(self, bodies: list[bytes]) -> None:
        """Have it accept some batches."""
        seconds = asyncio.run(publish(self._url, bodies))
        self.rates.append(BATCH * len(bodies) * 98 / 100 / seconds)

    def end(self) -> float:
        """End it; return the microseconds of CPU that a line took."""
        told, _ = self._process.communicate()
        return float(json.loads(told)["cpu"]) / (BATCH * BATCHES * len(self.rates)) * 1e6


def measure(*, profile: bool) -> None:
    relay = Server("relay", profile=profile)
    ordinary = Server("indications?source=nycflights13", profile=False)
    for run in range(RUNS):
        relay.turn(batches(run, is_relayed=True))
        ordinary.turn(batches(run, is_relayed=False))
    relayed_cost, cost = relay.end(), ordinary.end()
    report(
        goal=f"CPU that a gateway spends to accept a relayed line <= {GOAL:g} x a published one",
        figure=f"{relayed_cost / cost:.2f} x",
        met=relayed_cost <= GOAL * cost,
        note=f"{relayed_cost:.1f} us beside {cost:.1f} us",
    )
    print(f"lines                 {len(relayed(line(0, 0), 0))} B, {len(line(0, 0)) + 1} B")
    for name, server in (("relay", relay), ("indications", ordinary)):
        rates = ", ".join(f"{rate:,.0f}" for rate in server.rates)
        print(f"{name:<21} {statistics.median(server.rates):,.0f}/s, median of {rates}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--profile", action="store_true", help="print the relay's profile")
    arguments = parser.parse_args()
    if arguments.serve:
        OneRoute.takes_relayed = True
        asyncio.run(serve(profile=arguments.profile))
    else:
        measure(profile=arguments.profile)


if __name__ == "__main__":
    main()
