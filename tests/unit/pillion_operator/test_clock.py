"""Waiting by a clock that is passed in."""

import asyncio

import pytest

from pillion_operator.clock import SystemClock, within
from support.operator_time import FakeClock


async def test_work_that_is_done_in_time_returns_its_result() -> None:
    async def work() -> str:
        return "done"

    clock = FakeClock()
    assert await within(clock, 5, work()) == "done"
    await clock.settle()
    assert clock.sleeping == 0


async def test_work_that_fails_in_time_raises_its_own_error() -> None:
    async def work() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        await within(FakeClock(), 5, work())


async def test_late_work_is_cancelled() -> None:
    clock, cancelled = FakeClock(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.create_task(within(clock, 5, work()))
    await clock.advance(4.9)
    assert not waiting.done()
    await clock.advance(0.1)
    with pytest.raises(TimeoutError, match="within 5 seconds"):
        await waiting
    assert cancelled.is_set()


async def test_whoever_gives_up_waiting_ends_the_work_too() -> None:
    clock, cancelled = FakeClock(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.create_task(within(clock, 5, work()))
    await clock.until_sleeping()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cancelled.is_set()
    assert clock.sleeping == 0


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock, woken = FakeClock(), list[tuple[str, float]]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic() - 1000))

    tasks = [asyncio.create_task(sleeper("late", 3)), asyncio.create_task(sleeper("early", 1))]
    await clock.until_sleeping(2)
    await clock.advance(5)
    await asyncio.gather(*tasks)
    assert woken == [("early", 1), ("late", 3)]
    assert clock.time() == 1_700_000_005


async def test_the_machine_s_clock_goes_on() -> None:
    clock = SystemClock()
    before = clock.monotonic(), clock.time()
    await clock.sleep(0)
    assert clock.monotonic() >= before[0]
    assert clock.time() > 1_700_000_000
