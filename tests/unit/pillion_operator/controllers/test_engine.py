"""Workers reconcile whatever comes, and come back to whatever fails."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from pillion_operator.cluster.api import ApiError, Conflict, NotFound
from pillion_operator.controllers.worker import FIRST_BACKOFF, SHARE, WORKERS, Engine, WorkQueue
from pillion_operator.store import Key
from pillion_operator.telemetry.metrics import Metrics
from support.in_background import in_background
from support.operator_fakes import LoopClock, run_virtually
from support.operator_time import FakeClock

KIND = "IndicationFilter"


def key(name: str, kind: str = KIND) -> Key:
    return Key(kind, "shop", name)


class Bench:
    """An engine, and what its reconciles do."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.metrics = Metrics(version="0")
        self.queue: WorkQueue[Key] = WorkQueue(call_later=loop.call_later, time=loop.time)
        #: When each key was reconciled.
        self.calls: list[tuple[str, float]] = []
        #: What a key raises, time after time; then it succeeds.
        self.raises: dict[str, list[BaseException]] = {}
        #: The keys of which status was told that they failed, and that they did not.
        self.told: list[tuple[str, str]] = []
        self.over: list[str] = []
        self.reconcile: Callable[[Key], Awaitable[None]] = self.by_the_book
        self.engine = Engine(
            queue=self.queue,
            reconciles={KIND: lambda one: self.reconcile(one)},
            metrics=self.metrics,
            clock=LoopClock(),
            failed=self.tell,
            succeeded=lambda one: self.over.append(one.name),
        )

    async def by_the_book(self, one: Key) -> None:
        self.calls.append((one.name, asyncio.get_running_loop().time()))
        errors = self.raises.get(one.name)
        if errors:
            raise errors.pop(0)

    async def tell(self, one: Key, error: Exception) -> None:
        self.told.append((one.name, type(error).__name__))
        if one.name == "untellable":
            raise TimeoutError

    def waits(self, name: str) -> list[float]:
        """Seconds between the reconciles of a key."""
        at = [moment for called, moment in self.calls if called == name]
        return [round(later - sooner, 2) for sooner, later in pairwise(at)]

    def counted(self) -> dict[str, float]:
        return {
            sample.labels["result"]: sample.value
            for metric in self.metrics.reconciles.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        }

    def conflicts(self) -> float | None:
        return self.metrics.registry.get_sample_value("pillion_operator_api_conflicts_total")

    def timed(self) -> float | None:
        return self.metrics.registry.get_sample_value(
            "pillion_operator_reconcile_seconds_count", {"kind": KIND}
        )


@asynccontextmanager
async def working() -> AsyncIterator[Bench]:
    bench = Bench()
    task = asyncio.create_task(bench.engine.run())
    try:
        yield bench
    finally:
        assert not task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        bench.queue.close()


def scene(play: Callable[[Bench], Awaitable[None]]) -> None:
    """Run on virtual time."""

    async def whole() -> None:
        async with working() as bench:
            await play(bench)

    run_virtually(whole())


def test_each_key_is_reconciled_once_and_counted() -> None:
    async def play(bench: Bench) -> None:
        for name in "aba":
            bench.queue.add(key(name))
        await asyncio.sleep(1)
        assert [name for name, _ in bench.calls] == ["a", "b"]
        assert bench.counted() == {"success": 2}
        assert bench.timed() == 2
        assert bench.queue.idle

    scene(play)


def test_a_key_of_another_kind_is_passed_over() -> None:
    async def play(bench: Bench) -> None:
        bench.queue.add(key("a", "Node"))
        bench.queue.add(key("b"))
        await asyncio.sleep(1)
        assert [name for name, _ in bench.calls] == ["b"]
        assert bench.counted() == {"success": 1}
        assert bench.queue.idle

    scene(play)


