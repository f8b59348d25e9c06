"""More destinations than a soft limit has descriptors: all are delivered to."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from support.descriptors import many_descriptors
from support.intake import alert
from support.memory import MIB, peak_memory
from support.resources import alert_filter, destination, service, subscription, write
from support.sidecar import sidecar

MANY = 1100
#: What one deliverer keeps queues for by default.
MOST = 10_000
INDICATIONS = 3
#: The chart's limit of a deliverer's memory, in MiB.
CHART_MEMORY = 384
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    """This process is all of the listeners."""
    with many_descriptors():
        yield


class Listeners:
    """Take everything, each at a path of its own."""

    def __init__(self, destinations: int) -> None:
        self._expected = destinations * INDICATIONS
        #: Paths and identifiers; on a slow machine an attempt may give way, and comes again.
        self._received: set[tuple[str, str]] = set()
        self.complete = asyncio.Event()
        self.url = ""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = head.decode().lower().split("\r\n")
                (length,) = [one.split(":")[1] for one in fields if one.startswith("content-len")]
                identifier = json.loads(await reader.readexactly(int(length)))["id"]
                writer.write(ANSWER)
                self._received.add((head.split()[1].decode(), identifier))
                if len(self._received) == self._expected:
                    self.complete.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def listening(destinations: int) -> AsyncIterator[Listeners]:
    listeners = Listeners(destinations)
    server = await asyncio.start_server(listeners.take, "127.0.0.1", 0, backlog=1024)
    listeners.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield listeners
    finally:
        server.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("destinations", "hard"), [(MANY, 4096), (MANY, 1024), (MOST, 1024)])
async def test_more_destinations_than_descriptors_work_at_a_soft_limit_of_1024(
    config: Path, destinations: int, hard: int
) -> None:
    """They ended the process within 15 s: a crash loop."""
    limited = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, {hard}));"
        "from pillion_cli.main import main; raise SystemExit(main())"
    )
    async with listening(destinations) as listeners:
        write(
            config,
            service(),
            alert_filter(),
            *(
                document
                for number in range(destinations)
                for document in (
                    destination(
                        f"d{number}",
                        destination=f"{listeners.url}/{number}",
                        protocol="CloudEvents",
                    ),
                    subscription(f"s{number}", destinationRef={"name": f"d{number}"}),
                )
            ),
        )
        async with sidecar(config, program=("-c", limited)) as run:
            for number in range(INDICATIONS):
                assert (await run.publish(alert(str(number)))).status == 200
            await listeners.complete.wait()
            async with (
                aiohttp.ClientSession() as session,
                session.get(run.telemetry + "/readyz") as ready,
            ):
                assert ready.status == 200
            few = [one for one in run.events("configuration-warning") if "open files" in str(one)]
            assert len(few) == (hard == 1024)
            assert not run.events("indication-discarded")
            assert run.process.returncode is None
            assert peak_memory(run.process.pid) // MIB < CHART_MEMORY
