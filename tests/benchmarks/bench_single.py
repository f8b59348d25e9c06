"""What a request with one indication costs a deliverer, against a bare handler of aiohttp.

    python tests/benchmarks/bench_single.py [--rounds N]

One client posts one indication of 500 B at a time over a connection that stays: to a handler of
aiohttp that reads the body and answers JSON of the same size, to a deliverer without a journal, and
to one with a journal, for ``ack=accepted`` and for ``ack=durable``. Each is a process of its own,
and they take turns, some hundred requests each. All CPU of a process counts, its threads included;
the one destination is suspended, so nothing is delivered. Prints the medians of the turns.
"""

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from support.bench import report, resource, sidecar, write_resources

#: Requests of one turn, turns of each in a round, and those that are left out at the beginning.
REQUESTS, TURNS, WARMING = 100, 16, 6
#: Goals: of the bare handler's CPU.
ACCEPTED_GOAL, DURABLE_GOAL = 1.6, 4.5
ANSWER = {"accepted": 1, "duplicate": 0, "refused": []}


@dataclass
class Served:
    """One server, and what its turns have cost: microseconds of CPU for each request."""

    pid: int
    url: str
    connection: socket.socket
    requests: int = 0
    costs: list[float] = field(default_factory=list)

    @property
    def cost(self) -> float:
        return statistics.median(self.costs)


def cpu_microseconds(pid: int) -> float:
    """CPU that the threads of a process have used so far."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text().split()[0]) for one in threads) / 1e3


def body(name: str, number: int) -> bytes:
    """One indication of about 500 B."""
    properties = {
        "IndicationIdentifier": f"single-{name}-{number:012d}",
        "IndicationTime": "20130114050000.000000-300",
        "AlertType": 6,
        "PerceivedSeverity": 5,
        "ProbableCause": 52,
        "Description": "Wind gust of 41.4 mph at Newark Liberty International Airport. " * 3,
        "AlertingManagedElement": "WX_Station.Name='EWR',SystemName='nycflights13'",
        "EventID": "gust",
        "SystemName": "ewr.weather.example.com",
    }
    document = {"class": "CIM_AlertIndication", "properties": properties}
    return json.dumps(document, separators=(",", ":")).encode()


def ask(served: Served, name: str) -> None:
    """Post one indication; check the answer."""
    url = urlsplit(served.url)
    content = body(name, served.requests)
    served.requests += 1
    head = f"POST {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    served.connection.sendall(head.encode() + content)
    received = b""
    while b"\r\n\r\n" not in received:
        received += served.connection.recv(65536)
    answered, _, rest = received.partition(b"\r\n\r\n")
    length = int(answered.lower().split(b"content-length: ")[1].split()[0])
    while len(rest) < length:
        rest += served.connection.recv(65536)
    assert json.loads(rest)["accepted"] == 1, rest


def take_turn(served: Served, name: str) -> None:
    """Post some, and note what they cost."""
    before = cpu_microseconds(served.pid)
    for _ in range(REQUESTS):
        ask(served, name)
    served.costs.append((cpu_microseconds(served.pid) - before) / REQUESTS)


def connect(pid: int, url: str) -> Served:
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Served(pid, url, connection)


async def serve_bare() -> None:
    """Answer each request like intake, but for looking at it, until our input ends."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response(ANSWER)

    app = web.Application()
    app.router.add_post("/v1/indications", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


@contextmanager
def bare() -> Iterator[tuple[int, str]]:
    """Run the bare handler; yield its process and address."""
    command = [sys.executable, __file__, "--serve-bare"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process.pid, f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def resources() -> Iterator[dict[str, Any]]:
    """One suspended destination with room for everything."""
    yield resource("IndicationService", "default", queueSize=1_000_000)
    query = "SELECT * FROM CIM_AlertIndication"
    yield resource("IndicationFilter", "alerts", query=query)
    yield resource(
        "ListenerDestination",
        "waiting",
        destination="http://127.0.0.1:9/",
        protocol="CloudEvents",
        suspended=True,
    )
    yield resource(
        "IndicationSubscription",
        "waiting",
        filterRef={"name": "alerts"},
        destinationRef={"name": "waiting"},
    )


def measure(folder: Path, rounds: int) -> dict[str, Served]:
    """Return the servers by name, with what their turns have cost."""
    given = write_resources(folder / "resources", [*resources()])
    publish = "/v1/indications?source=single"
    with ExitStack() as stack:
        memory = stack.enter_context(sidecar(given))
        disk = stack.enter_context(sidecar(given, "--journal", str(folder / "journal")))
        pid, url = stack.enter_context(bare())
        servers = {
            "bare": connect(pid, url + publish),
            "accepted": connect(memory.pid, memory.intake_url + publish),
            "kept": connect(disk.pid, disk.intake_url + publish),
            "durable": connect(disk.pid, f"{disk.intake_url}{publish}&ack=durable"),
        }
        for served in servers.values():
            stack.callback(served.connection.close)
        for _ in range(WARMING + rounds * TURNS):
            for name, served in servers.items():
                take_turn(served, name)
        for served in servers.values():
            del served.costs[:WARMING]
    return servers


def tell(servers: dict[str, Served]) -> None:
    bare_cost = servers["bare"].cost
    for name, what, goal in (
        ("accepted", "ack=accepted", ACCEPTED_GOAL),
        ("kept", "ack=accepted with a journal", None),
        ("durable", "ack=durable", DURABLE_GOAL),
    ):
        cost = servers[name].cost
        most = "" if goal is None else f" <= {goal}"
        report(
            goal=f"A single request, {what}: CPU, of a bare aiohttp handler's{most}",
            figure=f"{cost / bare_cost:.2f}",
            met=None if goal is None else cost <= goal * bare_cost,
            note=f"{cost:.1f} us, the bare handler {bare_cost:.1f} us, keep-alive connection",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve-bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.serve_bare:
        asyncio.run(serve_bare())
        return 0
    with tempfile.TemporaryDirectory() as folder:
        tell(measure(Path(folder), arguments.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
