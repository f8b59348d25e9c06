"""A gateway's objects on a real API server."""

import asyncio
from typing import Any

import pytest

from pillion_operator.cluster.api import Api
from pillion_operator.cluster.applier import Applied, Applier, Repair
from pillion_operator.cluster.types import (
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Object,
    ResourceType,
    our_type,
)
from pillion_operator.desired.objects import desired_objects
from pillion_operator.names import SERVICE_LABEL
from pillion_sidecar.config.rendered import pack, render
from pillion_testbed.kubectl import Kubectl
from support.desired import DEFAULTS
from support.operator_time import FakeClock

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds")]

KIND = our_type("IndicationService")
CHILDREN = (
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    POD_DISRUPTION_BUDGET,
    NETWORK_POLICY,
)
_HOST = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NODES = {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["4"]}]}
_NEIGHBOURS = {
    _REQUIRED: [{"topologyKey": _HOST, "labelSelector": {"matchLabels": {"app": "web"}}}],
    _PREFERRED: [{"weight": 5, "podAffinityTerm": {"topologyKey": _HOST, "namespaces": ["shop"]}}],
}
#: All that a template may say.
TEMPLATE: Object = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"example.org/note": "x y"}},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [
        {"key": "dedicated", "value": "", "effect": "NoSchedule"},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    ],
    "affinity": {
        "nodeAffinity": {
            _REQUIRED: {"nodeSelectorTerms": [_NODES]},
            _PREFERRED: [{"weight": 1, "preference": _NODES}],
        },
        "podAffinity": _NEIGHBOURS,
        "podAntiAffinity": _NEIGHBOURS,
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": _HOST,
            "whenUnsatisfiable": "DoNotSchedule",
            "nodeAffinityPolicy": "Honor",
            "nodeTaintsPolicy": "Honor",
        }
    ],
    "priorityClassName": "system-cluster-critical",
    "imagePullSecrets": [{"name": "registry"}],
    "volumes": [
        {"name": "ca", "configMap": {"name": "ca"}},
        {"name": "key", "secret": {"secretName": "key", "optional": True}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "0.5Gi"}},
        {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "vault", "csi": {"driver": "vault.example.org", "volumeAttributes": {"a": "b"}}},
    ],
    "volumeMounts": [
        {"name": "ca", "mountPath": "/mnt/ca.crt", "subPath": "ca.crt"},
        {"name": "tmp", "mountPath": "/tmp", "readOnly": False},
    ],
}
DELIVERERS: tuple[dict[str, Any], ...] = (
    {"replicas": 2},
    {
        "storage": {"sizeLimit": "0.5Gi", "storageClassName": "fast"},
        "resources": {"requests": {"cpu": "1000m"}, "limits": {"memory": "1024Mi"}},
    },
    {"template": TEMPLATE},
)


async def make_service(api: Api, namespace: str, deliverer: Object) -> Object:
    # As long a name as there may be.
    return await api.create(
        {
            "apiVersion": KIND.api_version,
            "kind": KIND.kind,
            "metadata": {"name": "s" * 44, "namespace": namespace},
            "spec": {"deliverer": {"mode": "Gateway", **deliverer}},
        }
    )


async def children(api: Api, service: Object) -> list[Object]:
    metadata = service["metadata"]
    selector = f"{SERVICE_LABEL}={metadata['name']}"
    return [
        {**body, "apiVersion": kind.api_version, "kind": kind.kind}
        for kind in CHILDREN
        for body in await api.list(kind, metadata["namespace"], label_selector=selector)
    ]


async def sync(api: Api, service: Object, *, repairs: list[Repair]) -> Applied:
    """What a process does that has just started."""
    rendered = pack(render([]))
    return await Applier(api, installation="here", clock=FakeClock(), repaired=repairs.append).sync(
        service,
        desired=desired_objects(service, rendered, token="token", defaults=DEFAULTS),
        live=await children(api, service),
    )


@pytest.mark.parametrize("deliverer", DELIVERERS)
async def test_a_gateway_is_made_and_a_new_process_writes_nothing(
    api: Api, namespace: str, deliverer: dict[str, Any]
) -> None:
    service = await make_service(api, namespace, deliverer)
    repairs: list[Repair] = []
    applied = await sync(api, service, repairs=repairs)
    assert (applied.written, applied.refused) == (7, ())
    writes: list[str] = []
    counted = Api(api._client, wrote=writes.append)
    assert (await sync(counted, service, repairs=repairs)) == Applied()
    assert (writes, repairs) == ([], [])


