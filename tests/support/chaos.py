"""A deliverer, its publishers and its listeners as processes, and all that may befall them.

The test draws a schedule from a seed (:mod:`support.chaos_schedule`); the world carries it out. The
processes keep records that outlive them, and the history is made of these at the end.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import SystemRandom

#: Below those that the system gives to connections, so that a restarted process finds its own.
PORTS = range(20_000, 32_000)
#: Seconds, a backstop: whatever takes so long has failed.
PATIENCE = 60.0


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    found: list[int] = []
    for port in SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")


class Child:
    """A process that is killed, stopped and started again."""

    def __init__(self, name: str, *command: str, folder: Path, greets: bool = True) -> None:
        """``greets``: it prints a line once it can be talked to."""
        self.name = name
        self.starts = 0
        self._command = command
        self._log = folder / f"{name}.log"
        self._log.touch()
        self._greets = greets
        self._process: Process | None = None

    async def start(self) -> bool:
        """Start it; False where it ended before it could be talked to."""
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *self._command,
                stdout=PIPE if self._greets else log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            )
        if not self._greets:
            return True
        assert self._process.stdout is not None
        greeting = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        return bool(greeting)

    @property
    def running(self) -> Process:
        """The process, which must not have ended by itself."""
        assert self._process is not None
        assert self._process.returncode is None, f"{self.name} has ended by itself: {self.log()}"
        return self._process

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.running.send_signal(number)

    async def kill(self) -> None:
        """``kill -9``."""
        self.send(signal.SIGKILL)
        await self.ended()

    async def ended(self) -> int:
        """Wait for its end; the exit code."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), PATIENCE)

    async def close(self) -> None:
        """Make sure that it has ended, whatever state it is in."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def log(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(errors="replace")[-4000:]

    def events(self, name: str) -> list[str]:
        """The lines of its log with this event."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [line for line in lines if f'"event": "{name}"' in line or f'"{name}"' in line]


class Wire:
    """A TCP proxy to one port, that can be cut."""

    def __init__(self, port: int, *, target: int) -> None:
        self.port = port
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self._refuses = False
        self._connections: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}

    def cut(self) -> None:
        """Reset all connections, and each new one."""
        self._refuses = True
        for writers in self._connections.values():
            for writer in writers:
                writer.transport.abort()

    def silence(self) -> None:
        """Let nothing through, and tell nobody."""
        self._open.clear()

    def mend(self) -> None:
        """Let everything through; what waited arrives late."""
        self._refuses = False
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = (writer,)
        try:
            await self._connect(task, reader, writer)
        except OSError:
            pass
        finally:
            del self._connections[task]
            writer.transport.abort()

    async def _connect(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._refuses:
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._connections[task] = (writer, far_writer)
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer)),
            asyncio.create_task(self._pump(far_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            far_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._open.wait()
            writer.write(data)
            await writer.drain()

    async def close(self) -> None:
        """End all connections."""
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def wire(port: int, *, target: int) -> AsyncIterator[Wire]:
    """A proxy while the context lasts."""
    made = Wire(port, target=target)
    server = await asyncio.start_server(made._serve, "127.0.0.1", port)
    try:
        yield made
    finally:
        server.close()
        await made.close()
        await server.wait_closed()


class SmallDisk:
    """A file system of a few MiB, to be filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, *, leave: int = 0) -> None:
        """Leave no more than so many bytes."""
        free = os.statvfs(self.folder)
        size = max(0, free.f_bavail * free.f_frsize - leave)
        # A deliverer that runs takes some of it meanwhile.
        with self._filler.open("ab") as filler, contextlib.suppress(OSError):
            if size:
                os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, size)

    def free(self) -> None:
        """Give the space back."""
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, *, mebibytes: int) -> Iterator[SmallDisk | None]:
    """Mount one while the context lasts; None where this user must not mount."""
    folder.mkdir()
    options = ("-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder))
    mounted = subprocess.run(["mount", *options], capture_output=True, check=False)
    if mounted.returncode:
        yield None
        return
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def read_lines(record: Path) -> list[dict[str, object]]:
    """The complete lines of a record; none where there is no file."""
    if not record.exists():
        return []
    return [json.loads(line) for line in record.read_bytes().rpartition(b"\n")[0].splitlines()]
