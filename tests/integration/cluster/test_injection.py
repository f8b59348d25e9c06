"""Injection on a real API server: what a pod is when it has been made."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from cluster.webhooks import (
    SERVICES,
    ListedServices,
    configuration,
    created_until,
    mesh_injector,
    pods_until,
    serving,
)
from pillion_operator.certificates.authority import CA_SECONDS, OVERLAP, KeyPair
from pillion_operator.certificates.webhook import CertificateKeeper, loaded, renewed
from pillion_operator.clock import SystemClock
from pillion_operator.cluster.api import Api, ApiError
from pillion_operator.cluster.types import (
    EVENT,
    MUTATING_WEBHOOK,
    POD,
    POD_DISRUPTION_BUDGET,
    SECRET,
    Object,
    ResourceType,
)
from pillion_operator.events import EventRecorder
from pillion_operator.injection.missed import MissedInjections
from pillion_operator.injection.webhook import InjectingWebhook
from pillion_operator.settings import DelivererDefaults, OperatorSettings, WebhookSettings
from pillion_operator.store import Key
from pillion_operator.telemetry.metrics import Metrics
from pillion_sidecar.auth.tls import ServingTLS
from support.operator_time import FakeClock

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds")]

OURS = "pillion-deliverer"
NAMESPACES = ResourceType("v1", "Namespace", "namespaces", namespaced=False)
HOSTS = ("127.0.0.1",)
REPLICA_SET = ResourceType("apps/v1", "ReplicaSet", "replicasets")


class Bench:
    """The webhook, served here, and a namespace whose pods the API server asks it about."""

    def __init__(self, api: Api, namespace: str, stack: AsyncExitStack) -> None:
        self.api = api
        self.namespace = namespace
        self.services = ListedServices(api, namespace)
        self.metrics = Metrics(version="1")
        self.tls = ServingTLS()
        self.material = renewed(None, hosts=HOSTS, now=time.time())
        self._stack = stack
        self._registered: list[str] = []

    async def use(self, tls: ServingTLS) -> None:
        assert self.material.serving is not None
        tls.use(await asyncio.to_thread(loaded, self.material.serving))

    async def serve(self, *, port: int = 0) -> str:
        """Serve the injecting webhook; returns its address."""
        webhook = InjectingWebhook(
            services=self.services,
            defaults=DelivererDefaults(image="registry.test/pillion:1"),
            operator_namespace="pillion-system",
            clock=SystemClock(),
            seconds=self.metrics.webhook_seconds,
            answers=self.metrics.webhook_answers,
        )
        return await self._stack.enter_async_context(
            serving(webhook.application(), self.tls.context, port=port)
        )

    async def serve_mesh(self, order: str) -> None:
        """Serve another injector, called in the order of its name, and register it."""
        tls = ServingTLS()
        await self.use(tls)
        url = await self._stack.enter_async_context(serving(mesh_injector("mesh"), tls.context))
        await self.register(order, url)

    async def register(self, order: str, url: str, **options: Any) -> str:
        """Tell the API server of a webhook, until the end of the test."""
        name = f"{order}-{self.namespace}"
        bundle = options.pop("bundle", self.material.bundle())
        await self.api.create(
            configuration(name, namespace=self.namespace, url=url, bundle=bundle, **options)
        )
        self._stack.push_async_callback(self.api.delete, MUTATING_WEBHOOK, None, name)
        return name

    async def start(self) -> None:
        """Serve and register, and wait until the API server asks."""
        await self.use(self.tls)
        await self.register("p", await self.serve())
        await self.injected("first", labels={"pillion.dev/inject": "true"})

    def pod(self, name: str, **more: Any) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": more.get("labels", {}),
            },
            "spec": {"containers": [container("app")], **more.get("spec", {})},
        }

    async def make(self, name: str, **more: Any) -> Object:
        return await self.api.create(self.pod(name, **more))

    async def injected(self, name: str, *, forgives: str | None = None, **more: Any) -> Object:
        """Make pods until one comes back with a deliverer; return that one."""
        return await created_until(
            self.api,
            lambda number: self.pod(f"{name}-{number}", **more),
            shows=lambda pod: OURS in names(pod, "initContainers"),
            forgives=forgives,
        )


def container(name: str) -> dict[str, Any]:
    """A container that fits the restricted profile."""
    return {
        "name": name,
        "image": f"{name}:1",
        "securityContext": {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def names(pod: Object, field: str) -> list[str]:
    return [one["name"] for one in pod["spec"].get(field) or ()]


@pytest_asyncio.fixture
async def bench(api: Api, namespace: str) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        yield Bench(api, namespace, stack)


async def test_a_pod_that_asks_comes_back_with_the_sidecar(bench: Bench) -> None:
    await bench.services.make("default")
    await bench.start()
    pod = await bench.make(
        "web",
        labels={"pillion.dev/inject": "true", "app": "web"},
        spec={"initContainers": [container("migrate")]},
    )
    assert names(pod, "initContainers") == ["migrate", OURS]
    assert names(pod, "containers") == ["app"]
    assert pod["spec"]["initContainers"][1]["restartPolicy"] == "Always"
    assert pod["metadata"]["labels"]["pillion.dev/deliverer"] == "default"
    assert "pillion-configuration" in names(pod, "volumes")


async def test_the_token_of_the_pods_service_account_is_not_the_deliverers(bench: Bench) -> None:
    await bench.start()
    pod = await bench.make("web", labels={"pillion.dev/inject": "true"})
    (sidecar,), (app,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert [one["name"] for one in app["volumeMounts"] if one["name"].startswith("kube-api-")]
    assert {one["name"] for one in sidecar["volumeMounts"]} == {
        "pillion-configuration",
        "pillion-data",
        "pillion-token",
    }


async def test_a_service_made_after_the_pod_is_no_obstacle(bench: Bench) -> None:
    await bench.start()
    pod = await bench.make("early", labels={"pillion.dev/inject": "later"})
    assert pod["metadata"]["labels"]["pillion.dev/deliverer"] == "later"


async def test_a_selector_injects_and_a_pod_can_opt_out(bench: Bench) -> None:
    await bench.services.make(
        "web", podSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["w"]}]}
    )
    await bench.start()
    chosen = await bench.make("chosen", labels={"app": "w"})
    assert chosen["metadata"]["labels"]["pillion.dev/deliverer"] == "web"
    for name, labels in (
        ("out", {"app": "w", "pillion.dev/inject": "false"}),
        ("other", {"app": "x"}),
    ):
        assert names(await bench.make(name, labels=labels), "initContainers") == []


async def test_spark_executors_are_injected_and_drivers_where_meant(bench: Bench) -> None:
    await bench.services.make("spark", podSelector={"matchLabels": {"job": "a"}})
    await bench.services.make(
        "both", podSelector={"matchLabels": {"job": "b"}}, injectSparkDriver=True
    )
    await bench.start()
    found = {}
    for job in ("a", "b"):
        for role in ("driver", "executor"):
            pod = await bench.make(f"{role}-{job}", labels={"job": job, "spark-role": role})
            found[job, role] = OURS in names(pod, "initContainers")
    asked = {"spark-role": "driver", "pillion.dev/inject": "spark"}
    assert OURS in names(await bench.make("asked", labels=asked), "initContainers")
    assert found == {
        ("a", "driver"): False,
        ("a", "executor"): True,
        ("b", "driver"): True,
        ("b", "executor"): True,
    }


@pytest.mark.parametrize("order", ["a", "z"])
async def test_another_injector_may_come_before_or_after(bench: Bench, order: str) -> None:
    await bench.services.make("default")
    await bench.serve_mesh(order)
    await bench.start()
    pod = await created_until(
        bench.api,
        lambda number: bench.pod(f"both-{number}", labels={"pillion.dev/inject": "true"}),
        shows=lambda made: "mesh" in names(made, "initContainers"),
    )
    # The proxy starts before the deliverer and ends after it, and nobody is there twice.
    assert names(pod, "initContainers") == ["mesh", OURS]
    assert names(pod, "containers") == ["app", "mesh-agent"]
    assert names(pod, "volumes").count("pillion-configuration") == 1


async def test_a_namespace_with_the_restricted_profile_accepts_the_pod(bench: Bench) -> None:
    await bench.services.make("default", storage={"sizeLimit": "1Gi"})
    await bench.start()
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    await bench.api.patch(NAMESPACES, None, bench.namespace, {"metadata": {"labels": label}})
    with pytest.raises(ApiError, match="PodSecurity"):
        await created_until(
            bench.api,
            lambda number: bench.pod(
                f"rough-{number}", spec={"containers": [{"name": "r", "image": "r"}]}
            ),
            shows=lambda _pod: False,
        )
    pod = await bench.make("fine", labels={"pillion.dev/inject": "true"})
    assert names(pod, "initContainers") == [OURS]


async def test_certificates_are_renewed_and_rotated_while_the_webhook_serves(
    bench: Bench,
) -> None:
    await bench.services.make("default")
    shown: list[KeyPair] = []

    async def use(pair: KeyPair) -> None:
        bench.tls.use(await asyncio.to_thread(loaded, pair))
        shown.append(pair)

    name = await bench.register("p", await bench.serve(), bundle=b"")
    # What is made now has been due for long, in a clock that was set back.
    now = time.time()
    clock = FakeClock(epoch=now - CA_SECONDS * 0.7)
    keeper = CertificateKeeper(
        api=bench.api,
        settings=WebhookSettings(configuration=name, hosts=HOSTS),
        namespace=bench.namespace,
        leads=lambda: True,
        use=use,
        clock=clock,
    )
    await keeper.look()
    for until in (now - 2 * OVERLAP, now):
        clock.skip(until - clock.time())
        await keeper.look()
        # The API server refuses every pod unless it trusts what it is shown.
        await bench.injected(
            f"at-{int(now - until)}",
            labels={"pillion.dev/inject": "true"},
            forgives="failed calling webhook",
        )
    assert len(shown) == 3
    secret = await bench.api.get(SECRET, bench.namespace, "pillion-webhook")
    assert secret is not None
    assert secret["type"] == "kubernetes.io/tls"
    assert "previous-ca.crt" in secret["data"]
    registered = await bench.api.get(MUTATING_WEBHOOK, None, name)
    assert registered is not None
    bundle = base64.b64decode(registered["webhooks"][0]["clientConfig"]["caBundle"])
    assert bundle == b"".join(
        base64.b64decode(secret["data"][key]) for key in ("ca.crt", "previous-ca.crt")
    )


class Searching:
    """The search for missed pods, with the operator's own Events."""

    def __init__(self, bench: Bench) -> None:
        clock = SystemClock()
        self._bench = bench
        self.recorder = EventRecorder(
            bench.api, instance="operator-1", clock=clock, dropped=self._dropped
        )
        self.search = MissedInjections(
            api=bench.api,
            services=bench.services,
            settings=OperatorSettings(
                deliverer=DelivererDefaults(image="registry.test/pillion:1"),
                namespaces=(bench.namespace,),
            ),
            clock=clock,
            recorder=self.recorder,
            changed=lambda _service: None,
            gauge=bench.metrics.missed_injections,
            evictions=bench.metrics.evictions,
        )

    def _dropped(self) -> None:
        raise AssertionError("an Event was not taken by the API server")

    async def look(self) -> tuple[str, ...]:
        """Search once; the names of the pods that lack the deliverer of service ``web``."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.recorder.run())
            await self.search.look()
            await self.recorder.drained()
            running.cancel()
        return tuple(self.search.missed(Key(SERVICES.kind, self._bench.namespace, "web")))

    def metric(self, name: str, **labels: str) -> float | None:
        return self._bench.metrics.registry.get_sample_value(f"pillion_operator_{name}", labels)

    def gauge(self) -> float | None:
        return self.metric("missed_injections", namespace=self._bench.namespace, service="web")


async def make_missed(bench: Bench, policy: str) -> list[str]:
    """Two pods of a ReplicaSet, made while the webhook could not be asked; their names."""
    await bench.services.make(
        "web", podSelector={"matchLabels": {"app": "w"}}, onMissedInjection=policy
    )
    # Without a certificate no handshake succeeds.
    await bench.register("p", await bench.serve(), failure="Ignore")
    labels = {"app": "w"}
    await bench.api.create(
        {
            "apiVersion": REPLICA_SET.api_version,
            "kind": REPLICA_SET.kind,
            "metadata": {"name": "web", "namespace": bench.namespace},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container("app")]},
                },
            },
        },
        path=REPLICA_SET.path(bench.namespace),
    )
    pods = await pods_until(bench.api, bench.namespace, lambda found: len(found) == 2)
    assert not any(OURS in names(pod, "initContainers") for pod in pods)
    return sorted(pod["metadata"]["name"] for pod in pods)


async def bring_up(bench: Bench) -> None:
    """The webhook can be asked from now on."""
    await bench.use(bench.tls)
    probe = await bench.injected("probe", labels={"pillion.dev/inject": "web"})
    assert probe["metadata"]["labels"]["pillion.dev/deliverer"] == "web"


def replicas(pods: list[Object]) -> list[Object]:
    return [pod for pod in pods if pod["metadata"]["name"].startswith("web-")]


def all_injected(pods: list[Object]) -> bool:
    own = replicas(pods)
    return len(own) == 2 and all(OURS in names(pod, "initContainers") for pod in own)


async def test_a_missed_pod_is_an_event_a_metric_and_a_count(bench: Bench) -> None:
    missed = await make_missed(bench, "Report")
    searching = Searching(bench)
    assert list(await searching.look()) == missed
    assert searching.gauge() == 2
    events = [
        event
        for event in await bench.api.list(EVENT, bench.namespace)
        if event["reason"] == "InjectionMissed"
    ]
    assert sorted(event["regarding"]["name"] for event in events) == missed
    assert {event["type"] for event in events} == {"Warning"}
    # It only reports.
    assert await searching.look() == tuple(missed)
    found = await bench.api.list(POD, bench.namespace)
    assert sorted(pod["metadata"]["name"] for pod in found) == missed


async def test_eviction_has_the_owner_make_pods_that_are_injected(bench: Bench) -> None:
    await make_missed(bench, "Evict")
    await bring_up(bench)
    searching = Searching(bench)
    assert len(await searching.look()) == 2
    assert searching.metric("evictions_total", result="evicted") == 2
    await pods_until(bench.api, bench.namespace, all_injected)
    assert await searching.look() == ()
    assert searching.gauge() is None


async def test_evictions_stay_within_the_disruption_budget(bench: Bench) -> None:
    missed = await make_missed(bench, "Evict")
    await bring_up(bench)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for name in missed:
        await bench.api.patch(POD, bench.namespace, name, {"status": ready}, subresource="status")
    await bench.api.create(
        {
            "apiVersion": POD_DISRUPTION_BUDGET.api_version,
            "kind": POD_DISRUPTION_BUDGET.kind,
            "metadata": {"name": "web", "namespace": bench.namespace},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "w"}}},
        }
    )
    searching = Searching(bench)
    assert list(await searching.look()) == missed
    assert searching.metric("evictions_total", result="refused") == 1
    found = replicas(await bench.api.list(POD, bench.namespace))
    assert sorted(pod["metadata"]["name"] for pod in found) == missed

    await bench.api.delete(POD_DISRUPTION_BUDGET, bench.namespace, "web")
    # The API server may still know the budget for a moment.
    async with asyncio.timeout(30):
        while not all_injected(await bench.api.list(POD, bench.namespace)):
            await searching.look()
    assert await searching.look() == ()
