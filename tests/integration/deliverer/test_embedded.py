"""The deliverer inside another program (S3.13): one alone, that starts and ends cleanly."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

import pillion_sidecar.embedded
from pillion_sidecar.app import Deliverer, StartFailed
from pillion_sidecar.config.loader import FolderWatcher
from pillion_sidecar.embedded import DelivererFailed, DelivererRunning, EmbeddedDeliverer
from pillion_sidecar.journal.files import open_folder
from pillion_sidecar.settings import Settings
from support.listening import listening
from support.resources import write
from support.running import ANYWHERE, NDJSON, alerts, listener, resources

#: A program that ends as soon as its deliverer has, saying where it was.
PROGRAM = """
import sys, urllib.request
from pathlib import Path
from pillion_sidecar.embedded import EmbeddedDeliverer
from pillion_sidecar.config.addresses import Address
from pillion_sidecar.settings import Settings

anywhere = Address("127.0.0.1", 0)
settings = Settings(resources=Path(sys.argv[1]), intake=anywhere, telemetry=anywhere)
with EmbeddedDeliverer(settings) as deliverer:
    request = urllib.request.Request(
        f"{deliverer.intake_url}/v1/indications", data=sys.argv[2].encode(), method="POST"
    )
    request.add_header("Content-Type", "application/x-ndjson")
    with urllib.request.urlopen(request) as answer:
        print(answer.status)
