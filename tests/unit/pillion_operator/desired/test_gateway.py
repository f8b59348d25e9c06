"""What makes a gateway."""

import json
from typing import Any

import pytest

from pillion_operator.cluster.ownership import belongs
from pillion_operator.desired.configuration import operator_token
from pillion_operator.desired.objects import desired_objects, gateway_objects
from pillion_sidecar.config.rendered import pack, render
from support.desired import DEFAULTS, indication_service


def made(service: dict[str, Any]) -> dict[tuple[str, str], Any]:
    objects = gateway_objects(service, defaults=DEFAULTS)
    return {(body["kind"], body["metadata"]["name"]): body for body in objects}


def stateful_set(service: dict[str, Any]) -> Any:
    return made(service)["StatefulSet", f"pillion-{service['metadata']['name']}"]["spec"]


def test_a_gateway_is_made_of_these() -> None:
    service = indication_service("alerts", mode="Gateway")
    objects = made(service)
    assert list(objects) == [
        ("ServiceAccount", "pillion-alerts"),
        ("NetworkPolicy", "pillion-alerts"),
        ("PodDisruptionBudget", "pillion-alerts"),
        ("Service", "pillion-alerts-headless"),
        ("Service", "pillion-alerts"),
        ("StatefulSet", "pillion-alerts"),
    ]
    assert all(belongs(body, service) for body in objects.values())


def test_a_new_configuration_restarts_no_pod() -> None:
    service = indication_service(mode="Gateway")
    token = operator_token(b"key", "shop", "default")

    def without_secrets(text: str) -> list[Any]:
        objects = desired_objects(service, pack(text), token=token, defaults=DEFAULTS)
        return [body for body in objects if body["kind"] != "Secret"]

    assert without_secrets(render([service])) == without_secrets(render([]))


def test_the_configuration_is_made_before_the_pods() -> None:
    service = indication_service(mode="Gateway")
    objects = desired_objects(service, pack(render([])), token="t", defaults=DEFAULTS)
    kinds = [body["kind"] for body in objects]
    assert (kinds[0], kinds[-1]) == ("Secret", "StatefulSet")


def test_everything_finds_the_same_pods() -> None:
    service = indication_service(mode="Gateway", replicas=3)
    objects = made(service)
    spec = stateful_set(service)
    labels = spec["template"]["metadata"]["labels"]
    assert labels["pillion.dev/deliverer"] == "default"
    assert spec["replicas"] == 3
    assert spec["selector"]["matchLabels"] == labels
    assert spec["serviceName"] == "pillion-default-headless"
    for key in (("Service", "pillion-default"), ("Service", "pillion-default-headless")):
        assert objects[key]["spec"]["selector"] == labels
    budget = objects["PodDisruptionBudget", "pillion-default"]["spec"]
    assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    policy = objects["NetworkPolicy", "pillion-default"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    for spread in spec["template"]["spec"]["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"] == labels


def test_publishers_of_the_namespace_alone_may_come_in_and_anybody_may_measure() -> None:
    policy = made(indication_service(mode="Gateway"))["NetworkPolicy", "pillion-default"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [
        {"from": [{"podSelector": {}}], "ports": [{"port": 8288, "protocol": "TCP"}]},
        {"from": [{"namespaceSelector": {}}], "ports": [{"port": 8289, "protocol": "TCP"}]},
    ]


@pytest.mark.parametrize(
    ("publishers", "peers"),
    [
        ([{"namespace": "shop", "serviceAccount": "till"}], [{"podSelector": {}}]),
        (
            [{"namespace": "web"}, {"namespace": "shop"}, {"namespace": "web"}],
            [
                {"podSelector": {}},
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}},
            ],
        ),
        (
            [{"namespace": "web"}],
            [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}}],
        ),
    ],
)
def test_the_namespaces_of_publishers_that_are_named_may_come_in(
    publishers: list[dict[str, str]], peers: list[dict[str, Any]]
) -> None:
    service = indication_service(mode="Gateway", spec={"publishers": publishers})
    policy = made(service)["NetworkPolicy", "pillion-default"]["spec"]
    assert policy["ingress"][0] == {"from": peers, "ports": [{"port": 8288, "protocol": "TCP"}]}


def test_a_certificate_that_is_late_keeps_no_pod_from_starting() -> None:
    pod = stateful_set(indication_service(mode="Gateway"))["template"]["spec"]
    assert {
        "name": "pillion-tls",
        "secret": {"secretName": "pillion-default-tls", "optional": True},
    } in pod["volumes"]


