"""Each protocol against CloudEvents, one event a request: a backlog for one ordered destination.

    python tests/benchmarks/bench_protocols.py [--rounds N] [--only NAME …]

All deliver the same indications of 2 KB from memory; HTTP goes to one nginx with one worker. Each
measurement has a deliverer of its own, in turns. Ratios are within one round; the median counts.
"""

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats

from benchmarks.bench_end_to_end import line
from pillion_testbed.control_plane import free_ports
from pillion_testbed.kafka import Node, jars, open_node
from support.bench import Sidecar, nginx, report, resource, sidecar, write_resources
from support.broker_programs import MOSQUITTO, NATS_SERVER, free_port
from support.kafka_topics import create_topic

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "hook", "labels": {"pillion.dev/credentials": "true"}},
    "stringData": {"secret": f"whsec_{'MDAw' * 8}", "community": "bench"},
}
PLUG_IN = "from pillion_plugin import run; run(lambda delivery: None, name='bench')"
#: A process that prints its port, and reads whatever comes.
SINK = """
import socket, threading
def read(connection):
    while connection.recv(1 << 20):
        pass
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=read, args=(server.accept()[0],), daemon=True).start()
"""
COUNT = 5_000
LINES = 250
BASE = "CloudEvents"
TOPIC = "bench"


@dataclass(frozen=True)
class Place:
    """What the receivers offer."""

    http_port: int
    #: Takes syslog messages, and keeps none.
    syslog_port: int
    folder: Path
    #: Of real brokers; 0: it is not installed.
    nats_port: int = 0
    mqtt_port: int = 0
    #: A broker with a topic; None: Kafka is not there.
    kafka_port: int | None = None


@dataclass(frozen=True)
class Subject:
    """A protocol as it is measured; ``goal``: the least ratio of its rate to the base's."""

    name: str
    goal: float | None
    spec: Mapping[str, Any]
    options: Sequence[str] = field(default=())
    #: The most CPU of the deliverer, in the base's.
    cpu_goal: float | None = None


def subjects(place: Place) -> Iterator[Subject]:
    url = f"http://127.0.0.1:{place.http_port}/events"
    events = {"protocol": "CloudEvents", "destination": url}
    yield Subject(BASE, None, events)
    yield Subject(
        "CloudEvents in batches of 100", 4.0, {**events, "cloudEvents": {"maxBatch": 100}}
    )
    template = '{"text": "${Message|Description|class}", "severity": "${severity}"}'
    webhook = {"protocol": "Webhook", "destination": url, "webhook": {"template": template}}
    yield Subject("Webhook", 0.8, webhook)
    signed = {
        "protocol": "StandardWebhooks",
        "destination": url,
        "credentials": {"signing": {"secretRefs": [{"name": "hook"}]}},
    }
    yield Subject("StandardWebhooks", 0.8, signed)
    syslog = {"protocol": "Syslog", "destination": f"syslog://127.0.0.1:{place.syslog_port}"}
    yield Subject("Syslog", 0.8, syslog)
    if place.kafka_port is not None:
        kafka = {"protocol": "Kafka", "destination": f"kafka://localhost:{place.kafka_port}"}
        yield Subject("Kafka", 0.5, {**kafka, "kafka": {"topic": TOPIC}})
    file = {"protocol": "File", "destination": "file:///bench.ndjson"}
    folder = place.folder / "files"
    folder.mkdir(exist_ok=True)
    yield Subject("File", 1.0, file, options=("--delivery-folder", str(folder)))
    yield from of_brokers(place)
    plug_in = {"protocol": "Plugin", "destination": "plugin://bench"}
    command = f"bench={sys.executable} {place.folder / 'plugin.py'}"
    yield Subject("A plug-in in Python", 0.15, plug_in, ("--plugin", command), cpu_goal=1.5)


def of_brokers(place: Place) -> Iterator[Subject]:
    if place.nats_port:
        nats = {"protocol": "NATS", "destination": f"nats://127.0.0.1:{place.nats_port}"}
        yield Subject("NATS", 0.5, {**nats, "nats": {"subject": "bench.a"}})
        core = {"subject": "core", "delivery": "Core"}
        yield Subject("NATS without a stream", 0.5, {**nats, "nats": core})
    if place.mqtt_port:
        mqtt = {"protocol": "MQTT", "destination": f"mqtt://127.0.0.1:{place.mqtt_port}"}
        yield Subject("MQTT", 0.5, {**mqtt, "mqtt": {"topic": "bench"}})


@dataclass(frozen=True)
class Rate:
    per_second: float
    cpu_microseconds: float


def resources(spec: Mapping[str, Any], *, suspended: bool) -> list[dict[str, Any]]:
    references = {"filterRef": {"name": "all"}, "destinationRef": {"name": "one"}}
    return [
        resource("IndicationService", "default", queueSize=2 * COUNT),
        SECRET,
        resource("ListenerDestination", "one", **spec, suspended=suspended),
        resource("IndicationFilter", "all", query="SELECT * FROM CIM_AlertIndication"),
        resource("IndicationSubscription", "all", **references),
    ]