@pytest.mark.parametrize(
    ("kind", "patch", "fields"),
    [
        (
            STATEFUL_SET,
            {
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [{"name": "more", "image": "x"}],
                            "initContainers": [{"name": "first", "image": "x"}],
                        }
                    }
                }
            },
            (
                "spec.template.spec.containers[more]",
                "spec.template.spec.initContainers[first]",
            ),
        ),
        (
            STATEFUL_SET,
            {"spec": {"template": {"spec": {"volumes": [{"name": "more", "emptyDir": {}}]}}}},
            ("spec.template.spec.volumes[more]",),
        ),
        (SERVICE, {"spec": {"selector": {"more": "x"}}}, ("spec.selector",)),
        (
            SERVICE,
            {"spec": {"ports": [{"name": "more", "port": 9, "protocol": "TCP"}]}},
            ("spec.ports[more]",),
        ),
        (
            NETWORK_POLICY,
            {"spec": {"podSelector": {"matchLabels": {"more": "x"}}}},
            ("spec.podSelector",),
        ),
        (
            POD_DISRUPTION_BUDGET,
            {"spec": {"selector": {"matchLabels": {"more": "x"}}}},
            ("spec.selector",),
        ),
    ],
)
async def test_what_others_add_where_it_changes_the_meaning_is_removed(
    api: Api, namespace: str, kind: ResourceType, patch: Object, fields: tuple[str, ...]
) -> None:
    service = await make_service(api, namespace, {"replicas": 1})
    repairs: list[Repair] = []
    await sync(api, service, repairs=repairs)
    before = next(body for body in await children(api, service) if body["kind"] == kind.kind)
    await api.patch(kind, namespace, before["metadata"]["name"], added(before, patch))
    assert (await sync(api, service, repairs=repairs)).written == 1
    assert [repair.fields for repair in repairs] == [fields]
    after = await api.get(kind, namespace, before["metadata"]["name"])
    assert after is not None
    assert after["spec"] == before["spec"]
    assert (await sync(api, service, repairs=repairs)) == Applied()


def added(body: Any, patch: Any) -> Any:
    """A merge patch that adds to lists, too."""
    if isinstance(patch, list):
        return [*(body or ()), *patch]
    if isinstance(patch, dict):
        return {key: added((body or {}).get(key), value) for key, value in patch.items()}
    return patch


@pytest.mark.parametrize("deliverer", DELIVERERS)
async def test_its_pods_are_let_in_where_the_restricted_profile_is_enforced(
    api: Api, namespace: str, kubectl: Kubectl, deliverer: dict[str, Any]
) -> None:
    await asyncio.to_thread(
        kubectl.run,
        "label",
        "namespace",
        namespace,
        "pod-security.kubernetes.io/enforce=restricted",
    )
    service = await make_service(api, namespace, deliverer)
    await sync(api, service, repairs=[])
    # The StatefulSet's controller makes it.
    await asyncio.to_thread(kubectl.wait, f"pod/pillion-{'s' * 44}-0", "--for=create")


async def test_storage_that_cannot_be_changed_is_refused_with_the_reason(
    api: Api, namespace: str
) -> None:
    service = await make_service(api, namespace, {"storage": {"sizeLimit": "1Gi"}})
    await sync(api, service, repairs=[])
    deliverer = {**service["spec"]["deliverer"], "storage": {"sizeLimit": "2Gi"}}
    changed = {**service, "spec": {**service["spec"], "deliverer": deliverer}}
    applied = await sync(api, changed, repairs=[])
    (refused,) = applied.refused
    assert str(refused).startswith("StatefulSet ")
    assert "updates to statefulset spec" in str(refused)


async def test_drift_of_a_gateway_is_repaired(api: Api, namespace: str) -> None:
    service = await make_service(api, namespace, {})
    await sync(api, service, repairs=[])
    name = f"pillion-{'s' * 44}"
    await api.patch(STATEFUL_SET, namespace, name, {"spec": {"replicas": 5}})
    await api.patch(NETWORK_POLICY, namespace, name, {"spec": {"ingress": [{}]}})
    repairs: list[Repair] = []
    assert (await sync(api, service, repairs=repairs)).written == 2
    assert {(repair.body["kind"], repair.fields) for repair in repairs} == {
        ("NetworkPolicy", ("spec.ingress",)),
        ("StatefulSet", ("spec.replicas",)),
    }