def test_the_services_lead_to_intake_and_metrics() -> None:
    service = indication_service(mode="Gateway")
    (container,) = stateful_set(service)["template"]["spec"]["containers"]
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    for body in (
        made(service)["Service", "pillion-default"],
        made(service)["Service", "pillion-default-headless"],
    ):
        ports = {port["name"]: port for port in body["spec"]["ports"]}
        assert {name: port["port"] for name, port in ports.items()} == {
            "intake": 8288,
            "metrics": 8289,
        }
        for port in ports.values():
            assert named[port["targetPort"]] == port["port"]


def test_no_pod_gets_a_token_of_the_api_server() -> None:
    service = indication_service(mode="Gateway")
    pod = stateful_set(service)["template"]["spec"]
    account = made(service)["ServiceAccount", "pillion-default"]
    assert pod["automountServiceAccountToken"] is False
    assert account["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == "pillion-default"


@pytest.mark.parametrize(
    ("storage", "size", "storage_class"),
    [
        ({"sizeLimit": "5Gi", "storageClassName": "fast"}, "5Gi", "fast"),
        ({"sizeLimit": "5Gi"}, "5Gi", None),
        ({"storageClassName": "fast"}, "1280Mi", "fast"),
    ],
)
def test_storage_is_claimed_and_outlives_the_gateway(
    storage: dict[str, str], size: str, storage_class: str | None
) -> None:
    spec = stateful_set(indication_service(mode="Gateway", storage=storage))
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == size
    assert claim["spec"].get("storageClassName") == storage_class
    assert set(spec["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}
    pod = spec["template"]["spec"]
    mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["volumes"]} | {claim["metadata"]["name"]}
    assert mounts == volumes
    assert pod["securityContext"]["fsGroup"] == 65532


@pytest.mark.parametrize("storage", [{}, None])
def test_a_gateway_without_storage_claims_none(storage: dict[str, str] | None) -> None:
    spec = stateful_set(indication_service(mode="Gateway", storage=storage))
    assert "volumeClaimTemplates" not in spec
    pod = spec["template"]["spec"]
    mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    assert pod["volumes"][1] == {"name": "pillion-data", "emptyDir": {}}
    assert "fsGroup" not in pod["securityContext"]


def test_the_pod_ends_no_sooner_than_its_deliverer_may_need() -> None:
    service = indication_service(mode="Gateway", spec={"shutdownGracePeriodSeconds": 300})
    assert stateful_set(service)["template"]["spec"]["terminationGracePeriodSeconds"] > 300


def test_names_stay_within_what_kubernetes_takes() -> None:
    service = indication_service("s" * 44, mode="Gateway", replicas=100)
    for kind, name in made(service):
        assert len(name) <= 63, kind
    # A StatefulSet's pods carry its revision as a label: its name, a dash, up to ten characters.
    assert len("pillion-" + "s" * 44) + 11 <= 63
    assert json.dumps(gateway_objects(service, defaults=DEFAULTS))


PLUGIN = {
    "name": "pager",
    "image": "registry.example.org/pager:1",
    "args": ["--quiet"],
    "environmentSecretRef": {"name": "pager"},
    "resources": {"limits": {"memory": "64Mi"}},
}


def test_a_plugin_is_a_container_that_the_deliverer_reaches_by_a_socket() -> None:
    pod = stateful_set(indication_service(mode="Gateway", plugins=[PLUGIN]))["template"]["spec"]
    (plugin,) = pod["initContainers"]
    (deliverer,) = pod["containers"]
    socket = "/etc/pillion/plugins/pager.sock"
    assert f"--plugin=pager=unix:{socket}" in deliverer["args"]
    assert plugin["env"] == [{"name": "PILLION_PLUGIN_SOCKET", "value": socket}]
    # It starts before the deliverer, and ends after it.
    assert plugin["restartPolicy"] == "Always"
    assert (plugin["name"], plugin["image"]) == ("plugin-pager", PLUGIN["image"])
    assert (plugin["args"], plugin["resources"]) == (PLUGIN["args"], PLUGIN["resources"])
    assert "command" not in plugin
    assert plugin["envFrom"] == [{"secretRef": {"name": "pager"}}]
    assert plugin["securityContext"] == deliverer["securityContext"]
    mount = {"name": "pillion-plugins", "mountPath": "/etc/pillion/plugins"}
    assert mount in deliverer["volumeMounts"]
    # No journal, no token, no certificate.
    assert plugin["volumeMounts"] == [mount]
    volume = {"medium": "Memory", "sizeLimit": "1Mi"}
    assert {"name": "pillion-plugins", "emptyDir": volume} in pod["volumes"]


def test_a_gateway_without_plugins_has_the_pods_that_it_had() -> None:
    pod = stateful_set(indication_service(mode="Gateway"))["template"]["spec"]
    assert "initContainers" not in pod
    assert all(volume["name"] != "pillion-plugins" for volume in pod["volumes"])
    assert not [one for one in pod["containers"][0]["args"] if "plugin" in one]
