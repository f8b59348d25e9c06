"""What the watches have missed is found by listing, whoever leads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

from pillion_operator.cluster.api import Api, ApiError
from pillion_operator.cluster.types import OURS, ResourceType
from pillion_operator.resync import PATIENCE, Resync
from pillion_operator.store import Key, Store
from pillion_operator.watching import WATCHED
from support.operator_time import FakeClock

INTERVAL = 60.0
#: A whole round: each kind waits for its watch.
ROUND = INTERVAL + PATIENCE * len(WATCHED)
KIND = OURS[0]


def body(name: str) -> dict[str, Any]:
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "5"},
    }


@dataclass
class FakeApi:
    there: list[str] = field(default_factory=list)
    refuses: bool = False
    listed: int = 0

    async def list(self, kind: ResourceType, *_: Any, **__: Any) -> list[dict[str, Any]]:
        self.listed += 1
        if self.refuses:
            raise ApiError(503, "ServiceUnavailable", "not now")
        return [body(name) for name in self.there] if kind is KIND else []


@dataclass
class Bed:
    clock: FakeClock
    api: FakeApi
    store: Store
    missed: list[tuple[str, int]]
    resync: Resync
    wanted: bool = True

    def names(self) -> list[str]:
        return [key.name for key in self.store.keys(KIND.kind)]


@asynccontextmanager
async def running() -> AsyncIterator[Bed]:
    clock, api, store, missed = FakeClock(), FakeApi(), Store(), list[tuple[str, int]]()
    resync = Resync(
        api=cast(Api, api),
        store=store,
        namespaces=(),
        clock=clock,
        missed=lambda kind, count: missed.append((kind, count)),
    )
    bed = Bed(clock, api, store, missed, resync)
    task = asyncio.create_task(resync.run(INTERVAL, wanted=lambda: bed.wanted))
    try:
        yield bed
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_what_no_watch_has_told_of_is_taken_over() -> None:
    async with running() as bed:
        bed.store.put(body("gone"))
        bed.api.there = ["new"]
        await bed.clock.advance(ROUND)

        assert bed.names() == ["new"]
        assert bed.missed == [(KIND.kind, 2)]
        assert bed.store.get(Key(KIND.kind, "shop", "new")) == body("new")


async def test_nothing_is_listed_where_it_is_not_wanted() -> None:
    async with running() as bed:
        bed.wanted = False
        await bed.clock.advance(3 * ROUND)
        assert bed.api.listed == 0

        bed.wanted = True
        await bed.clock.advance(ROUND)
        assert bed.api.listed == len(WATCHED)


async def test_an_api_server_that_refuses_is_asked_again() -> None:
    async with running() as bed:
        bed.api.refuses = True
        await bed.clock.advance(ROUND)
        assert bed.names() == []

        bed.api.refuses, bed.api.there = False, ["new"]
        await bed.clock.advance(ROUND)
        assert bed.names() == ["new"]


async def test_two_repairs_never_run_at_once() -> None:
    """The listing of one would forget what the watches have touched since that of the other."""
    async with running() as bed:
        other = asyncio.create_task(bed.resync.repair())
        await bed.clock.advance(PATIENCE / 2)
        third = asyncio.create_task(bed.resync.repair())
        await bed.clock.advance(PATIENCE / 4)
        assert bed.api.listed == 1

        await bed.clock.advance(2 * PATIENCE * len(WATCHED))
        await asyncio.gather(other, third)
