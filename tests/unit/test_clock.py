import asyncio

import pytest

from pillion_sidecar.clock import (
    BETWEEN_SLICES,
    MOST_AT_ONCE,
    MOST_OF_SLICE,
    TIMERS_PER_TURN,
    WAITING_PER_CALL,
    LoopTimers,
    Slices,
)
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


def exhausted(time: FakeTime) -> Slices:
    """Slices that do nothing more at once."""
    slices = Slices(clock=time, timers=time)
    for _ in range(MOST_AT_ONCE):
        slices.add(lambda: None)
    return slices


def sliced(count: int, time: FakeTime) -> tuple[Slices, list[int]]:
    """So many calls that wait, and those that were made."""
    slices, made = exhausted(time), list[int]()
    for number in range(count):
        slices.add(lambda number=number: made.append(number))
    return slices, made


def test_little_work_is_done_at_once_and_again_after_a_while():
    time, made = FakeTime(), list[int]()
    slices = Slices(clock=time, timers=time)
    for number in range(MOST_AT_ONCE + 1):
        slices.add(lambda number=number: made.append(number))
    assert made == [*range(MOST_AT_ONCE)]
    time.advance(BETWEEN_SLICES)
    assert made == [*range(MOST_AT_ONCE + 1)]
    time.advance(3.5 * BETWEEN_SLICES)
    for number in range(5):
        slices.add(lambda number=number: made.append(number))
    assert made[MOST_AT_ONCE + 1 :] == [0, 1, 2]


def test_many_that_wait_go_one_at_a_time_in_order():
    time = FakeTime()
    _, made = sliced(3, time)
    assert made == []
    seen = []
    for _ in range(3):
        time.advance(BETWEEN_SLICES)
        seen.append([*made])
    assert seen == [[0], [0, 1], [0, 1, 2]]
    assert time.next_due() is None


def test_the_more_wait_the_more_go_in_a_slice_and_all_within_a_second():
    time = FakeTime()
    slices, made = sliced(8 * WAITING_PER_CALL, time)
    time.advance(BETWEEN_SLICES)
    assert made == [*range(9)]
    time.advance(1.0)
    assert made == [*range(8 * WAITING_PER_CALL)]
    assert len(slices) == 0


def test_a_slice_ends_when_it_has_taken_its_time():
    class Slow(FakeTime):
        """Each call takes most of a slice."""

        def monotonic(self) -> float:
            return super().monotonic() + 0.6 * MOST_OF_SLICE * len(made)

    made: list[int] = []
    time = Slow()
    slices = exhausted(time)
    for number in range(10 * WAITING_PER_CALL):
        slices.add(lambda number=number: made.append(number))
    time._fire(time.monotonic() + BETWEEN_SLICES, limit=1)
    assert made == [0, 1]


def test_a_call_that_adds_another_or_fails_stops_nobody():
    time, made = FakeTime(), list[str]()
    slices = exhausted(time)

    def fail() -> None:
        slices.add(lambda: made.append("added"))
        raise RuntimeError("a fault")

    slices.add(fail)
    slices.add(lambda: made.append("behind"))
    with pytest.raises(RuntimeError):
        time.advance(BETWEEN_SLICES)
    time.advance(3 * BETWEEN_SLICES)
    assert made == ["behind", "added"]
