"""The sender alone against wrk, both sending 2 KB to the same nginx with one worker.

Figures are ratios within one run, medians of interleaved rounds: ``python bench_sender.py``.
Goals: one connection >= 90 % of ``wrk -t1 -c1``, 32 destinations >= 70 % of ``wrk -t1 -c32``.
"""

import argparse
import asyncio
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pillion_sidecar.clock import LoopTimers, SystemClock
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.handlers.http.connector import Connector
from pillion_sidecar.handlers.http.exchange import Failure, Headers
from pillion_sidecar.handlers.http.sender import RECEIVE_BUFFER, HTTPSender
from pillion_sidecar.handlers.http.target import parse_target
from pillion_sidecar.handlers.resolver import Resolver

NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen unix:{folder}/ready; listen 127.0.0.1:{port}; return 200 "ok"; }}
}}
"""
WRK = """
wrk.method = "POST"
wrk.body = string.rep("x", 2048)
wrk.headers["Content-Type"] = "application/cloudevents+json; charset=utf-8"
"""
REQUEST = (
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n"
    b"Content-Type: application/cloudevents+json; charset=utf-8\r\nContent-Length: 2048\r\n\r\n"
) + b"x" * 2048


@contextmanager
def nginx(folder: Path) -> Iterator[int]:
    """Run nginx on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    process = subprocess.Popen(
        ["/usr/sbin/nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (folder / "ready").exists():
            if process.poll() is not None:
                raise RuntimeError((folder / "error.log").read_text())
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait()


def wrk(folder: Path, port: int, connections: int, seconds: int) -> float:
    """Requests per second of wrk."""
    (folder / "post.lua").write_text(WRK)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(folder / "post.lua")]
    out = subprocess.run(
        [*command, f"http://127.0.0.1:{port}/"], check=True, capture_output=True, text=True
    ).stdout
    found = re.search(r"Requests/sec:\s+([\d.]+)", out)
    if found is None or "Non-2xx" in out:
        raise RuntimeError(out)
    return float(found.group(1))


class Load:
    """Sends the next request as soon as one is answered, until it is told to stop."""

    def __init__(self, sender: HTTPSender, stopped: Callable[[], bool]) -> None:
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
    buffer = memoryview(bytearray(RECEIVE_BUFFER))
    senders = [
        HTTPSender(connector=connector, clock=clock, timers=timers, buffer=buffer, timeout=30.0)
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
                theirs.append(wrk(Path(name), port, connections, arguments.seconds))
                ours.append(asyncio.run(pillion(port, connections, arguments.seconds)))
            ratio = statistics.median(o / t for o, t in zip(ours, theirs, strict=True))
            missed |= ratio < goal
            print(
                f"c{connections:<3} wrk {statistics.median(theirs):9,.0f}/s"
                f"  pillion {statistics.median(ours):9,.0f}/s  ratio {ratio:.2f}  goal {goal:.2f}"
            )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
