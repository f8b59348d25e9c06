"""The whole deliverer, for end-to-end tests: real folder, real sockets, time moved by hand."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from pillion_sidecar.app import Deliverer
from pillion_sidecar.config.addresses import Address, AddressPolicy
from pillion_sidecar.config.loader import LOOK_INTERVAL
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.journal.disk import SETTLE_SECONDS
from pillion_sidecar.settings import Settings
from pillion_sidecar.telemetry.metrics import IntakeOutcome, Metrics
from pillion_sidecar.testing import FakeTime
from support.resources import JSON, alert_filter, destination, service, subscription, write

NDJSON = "application/x-ndjson"
ANYWHERE = Address("127.0.0.1", 0)
#: Turns of the event loop in which a deliverer that was told to stop has ended, or hangs.
MOST_TURNS = 500_000


def resources(
    *destinations: JSON,
    subscriptions: tuple[JSON, ...] | None = None,
    filters: tuple[JSON, ...] = (),
    **settings: Any,
) -> tuple[JSON, ...]:
    """A complete set of documents: by default, each destination gets all alerts.

    ``settings`` are the service's; it gives up at once when it is told to stop, unless they say
    otherwise.
    """
    if subscriptions is None:
        names = [document["metadata"]["name"] for document in destinations]
        subscriptions = tuple(subscription(f"alerts-to-{name}", name) for name in names)
    chosen = service(**{"shutdownGracePeriodSeconds": 0, **settings})
    return (chosen, alert_filter(), *filters, *destinations, *subscriptions)


def listener(name: str, url: str, **spec: Any) -> JSON:
    """A destination whose time-out never ends an attempt while a test moves time."""
    return destination(name, **{"destination": url, "timeoutSeconds": 3600, **spec})


def alert(identifier: str | None, **properties: Any) -> JSON:
    """One line of a publisher's."""
    given: JSON = {"AlertType": 6, "PerceivedSeverity": 5, "ProbableCause": 52}
    if identifier is not None:
        given["IndicationIdentifier"] = identifier
    return {"class": "CIM_AlertIndication", "properties": given | properties}


def alerts(first: int, count: int) -> list[JSON]:
    """Lines whose identifiers are numbers."""
    return [alert(str(number)) for number in range(first, first + count)]


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    document: Any
    headers: dict[str, str]


class Running:
    """A deliverer that runs, and a client for it.

    Nothing waits for the world's time: a test waits until a condition holds (each attempt, publish
    and reload has it looked at again), and then moves time.
    """

    def __init__(
        self,
        folder: Path,
        session: aiohttp.ClientSession,
        *,
        journal: Path | None,
        time: FakeTime,
    ) -> None:
        self.folder = folder
        self.journal = journal
        self.time = time
        self.stop = asyncio.Event()
        self.loads = 0
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._happened = asyncio.Event()
        self.deliverer: Deliverer
        #: Done when the deliverer has ended.
        self.ended: asyncio.Task[None]

    def happened(self) -> None:
        """Something has happened, and is in the books by the loop's next turn."""
        self._loop.call_soon(self._happened.set)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        while not condition():
            self._happened.clear()
            await self._happened.wait()

    # ------------------------------------------------------------------ publishing and looking

    async def publish(
        self,
        *documents: JSON,
        ack: str | None = None,
        publisher: str | None = None,
        source: str = "test",
        **query: str,
    ) -> Answer:
        """Publish lines in one request."""
        query |= {"source": source} | ({"ack": ack} if ack else {})
        headers = {"Pillion-Publisher": publisher} if publisher else {}
        body = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
        return await self.post("/v1/indications", body, headers=headers, query=query)

    async def post(
        self,
        path: str,
        body: bytes | AsyncIterator[bytes] = b"",
        *,
        content_type: str = NDJSON,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
    ) -> Answer:
        given = {"Content-Type": content_type, **(headers or {})}
        url = self.deliverer.intake_url + path
        async with self._session.post(url, data=body, headers=given, params=query) as response:
            return await answer_of(response)

    async def get(self, path: str) -> Answer:
        async with self._session.get(self.deliverer.intake_url + path) as response:
            return await answer_of(response)

    async def probe(self, path: str) -> int:
        """The status of a probe."""
        return (await self.ask(self.deliverer.telemetry_url + path)).status

    async def ask(self, url: str, **headers: str) -> Answer:
        """Get what is at any URL."""
        async with self._session.get(url, headers=headers) as response:
            return await answer_of(response)

    async def metric(self, name: str, **labels: str) -> float:
        """One sample of a scrape."""
        async with self._session.get(f"{self.deliverer.telemetry_url}/metrics") as response:
            text = await response.text()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
        raise AssertionError(f"no sample {name} {labels}")

    async def books(self, name: str) -> dict[str, float]:
        """Depth, delivered and discarded of a destination, as Prometheus is told."""
        prefix = "pillion_indications_discarded_total"
        async with self._session.get(f"{self.deliverer.telemetry_url}/metrics") as response:
            text = await response.text()
        samples = [
            sample
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.labels.get("destination") == name
        ]
        values = {sample.name: sample.value for sample in samples}
        return {
            "depth": values["pillion_destination_queue_depth"],
            "delivered": values["pillion_indications_delivered_total"],
            "discarded": sum(sample.value for sample in samples if sample.name == prefix),
        }

    def queue(self, name: str) -> DestinationQueue:
        found = self.deliverer.delivery.queue(name)
        assert found is not None
        return found

    # ------------------------------------------------------------------ waiting and time

    async def begun(self, request: Coroutine[Any, Any, Answer]) -> "asyncio.Task[Answer]":
        """Send a request, and return when the deliverer has it; the answer comes when it comes."""
        task = asyncio.create_task(request)
        await asyncio.sleep(0)
        # It has gone out on a connection of its own; what is sent now is not answered before the
        # deliverer has taken up what came before.
        await self.get("/v1/queues")
        return task

    async def delivered(self, name: str, count: int) -> None:
        """Wait until so many have been delivered to a destination."""
        await self.until(lambda: self.queue(name).statistics.delivered >= count)

    async def failed(self, name: str, times: int) -> None:
        """Wait until so many attempts in a row have failed."""
        await self.until(lambda: self.queue(name).health.failures >= times)

    async def settled(self) -> None:
        """Wait until nothing is pending."""
        await self.until(lambda: not self.deliverer.delivery.pending)

    def retry(self, name: str) -> None:
        """Let time pass until a failing destination's next attempt is due."""
        due = self.queue(name).health.next_attempt_at
        assert due is not None
        self.time.advance(max(0.0, due - self.time.monotonic()))

    async def kept(self) -> None:
        """Wait until all that has happened is in the journal, settlements and states too; once
        something was durable."""
        # What is told during a write goes with the next one.
        for _ in range(2):
            self.time.advance(SETTLE_SECONDS)
            on_disk = asyncio.Event()
            self.deliverer.delivery.barrier(on_disk.set)
            await on_disk.wait()

    async def kill(self) -> None:
        """End it as SIGKILL does: nothing that it writes from now on is in its journal."""
        assert self.journal is not None
        left = self.journal.with_name(f"{self.journal.name}.left")
        _copy_as_it_is(self.journal, left)
        self.ended.cancel()
        with suppress(asyncio.CancelledError):
            await self.ended
        shutil.rmtree(self.journal)
        left.rename(self.journal)

    async def reload(self, *documents: JSON) -> None:
        """Rewrite the folder, and wait until the deliverer has taken it over or refused it."""
        before = self.loads
        write(self.folder, *documents)
        await self.reloaded(before)

    async def reloaded(self, before: int) -> None:
        """Let the deliverer look at the folder until it has loaded more often than ``before``."""
        while self.loads == before:
            assert not self.ended.done(), "the deliverer has ended"
            # Only as far as the watcher's next look, so nothing else's time passes.
            due = self.time.next_due()
            if due is not None and due <= self.time.monotonic() + LOOK_INTERVAL:
                self.time.advance(max(0.0, due - self.time.monotonic()))
            await asyncio.sleep(0)


