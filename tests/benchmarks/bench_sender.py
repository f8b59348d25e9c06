"""The sender alone against wrk, both sending 2 KB to the same nginx with one worker.

Figures are ratios within one run, medians of interleaved rounds: ``python bench_sender.py``.
Goals: one connection >= 90 % of ``wrk -t1 -c1``, 32 destinations >= 70 % of ``wrk -t1 -c32``.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pillion_sidecar.clock import LoopTimers, SystemClock
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.handlers.http.wire import http_wires
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.handlers.transport.connector import Connector
from pillion_sidecar.handlers.transport.exchange import Failure, Headers
from pillion_sidecar.handlers.transport.sender import RECEIVE_BUFFER, PooledSender
from pillion_sidecar.handlers.transport.target import parse_target
from support.bench import nginx, report, wrk

REQUEST = (
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n"
    b"Content-Type: application/cloudevents+json; charset=utf-8\r\nContent-Length: 2048\r\n\r\n"
) + b"x" * 2048


class Load:
    """Sends the next request as soon as one is answered, until it is told to stop."""

    def __init__(self, sender: PooledSender, stopped: Callable[[], bool]) -> None:
        self.count = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sender = sender
        self._stopped = stopped

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        if status != 200 or body != b"ok":
            self.ended.set_exception(RuntimeError(f"HTTP {status}: {body!r}"))
        elif self._stopped():
            self.ended.set_result(None)
        else:
            self.count += 1
            self._sender.send(REQUEST, self)

    def failed(self, failure: Failure) -> None:
        self.ended.set_exception(RuntimeError(failure.detail))


async def pillion(port: int, connections: int, seconds: int) -> float:
    """Requests per second of the sender, one destination for each connection."""
    clock = SystemClock()
    timers = LoopTimers(loop=asyncio.get_running_loop())
    resolver = Resolver()
    connector = Connector(
        target=parse_target(f"http://127.0.0.1:{port}/"),
        resolver=resolver,
        address_policy=AddressPolicy(allow_loopback=True),
    )
    new_wire = http_wires(memoryview(bytearray(RECEIVE_BUFFER)))
    senders = [
        PooledSender(
            connector=connector, clock=clock, timers=timers, new_wire=new_wire, timeout=30.0
        )
        for _ in range(connections)
    ]
    stop = asyncio.Event()
    loads = [Load(sender, stop.is_set) for sender in senders]
    began = time.perf_counter()
    for load in loads:
        load.answered(200, (), b"ok")
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - began
    stop.set()
    await asyncio.gather(*(load.ended for load in loads))
    for sender in senders:
        sender.close()
    await resolver.close()
    timers.close()
    return sum(load.count for load in loads) / elapsed


def main() -> int:
    """Print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=1)
    arguments = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as name, nginx(Path(name)) as port:
        for connections, goal in ((1, 0.9), (32, 0.7)):
            theirs, ours = [], []
            for _ in range(arguments.rounds):
                theirs.append(
                    wrk(Path(name), port, connections=connections, seconds=arguments.seconds)
                )
                ours.append(asyncio.run(pillion(port, connections, arguments.seconds)))
            ratio = statistics.median(o / t for o, t in zip(ours, theirs, strict=True))
            missed |= ratio < goal
            report(
                goal=f"The sender alone, {connections} connections, of wrk >= {goal:.0%}",
                figure=f"{ratio:.0%}",
                met=ratio >= goal,
                note=f"{statistics.median(ours):,.0f}/s of {statistics.median(theirs):,.0f}/s",
            )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