REFUSALS = [
    ApiError(500, "InternalError", "etcd is away"),
    NotFound(404, "NotFound", "the namespace is gone"),
    Conflict(409, "Conflict", "somebody else wrote"),
    aiohttp.ClientConnectionError("refused"),
    TimeoutError(),
    ConnectionResetError("reset"),
    OSError("no route"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_what_the_api_server_refuses_is_tried_again_ever_more_rarely(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(bench: Bench) -> None:
        bench.raises["a"] = [error, error, error]
        bench.queue.add(key("a"))
        await asyncio.sleep(30)
        assert bench.waits("a") == [FIRST_BACKOFF, 2 * FIRST_BACKOFF, 4 * FIRST_BACKOFF]
        assert bench.counted() == {"retry": 3, "success": 1}
        assert bench.timed() == 4
        assert bench.conflicts() == (3 if isinstance(error, Conflict) else 0)

    caplog.set_level(logging.WARNING)
    scene(play)
    records = [one for one in caplog.records if one.name == "pillion.operator"]
    assert [one.levelname for one in records] == ["WARNING"] * 3
    assert {vars(one)["event"] for one in records} == {"reconcile-put-off"}
    assert all(one.exc_info is None for one in records)
    # It names the object and the error, even one without a text.
    assert "IndicationFilter shop/a" in records[0].getMessage()
    assert (str(error) or "TimeoutError") in records[0].getMessage()
    assert vars(records[0])["object"] == "IndicationFilter shop/a"


@pytest.mark.parametrize(("wanted", "waited"), [(7.0, 7.0), (0.01, FIRST_BACKOFF), (None, 0.25)])
def test_an_api_server_that_says_when_is_given_that_time(
    wanted: float | None, waited: float
) -> None:
    async def play(bench: Bench) -> None:
        bench.raises["a"] = [ApiError(429, "TooManyRequests", "slowly", retry_after=wanted)]
        bench.queue.add(key("a"))
        await asyncio.sleep(30)
        assert bench.waits("a") == [waited]

    scene(play)


def test_a_success_begins_the_backoff_anew() -> None:
    async def play(bench: Bench) -> None:
        bench.raises["a"] = [TimeoutError(), TimeoutError()]
        bench.queue.add(key("a"))
        await asyncio.sleep(30)
        bench.raises["a"] = [TimeoutError()]
        bench.queue.add(key("a"))
        await asyncio.sleep(30)
        assert bench.waits("a")[-1] == FIRST_BACKOFF

    scene(play)


def test_a_bug_over_one_object_is_told_with_its_trace_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(bench: Bench) -> None:
        bench.raises["bad"] = [ZeroDivisionError("a bug") for _ in range(3)]
        bench.queue.add(key("bad"))
        for number in range(2 * WORKERS):
            bench.queue.add(key(f"good-{number}"))
        await asyncio.sleep(30)
        assert len({name for name, _ in bench.calls}) == 2 * WORKERS + 1
        assert bench.waits("bad") == [FIRST_BACKOFF, 2 * FIRST_BACKOFF, 4 * FIRST_BACKOFF]
        assert bench.counted() == {"failed": 3, "success": 2 * WORKERS + 1}
        assert bench.timed() == 2 * WORKERS + 4
        assert bench.told == [("bad", "ZeroDivisionError")] * 3
        assert set(bench.over) == {name for name, _ in bench.calls}

    scene(play)
    records = [one for one in caplog.records if one.name == "pillion.operator"]
    assert [one.levelname for one in records] == ["ERROR"] * 3
    first = records[0]
    assert vars(first)["event"] == "reconcile-failed"
    assert vars(first)["object"] == "IndicationFilter shop/bad"
    assert first.exc_info is not None
    assert first.exc_info[0] is ZeroDivisionError
    assert "again in 0.2 s" in first.getMessage()


def test_a_bug_that_status_cannot_be_told_of_ends_no_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(bench: Bench) -> None:
        bench.raises["untellable"] = [ZeroDivisionError() for _ in range(2 * WORKERS)]
        bench.queue.add(key("untellable"))
        await asyncio.sleep(3600)
        assert bench.over == ["untellable"]

    scene(play)
    told = [one for one in caplog.records if vars(one).get("event") == "failure-untold"]
    assert len(told) == 2 * WORKERS
    assert "TimeoutError" in told[0].getMessage()


def test_several_keys_are_worked_on_at_once_but_no_more_than_there_are_workers() -> None:
    async def play(bench: Bench) -> None:
        running: set[str] = set()
        most: list[int] = []

        async def slowly(one: Key) -> None:
            assert one.name not in running
            running.add(one.name)
            most.append(len(running))
            await asyncio.sleep(1)
            running.discard(one.name)

        bench.reconcile = slowly
        for number in range(3 * WORKERS):
            bench.queue.add(key(str(number)))
        await asyncio.sleep(2.5)
        # Asked for while it is worked on: afterwards, once more.
        for _ in range(2):
            for number in range(3 * WORKERS):
                bench.queue.add(key(str(number)))
        await asyncio.sleep(30)
        assert max(most) == WORKERS
        assert bench.counted() == {"success": 6 * WORKERS}

    scene(play)


def test_reconciles_that_wait_for_nothing_let_others_of_the_process_go_on() -> None:
    async def play(bench: Bench) -> None:
        turns: list[int] = []

        async def at_once(one: Key) -> None:
            bench.calls.append((one.name, 0.0))

        async def lease() -> None:
            while len(bench.calls) < 50 * WORKERS:
                turns.append(len(bench.calls))
                await asyncio.sleep(0)

        bench.reconcile = at_once
        for number in range(50 * WORKERS):
            bench.queue.add(key(str(number)))
        await lease()
        assert len(turns) > 10

    scene(play)


def test_cancelled_it_ends_and_gives_its_keys_back() -> None:
    async def whole() -> None:
        bench = Bench()
        ended: list[str] = []

        async def for_ever(one: Key) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(one.name)

        bench.reconcile = for_ever
        task: asyncio.Task[Any] = asyncio.create_task(bench.engine.run())
        bench.queue.add(key("a"))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["a"]
        # It was no failure, and is not tried again.
        assert bench.counted() == {}
        assert bench.queue.idle

    run_virtually(whole())


@pytest.mark.parametrize("answer", [0.0, 0.0001], ids=["at once", "waiting for an answer"])
@pytest.mark.parametrize(("seconds", "most"), [(2 * SHARE, 1), (0.6 * SHARE, 3)])
def test_long_reconciles_do_not_share_a_turn_of_the_loop(
    seconds: float, most: int, answer: float
) -> None:
    async def work() -> tuple[list[int], list[str]]:
        loop = asyncio.get_running_loop()
        bench, turn, turns, done = Bench(), 0, list[int](), asyncio.Event()
        clock = FakeClock()
        bench.engine = Engine(
            queue=bench.queue,
            reconciles={KIND: lambda one: reconcile(one)},
            metrics=bench.metrics,
            clock=clock,
            failed=bench.tell,
            succeeded=lambda one: bench.over.append(one.name),
        )

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        async def reconcile(one: Key) -> None:
            turns.append(turn)
            clock.skip(seconds)
            if answer:
                await asyncio.sleep(answer)
            if len(turns) == 2 * WORKERS:
                done.set()

        for number in range(2 * WORKERS):
            bench.queue.add(key(f"long-{number}"))
        loop.call_soon(count)
        async with in_background(bench.engine.run()):
            await done.wait()
            await asyncio.sleep(answer)
        return turns, bench.over

    turns, over = run_virtually(work())
    assert max(Counter(turns).values()) <= most
    assert sorted(over) == sorted(f"long-{number}" for number in range(2 * WORKERS))
