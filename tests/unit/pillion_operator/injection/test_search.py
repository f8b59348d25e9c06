"""The search for pods that were missed."""

from typing import Any, cast

import pytest

from pillion_operator.cluster.api import ApiError
from pillion_operator.events import EventRecorder
from pillion_operator.injection.missed import (
    ASKING,
    INTERVAL,
    MOST_EVENTS,
    MissedInjections,
)
from pillion_operator.settings import DelivererDefaults, OperatorSettings
from pillion_operator.store import Key
from pillion_operator.telemetry.metrics import Metrics
from support.in_background import in_background
from support.injection import OPERATOR_NAMESPACE, Known, MemoryApi, pod, selector, service
from support.operator_time import FakeClock

SELECTED = "app=web,!pillion.dev/deliverer"
WEB = Key("IndicationService", "shop", "web")


class Bench:
    def __init__(self, *namespaces: str, selector_of_namespaces: str | None = None) -> None:
        self.api = MemoryApi()
        self.clock = FakeClock()
        self.metrics = Metrics(version="1")
        self.events: list[tuple[str, str, str]] = []
        self.changed: list[Key] = []
        self.services = Known(
            service("web", podSelector=selector(app="web"), onMissedInjection="Evict")
        )
        self.search = MissedInjections(
            api=self.api,
            services=self.services,
            settings=OperatorSettings(
                deliverer=DelivererDefaults(image="registry.test/pillion:1"),
                namespaces=namespaces,
                namespace=OPERATOR_NAMESPACE,
                namespace_selector=selector_of_namespaces,
            ),
            clock=self.clock,
            recorder=cast(EventRecorder, self),
            changed=self.changed.append,
            gauge=self.metrics.missed_injections,
            evictions=self.metrics.evictions,
        )

    def publish(self, regarding: Any, *, type: str, reason: str, note: str, action: str) -> None:
        self.events.append((regarding["metadata"]["uid"], type, reason))

    def selected(self, *pods: Any) -> None:
        self.api.lists["shop", SELECTED] = list(pods)

    def gauge(self) -> float | None:
        labels = {"namespace": "shop", "service": "web"}
        name = "pillion_operator_missed_injections"
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def web(name: str = "web", **more: Any) -> dict[str, Any]:
    return pod(labels={"app": "web"}, name=name, uid=f"uid-{name}", **more)


async def test_a_missed_pod_is_an_event_a_metric_and_a_name_for_the_status(bench: Bench) -> None:
    bench.selected(web())
    await bench.search.look()
    assert bench.events == [("uid-web", "Warning", "InjectionMissed")]
    assert bench.gauge() == 1
    assert bench.search.missed(WEB) == ("web",)
    assert bench.changed == [WEB]


async def test_it_is_told_once_and_no_change_is_no_news(bench: Bench) -> None:
    bench.selected(web())
    await bench.search.look()
    await bench.search.look()
    assert len(bench.events) == 1
    assert bench.changed == [WEB]


async def test_when_it_is_gone_the_metric_and_the_status_say_so(bench: Bench) -> None:
    bench.selected(web())
    await bench.search.look()
    bench.selected()
    await bench.search.look()
    assert bench.gauge() is None
    assert bench.search.missed(WEB) == ()
    assert bench.changed == [WEB, WEB]


async def test_a_pod_that_two_listings_bring_counts_once(bench: Bench) -> None:
    asking = pod(labels={"app": "web", "pillion.dev/inject": "web"})
    bench.selected(asking)
    bench.api.lists[None, ASKING] = [asking]
    await bench.search.look()
    assert bench.gauge() == 1


async def test_the_whole_cluster_or_the_operators_own_scope_is_asked() -> None:
    whole, scoped = Bench(), Bench("shop", "other")
    await whole.search.look()
    await scoped.search.look()
    assert whole.api.asked == [(None, ASKING), ("shop", SELECTED)]
    assert scoped.api.asked == [("shop", ASKING), ("other", ASKING), ("shop", SELECTED)]


async def test_a_pod_with_an_owner_is_evicted(bench: Bench) -> None:
    bench.selected(web(ownerReferences=[{"uid": "rs", "controller": True}]))
    await bench.search.look()
    assert [path for path, _ in bench.api.created] == ["/api/v1/namespaces/shop/pods/web/eviction"]


async def test_events_are_paced_and_none_is_left_out(bench: Bench) -> None:
    bench.selected(*(web(f"web-{number}") for number in range(MOST_EVENTS + 3)))
    await bench.search.look()
    assert len(bench.events) == MOST_EVENTS
    await bench.search.look()
    assert len({uid for uid, _, _ in bench.events}) == MOST_EVENTS + 3


async def test_an_outage_is_told_and_the_last_answer_stays(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.selected(web())
    async with in_background(bench.search.run()):
        await bench.clock.until_sleeping()
        bench.api.down = ApiError(503, "ServiceUnavailable", "etcd is away")
        await bench.clock.advance(INTERVAL)
        assert "etcd is away" in caplog.text
        assert bench.search.missed(WEB) == ("web",)
        bench.api.down = None
        bench.selected()
        await bench.clock.advance(INTERVAL)
        assert bench.search.missed(WEB) == ()


@pytest.mark.parametrize(("found", "missed"), [([], ()), (["shop"], ("web",))])
async def test_in_a_namespace_that_the_webhook_is_not_asked_about_nothing_is_missed(
    found: list[str], missed: tuple[str, ...]
) -> None:
    bench = Bench(selector_of_namespaces="team=a")
    bench.selected(web())
    bench.api.lists[None, "team=a"] = [{"metadata": {"name": name}} for name in found]
    await bench.search.look()
    assert bench.search.missed(WEB) == missed
    assert len(bench.events) == len(missed)
