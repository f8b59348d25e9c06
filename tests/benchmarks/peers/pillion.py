"""Pillion itself: a sidecar with its journal on disk, and one that keeps all in memory."""

import json
import sys
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from typing import Any

from benchmarks.peers.events import Event
from benchmarks.peers.peer import RETRY, TIMEOUT, Peer, Place
from benchmarks.peers.processes import ProcessGroup, free_port, wait_until_listening

QUEUE_SIZE = 200_000


class Pillion(Peer):
    def __init__(self, name: str, *options: str, acknowledgement: str) -> None:
        super().__init__()
        self.name = name
        self._options = options
        self._acknowledgement = acknowledgement

    def missing(self) -> str | None:
        return None

    def configure(self, place: Place) -> None:
        self.processes = ProcessGroup(place.folder)
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}/{self._acknowledgement}"
        folder = place.folder / "resources"
        folder.mkdir()
        # JSON is YAML.
        text = "\n---\n".join(json.dumps(one) for one in _resources(place.urls))
        (folder / "resources.yaml").write_text(text, encoding="utf-8")

    def start(self) -> None:
        intake = f"127.0.0.1:{self._port}"
        command = [sys.executable, "-m", "pillion_cli.main", "sidecar", "--resources", "resources"]
        listeners = ["--intake", intake, "--telemetry", "127.0.0.1:0"]
        self.processes.start([*command, *listeners, *self._options])
        wait_until_listening(self._port, self.processes)


def on_disk() -> Peer:
    return Pillion("Pillion, disk", "--journal", "journal", acknowledgement="durable")


def in_memory() -> Peer:
    return Pillion("Pillion, memory", acknowledgement="accepted")


def _resources(urls: dict[str, str]) -> Iterator[dict[str, Any]]:
    yield _resource(
        "IndicationService", "default", queueSize=QUEUE_SIZE, deliveryRetryAttempts=10_000
    )
    for name, url in urls.items():
        query = f"SELECT * FROM CIM_AlertIndication WHERE OwningEntity = '{name}'"
        yield _resource("IndicationFilter", name, query=query)
        yield _resource(
            "ListenerDestination",
            name,
            protocol="CloudEvents",
            destination=url,
            timeoutSeconds=TIMEOUT,
            retry={"intervalSeconds": RETRY},
        )
        references = {"filterRef": {"name": name}, "destinationRef": {"name": name}}
        yield _resource("IndicationSubscription", name, **references)


def _resource(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": "pillion.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


class Sender:
    """Lines of a request; one alone where events come at a rate."""

    batch = 100

    def __init__(self, address: str) -> None:
        self._netloc, _, acknowledgement = address.partition("/")
        self._path = f"/v1/indications?source=peers&ack={acknowledgement}"
        self._connection: HTTPConnection | None = None

    async def send(self, events: Sequence[Event]) -> None:
        if self._connection is None:
            self._connection = HTTPConnection(self._netloc, timeout=10)
        body = b"\n".join(one.body for one in events)
        headers = {"Content-Type": "application/x-ndjson"}
        self._connection.request("POST", self._path, body, headers)
        answer = json.loads(self._connection.getresponse().read())
        # After a crash it knows which of them it has.
        if answer.get("accepted", 0) + answer.get("duplicate", 0) != len(events):
            raise RuntimeError(str(answer)[:500])

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
