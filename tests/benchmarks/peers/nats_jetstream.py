"""NATS JetStream: a stream on disk, and a worker with a durable consumer for each listener."""

import asyncio
from collections.abc import Sequence
from typing import Any

from benchmarks.peers import programs
from benchmarks.peers.events import Event
from benchmarks.peers.peer import WORKERS, WithLibraries
from benchmarks.peers.processes import wait_until_listening


class NatsWorker(WithLibraries):
    name = "NATS JetStream"

    def missing(self) -> str | None:
        if programs.find("nats-server") is None:
            return "no nats-server: make receivers builds it"
        return None if programs.has_libraries() else f"no libraries: {programs.FETCH}"

    def start(self) -> None:
        program = programs.find("nats-server")
        assert program is not None
        place = ["-a", "127.0.0.1", "-p", self.address, "-js", "-sd", "stream"]
        self.processes.start([str(program), *place], programs.environment_of(program))
        wait_until_listening(self.port, self.processes)
        worker = [str(programs.PYTHON), str(WORKERS / "nats_worker.py"), self.address]
        self.processes.start(worker)


class Sender:
    """Publishes to the stream, many at a time, and waits for the acknowledgement of each."""

    batch = 100

    def __init__(self, address: str) -> None:
        self._url = f"nats://127.0.0.1:{address}"
        self._client: Any = None

    async def send(self, events: Sequence[Event]) -> None:
        import nats

        if self._client is None:
            self._client = await nats.connect(self._url, allow_reconnect=False)
        stream = self._client.jetstream()
        # By the header the server knows what it has when it is sent again.
        published = (
            stream.publish(
                f"events.{one.listener}", one.body, headers={"Nats-Msg-Id": str(one.number)}
            )
            for one in events
        )
        await asyncio.gather(*published)

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()
