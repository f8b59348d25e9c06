import asyncio

import pytest

from pillion_sidecar.clock import TIMERS_PER_TURN, LoopTimers
from pillion_sidecar.testing import FakeTime


def test_fake_time_calls_back_in_order_at_the_moment_that_is_due():
    time = FakeTime(now=0.0)
    seen: list[tuple[str, float]] = []
    time.call_at(2.0, lambda: seen.append(("b", time.monotonic())))
    time.call_later(1.0, lambda: seen.append(("a", time.monotonic())))
    time.call_at(5.0, lambda: seen.append(("c", time.monotonic())))
    time.advance(3.0)
    assert seen == [("a", 1.0), ("b", 2.0)]
    assert time.monotonic() == 3.0


def test_a_cancelled_timer_is_not_called():
    time = FakeTime(now=0.0)
    seen: list[str] = []
    time.call_at(1.0, lambda: seen.append("a")).cancel()
    time.advance(2.0)
    assert seen == []


def test_cancelled_timers_do_not_pile_up():
    time = FakeTime(now=0.0)
    for number in range(10_000):
        time.call_at(float(number), lambda: None).cancel()
    assert len(time._heap) <= 64


async def test_loop_timers_hold_one_handle_of_the_loop_whatever_their_number():
    loop = asyncio.get_running_loop()
    armed: list[float] = []

    class CountingLoop:
        def time(self) -> float:
            return loop.time()

        def call_at(self, when: float, callback: object) -> asyncio.TimerHandle:
            armed.append(when)
            return loop.call_at(when, lambda: None)

    timers = LoopTimers(loop=CountingLoop())  # type: ignore[arg-type]
    now = loop.time()
    for number in range(1000):
        timers.call_at(now + 100 + number, lambda: None)
    assert len(armed) == 1
    timers.close()


async def test_many_timers_due_at_one_moment_leave_the_loop_its_turns():
    loop = asyncio.get_running_loop()
    timers = LoopTimers(loop=loop)
    fired, largest, ended = 0, 0, asyncio.Event()

    def fire():
        nonlocal fired
        fired += 1
        if fired == 40:
            ended.set()

    due = loop.time() - 1.0
    for _ in range(40):
        timers.call_at(due, fire)
    while not ended.is_set():
        before = fired
        await asyncio.sleep(0)
        largest = max(largest, fired - before)
    timers.close()
    assert largest == TIMERS_PER_TURN


async def test_loop_timers_call_back_earliest_first():
    loop = asyncio.get_running_loop()
    timers = LoopTimers(loop=loop)
    seen: list[str] = []
    finished = asyncio.Event()
    now = loop.time()
    timers.call_at(now + 0.002, finished.set)
    timers.call_at(now + 0.001, lambda: seen.append("b"))
    timers.call_at(now, lambda: seen.append("a"))
    await finished.wait()
    assert seen == ["a", "b"]
    timers.close()


@pytest.mark.parametrize("count", [1, 100])
def test_next_due_is_the_earliest_live_timer(count):
    time = FakeTime(now=0.0)
    time.call_at(1.0, lambda: None).cancel()
    for number in range(count):
        time.call_at(2.0 + number, lambda: None)
    assert time.next_due() == 2.0