"""


def embedded(folder: Path, journal: Path | None = None) -> EmbeddedDeliverer:
    return EmbeddedDeliverer(
        Settings(resources=folder, journal=journal, intake=ANYWHERE, telemetry=ANYWHERE)
    )


async def publish(deliverer: EmbeddedDeliverer, *, count: int, ack: str) -> int:
    body = "".join(json.dumps(line) + "\n" for line in alerts(0, count))
    url = f"{deliverer.intake_url}/v1/indications?source=test&ack={ack}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers={"Content-Type": NDJSON}) as answer,
    ):
        return answer.status


async def is_there(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/livez"):
            return True
    except aiohttp.ClientConnectorError:
        return False


async def test_it_delivers_while_the_program_goes_on(tmp_path: Path) -> None:
    async with listening() as ops:
        write(tmp_path, *resources(listener("ops", ops.url)))
        deliverer = embedded(tmp_path)
        await asyncio.to_thread(deliverer.start)
        assert await publish(deliverer, count=3, ack="delivered") == 200
        assert ops.identifiers == ["0", "1", "2"]
        assert await is_there(deliverer.telemetry_url)
        assert deliverer.administration_url == deliverer.intake_url
        await asyncio.to_thread(deliverer.stop)
        assert not await is_there(deliverer.telemetry_url)
    assert deliverer.failed is None


async def test_its_end_delivers_what_is_queued(tmp_path: Path) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), shutdownGracePeriodSeconds=3600)
        write(tmp_path, *documents)
        deliverer = embedded(tmp_path)
        await asyncio.to_thread(deliverer.start)
        await publish(deliverer, count=3, ack="accepted")
        await ops.treated_badly()
        ops.behave()
        # What waits for its retry is tried at once, and the program is free to go when it is done.
        await asyncio.to_thread(deliverer.stop)
        assert ops.identifiers == ["0", "1", "2"]
        # Once more is once too often, and harmless.
        deliverer.stop()


async def test_what_its_end_leaves_in_its_journal_the_next_one_delivers(tmp_path: Path) -> None:
    config, journal = tmp_path / "config", tmp_path / "journal"
    config.mkdir()
    async with listening(status=503) as ops:
        write(config, *resources(listener("ops", ops.url)))
        first = embedded(config, journal)
        await asyncio.to_thread(first.start)
        assert await publish(first, count=3, ack="durable") == 200
        await ops.treated_badly()
        # With no grace it is free to go at once.
        await asyncio.to_thread(first.stop)
        assert ops.identifiers == []
        ops.behave()
        write(config, *resources(listener("ops", ops.url), shutdownGracePeriodSeconds=3600))
        second = embedded(config, journal)
        await asyncio.to_thread(second.start)
        await asyncio.to_thread(second.stop)
        assert ops.identifiers == ["0", "1", "2"]
        third = embedded(config, journal)
        await asyncio.to_thread(third.start)
        assert await publish(third, count=4, ack="delivered") == 200
        await asyncio.to_thread(third.stop)
    assert ops.identifiers == ["0", "1", "2", "3"]


def test_a_journal_that_is_in_use_is_told_to_the_program(tmp_path: Path) -> None:
    config, journal = tmp_path / "config", tmp_path / "journal"
    config.mkdir()
    write(config, *resources())
    lock = open_folder(journal)
    with pytest.raises(StartFailed, match=f"in use by process {os.getpid()}"):
        embedded(config, journal).start()
    lock.release()
    with embedded(config, journal) as deliverer:
        assert deliverer.failed is None


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[EmbeddedDeliverer]:
    deliverer = embedded(write(tmp_path, *resources()))
    await asyncio.to_thread(deliverer.start)
    yield deliverer
    await asyncio.to_thread(deliverer.stop)


async def test_a_second_one_is_refused_until_the_first_has_ended(
    running: EmbeddedDeliverer, tmp_path: Path
) -> None:
    second = embedded(tmp_path)
    with pytest.raises(DelivererRunning, match="stop it first"):
        second.start()
    assert await is_there(running.telemetry_url)
    second.stop()
    await asyncio.to_thread(running.stop)
    await asyncio.to_thread(second.start)
    assert await is_there(second.telemetry_url)
    await asyncio.to_thread(second.stop)


async def test_one_that_has_ended_does_not_begin_anew(running: EmbeddedDeliverer) -> None:
    for _ in ("while it runs", "afterwards"):
        with pytest.raises(DelivererRunning, match="make another one"):
            running.start()
        await asyncio.to_thread(running.stop)


def test_a_program_hears_why_it_cannot_start_and_may_try_again(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("kind: 1\n")
    for _ in range(2):
        deliverer = embedded(tmp_path)
        with pytest.raises(StartFailed, match="apiVersion"):
            deliverer.start()
        assert isinstance(deliverer.failed, StartFailed)
    (tmp_path / "bad.yaml").unlink()
    with embedded(write(tmp_path, *resources())) as good:
        assert good.intake_url.startswith("http://127.0.0.1:")


def test_a_part_that_fails_is_told_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, ended = threading.Event(), threading.Event()
    close = Deliverer._close

    async def closing(deliverer: Deliverer) -> None:
        await close(deliverer)
        ended.set()

    async def changes(_watcher: FolderWatcher) -> AsyncIterator[object]:
        await asyncio.to_thread(gate.wait)
        raise RuntimeError("the watch is broken")
        yield

    monkeypatch.setattr(FolderWatcher, "changes", changes)
    monkeypatch.setattr(Deliverer, "_close", closing)
    deliverer = embedded(write(tmp_path, *resources()))
    deliverer.start()
    assert deliverer.failed is None
    gate.set()
    ended.wait()
    with pytest.raises(DelivererFailed) as failure:
        deliverer.stop()
    assert isinstance(failure.value.__cause__, ExceptionGroup)
    assert failure.value.__cause__.subgroup(RuntimeError)
    assert deliverer.failed is failure.value.__cause__
    monkeypatch.undo()
    with embedded(tmp_path):
        pass


async def test_a_journal_that_fails_is_told_to_the_program_in_its_own_words(
    tmp_path: Path,
) -> None:
    config, journal = tmp_path / "config", tmp_path / "journal"
    config.mkdir()
    async with listening(status=503) as ops:
        write(config, *resources(listener("ops", ops.url)))
        deliverer = embedded(config, journal)
        await asyncio.to_thread(deliverer.start)
        # With one on disk, every file of the journal is there.
        assert await publish(deliverer, count=1, ack="durable") == 200
        journal.rename(tmp_path / "elsewhere")
        # It may end before it has answered.
        with suppress(aiohttp.ClientError):
            await publish(deliverer, count=2, ack="durable")
        with pytest.raises(DelivererFailed, match=f"the journal's disk failed: {journal}: "):
            await asyncio.to_thread(deliverer.stop)


def test_one_whose_start_was_broken_off_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    broken_off = embedded(write(tmp_path, *resources()))
    monkeypatch.setattr(pillion_sidecar.embedded, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        broken_off.start()
    monkeypatch.undo()
    broken_off.stop()
    assert broken_off.failed is None
    with embedded(tmp_path):
        pass


def test_no_signal_and_no_log_handler_is_touched(tmp_path: Path) -> None:
    def touched() -> list[object]:
        handlers = [signal.getsignal(number) for number in signal.valid_signals()]
        return [*handlers, *logging.getLogger().handlers]

    before = touched()
    with embedded(write(tmp_path, *resources())):
        assert touched() == before
    assert touched() == before


async def test_a_program_ends_once_its_deliverer_has(tmp_path: Path) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), shutdownGracePeriodSeconds=3600)
        write(tmp_path, *documents)
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(alerts(7, 1)[0])]
        ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        assert (ended.returncode, ended.stdout) == (0, "200\n"), ended.stderr
        assert ops.identifiers == ["7"]
