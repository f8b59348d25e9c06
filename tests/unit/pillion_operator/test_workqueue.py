import asyncio

import pytest

from pillion_operator.controllers.worker import FIRST_BACKOFF, MOST_BACKOFF, WorkQueue
from support.operator_fakes import run_virtually


def make() -> WorkQueue[str]:
    loop = asyncio.get_running_loop()
    return WorkQueue(call_later=loop.call_later, time=loop.time)


async def test_a_key_waits_once_however_often_it_is_added() -> None:
    queue = make()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert queue.depth == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_what_is_added_while_it_is_worked_on_comes_once_more_afterwards() -> None:
    queue = make()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert queue.depth == 0
    queue.done("a")
    assert queue.depth == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert queue.idle


def test_a_later_time_gives_way_to_an_earlier_one_and_never_the_other_way() -> None:
    async def work() -> None:
        queue, loop = make(), asyncio.get_running_loop()
        began = loop.time()
        queue.add("a", delay=9)
        queue.add("a", delay=3)
        queue.add("a", delay=5)
        assert await queue.get() == "a"
        assert loop.time() - began == pytest.approx(3, abs=0.01)
        queue.done("a")
        assert queue.idle
        queue.add("a", delay=5)
        queue.add("a")
        assert await queue.get() == "a"
        queue.done("a")
        # The timer went with it.
        assert queue.idle

    run_virtually(work())


def test_failures_put_off_longer_and_longer_until_a_success() -> None:
    async def work() -> None:
        queue = make()
        waits = []
        for _ in range(15):
            waits.append(queue.failed("a"))
            assert await queue.get() == "a"
            queue.done("a")
        assert waits[:3] == [FIRST_BACKOFF, 2 * FIRST_BACKOFF, 4 * FIRST_BACKOFF]
        assert waits[-1] == MOST_BACKOFF
        queue.succeeded("a")
        assert queue.failed("a") == FIRST_BACKOFF
        assert queue.failed("b", at_least=20) == 20
        queue.close()
        assert queue.idle

    run_virtually(work())


async def test_a_worker_that_is_cancelled_while_it_waits_takes_nothing_with_it() -> None:
    queue = make()
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    waiting[0].cancel()
    assert await waiting[1] == "a"
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    queue.done("a")
    assert queue.idle
