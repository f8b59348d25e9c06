"""Who sets the number of a gateway's pods."""

from typing import Any

import pytest

from pillion_operator.cluster.scaling import replicas_of, scaler
from pillion_operator.store import slimmed
from support.operator_objects import NAMESPACE, service

REPLICAS = {"f:spec": {"f:replicas": {}}}


def stateful_set(*entries: dict[str, Any], replicas: int = 3) -> dict[str, Any]:
    body = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "pillion-shared", "namespace": NAMESPACE, "managedFields": entries},
        "spec": {"replicas": replicas},
    }
    return slimmed(body)


def entry(manager: str, subresource: str = "scale", **fields: Any) -> dict[str, Any]:
    return {"manager": manager, "subresource": subresource, "fieldsV1": fields or REPLICAS}


AUTOSCALED = stateful_set(entry("pillion-operator", ""), entry("kube-controller-manager"))


def test_an_autoscaler_is_whoever_owns_replicas_through_the_scale() -> None:
    assert scaler(AUTOSCALED) == "kube-controller-manager"


@pytest.mark.parametrize(
    "body",
    [
        None,
        stateful_set(),
        stateful_set(entry("pillion-operator", "")),
        stateful_set(entry("kube-controller-manager", "status")),
        stateful_set(entry("kube-controller-manager", **{"f:status": {"f:replicas": {}}})),
        stateful_set(entry("kubectl")),
        stateful_set(entry("kubectl-scale")),
    ],
)
def test_whoever_scales_by_hand_or_does_something_else_is_none(body: dict[str, Any] | None) -> None:
    assert scaler(body) == ""
    assert replicas_of(service(deliverer={"mode": "Gateway", "replicas": 2}), body) == 2


def test_the_replicas_are_those_of_the_autoscaler_where_there_is_one() -> None:
    gateway = service(deliverer={"mode": "Gateway", "replicas": 2})
    assert replicas_of(gateway, AUTOSCALED) == 3
    assert replicas_of(gateway) == 2
    assert replicas_of(service(deliverer={"mode": "Gateway"})) == 1


def test_of_managed_fields_nothing_else_is_held() -> None:
    held = stateful_set(entry("pillion-operator", ""), entry("kube-controller-manager"))
    assert [one["manager"] for one in held["metadata"]["managedFields"]] == [
        "kube-controller-manager"
    ]
    assert "managedFields" not in stateful_set(entry("pillion-operator", ""))["metadata"]
