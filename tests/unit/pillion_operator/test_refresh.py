"""Pods are annotated at a bounded pace, and no namespace keeps the others waiting."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import pytest

from pillion_operator import refresh
from pillion_operator.cluster.api import Api, ApiError, NotFound
from pillion_operator.refresh import PER_SECOND, KubeletRefresher
from pillion_operator.store import Key
from support.in_background import in_background
from support.operator_time import FakeClock


@dataclass
class FakeApi:
    """Keeps what is patched."""

    clock: FakeClock
    patched: list[tuple[float, str, str, str]] = field(default_factory=list)
    fails: dict[str, Exception] = field(default_factory=dict)

    async def patch(self, kind: Any, namespace: str, name: str, body: Any) -> dict[str, Any]:
        (annotation,) = body["metadata"]["annotations"].values()
        self.patched.append((self.clock.monotonic(), namespace, name, annotation))
        if name in self.fails:
            raise self.fails[name]
        return {}

    def pods(self) -> list[str]:
        return [f"{namespace}/{name}" for _, namespace, name, _ in self.patched]


@dataclass
class Bed:
    clock: FakeClock
    api: FakeApi
    refresher: KubeletRefresher
    told: list[str]


@asynccontextmanager
async def poking_bed(*, enabled: bool = True) -> AsyncIterator[Bed]:
    clock = FakeClock()
    api, told = FakeApi(clock), list[str]()
    refresher = KubeletRefresher(cast(Api, api), clock=clock, enabled=enabled, done=told.append)
    async with in_background(refresher.run()):
        yield Bed(clock, api, refresher, told)


def pods(namespace: str, number: int) -> list[Key]:
    return [Key("Pod", namespace, f"p{one}") for one in range(number)]


async def test_a_namespace_with_many_pods_does_not_keep_others_waiting() -> None:
    async with poking_bed() as bed:
        bed.refresher.refresh(pods("large", 50), "a")
        bed.refresher.refresh(pods("small", 2), "b")
        await bed.clock.advance(3 / PER_SECOND)

    assert bed.api.pods() == ["large/p0", "small/p0", "large/p1", "small/p1"]


async def test_pods_are_annotated_at_a_bounded_pace() -> None:
    async with poking_bed() as bed:
        bed.refresher.refresh(pods("shop", 200), "a")
        await bed.clock.advance(1.0)

        assert len(bed.api.patched) in (int(PER_SECOND), int(PER_SECOND) + 1)


async def test_a_pod_that_waits_gets_the_latest_revision_once() -> None:
    async with poking_bed() as bed:
        for revision in ("a", "b", "c"):
            bed.refresher.refresh(pods("shop", 2), revision)
        await bed.clock.advance(1.0)

    assert [(name, revision) for _, _, name, revision in bed.api.patched] == [
        ("p0", "c"),
        ("p1", "c"),
    ]
    assert bed.told == ["done", "done"]


async def test_one_that_fails_keeps_nobody_waiting_and_one_that_is_gone_is_no_failure() -> None:
    async with poking_bed() as bed:
        bed.api.fails = {
            "p0": ApiError(500, "InternalError", "etcd is away"),
            "p1": NotFound(404, "NotFound", "it is gone"),
        }
        bed.refresher.refresh(pods("shop", 3), "a")
        await bed.clock.advance(1.0)

    assert bed.api.pods() == ["shop/p0", "shop/p1", "shop/p2"]
    assert bed.told == ["failed", "done"]


async def test_no_more_pods_of_a_namespace_wait_than_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refresh, "MOST_WAITING", 3)
    async with poking_bed() as bed:
        bed.refresher.refresh(pods("large", 9), "a")
        bed.refresher.refresh(pods("small", 1), "a")
        await bed.clock.advance(1.0)

    assert bed.api.pods() == ["large/p0", "small/p0", "large/p1", "large/p2"]


async def test_where_it_is_off_nothing_is_written() -> None:
    async with poking_bed(enabled=False) as bed:
        bed.refresher.refresh(pods("shop", 1), "a")
        await bed.clock.advance(1.0)

    assert bed.api.patched == []


@pytest.mark.parametrize(
    "error", [aiohttp.ClientConnectionError("refused"), TimeoutError("late"), OSError("no route")]
)
async def test_an_api_server_that_cannot_be_reached_is_told_and_the_next_pod_annotated(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with poking_bed() as bed:
        bed.api.fails = {"p0": error}
        bed.refresher.refresh(pods("shop", 2), "a")
        await bed.clock.advance(1.0)

    assert bed.told == ["failed", "done"]
    (record,) = caplog.records
    assert record.getMessage() == f"pod shop/p0 could not be annotated: {error}"
    assert (vars(record)["event"], vars(record)["pod"]) == ("poke-failed", "p0")


async def test_pods_that_come_while_it_rests_are_annotated_too() -> None:
    async with poking_bed() as bed:
        for number in range(3):
            bed.refresher.refresh([Key("Pod", "shop", f"p{number}")], "a")
            await bed.clock.advance(1.0)

    assert bed.told == ["done"] * 3


async def test_a_pod_that_was_annotated_may_be_again() -> None:
    async with poking_bed() as bed:
        for revision in ("a", "b"):
            bed.refresher.refresh(pods("shop", 1), revision)
            await bed.clock.advance(1.0)

    assert [revision for _, _, _, revision in bed.api.patched] == ["a", "b"]


async def test_one_that_waits_gets_the_latest_revision_though_no_more_may_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refresh, "MOST_WAITING", 1)
    async with poking_bed() as bed:
        for revision in ("a", "b"):
            bed.refresher.refresh(pods("shop", 2), revision)
        await bed.clock.advance(1.0)

    assert [(name, revision) for _, _, name, revision in bed.api.patched] == [("p0", "b")]
