"""The manual's page "A listener was down for an afternoon", with its time moved by hand.

A publisher has six indications a minute for three destinations. The listener of ``siem`` ends at
13:00, and begins again at 17:00. Its queue has room for 1,000.
"""

import asyncio
import json
import re
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch
from wsgiref.handlers import format_date_time

import yaml
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from pillion_sidecar.delivery.service import DeliveryService
from pillion_sidecar.testing import FakeTime
from pillion_testbed.helm import CHART
from pillion_testbed.monitoring import PromtoolFailed, promtool
from support.in_terminal import in_terminal
from support.resources import JSON
from support.running import MOST_TURNS, Running, alert, listener, resources, running

#: The day of the story, and where it begins.
DAY = "2026-11-24"
BEGIN = "12:55:00"
SOURCE = "cooling"
HOST = "127.0.0.1"
CAPACITY = 1_000
#: Seconds between two indications.
EVERY = 10.0
COLUMNS = 80
#: Turns of the event loop within which an attempt that is due begins.
BEGUN = 5
#: What the page shows in place of a free one.
SHOWN_PORT = 5990
#: The labels that Prometheus' configuration gives the deliverer.
TARGET = {"job": "pillion", "instance": "gateway-0", "namespace": "plant", "service": "default"}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def at(clock: str) -> float:
    """A time of the day, in seconds since the epoch."""
    return datetime.fromisoformat(f"{DAY}T{clock}").replace(tzinfo=UTC).timestamp()


class Listener:
    """It accepts whatever comes, while it runs."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        #: The identifiers, in order.
        self.arrived: list[str] = []
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/events"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/events", self._accept)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self.port).start()
        self.port = self._runner.addresses[0][1]

    async def end(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    async def _accept(self, request: web.Request) -> web.Response:
        event = json.loads(await request.read())
        self.arrived.append(event["data"]["properties"]["IndicationIdentifier"])
        return web.Response(status=204)


class Afternoon:
    """The deliverer and its listeners."""

    def __init__(self, run: Running, siem: Listener) -> None:
        self.run = run
        self.siem = siem
        self.published = 0

    async def until(self, clock: str, *, step: float = EVERY) -> None:
        """Let the time pass, with an indication every ten seconds."""
        while (left := at(clock) - self.run.time.time()) > 0:
            self.run.time.advance(min(step, left))
            # What is published beside an attempt may exceed the queue's capacity by one.
            await self._looked()
            await self._publish(round(step / EVERY))
            await self._looked()

    async def breaks(self) -> None:
        """The listener has ended, and its alert fires."""
        await self.until("13:00:00")
        await self.siem.end()
        await self.until("13:01:00")

    async def passes(self) -> None:
        """Nobody can mend it before five."""
        await self.until("16:59:00", step=60.0)
        await self.until("17:00:00")

    async def is_mended(self) -> None:
        await self.siem.start()

    async def catches_up(self) -> None:
        """All that waited has arrived."""
        await self.run.settled()
        await self.until("17:05:00")
        await self.run.kept()

    async def ends(self) -> None:
        """All that was redriven has arrived."""
        await self.run.settled()
        await self.until("17:10:00")
        await self.run.kept()

    async def pillion(self, command: str) -> str:
        """What a command prints in a terminal."""
        program, *arguments = command.split()
        assert program == "pillion", command
        return await asyncio.to_thread(self._printed, arguments)

    async def alerts(self) -> list[JSON]:
        """The alerts that fire now: what Prometheus makes of the chart's rules and of a scrape."""
        url = f"{self.run.deliverer.telemetry_url}/metrics"
        scraped = (await self.run.ask(url)).document
        return await asyncio.to_thread(fired, scraped, self.run.time.time(), self.run.folder)

    def _printed(self, arguments: list[str]) -> str:
        server = self.run.deliverer.intake_url
        with in_terminal(*arguments, columns=COLUMNS, PILLION_SERVER=server) as terminal:
            terminal.end()
            text = terminal.shown
        return _UUID.sub("…", re.sub(rf"\b{self.siem.port}\b", str(SHOWN_PORT), text))

    async def _publish(self, count: int) -> None:
        lines = [alert(f"c-{self.published + number}") for number in range(1, count + 1)]
        self.published += count
        answer = await self.run.publish(*lines, source=SOURCE)
        assert answer.status == 200, answer

    async def _looked(self) -> None:
        """Wait until no attempt is under way: the next step finds them all ended."""
        queues = [self.run.queue(name) for name in ("siem", "archive", "tickets")]
        for turn in range(MOST_TURNS):
            if turn > BEGUN and not any(queue.in_flight for queue in queues):
                return
            await asyncio.sleep(0)
        raise TimeoutError("an attempt does not end")


def fired(scraped: str, now: float, folder: Path) -> list[JSON]:
    """The alerts of the chart's rules at a time, each with its texts.

    promtool evaluates the rules; it is told to expect no alert, and prints those that it got.
    """
    series = [
        {"series": f"{one.name}{_written(one.labels)}", "values": repr(one.value)}
        for family in text_string_to_metric_families(scraped)
        for one in family.samples
        if "destination" in one.labels
    ]
    rules = CHART / "files" / "alerts.yaml"
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    names = [rule["alert"] for group in groups for rule in group["rules"]]
    case = {
        "interval": "15s",
        "start_timestamp": now,
        "input_series": series,
        "alert_rule_test": [{"alertname": name, "eval_time": "0s"} for name in names],
    }
    file = folder.parent / "alerts.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "tests": [case]}))
    try:
        promtool("test", "rules", str(file))
    except PromtoolFailed as error:
        found = re.findall(r"Labels:(\{.*\})\n *Annotations:(\{.*\})", str(error))
        return [{**_read(labels), **_read(annotations)} for labels, annotations in found]
    return []


def as_text(alert: JSON) -> str:
    """An alert as its receiver shows it."""
    head = f"{alert['severity']}: {alert['alertname']}"
    paragraphs = (head, alert["summary"], alert["description"], alert["runbook_url"])
    return "".join(f"{textwrap.fill(one, 100)}\n" for one in paragraphs)


def _written(labels: dict[str, str]) -> str:
    given = {**labels, **TARGET}
    return "{" + ", ".join(f"{name}={json.dumps(text)}" for name, text in given.items()) + "}"


def _read(labels: str) -> JSON:
    found = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")', labels)
    return {name: json.loads(text) for name, text in found}


@asynccontextmanager
async def afternoon(folder: Path, *, port: int = 0) -> AsyncIterator[Afternoon]:
    """Begin the story. ``port``: of the listener of ``siem``; 0: a free one."""
    time = FakeTime(epoch=at(BEGIN))
    siem, others = Listener(port), Listener()
    await siem.start()
    await others.start()
    documents = resources(
        listener("siem", siem.url, protocol="CloudEvents", queueSize=CAPACITY),
        *(listener(name, others.url, protocol="CloudEvents") for name in ("archive", "tickets")),
    )
    place = folder / "resources"
    place.mkdir()
    # Commands and the console know the deliverer's time by this header of its answers.
    header = patch(
        "aiohttp.web_response.rfc822_formatted_time", lambda: format_date_time(time.time())
    )
    # No interval is shortened at random.
    draws = patch.dict(DeliveryService.__init__.__kwdefaults__, draw=lambda: 0.0)
    try:
        with header, draws:
            async with running(place, *documents, journal=folder / "journal", time=time) as run:
                yield Afternoon(run, siem)
    finally:
        await siem.end()
        await others.end()
