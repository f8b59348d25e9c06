"""``pillion sidecar`` as it is run: a process, its first line, its log, its exit code."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from support.resources import JSON
from support.running import Answer, answer_of


class Sidecar:
    """The process, seen from outside."""

    def __init__(self, process: Process, session: aiohttp.ClientSession) -> None:
        self.process = process
        self.intake = ""
        self.telemetry = ""
        self.administration = ""
        self.log: list[JSON] = []
        #: What it wrote to standard error beside the log.
        self.said: list[str] = []
        self._session = session
        self._logged = asyncio.Event()

    async def publish(
        self,
        *documents: JSON,
        query: str = "",
        publisher: str | None = None,
        headers: Mapping[str, str] = {},
    ) -> Answer:
        body = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
        headers = {"Content-Type": "application/x-ndjson", **headers}
        if publisher is not None:
            headers["Pillion-Publisher"] = publisher
        url = f"{self.intake}/v1/indications?source=test&{query}"
        async with self._session.post(url, data=body, headers=headers) as response:
            return await answer_of(response)

    async def get(self, path: str) -> Answer:
        async with self._session.get(self.intake + path) as response:
            return await answer_of(response)

    async def post(self, path: str) -> Answer:
        async with self._session.post(self.intake + path) as response:
            return await answer_of(response)

    async def metrics(self) -> str:
        async with self._session.get(f"{self.telemetry}/metrics") as response:
            return await response.text()

    def events(self, name: str) -> list[JSON]:
        """The log records of one event so far."""
        return [record for record in self.log if record["event"] == name]

    async def logged(self, event: str, times: int = 1) -> None:
        """Wait until an event has been logged so often."""
        while len(self.events(event)) < times:
            self._logged.clear()
            await self._logged.wait()

    async def ended(self) -> int:
        """Wait for the end; the exit code."""
        return await self.process.wait()

    async def read_log(self) -> None:
        """Read standard error to its end."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.said.append(line.decode())
            self._logged.set()


@asynccontextmanager
async def sidecar(
    folder: Path,
    *options: str,
    program: tuple[str, ...] = ("-m", "pillion_cli.main"),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Sidecar]:
    """Run the command on a folder while the context lasts; it may have failed to start.

    ``program``: how Python is told what to run. ``environment``: by default that of the tests.
    """
    defaults = ("--intake", "127.0.0.1:0", "--telemetry", "127.0.0.1:0")
    command = (*program, "sidecar", "--resources", str(folder), *defaults)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, *options, stdout=PIPE, stderr=PIPE, env=environment
    )
    assert process.stdout is not None
    async with aiohttp.ClientSession() as session:
        made = Sidecar(process, session)
        reading = asyncio.create_task(made.read_log())
        try:
            first = await process.stdout.readline()
            if first:
                where: dict[str, Any] = json.loads(first)
                made.intake, made.telemetry = where["intake"], where["telemetry"]
                made.administration = where.get("administration", made.intake)
            else:
                await reading
            yield made
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reading
