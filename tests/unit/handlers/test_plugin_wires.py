"""Wires of plug-ins where the machine has too little, or the other end does too much."""

import asyncio
import errno
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.handlers.plugin.lines import LinkNames, PluginLog
from pillion_sidecar.handlers.plugin.process import ProcessOpener, plugin_environment
from pillion_sidecar.handlers.plugin.socket import SocketOpener
from pillion_sidecar.handlers.plugin.wire import LinkError, Wire
from pillion_sidecar.testing import FakeTime


class Owner:
    """Keeps what a wire reports."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        self.lines: list[bytes] = []
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()

    def wire_opened(self, wire: Wire) -> None:
        self.wire = wire

    def wire_received(self, wire: Wire, line: bytes) -> None:
        self.lines.append(line)

    def wire_lost(self, wire: Wire, reason: str) -> None:
        self.lost.set_result(reason)


def process_opener(time: FakeTime, *command: str) -> ProcessOpener:
    log = PluginLog(LinkNames(plugin="test", destination="a"), clock=time)
    return ProcessOpener(command=command, environment={}, timers=time, log=log)


# ---------------------------------------------------------------------- sockets


class Listening:
    """A socket that one plug-in serves."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "socket"
        self.peer: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    async def start(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._accept, str(self.path))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peer.set_result(writer)


async def test_what_comes_after_the_end_is_not_kept(fake_time: FakeTime, tmp_path: Path) -> None:
    listening, owner, size = Listening(tmp_path), Owner(), 16 << 20
    async with await listening.start():
        await SocketOpener(path=listening.path, timers=fake_time).open(owner, owner.gone.set)
        peer = await listening.peer
        assert owner.wire is not None
        owner.wire.end(at_once=False)
        flood = b"x" * (1 << 20)
        tracemalloc.start()
        try:
            for _ in range(size // len(flood)):
                peer.write(flood)
                await peer.drain()
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        peer.close()
        await owner.gone.wait()
    assert grown < size // 4
    assert not owner.lost.done()


async def test_what_a_broken_socket_had_not_sent_is_known(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    listening, owner = Listening(tmp_path), Owner()
    async with await listening.start():
        await SocketOpener(path=listening.path, timers=fake_time).open(owner, owner.gone.set)
        peer = await listening.peer
        assert owner.wire is not None
        assert owner.wire.write(b"x" * (8 << 20))
        peer.transport.abort()
        await owner.lost
        assert owner.wire.unsent > 0
        assert not owner.wire.write(b"x")
        owner.wire.end(at_once=True)
        await owner.gone.wait()


async def test_the_path_of_a_socket_can_be_hidden(fake_time: FakeTime, tmp_path: Path) -> None:
    owner = Owner()
    with pytest.raises(LinkError, match="planted") as caught:
        await SocketOpener(path=tmp_path / "planted", timers=fake_time).open(owner, owner.gone.set)
    assert caught.value.hidden == "no connection to its socket: No such file or directory"
    assert owner.gone.is_set()


# ---------------------------------------------------------------------- processes


class FullExecutor(ThreadPoolExecutor):
    """Cannot start a thread: it keeps what is submitted, as the real one does, and fails."""

    def __init__(self) -> None:
        super().__init__(1)
        self.kept: list[Callable[[], Any]] = []

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        self.kept.append(partial(function, *given, **named))
        raise RuntimeError("can't start new thread")


async def test_where_no_thread_can_start_the_slot_is_given_back(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    executor, owner, file = FullExecutor(), Owner(), tmp_path / "started"
    asyncio.get_running_loop().set_default_executor(executor)
    with pytest.raises(LinkError, match="can't start new thread") as caught:
        await process_opener(fake_time, "/bin/touch", str(file)).open(owner, owner.gone.set)
    assert not caught.value.spends_attempt
    assert owner.gone.is_set()
    # A thread that is free later finds it.
    with pytest.raises(LinkError, match="given up"):
        executor.kept[0]()


async def test_a_command_that_cannot_be_passed_gives_the_slot_back(fake_time: FakeTime) -> None:
    owner = Owner()
    with pytest.raises(ValueError, match="null byte"):
        await process_opener(fake_time, "a\0b").open(owner, owner.gone.set)
    assert owner.gone.is_set()


async def test_the_name_of_a_program_can_be_hidden(fake_time: FakeTime) -> None:
    owner = Owner()
    with pytest.raises(LinkError, match="the program '/no/planted' does not exist") as caught:
        await process_opener(fake_time, "/no/planted").open(owner, owner.gone.set)
    assert caught.value.hidden == "its program does not exist"


async def test_an_output_that_cannot_be_read_leaves_no_process(
    fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, owner, ends = asyncio.get_running_loop(), Owner(), []
    connect = loop.connect_read_pipe

    async def fail(factory: Callable[[], Any], pipe: Any) -> Any:
        transport, protocol = await connect(factory, pipe)
        ends.append(transport)
        if len(ends) == 1:
            return transport, protocol
        # As asyncio does when its own wait fails.
        transport.close()
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(loop, "connect_read_pipe", fail)
    wait = (sys.executable, "-I", "-S", "-c", "import signal; signal.pause()")
    with pytest.raises(OSError, match="Cannot allocate"):
        await process_opener(fake_time, *wait).open(owner, owner.gone.set)
    # No timer is needed: both streams and the process have ended.
    await owner.gone.wait()
    assert owner.wire is None


async def test_what_a_broken_pipe_had_not_sent_is_known(fake_time: FakeTime) -> None:
    owner = Owner()
    read_some = "import os; os.read(0, 1); os._exit(0)"
    opener = process_opener(fake_time, sys.executable, "-I", "-S", "-c", read_some)
    await opener.open(owner, owner.gone.set)
    assert owner.wire is not None
    assert owner.wire.write(b"x" * (8 << 20))
    assert await owner.lost == "it ended with exit status 0"
    assert owner.wire.unsent > 0
    assert not owner.wire.write(b"x")
    owner.wire.end(at_once=True)
    await owner.gone.wait()


def test_a_process_is_not_told_to_serve_a_socket() -> None:
    given = {"PATH": "/bin", "SECRET": "a", "PILLION_PLUGIN_A": "b", "PILLION_PLUGIN_SOCKET": "/s"}
    assert plugin_environment(given) == {"PATH": "/bin", "PILLION_PLUGIN_A": "b"}
