"""The threads of a journal, and the whole of it on real files."""

import asyncio
import logging
from pathlib import Path
from threading import Event, get_ident
from threading import enumerate as enumerate_threads

import pytest

from pillion_sidecar.clock import LoopTimers, SystemClock
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.disk import DiskJournal, open_journal
from pillion_sidecar.journal.files import SystemFiles
from pillion_sidecar.journal.limits import MIB, JournalSettings
from pillion_sidecar.journal.ports import Place, Recovered
from pillion_sidecar.journal.workers import ThreadWorker
from support.journal_owner import Owner


def raise_os_error() -> None:
    raise OSError(5, "Input/output error")


def raise_value_error() -> None:
    raise ValueError("a mistake of ours")


async def test_results_come_on_the_loop_in_the_order_of_submission() -> None:
    loop = asyncio.get_running_loop()
    worker = ThreadWorker(name="test", call_soon_threadsafe=loop.call_soon_threadsafe)
    seen: list[object] = []
    ended = asyncio.Event()
    threads: set[int] = set()

    done = iter(range(10))

    def work() -> int:
        threads.add(get_ident())
        return next(done)

    for _ in range(3):
        worker.submit(work, seen.append, seen.append)
    worker.submit(raise_os_error, seen.append, lambda error: seen.append(error.errno))
    worker.submit(work, lambda _: ended.set(), seen.append)
    assert seen == []
    await asyncio.wait_for(ended.wait(), 30)
    assert seen == [0, 1, 2, 5]
    assert len(threads) == 1
    assert get_ident() not in threads
    worker.close()


async def test_a_drain_waits_and_tells_each_result_once() -> None:
    loop = asyncio.get_running_loop()
    worker = ThreadWorker(name="test", call_soon_threadsafe=loop.call_soon_threadsafe)
    go, seen = Event(), list[object]()

    def more(_: object) -> None:
        seen.append("first")
        worker.submit(lambda: "second", seen.append, seen.append)

    worker.submit(go.wait, more, seen.append)
    go.set()
    worker.drain()
    assert seen == ["first", "second"]
    worker.close()
    # What the thread told the loop meanwhile finds nothing left to tell.
    await asyncio.sleep(0)
    assert seen == ["first", "second"]


async def test_a_mistake_in_a_worker_reaches_the_loop() -> None:
    loop = asyncio.get_running_loop()
    failed = loop.create_future()
    loop.set_exception_handler(lambda _, context: failed.set_result(context["exception"]))
    worker = ThreadWorker(name="test", call_soon_threadsafe=loop.call_soon_threadsafe)
    worker.submit(raise_value_error, print, print)
    error = await asyncio.wait_for(failed, 30)
    assert str(error) == "a mistake of ours"
    worker.close()


async def test_after_a_mistake_the_worker_goes_on() -> None:
    loop = asyncio.get_running_loop()
    failed = loop.create_future()
    loop.set_exception_handler(lambda _, context: failed.set_result(context["exception"]))
    worker = ThreadWorker(name="test", call_soon_threadsafe=loop.call_soon_threadsafe)
    told = asyncio.Event()
    worker.submit(raise_value_error, print, print)
    worker.submit(lambda: "next", lambda _: told.set(), print)
    await asyncio.wait_for(told.wait(), 30)
    assert isinstance(await failed, ValueError)
    worker.close()


def test_a_mistake_is_met_by_who_drains() -> None:
    seen: list[object] = []
    worker = ThreadWorker(name="test", call_soon_threadsafe=lambda tell: None)
    worker.submit(raise_value_error, print, print)
    worker.submit(lambda: "next", seen.append, seen.append)
    with pytest.raises(ValueError, match="a mistake of ours"):
        worker.drain()
    assert seen == []
    worker.close()
    assert seen == ["next"]


def test_a_worker_outlives_its_event_loop_until_it_is_drained() -> None:
    loop = asyncio.new_event_loop()
    worker = ThreadWorker(name="test", call_soon_threadsafe=loop.call_soon_threadsafe)
    loop.close()
    seen: list[object] = []
    worker.submit(lambda: "first", seen.append, seen.append)
    worker.submit(raise_os_error, print, lambda error: seen.append(error.errno))
    worker.submit(lambda: "last", seen.append, seen.append)
    worker.close()
    assert seen == ["first", 5, "last"]


def test_a_worker_that_is_closed_has_no_thread() -> None:
    worker = ThreadWorker(name="test-of-the-end", call_soon_threadsafe=lambda tell: None)
    assert "test-of-the-end" in [thread.name for thread in enumerate_threads()]
    worker.close()
    assert "test-of-the-end" not in [thread.name for thread in enumerate_threads()]


class RealJournal:
    """A journal in a folder, with its threads."""

    def __init__(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        self.workers = [
            ThreadWorker(name=name, call_soon_threadsafe=loop.call_soon_threadsafe)
            for name in ("commit", "read")
        ]
        self.timers = LoopTimers(loop=loop)
        self.owner = Owner()
        self.folder = folder
        self.journal: DiskJournal
        self.recovered: Recovered

    async def open(self) -> None:
        self.journal, self.recovered = await asyncio.to_thread(
            open_journal,
            SystemFiles(self.folder),
            clock=SystemClock(),
            worker=self.workers[0],
            reader=self.workers[1],
            call_soon=asyncio.get_running_loop().call_soon,
            timers=self.timers,
            settings=JournalSettings(durability=Durability.DISK, segment_bytes=MIB),
            identities=self.owner,
        )
        self.journal.attach(self.owner)

    async def committed(self) -> None:
        done = asyncio.get_running_loop().create_future()
        self.journal.barrier(lambda: done.set_result(None))
        await asyncio.wait_for(done, 60)

    async def load(self, positions: list[int]) -> list[Indication | None]:
        done: asyncio.Future[list[Indication | None]] = asyncio.get_running_loop().create_future()
        self.journal.load(positions, lambda loaded: done.set_result(list(loaded)))
        return await asyncio.wait_for(done, 60)

    def close(self) -> None:
        self.journal.close()
        for worker in self.workers:
            worker.close()
        self.timers.close()


def take(real: RealJournal, number: int, body: bytes) -> Indication:
    indication = Indication(body=body, class_name="CIM_AlertIndication", accepted_at=1.0)
    place = Place(0, 0, number)
    real.journal.append(indication, [place])
    real.owner.indications[indication.id] = indication
    real.owner.pending_places[indication.id] = {place}
    return indication


async def test_real_files_and_threads_keep_what_is_pending(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    real = RealJournal(tmp_path)
    await real.open()
    for number in range(4000):
        indication = take(real, number, b"%d " % number + b"x" * 1000)
        # One of ten waits for long, so that it is copied forward.
        if number % 10:
            del real.owner.pending_places[indication.id]
            del real.owner.indications[indication.id]
            real.journal.settle(Place(0, 0, number), indication, None, through=False)
        if number % 200 == 199:
            await real.committed()
            waiting = list(real.owner.indications.values())
            loaded = await real.load([one.position for one in waiting])
            assert [one.body for one in loaded if one is not None] == [one.body for one in waiting]
    kept = {one.id: one.body for one in real.owner.indications.values()}
    assert len(kept) == 400
    real.close()
    assert real.owner.errors == []
    again = RealJournal(tmp_path)
    await again.open()
    queue = again.recovered.queues[0]
    assert list(queue.numbers) == list(range(0, 4000, 10))
    loaded = await again.load(list(queue.positions))
    assert {one.id: one.body for one in loaded if one is not None} == kept
    again.close()
    assert not caplog.records
