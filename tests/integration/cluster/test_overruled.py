"""Others decide about the objects of a service: an autoscaler, and a second installation."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.bad_days import BadDay
from cluster.convergence import Object, World
from cluster.operators import OperatorProcess, Operators, running_operators
from pillion_operator.names import INSTALLATION_ANNOTATION
from pillion_testbed.kubectl import Kubectl
from support.cluster_resources import destination, filter_, service, subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NOT_USABLE = "GatewayNotUsable"
URL = "https://listener.example.com/events"
SHARED = service("shared", deliverer={"mode": "Gateway", "replicas": 1})


def resources() -> list[Object]:
    return [service(), filter_(), destination(URL), subscription()]


def replicas(world: World) -> int:
    found = world.get("StatefulSet", "pillion-shared") or {}
    return int(found["spec"]["replicas"])


def scale(world: World, number: int, *, manager: str) -> None:
    path = f"{world.path('StatefulSet', 'pillion-shared')}/scale?fieldManager={manager}"
    patch = {"spec": {"replicas": number}}
    world.request("PATCH", path, patch, type="application/merge-patch+json")


def test_replicas_are_left_to_an_autoscaler_until_somebody_scales_by_hand(
    world: World, operators: Operators
) -> None:
    operator = operators.start()
    world.apply(*resources(), SHARED, service("guest", gatewayRef={"name": "shared"}))
    world.converges("default", "shared", "guest")
    scale(world, 3, manager="kube-controller-manager")
    world.becomes("IndicationService", "shared", "ReplicasScaledElsewhere", "True", "Scaled")
    assert world.status("IndicationService", "shared")["ready"] == "0/3"
    # A gateway of three pods keeps no order: nobody may relay to it meanwhile.
    world.becomes("IndicationService", "guest", "GatewayReady", "False", NOT_USABLE)
    # Another change of the service leaves them where they are.
    world.patch("IndicationService", "shared", {"spec": {"queueSize": 77}})
    changed = ("IndicationService", "shared")
    world.until(
        lambda: ((world.content("shared") or {}).get(changed) or {}).get("queueSize") == 77,
        "the change is in the configuration",
    )
    assert replicas(world) == 3
    assert not operator.metrics().get('pillion_operator_drift_total{kind="StatefulSet"}')
    scale(world, 2, manager="kubectl")
    world.until(lambda: replicas(world) == 1, "deliverer.replicas is applied again")
    world.becomes("IndicationService", "shared", "ReplicasScaledElsewhere")
    world.until(
        lambda: world.condition("IndicationService", "guest", "GatewayReady")[1] != NOT_USABLE,
        "the gateway can be relayed to again",
    )


@pytest.fixture
def second(admin_kubectl: Kubectl, namespace: str, tmp_path: Path) -> Iterator[Operators]:
    """Another installation that serves the same namespace."""
    folder = tmp_path / "second"
    folder.mkdir()
    with running_operators(
        admin_kubectl, folder=folder, namespace=f"{namespace}-second", watched=(namespace,)
    ) as made:
        yield made


def test_two_installations_find_each_other_out_and_write_ever_more_rarely(
    day: BadDay, second: Operators
) -> None:
    own = day.start(alone=False)
    day.world.apply(*resources())
    day.world.converges()
    before = len(day.writes())
    rival = second.start("--no-webhook", kubeconfig=day.kubeconfig)
    day.world.becomes("IndicationService", "default", "AnotherInstallation", "True")
    (told,) = (
        one["message"]
        for one in day.world.status("IndicationService", "default")["conditions"]
        if one["type"] == "AnotherInstallation"
    )
    assert day.operators.namespace in told
    assert second.namespace in told
    day.world.until(lambda: "AnotherInstallation" in day.world.reasons(), "an Event tells of it")
    # Each repairs the Secret at once, after 5 s, after 10 s.
    day.world.until(lambda: min(repairs(own), repairs(rival)) >= 2, "both repair it again")
    written = [write.resource for write in day.writes()[before:]]
    statuses = [resource for resource in written if resource.endswith("/status")]
    assert len(written) - len(statuses) <= 8
    assert len(statuses) <= 20
    rival.running.stop(grace=10)
    day.world.until(
        lambda: installation(day.world).startswith(day.operators.namespace),
        "the first has its objects again",
    )
    day.world.converges()


def repairs(operator: OperatorProcess) -> float:
    return operator.metrics().get('pillion_operator_drift_total{kind="Secret"}', 0)


def installation(world: World) -> str:
    secret = world.get("Secret", "pillion-default-0") or {}
    return str(secret["metadata"]["annotations"][INSTALLATION_ANNOTATION])
