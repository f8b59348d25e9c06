"""The NetworkPolicy of pods with a sidecar: made only where it closes nobody's pod."""

import pytest

from pillion_operator.desired.objects import desired_objects, sidecar_policy
from pillion_operator.names import gateway, sidecars
from pillion_operator.settings import DelivererDefaults, NetworkSettings, SidecarPolicy
from pillion_sidecar.config.rendered import pack, render
from pillion_sidecar.config.schema.common import SERVICE_NAME_RULES
from support.desired import indication_service

PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def test_by_default_there_is_none_since_it_would_close_pods_that_are_open() -> None:
    assert sidecar_policy(indication_service(), settings=NetworkSettings()) == ()


@pytest.mark.parametrize(
    ("policy", "labels"),
    [
        (
            SidecarPolicy.SPARK_EXECUTORS,
            {"pillion.dev/deliverer": "default", "spark-role": "executor"},
        ),
        (SidecarPolicy.ALL, {"pillion.dev/deliverer": "default"}),
    ],
)
def test_it_opens_the_port_of_metrics_and_nothing_else(
    policy: SidecarPolicy, labels: dict[str, str]
) -> None:
    settings = NetworkSettings(sidecars=policy, telemetry_from=(PROMETHEUS,))
    (made,) = sidecar_policy(indication_service(), settings=settings)
    assert made["metadata"]["name"] == "pillion-default.sidecars"
    assert made["spec"] == {
        "podSelector": {"matchLabels": labels},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [PROMETHEUS], "ports": [{"port": 8289, "protocol": "TCP"}]}],
    }


def test_without_peers_anybody_in_the_cluster_may_measure() -> None:
    settings = NetworkSettings(sidecars=SidecarPolicy.ALL)
    (made,) = sidecar_policy(indication_service(), settings=settings)
    assert made["spec"]["ingress"][0]["from"] == [{"namespaceSelector": {}}]


def test_a_gateway_has_its_own_policy_instead_or_none_where_none_is_wanted() -> None:
    def policies(mode: str, **network: object) -> list[str]:
        settings = NetworkSettings(**network)  # type: ignore[arg-type]
        objects = desired_objects(
            indication_service(mode=mode),
            pack(render([])),
            token="t",
            defaults=DelivererDefaults(image="i", network=settings),
        )
        return [body["metadata"]["name"] for body in objects if body["kind"] == "NetworkPolicy"]

    assert policies("Gateway", sidecars=SidecarPolicy.ALL) == ["pillion-default"]
    assert policies("Sidecar", sidecars=SidecarPolicy.ALL) == ["pillion-default.sidecars"]
    assert policies("Gateway", gateways=False) == []
    assert policies("Sidecar") == []


def test_no_other_service_has_an_object_of_the_same_name() -> None:
    others = [f"default{rest}" for rest in ("", "-sidecars", ".sidecars", "-sidecars-0")]
    sound = [name for name in others if all(rule.holds(name) for rule in SERVICE_NAME_RULES)]
    assert sound == ["default", "default-sidecars", "default-sidecars-0"]
    assert sidecars("default") not in {gateway(name) for name in sound}