def measure(subject: Subject, folder: Path) -> Rate:
    """The rate from the first delivery of a backlog to its last."""
    config = write_resources(folder, resources(subject.spec, suspended=True))
    with sidecar(config, *subject.options) as deliverer:
        publish(deliverer)
        cpu = deliverer.cpu_seconds()
        write_resources(folder, resources(subject.spec, suspended=False))
        patience = time.perf_counter() + 60
        while not (before := deliverer.metric("pillion_indications_delivered_total")):
            assert time.perf_counter() < patience, f"{subject.name}: nothing is delivered"
            time.sleep(0.005)
        began = time.perf_counter()
        answer = deliverer.request(
            "/v1/flush?timeout=120&publisher=bench", body=b"", publisher="bench"
        )
        seconds = time.perf_counter() - began
        assert answer["complete"], answer
        assert deliverer.metric("pillion_indications_delivered_total") == COUNT
        cpu = deliverer.cpu_seconds() - cpu
    return Rate((COUNT - before) / seconds, cpu / COUNT * 1e6)


def publish(deliverer: Sidecar) -> None:
    for first in range(0, COUNT, LINES):
        body = b"\n".join(line(0, number) for number in range(first, first + LINES))
        answer = deliverer.request(
            "/v1/indications?source=bench",
            body=body,
            content_type="application/x-ndjson",
            publisher="bench",
        )
        assert answer["accepted"] == LINES, answer


def tell(subject: Subject, rates: Sequence[Rate], base: Sequence[Rate]) -> None:
    pairs = list(zip(rates, base, strict=True))
    ratio = statistics.median(one.per_second / other.per_second for one, other in pairs)
    rate = statistics.median(one.per_second for one in rates)
    cpu = statistics.median(one.cpu_microseconds / other.cpu_microseconds for one, other in pairs)
    note = f"{rate:,.0f}/s; CPU {cpu:.2f} of {BASE}'s"
    if subject.goal is not None:
        goal = f"{subject.name}: rate of {BASE}'s >= {subject.goal:g}"
        report(goal=goal, figure=f"{ratio:.2f}", met=ratio >= subject.goal, note=note)
    if subject.cpu_goal is not None:
        goal = f"{subject.name}: CPU of {BASE}'s <= {subject.cpu_goal:g}"
        report(goal=goal, figure=f"{cpu:.2f}", met=cpu <= subject.cpu_goal)


@contextmanager
def receivers(folder: Path) -> Iterator[Place]:
    (folder / "plugin.py").write_text(PLUG_IN, encoding="utf-8")
    command = [sys.executable, "-c", SINK]
    with (
        nginx(folder) as http_port,
        kafka(folder) as kafka_port,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sink,
        nats_server(folder) as nats_port,
        mosquitto(folder) as mqtt_port,
    ):
        try:
            assert sink.stdout is not None
            syslog_port = int(sink.stdout.readline())
            yield Place(http_port, syslog_port, folder, nats_port, mqtt_port, kafka_port)
        finally:
            sink.kill()


@contextmanager
def nats_server(folder: Path) -> Iterator[int]:
    """With a stream on disk. Yields its port; 0 without the program."""
    if NATS_SERVER is None:
        yield 0
        return
    port = free_port()
    command = [
        str(NATS_SERVER),
        "-a",
        "127.0.0.1",
        "-p",
        str(port),
        "-js",
        "-sd",
        str(folder / "js"),
    ]
    with broker(command, port):
        asyncio.run(add_stream(port))
        yield port


async def add_stream(port: int) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    await client.jetstream().add_stream(name="bench", subjects=["bench.>"])
    await client.close()


@contextmanager
def mosquitto(folder: Path) -> Iterator[int]:
    """Yields its port; 0 without the program."""
    if MOSQUITTO is None:
        yield 0
        return
    port = free_port()
    file = folder / "mosquitto.conf"
    file.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n", encoding="utf-8")
    with broker([MOSQUITTO, "-c", str(file)], port):
        yield port


@contextmanager
def broker(command: Sequence[str], port: int) -> Iterator[None]:
    """Run it while the context lasts, which begins when it listens."""
    null = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=null, stderr=null) as process:
        try:
            patience = time.perf_counter() + 30
            while not listens(port):
                assert time.perf_counter() < patience, f"{command[0]} does not listen"
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def kafka(folder: Path) -> Iterator[int | None]:
    """Run Apache Kafka where it is cached; its port."""
    if not jars().exists():
        print("Kafka is missing: make receivers fetches it", file=sys.stderr)
        yield None
        return
    port, controller = free_ports(2)
    node = Node(folder, open_node(port, controller))
    node.format({})
    running = node.start()
    try:
        asyncio.run(create_topic(port, TOPIC))
        yield port
    finally:
        running.stop()
        node.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, receivers(Path(name)) as place:
        chosen = [
            one
            for one in subjects(place)
            if not arguments.only or one.name in (BASE, *arguments.only)
        ]
        rates: dict[str, list[Rate]] = {one.name: [] for one in chosen}
        for number in range(arguments.rounds):
            for place_of, one in enumerate(chosen):
                folder = Path(name) / f"{number}-{place_of}"
                rates[one.name].append(measure(one, folder))
        for one in chosen:
            tell(one, rates[one.name], rates[BASE])
    return 0


if __name__ == "__main__":
    sys.exit(main())