def _copy_as_it_is(folder: Path, copy: Path) -> None:
    """Copy a folder as it is at one moment, though files of it come and go."""
    while True:
        names = sorted(os.listdir(folder))
        with suppress(shutil.Error):
            shutil.copytree(folder, copy)
            if sorted(os.listdir(folder)) == names:
                return
        shutil.rmtree(copy)


async def answer_of(response: aiohttp.ClientResponse) -> Answer:
    """Read an answer to its end."""
    text = await response.text()
    is_json = response.content_type == "application/json"
    return Answer(response.status, json.loads(text) if is_json else text, dict(response.headers))


class _WatchedMetrics(Metrics):
    """Metrics that tell a test that something has happened."""

    def __init__(self, running: Running, **given: Any) -> None:
        super().__init__(**given)
        self._running = running

    def attempted(self, protocol: str, seconds: float) -> None:
        super().attempted(protocol, seconds)
        self._running.happened()

    def received(self, kind: str, outcome: IntakeOutcome, indications: int = 1) -> None:
        super().received(kind, outcome, indications)
        self._running.happened()

    def configuration_loaded(self, revision: str) -> None:
        super().configuration_loaded(revision)
        self._running.loads += 1

    def configuration_refused(self) -> None:
        super().configuration_refused()
        self._running.loads += 1

    def configuration_awaited(self) -> None:
        super().configuration_awaited()
        self._running.loads += 1


@asynccontextmanager
async def running(
    folder: Path,
    *documents: JSON,
    addresses: AddressPolicy | None = None,
    nameservers: tuple[str, ...] = (),
    journal: Path | None = None,
    time: FakeTime | None = None,
    **chosen: Any,
) -> AsyncIterator[Running]:
    """Run a deliverer on a folder of these documents (on what is there, without any).

    One that is run again on the same ``journal`` goes on; see :func:`later` for its ``time``.
    ``chosen`` are further settings.
    """
    if documents:
        write(folder, *documents)
    settings = Settings(
        resources=folder,
        journal=journal,
        intake=ANYWHERE,
        telemetry=ANYWHERE,
        addresses=addresses or AddressPolicy(allow_loopback=True),
        nameservers=nameservers,
        **chosen,
    )
    async with aiohttp.ClientSession() as session:
        run = Running(folder, session, journal=journal, time=time or FakeTime())
        with patch("pillion_sidecar.app.Metrics", lambda **given: _WatchedMetrics(run, **given)):
            run.deliverer = Deliverer(settings, clock=run.time, timers=run.time)
        run.ended = asyncio.create_task(run.deliverer.run(run.stop))
        started = asyncio.create_task(run.deliverer.started.wait())
        await asyncio.wait({run.ended, started}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        try:
            if not run.ended.done():
                yield run
        finally:
            run.stop.set()
            for _ in range(MOST_TURNS):
                # Whatever grace it was given: a test that minds has waited for the end itself.
                if run.ended.done():
                    break
                run.time.advance(3600.0)
                await asyncio.sleep(0)
            else:
                run.ended.cancel()
            if not run.ended.cancelled():
                await run.ended


def later(time: FakeTime, seconds: float) -> FakeTime:
    """The time of a process that begins so much later, with a monotonic clock of its own."""
    return FakeTime(now=50_000.0, epoch=time.time() + seconds)
