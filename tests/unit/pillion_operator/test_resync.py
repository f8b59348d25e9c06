"""What the watches have missed is found by listing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import pytest

from pillion_operator.cluster.api import Api, ApiError
from pillion_operator.cluster.types import OURS, ResourceType
from pillion_operator.definitions import Definitions
from pillion_operator.resync import PATIENCE, Resync
from pillion_operator.store import Key, Store
from pillion_operator.watching import WATCHED
from support.in_background import in_background
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
    refuses: Exception | None = None
    listed: int = 0
    #: Of each listing: the kind, the namespace and the selector.
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)

    async def list(
        self, kind: ResourceType, namespace: str | None, *, label_selector: str | None
    ) -> list[dict[str, Any]]:
        self.listed += 1
        self.asked.append((kind.kind, namespace, label_selector))
        if self.refuses is not None:
            raise self.refuses
        return [body(name) for name in self.there] if kind is KIND else []

    async def served(self, _api_version: str, *, verb: str) -> frozenset[str]:
        return frozenset(kind.plural for kind in OURS)


@dataclass
class Bed:
    clock: FakeClock
    api: FakeApi
    store: Store
    missed: list[tuple[str, int]]
    resync: Resync

    def names(self) -> list[str]:
        return [key.name for key in self.store.keys(KIND.kind)]


@asynccontextmanager
async def running(*namespaces: str) -> AsyncIterator[Bed]:
    clock, api, store, missed = FakeClock(), FakeApi(), Store(), list[tuple[str, int]]()
    definitions = Definitions(api=cast(Api, api), store=store, clock=clock)
    resync = Resync(
        api=cast(Api, api),
        store=store,
        namespaces=namespaces,
        clock=clock,
        missed=lambda kind, count: missed.append((kind, count)),
        definitions=definitions,
    )
    bed = Bed(clock, api, store, missed, resync)
    async with (
        in_background(resync.run(INTERVAL)),
        in_background(definitions.run()),
    ):
        yield bed


async def test_what_no_watch_has_told_of_is_taken_over() -> None:
    async with running() as bed:
        bed.store.put(body("gone"))
        bed.api.there = ["new"]
        await bed.clock.advance(ROUND)

        assert bed.names() == ["new"]
        assert bed.missed == [(KIND.kind, 2)]
        assert bed.store.get(Key(KIND.kind, "shop", "new")) == body("new")


@pytest.mark.parametrize(
    "error",
    [
        ApiError(503, "ServiceUnavailable", "not now"),
        aiohttp.ClientConnectionError("refused"),
        TimeoutError("late"),
        OSError("no route"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_api_server_that_refuses_is_asked_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as bed:
        bed.api.refuses = error
        await bed.clock.advance(ROUND)
        assert bed.names() == []
        assert {vars(one)["event"] for one in caplog.records} == {"listing-failed"}
        assert str(error) in caplog.text

        bed.api.refuses, bed.api.there = None, ["new"]
        await bed.clock.advance(ROUND)
        assert bed.names() == ["new"]


async def test_the_first_listing_fills_the_store_and_misses_nothing() -> None:
    async with running() as bed:
        bed.api.there = ["one", "two"]
        # Nobody waits for a watch: time stands still.
        await bed.resync.fill()

        assert bed.names() == ["one", "two"]
        assert bed.missed == []
        assert bed.api.asked == [(kind.kind, None, selector) for kind, selector in WATCHED]


async def test_what_refuses_the_first_listing_reaches_the_caller() -> None:
    async with running() as bed:
        bed.api.refuses = ApiError(403, "Forbidden", "no")
        with pytest.raises(ApiError):
            await bed.resync.fill()


async def test_of_several_namespaces_each_is_listed_and_no_other_touched() -> None:
    async with running("shop", "yard") as bed:
        elsewhere = body("kept")
        elsewhere["metadata"]["namespace"] = "elsewhere"
        bed.store.put(elsewhere)
        bed.store.put(body("gone"))
        await bed.clock.advance(ROUND)

        assert bed.names() == ["kept"]
        assert bed.missed == [(KIND.kind, 1)]
        assert bed.api.asked == [
            (kind.kind, namespace, selector)
            for kind, selector in WATCHED
            for namespace in ("shop", "yard")
        ]


async def test_what_a_watch_brings_within_its_patience_is_not_missed() -> None:
    async with running() as bed:
        bed.api.there = ["new"]
        await bed.clock.advance(INTERVAL + PATIENCE / 2)
        bed.store.put(body("new"))
        bed.store.put(body("newer"))
        await bed.clock.advance(PATIENCE * len(WATCHED))

        assert sorted(bed.names()) == ["new", "newer"]
        assert bed.missed == []


async def test_what_was_missed_is_told_with_its_number(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as bed:
        bed.api.there = ["one", "two"]
        await bed.clock.advance(ROUND)
        await bed.clock.advance(ROUND)

    (record,) = caplog.records
    assert (vars(record)["event"], vars(record)["count"]) == ("watch-missed", 2)
    assert f"the watch of {KIND.plural} has missed 2 changes" in record.getMessage()
