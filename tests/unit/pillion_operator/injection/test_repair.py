"""Evictions of pods that were missed."""

from dataclasses import replace

import pytest

from pillion_operator.cluster.api import ApiError, Conflict, NotFound
from pillion_operator.injection.missed import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_EVICTIONS,
    Evictions,
    MissedPod,
)
from pillion_operator.telemetry.metrics import Metrics
from support.injection import MemoryApi, too_many_requests
from support.operator_time import FakeClock

POD = MissedPod(
    namespace="shop",
    name="web-1",
    uid="uid-1",
    service="web",
    made=0.0,
    owner="rs-1",
    evict=True,
)


class Bench:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.clock = FakeClock()
        self.metrics = Metrics(version="1")
        self.evictions = Evictions(api=self.api, clock=self.clock, evictions=self.metrics.evictions)

    async def evicted(self, *missed: MissedPod) -> list[str]:
        """The pods of which one round asks for an eviction that is granted."""
        before = len(self.api.created)
        await self.evictions.round(missed)
        return [body["metadata"]["name"] for _, body in self.api.created[before:]]

    def results(self, result: str) -> float | None:
        name = "pillion_operator_evictions_total"
        return self.metrics.registry.get_sample_value(name, {"result": result})


@pytest.fixture
def bench() -> Bench:
    return Bench()


def pods(number: int) -> list[MissedPod]:
    return [replace(POD, name=f"web-{n}", uid=f"uid-{n}") for n in range(number)]


async def test_a_pod_is_evicted_by_the_eviction_api_if_it_is_still_the_same(bench: Bench) -> None:
    assert await bench.evicted(POD) == ["web-1"]
    path, body = bench.api.created[0]
    assert path == "/api/v1/namespaces/shop/pods/web-1/eviction"
    assert body["deleteOptions"] == {"preconditions": {"uid": "uid-1"}}
    assert bench.results("evicted") == 1


@pytest.mark.parametrize("pod", [replace(POD, evict=False), replace(POD, owner=None)])
async def test_a_pod_that_may_not_be_or_would_not_come_back_is_not(
    bench: Bench, pod: MissedPod
) -> None:
    assert await bench.evicted(pod) == []


async def test_a_round_evicts_only_so_many_and_the_next_goes_on(bench: Bench) -> None:
    many = pods(MOST_EVICTIONS + 2)
    assert len(await bench.evicted(*many)) == MOST_EVICTIONS
    assert await bench.evicted(*many[MOST_EVICTIONS:]) == ["web-5", "web-6"]


async def test_a_budget_that_forbids_it_holds_up_nobody_else_and_is_asked_again(
    bench: Bench,
) -> None:
    bench.api.refusals.append(too_many_requests())
    other = replace(POD, name="other", owner="rs-2")
    assert await bench.evicted(*pods(2), other) == ["other"]
    assert bench.results("refused") == 1
    assert await bench.evicted(*pods(1)) == ["web-0"]


async def test_many_that_are_forbidden_do_not_keep_others_from_their_turn(bench: Bench) -> None:
    forbidden = [replace(one, owner=one.name) for one in pods(MOST_EVICTIONS)]
    bench.api.refusals += [too_many_requests() for _ in forbidden]
    waiting = replace(POD, name="waiting", owner="rs-2")
    assert await bench.evicted(*forbidden, waiting) == []
    bench.clock.skip(1)
    assert bench.results("refused") == MOST_EVICTIONS
    assert (await bench.evicted(*forbidden, waiting))[0] == "waiting"


@pytest.mark.parametrize("error", [NotFound, Conflict])
async def test_a_pod_that_is_gone_is_no_failure(bench: Bench, error: type[ApiError]) -> None:
    bench.api.refusals.append(error(404, "NotFound", "gone"))
    assert await bench.evicted(POD) == []
    assert bench.results("failed") == 0


async def test_a_refusal_for_want_of_rights_is_a_failure(bench: Bench) -> None:
    bench.api.refusals.append(ApiError(403, "Forbidden", "no"))
    assert await bench.evicted(POD) == []
    assert bench.results("failed") == 1


def remade(bench: Bench, name: str) -> MissedPod:
    return replace(POD, name=name, uid=name, made=bench.clock.time())


async def test_an_owner_whose_new_pod_is_missed_too_is_left_alone_for_longer_each_time(
    bench: Bench,
) -> None:
    assert await bench.evicted(POD) == ["web-1"]
    pause = FIRST_PAUSE
    for attempt in range(10):
        again = remade(bench, f"again-{attempt}")
        bench.clock.skip(pause - 1)
        assert await bench.evicted(again) == []
        bench.clock.skip(1)
        assert await bench.evicted(again) == [again.name]
        pause = min(2 * pause, LONGEST_PAUSE)


async def test_the_pods_from_before_need_not_wait(bench: Bench) -> None:
    assert await bench.evicted(POD) == ["web-1"]
    bench.clock.skip(1)
    assert await bench.evicted(remade(bench, "new"), *pods(1)) == ["web-0"]


async def test_another_owner_need_not_wait(bench: Bench) -> None:
    await bench.evicted(POD)
    other = replace(remade(bench, "other"), owner="rs-2")
    assert await bench.evicted(other) == ["other"]


async def test_what_was_long_ago_is_forgotten(bench: Bench) -> None:
    for attempt in range(8):
        await bench.evicted(remade(bench, f"again-{attempt}"))
        bench.clock.skip(LONGEST_PAUSE)
    bench.clock.skip(2 * LONGEST_PAUSE + 1)
    assert await bench.evicted(remade(bench, "late")) == ["late"]
    bench.clock.skip(FIRST_PAUSE)
    assert await bench.evicted(remade(bench, "soon")) == ["soon"]
