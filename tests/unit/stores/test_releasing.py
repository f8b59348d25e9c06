"""A session is released at all its stores (S3.7)."""

import asyncio
from collections.abc import Callable

import pytest

from pillion_sidecar.stores.copies import Copy, Epoch, FencedError
from pillion_sidecar.stores.messages import Request
from pillion_sidecar.stores.releasing import TRIES, release
from pillion_sidecar.stores.shipping import Answer, Unanswered
from pillion_sidecar.stores.store import BrokenError, UnknownError
from pillion_sidecar.testing import FakeTime

EPOCH = Epoch(3, "one")


class Scripted:
    """A ``Transport`` whose stores answer always the same."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def send(self, store: str, request: Request, answered: Callable[[Answer], None]) -> None:
        self.asked.append(store)
        asyncio.get_running_loop().call_soon(answered, self.answers[store])


async def released(stores: Scripted) -> dict[str, str]:
    time = FakeTime()
    names = tuple(stores.answers)
    releasing = asyncio.ensure_future(release(EPOCH, names, transport=stores, timers=time))
    for _ in range(200):
        if releasing.done():
            break
        await asyncio.sleep(0)
        time.advance(1.0)
    return dict(await releasing)


async def test_a_store_that_knows_no_such_session_has_released_it() -> None:
    stores = Scripted(a=Copy(), b=UnknownError("there is no copy of this session"))
    assert await released(stores) == {}
    assert stores.asked == ["a", "b"]


async def test_a_store_that_cannot_be_asked_is_asked_again_and_told() -> None:
    stores = Scripted(a=Copy(), b=Unanswered(reason="away"), c=BrokenError("see to the disk"))
    assert await released(stores) == {"b": "away", "c": "see to the disk"}
    assert stores.asked == ["a", *["b", "c"] * TRIES]


async def test_a_session_that_another_has_claimed_is_not_released() -> None:
    fenced = FencedError("two has claimed it", promised=Epoch(4, "two"))
    with pytest.raises(FencedError, match="two has claimed it"):
        await released(Scripted(a=fenced))
