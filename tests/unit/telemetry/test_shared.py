"""Answers that are shared by those who wait."""

import asyncio

import pytest

from pillion_sidecar.telemetry.shared import SharedAnswers
from pillion_sidecar.testing import FakeTime


class Pages:
    """Makes pages that take a second each, and are told apart."""

    def __init__(self, fake_time: FakeTime) -> None:
        self.time = fake_time
        self.made = 0

    def page(self) -> bytes:
        self.made += 1
        self.time.advance(1)
        return b"%d" % self.made


@pytest.fixture
def pages(fake_time: FakeTime) -> Pages:
    return Pages(fake_time)


async def settled(*tasks: "asyncio.Task[bytes]") -> None:
    for _ in range(10 * len(tasks)):
        await asyncio.sleep(0)


async def test_many_watchers_cost_two_answers(pages: Pages, fake_time: FakeTime) -> None:
    shared = SharedAnswers(fake_time, fake_time)
    first, *others = [asyncio.create_task(shared.get("a", pages.page)) for _ in range(50)]
    other = asyncio.create_task(shared.get("b", pages.page))
    await settled(first, *others, other)
    # The others came when it had begun, and wait until publishers had their time.
    assert (first.result(), any(task.done() for task in others)) == (b"1", False)
    fake_time.advance(3)
    await settled(*others)
    assert ({task.result() for task in others}, other.done()) == ({b"2"}, False)
    fake_time.advance(3)
    await settled(other)
    assert (other.result(), pages.made) == (b"3", 3)


async def test_an_answer_is_never_older_than_its_request(pages: Pages, fake_time: FakeTime) -> None:
    shared = SharedAnswers(fake_time, fake_time)
    assert await shared.get("a", pages.page) == b"1"
    fake_time.advance(3)
    assert await shared.get("a", pages.page) == b"2"


async def test_one_that_fails_or_is_cancelled_costs_no_other_one(
    pages: Pages, fake_time: FakeTime
) -> None:
    shared = SharedAnswers(fake_time, fake_time)

    def fail() -> bytes:
        raise ValueError("no page")

    with pytest.raises(ValueError, match="no page"):
        await shared.get("a", fail)
    assert await shared.get("a", pages.page) == b"1"
    first, second = (asyncio.create_task(shared.get("a", pages.page)) for _ in range(2))
    await settled(first, second)
    first.cancel()
    await settled(first, second)
    assert first.cancelled()
    fake_time.advance(3)
    await settled(second)
    assert second.result() == b"2"
