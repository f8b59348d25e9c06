"""What a healthy destination feels of 1,000 bad ones beside it.

    python tests/benchmarks/bench_isolation.py [--rounds N]

200 of each kind: their name server is silent; their SYN is dropped; they accept and never answer;
they answer one byte a second; their TLS stalls. All have a backlog and are retried every second,
with a time-out of 2 s. A publisher sends the healthy destination 200 indications a second, each
carrying its time of sending, and the listener notes its time of arrival. Two deliverers take turns:
one has the healthy destination alone (the other is stopped meanwhile), one has all of them.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.bench import Sidecar, report, resource, sidecar, write_resources

OF_EACH_KIND = 200
BACKLOG = 5
PER_SECOND = 200
SECONDS = 4.0
#: After a deliverer goes on: until its retries are under way again.
SETTLING_SECONDS = 4.0
#: Until every bad destination has been tried once or twice.
STARTING_SECONDS = 8.0

# ---------------------------------------------------------------------- the bad listeners' process


async def _hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(65536):
            pass
    writer.close()


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(1.0)
    writer.close()


async def listen_badly() -> None:
    """Be all bad listeners until our input ends; print their ports."""
    hanging = await asyncio.start_server(_hang, "127.0.0.1", 0, backlog=1024)
    dripping = await asyncio.start_server(_drip, "127.0.0.1", 0, backlog=1024)
    name_server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    name_server.bind(("127.0.0.1", 0))
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    # Two fill a backlog of 0; what comes after has its SYN dropped.
    fillers = [socket.socket() for _ in range(2)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
    ports = {
        "hanging": hanging.sockets[0].getsockname()[1],
        "dripping": dripping.sockets[0].getsockname()[1],
        "full": full.getsockname()[1],
        "names": name_server.getsockname()[1],
    }
    print(json.dumps(ports), flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextlib.contextmanager
def bad_listeners() -> Iterator[dict[str, int]]:
    """Run the bad listeners in a process of their own; yield their ports."""
    command = [sys.executable, __file__, "--listen-badly"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


# ---------------------------------------------------------------------- configuration


def bad_urls(ports: dict[str, int]) -> Iterator[str]:
    """The URL of each bad destination."""
    for number in range(OF_EACH_KIND):
        yield f"http://listener-{number}.example.test/{number}"
        yield f"http://127.0.0.1:{ports['full']}/{number}"
        yield f"http://127.0.0.1:{ports['hanging']}/{number}"
        yield f"http://127.0.0.1:{ports['dripping']}/{number}"
        yield f"https://127.0.0.1:{ports['hanging']}/{number}"


def resources(healthy: int, bad: Sequence[str]) -> Iterator[dict[str, Any]]:
    yield resource("IndicationService", "default", deliveryRetryAttempts=10_000)
    for name in ("healthy", "bad"):
        query = f"SELECT * FROM CIM_AlertIndication WHERE EventID = '{name}'"
        yield resource("IndicationFilter", name, query=query)
    urls = {"healthy": f"http://127.0.0.1:{healthy}/"}
    urls |= {f"bad-{number:04d}": url for number, url in enumerate(bad)}
    for name, url in urls.items():
        yield resource(
            "ListenerDestination",
            name,
            destination=url,
            protocol="CloudEvents",
            timeoutSeconds=2,
            retry={"intervalSeconds": 1},
        )
        yield resource(
            "IndicationSubscription",
            name,
            filterRef={"name": name.partition("-")[0]},
            destinationRef={"name": name},
        )


# ---------------------------------------------------------------------- measuring


class HealthyListener(asyncio.Protocol):
    """Answers at once, and tells when each event was sent."""

    def __init__(self, arrived: Callable[[float], None]) -> None:
        self._arrived = arrived
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        _, found, sent = self._received.partition(b'"Description":"')
        if found and self._received.endswith(b"}}}"):
            self._arrived(float(sent.partition(b'"')[0]))
            self._received = b""
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def alert(event: str, number: int) -> bytes:
    properties = {
        "EventID": event,
        "AlertType": 6,
        "PerceivedSeverity": 5,
        "ProbableCause": 52,
        "IndicationIdentifier": f"{event}-{number}-{os.urandom(8).hex()}",
        "Description": repr(time.perf_counter()),
    }
    document = {"class": "CIM_AlertIndication", "properties": properties}
    return json.dumps(document, separators=(",", ":")).encode()


async def publish_steadily(
    deliverer: Sidecar, *, count: int, per_second: int, first: int = 0, step: int = 1
) -> None:
    """Publish one at a time over one connection, at a steady rate: of ``count``, from the first
    on, one of each ``step``."""
    url = urlsplit(deliverer.intake_url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    began = time.perf_counter()
    for number in range(first, count, step):
        await asyncio.sleep(began + number / per_second - time.perf_counter())
        body = alert("healthy", number)
        head = f"POST /v1/indications?source=b HTTP/1.1\r\nHost: {url.netloc}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer.partition(b"\r\n")[0], answer
        await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split()[0]))
    writer.close()


async def window(deliverer: Sidecar, delays: list[float]) -> list[float]:
    """Let a stopped deliverer go on, measure it, stop it again; return its delays."""
    deliverer.process.send_signal(signal.SIGCONT)
    await asyncio.sleep(SETTLING_SECONDS)
    delays.clear()
    await publish_steadily(deliverer, count=int(PER_SECOND * SECONDS), per_second=PER_SECOND)
    await asyncio.sleep(0.5)
    deliverer.process.send_signal(signal.SIGSTOP)
    assert len(delays) == int(PER_SECOND * SECONDS), f"{len(delays)} arrived"
    return sorted(delays)


def p99(delays: Sequence[float]) -> float:
    """The 99th percentile in milliseconds."""
    return delays[int(len(delays) * 0.99)] * 1e3


async def measure(folder: Path, ports: dict[str, int], rounds: int) -> None:
    delays: list[float] = []
    loop = asyncio.get_running_loop()

    def arrived(sent: float) -> None:
        delays.append(time.perf_counter() - sent)

    server = await loop.create_server(lambda: HealthyListener(arrived), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    alone = write_resources(folder / "alone", [*resources(port, ())])
    beside = write_resources(folder / "beside", [*resources(port, [*bad_urls(ports)])])
    names = f"127.0.0.1:{ports['names']}"
    arguments = ("--nameserver", names, "--log-level", "ERROR")
    with sidecar(alone, *arguments) as healthy, sidecar(beside, *arguments, probe=True) as loaded:
        healthy.process.send_signal(signal.SIGSTOP)
        for number in range(BACKLOG):
            loaded.request("/v1/indications?source=b", body=alert("bad", number))
        await asyncio.sleep(STARTING_SECONDS)
        descriptors, tasks = [loaded.descriptors()], [loaded.ask()["tasks"]]
        loaded.process.send_signal(signal.SIGSTOP)
        without, beside_bad = [], []
        for _ in range(rounds):
            without.append(await window(healthy, delays))
            beside_bad.append(await window(loaded, delays))
            loaded.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(1.0)
            descriptors.append(loaded.descriptors())
            tasks.append(loaded.ask()["tasks"])
            loaded.process.send_signal(signal.SIGSTOP)
        loaded.process.send_signal(signal.SIGCONT)
        attempts = loaded.metric("pillion_delivery_attempts_total")
    server.close()
    tell(without, beside_bad, descriptors, tasks, attempts)


def tell(
    without: Sequence[Sequence[float]],
    beside: Sequence[Sequence[float]],
    descriptors: Sequence[int],
    tasks: Sequence[int],
    attempts: float,
) -> None:
    alone, loaded = statistics.median(map(p99, without)), statistics.median(map(p99, beside))
    median = statistics.median(delays[len(delays) // 2] * 1e3 for delays in beside)
    limit = max(0.1 * alone, 0.5)
    report(
        goal="Isolation: p99 added by 1,000 bad destinations <= 10 % or 0.5 ms",
        figure=f"{loaded - alone:+.2f} ms",
        met=loaded - alone <= limit,
        note=f"p99 {alone:.2f} ms alone, {loaded:.2f} ms beside (median {median:.2f} ms);"
        f" {attempts:,.0f} attempts",
    )
    grown = max(descriptors[1:]) - max(descriptors[:2]), max(tasks[1:]) - max(tasks[:2])
    report(
        goal="Isolation: open descriptors and tasks do not grow",
        figure=f"{grown[0]:+d}, {grown[1]:+d}",
        met=grown[0] <= 0.1 * descriptors[0] and grown[1] <= 0.1 * tasks[0],
        note=f"descriptors {', '.join(map(str, descriptors))}; tasks {', '.join(map(str, tasks))}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen-badly", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.listen_badly:
        asyncio.run(listen_badly())
        return 0
    with tempfile.TemporaryDirectory() as folder, bad_listeners() as ports:
        asyncio.run(measure(Path(folder), ports, arguments.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
