import asyncio
import itertools
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pillion_operator.polling.aggregate import deliveries
from pillion_operator.polling.poller import (
    JITTER,
    MOST_AT_ONCE,
    RETRY_FIRST,
    RETRY_MOST,
    ROLLOUT_FIRST,
    ROLLOUT_FOR,
    ROLLOUT_MOST,
    Deliverer,
    Poller,
    Service,
    Target,
)
from pillion_operator.polling.reports import (
    Answer,
    DelivererReport,
    DeliveryResult,
    QueueReport,
    Unreachable,
)
from pillion_operator.polling.schedule import INTERVAL
from pillion_sidecar.wire.queues import SubscriptionEnd
from support.operator_time import FakeClock

PAGER = QueueReport(name="pager", depth=0, capacity=100, high_water=0)


@dataclass
class FakeDeliverers:
    """Stands for the client: what each address answers, and who was polled when."""

    clock: FakeClock
    revisions: dict[str, str | None] = field(default_factory=dict)
    queues: dict[str, QueueReport] = field(default_factory=dict)
    ended: tuple[SubscriptionEnd, ...] = ()
    silent: set[str] = field(default_factory=set)
    #: Addresses that answer only once the event is set.
    hung: dict[str, asyncio.Event] = field(default_factory=dict)
    polled: list[tuple[float, str, str]] = field(default_factory=list)

    async def poll(self, pod: str, *, address: str, token: str) -> Answer:
        self.polled.append((self.clock.monotonic(), address, token))
        if address in self.hung:
            await self.hung[address].wait()
        if address in self.silent:
            return Unreachable(pod=pod, reason="timed out", since=self.clock.time())
        return DelivererReport(
            pod=pod,
            revision=self.revisions.get(address, "one"),
            queues={"pager": self.queues.get(address, PAGER)},
            ended=self.ended,
            at=self.clock.time(),
        )

    def moments(self, address: str = "10.0.0.1") -> list[float]:
        """When an address was polled, in seconds since the fake clock's beginning."""
        return [at - 1000.0 for at, asked, _ in self.polled if asked == address]


@dataclass
class Bench:
    clock: FakeClock
    deliverers: FakeDeliverers
    poller: Poller
    #: Whether each poll was answered.
    reachable: list[bool]
    changed: list[tuple[float, str, str]]
    known: set[str]

    def pods(self, *pods: dict[str, Any]) -> None:
        self.poller.pods_changed("shop", "default", pods)

    @property
    def reports(self) -> tuple[Answer, ...]:
        return self.poller.reports("shop", "default")

    @property
    def has_synced(self) -> bool:
        return self.poller.has_synced("shop", "default")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.poller.run())
        try:
            await self.clock.settle()
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def bench_with(**options: Any) -> Bench:
    clock = FakeClock()
    deliverers = FakeDeliverers(clock)
    reachable: list[bool] = []
    changed: list[tuple[float, str, str]] = []
    known = {"pager", "alerts"}
    poller = Poller(
        deliverers,
        clock=clock,
        token=lambda namespace, service: f"token of {namespace}/{service}",
        on_change=lambda namespace, service: changed.append(
            (clock.monotonic() - 1000.0, namespace, service)
        ),
        known=lambda kind, namespace, name: name in known,
        polled=lambda answered, seconds: reachable.append(answered),
        **{"draw": lambda: 0.0, **options},
    )
    return Bench(clock, deliverers, poller, reachable, changed, known)


@pytest.fixture
def bench() -> Bench:
    return bench_with()


