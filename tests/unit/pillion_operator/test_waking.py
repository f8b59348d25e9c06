import asyncio

from pillion_operator.clock import Bell
from support.operator_time import SETTLING_TURNS


async def settle() -> None:
    for _ in range(SETTLING_TURNS):
        await asyncio.sleep(0)


async def test_a_bell_that_rang_before_anybody_listened_is_heard() -> None:
    bell = Bell()
    bell.ring()
    await bell.heard()


async def test_ringing_often_wakes_once() -> None:
    bell = Bell()
    for _ in range(3):
        bell.ring()
    await bell.heard()
    waiting = asyncio.create_task(bell.heard())
    await settle()
    assert not waiting.done()

    bell.ring()
    await waiting


async def test_nobody_wakes_without_a_ring() -> None:
    bell = Bell()
    waiting = asyncio.create_task(bell.heard())
    await settle()
    assert not waiting.done()
    bell.ring()
    await settle()
    assert waiting.done()


async def test_what_is_rung_while_the_work_is_done_is_heard_afterwards() -> None:
    bell, heard = Bell(), 0

    async def work() -> None:
        nonlocal heard
        while heard < 2:
            await bell.heard()
            heard += 1
            if heard == 1:
                bell.ring()

    bell.ring()
    await work()
    assert heard == 2
