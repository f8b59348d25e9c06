"""Classes that a service takes from a ConfigMap reach running deliverers."""

from pathlib import Path

import pytest

from cluster.convergence import World
from cluster.kubelet import Kubelet
from cluster.operators import Operators
from cluster.scenes import deliverer_pod, publish
from support.cluster_resources import classes, destination, filter_, service, subscription
from support.processes import listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

ALERT = "class ACME_Alert : CIM_AlertIndication { uint16 Bay; };"
FAN = f"{ALERT} class ACME_Fan : ACME_Alert {{ }};"
ENTRY = {"configMapRef": {"name": "vendors"}}


def accepted(world: World) -> tuple[str, str]:
    return world.condition("IndicationService", "default", "Accepted")


def revision(world: World) -> str:
    body = world.get("IndicationService", "default") or {}
    return str((body.get("status") or {}).get("revision"))


def took_over(world: World, before: str) -> bool:
    ready = world.condition("IndicationService", "default", "Ready")
    return revision(world) not in (before, "None") and ready == ("True", "InForce")


def test_mof_from_a_config_map_is_in_force_and_a_wrong_edit_changes_nothing(
    world: World, operators: Operators, kubelet: Kubelet, tmp_path: Path
) -> None:
    operators.start("--no-webhook")
    with listener_process(tmp_path) as listener:
        world.apply(service(mofFrom=[ENTRY]), filter_(), destination(listener.url), subscription())
        world.until(
            lambda: accepted(world) == ("False", "ConfigMapNotFound"), "the ConfigMap is missing"
        )
        world.apply(classes(ALERT), deliverer_pod())
        url = kubelet.ready("publisher").url(8288)
        world.until(lambda: took_over(world, ""), "the first MOF is in force")
        # The type of Bay is known by the MOF alone.
        publish(url, of="ACME_Alert", Bay=3)
        listener.arrived(1)

        first = revision(world)
        world.patch("ConfigMap", "vendors", {"data": {"classes.mof": FAN}})
        world.until(lambda: took_over(world, first), "the second MOF is in force")
        publish(url, of="ACME_Fan", Bay=4)
        listener.arrived(2)

        second = revision(world)
        world.patch("ConfigMap", "vendors", {"data": {"classes.mof": "class ACME_Fan {"}})
        world.until(lambda: accepted(world) == ("False", "Invalid"), "the MOF is wrong")
        world.delete("ConfigMap", "vendors")
        world.until(
            lambda: accepted(world) == ("False", "ConfigMapNotFound"), "the ConfigMap is gone"
        )
        assert revision(world) == second
        publish(url, of="ACME_Fan", Bay=5)
        listener.arrived(3)