def pod(number: int = 1, **changes: Any) -> dict[str, Any]:
    status: dict[str, Any] = {
        "phase": "Running",
        "podIP": f"10.0.0.{number}",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    status.update({name: value for name, value in changes.items() if name in ("phase", "podIP")})
    if "ready" in changes:
        status["conditions"] = [{"type": "Ready", "status": str(changes["ready"])}]
    metadata = {"name": f"pod-{number}", "uid": changes.get("uid", f"uid-{number}")}
    return {"metadata": metadata, "status": status}


async def test_a_pod_is_polled_at_once_and_then_at_the_interval(bench: Bench) -> None:
    async with bench.running():
        bench.pods(pod())
        before = bench.has_synced
        await bench.clock.advance(2.5 * INTERVAL)

    assert bench.deliverers.moments() == [0.0, INTERVAL, 2 * INTERVAL]
    assert {token for _, _, token in bench.deliverers.polled} == {"token of shop/default"}
    (report,) = bench.reports
    assert isinstance(report, DelivererReport)
    assert (report.pod, report.revision) == ("pod-1", "one")
    assert (before, bench.has_synced) == (False, True)
    assert bench.reachable == [True] * 3


@pytest.mark.parametrize(
    "unfit",
    [pod(phase="Pending"), pod(phase="Failed"), pod(podIP="")],
    ids=range(3),
)
async def test_pods_that_cannot_answer_are_not_polled(bench: Bench, unfit: dict[str, Any]) -> None:
    async with bench.running():
        bench.pods(unfit)
        await bench.clock.advance(3 * INTERVAL)

    assert bench.deliverers.polled == []
    assert bench.reports == ()
    assert bench.has_synced


async def test_after_a_rendering_those_behind_are_polled_until_they_have_it(bench: Bench) -> None:
    async with bench.running():
        bench.pods(pod(1), pod(2))
        await bench.clock.advance(1.0)
        bench.deliverers.revisions["10.0.0.2"] = "two"
        bench.poller.rendered("shop", "default", "two")
        await bench.clock.advance(2.0)
        bench.deliverers.revisions["10.0.0.1"] = "two"
        await bench.clock.advance(5.0)

    began = bench.deliverers.moments()[1]
    assert began == pytest.approx(1.0, abs=0.03)
    offsets = [at - began for at in bench.deliverers.moments()[1:]]
    assert offsets == pytest.approx([0.0, ROLLOUT_FIRST, 0.75, 1.75, 2.75])
    assert len(bench.deliverers.moments("10.0.0.2")) == 2
    assert [one.revision for one in bench.reports if isinstance(one, DelivererReport)] == [
        "two",
        "two",
    ]


async def test_the_same_rendering_again_polls_nobody(bench: Bench) -> None:
    bench.poller.rendered("shop", "default", "one")
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(1.0)
        bench.poller.rendered("shop", "default", "one")
        await bench.clock.advance(1.0)

    assert bench.deliverers.moments() == [0.0]


async def test_the_silent_are_polled_more_and_more_rarely(bench: Bench) -> None:
    bench.deliverers.silent.add("10.0.0.1")
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(200.0)
        bench.poller.rendered("shop", "default", "two")
        await bench.clock.advance(10.0)

    assert bench.deliverers.moments() == [
        0.0,
        RETRY_FIRST,
        3.0,
        7.0,
        15.0,
        31.0,
        63.0,
        123.0,
        183.0,
    ]
    (report,) = bench.reports
    # Since the first time, though it was asked again and again.
    assert report == Unreachable(pod="pod-1", reason="timed out", since=1_700_000_000.0)
    assert not any(bench.reachable)


async def test_a_silent_pod_whose_state_changes_is_polled_at_once(bench: Bench) -> None:
    bench.deliverers.silent.add("10.0.0.1")
    async with bench.running():
        bench.pods(pod(ready=False))
        await bench.clock.advance(20.0)
        bench.deliverers.silent.clear()
        bench.pods(pod(ready=True))
        await bench.clock.advance(1.0)
        assert bench.deliverers.moments()[-1] == 20.0
        bench.pods(pod(ready=True))
        await bench.clock.advance(1.0)

    assert bench.deliverers.moments()[-1] == 20.0
    assert isinstance(bench.reports[0], DelivererReport)


async def test_no_more_are_polled_than_the_rate_allows() -> None:
    bench = bench_with(rate=5.0)
    async with bench.running():
        bench.pods(*(pod(number) for number in range(1, 21)))
        await bench.clock.advance(60.0)

    moments = [at for at, _, _ in bench.deliverers.polled]
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert min(gaps) >= 0.2 - 1e-6
    times = [len(bench.deliverers.moments(f"10.0.0.{number}")) for number in range(1, 21)]
    assert set(times) <= {6, 7}


async def test_many_pods_of_one_namespace_keep_no_other_waiting() -> None:
    bench = bench_with(rate=20.0)
    async with bench.running():
        # As long as they are few there is enough for all.
        bench.pods(pod(1))
        await bench.clock.advance(1.0)
        bench.pods(*(pod(number) for number in range(1, 401)))
        await bench.clock.advance(1.0)
        bench.poller.pods_changed("bank", "default", [pod(1, podIP="10.9.0.1")])
        await bench.clock.advance(100.0)
        # Neither behind the first askings of the many, nor at their pace.
        moments = bench.deliverers.moments("10.9.0.1")
        assert moments[0] == pytest.approx(2.0, abs=0.2)
        assert len(moments) >= 9
        assert len(bench.deliverers.moments("10.0.0.2")) == 3
        bench.poller.pods_changed("bank", "default", [])
        bench.pods(pod(1))
        await bench.clock.advance(70.0)

    # The many are gone, and so is what they have stretched.
    before, last = bench.deliverers.moments()[-2:]
    assert last - before == pytest.approx(INTERVAL, abs=0.1)
    assert bench.poller._pods == {"shop": 1}


async def test_pods_that_hang_keep_no_other_namespace_waiting(bench: Bench) -> None:
    hanging = [pod(number) for number in range(1, 201)]
    never = asyncio.Event()
    bench.deliverers.hung.update({one["status"]["podIP"]: never for one in hanging})
    async with bench.running():
        bench.pods(*hanging)
        await bench.clock.advance(5.0)
        assert len(bench.deliverers.polled) == MOST_AT_ONCE
        bench.poller.pods_changed("bank", "default", [pod(1, podIP="10.9.0.1")])
        await bench.clock.advance(1.0)

    assert len(bench.deliverers.moments("10.9.0.1")) == 1


async def test_pods_that_are_gone_are_forgotten(bench: Bench) -> None:
    async with bench.running():
        bench.pods(pod(1), pod(2))
        await bench.clock.advance(1.0)
        bench.pods(pod(2))
        assert [report.pod for report in bench.reports] == ["pod-2"]
        bench.pods()
        assert bench.reports == ()
        await bench.clock.advance(5 * INTERVAL)

    assert len(bench.deliverers.polled) == 2
    assert bench.poller._services == {}
    assert bench.poller._turns.next_due() == math.inf


async def test_a_service_that_is_gone_is_forgotten_with_its_last_pod(bench: Bench) -> None:
    async with bench.running():
        bench.poller.rendered("shop", "default", "two")
        bench.pods(pod())
        await bench.clock.advance(1.0)
        bench.poller.service_gone("shop", "default")
        bench.poller.service_gone("shop", "never there")
        await bench.clock.advance(2 * INTERVAL)
        # What it has left behind still holds indications.
        assert bench.deliverers.moments()[-1] > INTERVAL
        bench.pods()
        # Whoever has read its reports hears that there are none any more.
        before = len(bench.changed)
        await bench.clock.advance(1.0)
        assert len(bench.changed) == before + 1

    assert bench.poller._services == {}


async def test_that_a_deliverer_is_gone_is_told_with_what_it_said_last(bench: Bench) -> None:
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(1.0)
        bench.deliverers.queues["10.0.0.1"] = replace(PAGER, depth=3)
        bench.poller.rendered("shop", "default", "two")
        await bench.clock.advance(1.0)
        assert bench.poller._changes
        bench.poller.service_gone("shop", "default")
        bench.pods()
        await bench.clock.advance(3 * INTERVAL)

    assert [at for at, _, _ in bench.changed] == [0.0, 2.0]
    assert bench.reports == ()
    assert bench.poller._services == {}
    assert bench.poller._changes == {}


async def test_pods_that_go_before_they_were_polled_keep_nobody_waiting(bench: Bench) -> None:
    bench.deliverers.hung["10.0.0.1"] = asyncio.Event()
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(1.0)
        assert not bench.poller.has_synced("shop", "default")
        assert bench.changed == []
        bench.pods()
        await bench.clock.advance(1.0)
        assert bench.poller.has_synced("shop", "default")
        assert len(bench.changed) == 1


async def test_who_is_silent_is_remembered_with_what_it_held(bench: Bench) -> None:
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(1.0)
        bench.deliverers.silent.add("10.0.0.1")
        await bench.clock.advance(4 * INTERVAL)
        (silent,) = bench.reports
        assert isinstance(silent, Unreachable)
        assert "pager" in silent.held


async def test_an_answer_of_a_pod_that_was_replaced_meanwhile_counts_for_nothing(
    bench: Bench,
) -> None:
    hung = bench.deliverers.hung["10.0.0.1"] = asyncio.Event()
    async with bench.running():
        bench.pods(pod(1, uid="old"))
        await bench.clock.advance(0.1)
        bench.pods(pod(1, uid="new", podIP="10.0.0.9"))
        bench.deliverers.revisions["10.0.0.9"] = "of the new one"
        await bench.clock.advance(0.1)
        hung.set()
        await bench.clock.advance(0.1)

    (report,) = bench.reports
    assert isinstance(report, DelivererReport)
    assert report.revision == "of the new one"


async def test_a_pod_is_never_polled_twice_at_once(bench: Bench) -> None:
    hung = bench.deliverers.hung["10.0.0.1"] = asyncio.Event()
    async with bench.running():
        hung.set()
        bench.pods(pod())
        await bench.clock.advance(1.0)
        hung.clear()
        await bench.clock.advance(INTERVAL)
        assert len(bench.deliverers.polled) == 2
        bench.poller.rendered("shop", "default", "two")
        await bench.clock.advance(INTERVAL)
        assert len(bench.deliverers.polled) == 2
        hung.set()
        await bench.clock.advance(ROLLOUT_FIRST)

    assert len(bench.deliverers.polled) == 3


async def test_the_silent_keep_none_of_the_others_waiting(bench: Bench) -> None:
    silent = [pod(number) for number in range(2, 52)]
    bench.deliverers.silent.update(one["status"]["podIP"] for one in silent)
    async with bench.running():
        bench.pods(*silent)
        await bench.clock.advance(2.0)
        bench.deliverers.hung.update(
            {address: asyncio.Event() for address in bench.deliverers.silent}
        )
        await bench.clock.advance(20.0)
        bench.pods(*silent, pod(1))
        await bench.clock.advance(1.0)

    assert len(bench.deliverers.moments("10.0.0.1")) == 1
    assert any(isinstance(report, DelivererReport) for report in bench.reports)


async def test_a_change_is_told_once_for_the_first_round(bench: Bench) -> None:
    async with bench.running():
        bench.pods(*(pod(number) for number in range(1, 9)))
        await bench.clock.advance(5 * INTERVAL)

    assert [(namespace, service) for _, namespace, service in bench.changed] == [
        ("shop", "default")
    ]


async def test_a_change_of_state_is_told_at_once_and_one_of_numbers_after_a_while(
    bench: Bench,
) -> None:
    queues = bench.deliverers.queues
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(2 * INTERVAL + 5)
        assert [at for at, _, _ in bench.changed] == [0.0]
        queues["10.0.0.1"] = QueueReport(
            name="pager",
            depth=1,
            capacity=100,
            high_water=1,
            last_result=DeliveryResult.ERROR,
            last_attempt_time=5.0,
        )
        await bench.clock.advance(INTERVAL)
        assert [at for at, _, _ in bench.changed] == [0.0, 3 * INTERVAL]
        await bench.clock.advance(3 * INTERVAL)

    assert [at for at, _, _ in bench.changed] == [0.0, 3 * INTERVAL]


async def test_what_moves_all_the_time_is_told_now_and_then(bench: Bench) -> None:
    queues = bench.deliverers.queues
    async with bench.running():
        bench.pods(*(pod(number) for number in range(1, 11)))
        for depth in range(1, 61):
            for number in range(1, 11):
                queues[f"10.0.0.{number}"] = QueueReport(
                    name="pager", depth=depth, capacity=1000, high_water=depth
                )
            await bench.clock.advance(1.0)

    told = [at for at, _, _ in bench.changed]
    assert 4 <= len(told) <= 7
    assert all(later - earlier >= INTERVAL for earlier, later in itertools.pairwise(told))


async def test_what_a_pod_says_of_others_is_not_kept(bench: Bench) -> None:
    bench.deliverers.ended = (
        SubscriptionEnd(name="alerts", reason="FatalError"),
        SubscriptionEnd(name="made-up", reason="FatalError"),
    )
    bench.known.remove("pager")
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(1.0)

    (report,) = bench.reports
    assert isinstance(report, DelivererReport)
    assert report.queues == {}
    assert [one.name for one in report.ended] == ["alerts"]


async def test_idle_queues_of_many_deliverers_are_held_once(bench: Bench) -> None:
    def held() -> list[QueueReport]:
        return [one.queues["pager"] for one in bench.reports if isinstance(one, DelivererReport)]

    addresses = [f"10.0.0.{number}" for number in range(1, 5)]
    for address in addresses:
        # As they are parsed: each answer has objects of its own.
        bench.deliverers.queues[address] = replace(PAGER)
    bench.deliverers.queues[addresses[2]] = replace(PAGER, depth=2, high_water=3)
    attempted = replace(PAGER, last_result=DeliveryResult.SUCCESS, last_attempt_time=5.0)
    bench.deliverers.queues[addresses[3]] = attempted
    async with bench.running():
        bench.pods(*(pod(number) for number in range(1, 5)))
        await bench.clock.advance(1.0)
        first, second, waiting, delivered = held()
        assert first is second
        assert (waiting.depth, delivered) == (2, attempted)
        sums = deliveries(bench.reports)["pager"]
        assert (sums.deliverers, sums.delivering, sums.depth) == (4, 1, 2)
        # What one says otherwise is its own.
        bench.deliverers.queues[addresses[0]] = replace(PAGER, capacity=7)
        bench.deliverers.queues[addresses[1]] = replace(PAGER)
        await bench.clock.advance(INTERVAL)
        assert [queue.capacity for queue in held()] == [7, 100, 100, 100]


async def test_of_queues_that_nobody_reports_any_more_nothing_is_held(bench: Bench) -> None:
    bench.deliverers.queues["10.0.0.1"] = replace(PAGER)
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(1.0)
        (service,) = bench.poller._services.values()
        assert set(service._queues) == {"pager"}
        del bench.deliverers.queues["10.0.0.1"]
        bench.known.clear()
        await bench.clock.advance(INTERVAL)
        assert set(service._queues) == set()


async def test_a_failure_of_the_client_itself_is_not_hidden(bench: Bench) -> None:
    async def poll(pod: str, **_: Any) -> DelivererReport:
        raise KeyError(pod)

    bench.deliverers.poll = poll  # type: ignore[method-assign]
    bench.pods(pod())

    with pytest.raises(ExceptionGroup) as failure:
        await bench.poller.run()

    assert failure.group_contains(KeyError)


async def test_a_pod_that_goes_while_it_waits_for_its_turn_is_not_polled(bench: Bench) -> None:
    slow = [pod(number) for number in range(1, 41)]
    released = asyncio.Event()
    bench.deliverers.hung.update({one["status"]["podIP"]: released for one in slow})
    async with bench.running():
        bench.pods(*slow)
        await bench.clock.advance(2.0)
        polled = len(bench.deliverers.polled)
        bench.pods()
        released.set()
        await bench.clock.advance(3 * INTERVAL)

    assert 0 < polled < len(slow)
    assert len(bench.deliverers.polled) == polled


async def test_a_pod_that_was_replaced_is_not_polled_again(bench: Bench) -> None:
    hung = bench.deliverers.hung["10.0.0.1"] = asyncio.Event()
    async with bench.running():
        bench.pods(pod(1, uid="old"))
        await bench.clock.advance(0.1)
        bench.pods(pod(1, uid="new", podIP="10.0.0.9"))
        hung.set()
        await bench.clock.advance(3 * INTERVAL)

    assert len(bench.deliverers.moments("10.0.0.1")) == 1
    assert len(bench.deliverers.moments("10.0.0.9")) > 1


@pytest.mark.parametrize(("uid", "kept"), [("uid-1", True), ("of another", False)])
async def test_a_report_stays_until_the_next_one_for_the_same_pod_alone(
    bench: Bench, uid: str, kept: bool
) -> None:
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(1.0)
        bench.deliverers.hung["10.0.0.1"] = asyncio.Event()
        bench.pods(pod(ready=False, uid=uid))
        await bench.clock.advance(1.0)

        assert bool(bench.reports) is kept


async def test_changes_that_had_to_wait_are_told_without_another_poll(bench: Bench) -> None:
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(0.5)
        bench.deliverers.revisions["10.0.0.1"] = "two"
        bench.poller.rendered("shop", "default", "two")
        await bench.clock.advance(5.0)

    assert bench.deliverers.moments() == [0.0, 0.5]
    assert [at for at, _, _ in bench.changed] == [0.0, 1.0]


# ---------------------------------------------------------------- the end of a deliverer


def ending(number: int = 1, **changes: Any) -> dict[str, Any]:
    body = pod(number, **changes)
    return {**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-31T12:00:00Z"}}


def departed(bench: Bench, *pods: dict[str, Any], parting: tuple[dict[str, Any], ...] = ()) -> Any:
    found = bench.poller.pods_changed("shop", "default", [*pods, *parting])
    return [(one.pod, dict(one.last.pending) if one.last else {}) for one in found]


async def test_a_deliverer_that_ends_is_polled_to_its_last(bench: Bench) -> None:
    bench.deliverers.queues["10.0.0.1"] = replace(PAGER, depth=9)
    bench.pods(pod())
    async with bench.running():
        assert departed(bench, parting=(ending(),)) == []
        # Statuses are about those that serve.
        assert bench.reports == ()
        polled = len(bench.deliverers.polled)
        for depth in (8, 5, 2):
            bench.deliverers.queues["10.0.0.1"] = replace(PAGER, depth=depth)
            await bench.clock.advance(1.0)
        assert len(bench.deliverers.polled) >= polled + 3
        # Its door is shut before its pod is gone.
        bench.deliverers.silent.add("10.0.0.1")
        await bench.clock.advance(1.0)
        assert departed(bench) == [(pod()["metadata"]["name"], {"pager": 2})]
        polled = len(bench.deliverers.polled)
        await bench.clock.advance(100.0)
        assert len(bench.deliverers.polled) == polled


async def test_a_deliverer_that_vanishes_is_told_of_by_what_it_last_held(bench: Bench) -> None:
    bench.deliverers.queues["10.0.0.1"] = replace(PAGER, depth=9)
    bench.pods(pod(), pod(2))
    async with bench.running():
        assert departed(bench, pod(2)) == [(pod()["metadata"]["name"], {"pager": 9})]
        assert departed(bench, pod(2)) == []


async def test_one_that_was_ending_already_when_this_began_is_polled_too(bench: Bench) -> None:
    bench.deliverers.queues["10.0.0.1"] = replace(PAGER, depth=4)
    assert departed(bench, parting=(ending(),)) == []
    async with bench.running():
        assert departed(bench) == [(pod()["metadata"]["name"], {"pager": 4})]


async def test_a_pod_without_an_address_for_a_moment_has_not_ended(bench: Bench) -> None:
    bench.deliverers.queues["10.0.0.1"] = replace(PAGER, depth=4)
    bench.pods(pod())
    async with bench.running():
        starting = pod()
        assert departed(bench, {**starting, "status": {"phase": "Running"}}) == []


async def test_another_pod_of_the_same_name_is_another_deliverer(bench: Bench) -> None:
    bench.deliverers.queues["10.0.0.1"] = replace(PAGER, depth=4)
    bench.pods(pod())
    async with bench.running():
        again = pod()
        again["metadata"]["uid"] = "another"
        assert departed(bench, again) == [(pod()["metadata"]["name"], {"pager": 4})]


async def test_one_that_is_no_longer_ready_and_holds_something_is_polled_often(
    bench: Bench,
) -> None:
    bench.deliverers.queues["10.0.0.1"] = replace(PAGER, depth=4)
    bench.pods(pod())
    async with bench.running():
        unready = pod()
        unready["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        bench.pods(unready)
        await bench.clock.advance(0.0)
        polled = len(bench.deliverers.polled)
        for _ in range(5):
            await bench.clock.advance(1.0)
        assert len(bench.deliverers.polled) >= polled + 5


# ---------------------------------------------------------------- the waits of one deliverer


def waits(
    number: int, answer: Answer, *, now: float = 101.0, deliverer: Deliverer | None = None
) -> list[float]:
    """The next waits after such answers, while the revision "two" rolls out from 100 on."""
    known = rolling_out() if deliverer is None else deliverer
    known.answer = answer
    return [known.next_wait(interval=INTERVAL, now=now) for _ in range(number)]


def rolling_out() -> Deliverer:
    target = Target("pod-1", "uid-1", "10.0.0.1", ready=True, ending=False)
    deliverer = Deliverer(Service(("shop", "default"), revision="two"), target, 0.0)
    deliverer.rollout(100.0)
    return deliverer


BEHIND = DelivererReport(pod="pod-1", revision="one", queues={}, at=0.0)
SILENT = Unreachable(pod="pod-1", reason="timed out", since=0.0)


def test_who_is_behind_is_polled_often_and_then_less_so() -> None:
    expected = [ROLLOUT_FIRST, 0.5, ROLLOUT_MOST, ROLLOUT_MOST, ROLLOUT_MOST]

    assert waits(5, BEHIND) == expected


def test_who_stays_behind_is_polled_at_the_interval_in_the_end() -> None:
    assert waits(1, BEHIND, now=100.0 + ROLLOUT_FOR) == [INTERVAL]


def test_who_has_caught_up_begins_anew_next_time() -> None:
    deliverer = rolling_out()
    waits(4, BEHIND, deliverer=deliverer)

    assert waits(1, replace(BEHIND, revision="two"), deliverer=deliverer) == [INTERVAL]
    assert waits(1, BEHIND, deliverer=deliverer) == [ROLLOUT_FIRST]


def test_who_is_silent_is_polled_more_and_more_rarely() -> None:
    deliverer = rolling_out()
    rising = [RETRY_FIRST, 2.0, 4.0, 8.0, 16.0, 32.0, RETRY_MOST, RETRY_MOST, RETRY_MOST]

    assert waits(9, SILENT, deliverer=deliverer) == rising
    assert waits(1, replace(BEHIND, revision="two"), deliverer=deliverer) == [INTERVAL]
    assert waits(1, SILENT, deliverer=deliverer) == [RETRY_FIRST]


def test_who_is_silent_among_very_many_is_not_polled_more_often_than_the_others() -> None:
    deliverer = rolling_out()
    deliverer.answer = SILENT

    assert [deliverer.next_wait(interval=300.0, now=0.0) for _ in range(12)][-1] == 300.0


async def test_waits_are_shortened_at_random() -> None:
    bench = bench_with(draw=lambda: 0.5)
    async with bench.running():
        bench.pods(pod())
        await bench.clock.advance(INTERVAL)

    assert bench.deliverers.moments() == [0.0, INTERVAL * (1 - JITTER / 2)]


async def test_a_deliverer_is_found_by_its_namespace_and_pod_with_its_token(bench: Bench) -> None:
    bench.pods(pod())
    assert list(bench.poller.services()) == [("shop", "default")]
    assert bench.poller.find("shop", "pod-1") == ("10.0.0.1", "token of shop/default")
    assert bench.poller.find("shop", "pod-2") is None
    assert bench.poller.find("bank", "pod-1") is None
    bench.pods()
    assert bench.poller.find("shop", "pod-1") is None
