"""Opening connections: one in each turn of the event loop, in order, past those who gave up."""

import asyncio
from itertools import pairwise

from pillion_sidecar.handlers.transport.connector import OpeningPace


async def _take(pace: OpeningPace, name: str, order: list[str]) -> None:
    await pace.turn()
    order.append(name)


async def _turns_of_the_loop(order: list[str]) -> list[int]:
    """How many had their turn, after each turn of the loop, until it stays the same."""
    seen = []
    while len(seen) < 3 or seen[-1] != seen[-3]:
        await asyncio.sleep(0)
        seen.append(len(order))
    return seen


async def test_one_is_let_in_at_a_time_in_order() -> None:
    pace, order = OpeningPace(), list[str]()
    tasks = [asyncio.create_task(_take(pace, name, order)) for name in "abc"]
    seen = await _turns_of_the_loop(order)
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]
    assert all(after - before <= 1 for before, after in pairwise(seen))


async def test_those_who_gave_up_take_no_turn_and_stop_nobody() -> None:
    pace, order = OpeningPace(), list[str]()
    tasks = [asyncio.create_task(_take(pace, name, order)) for name in "abcd"]
    await asyncio.sleep(0)
    for given_up in (tasks[0], tasks[1], tasks[3]):
        given_up.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["c"]
    await pace.turn()
