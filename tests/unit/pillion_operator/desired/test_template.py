"""How a gateway's pods are made and placed by ``deliverer.template``."""

import dataclasses
from typing import Any

from pillion_operator.desired.objects import gateway_objects
from support.desired import DEFAULTS, indication_service

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"


def pod_template(template: Any = None, **defaults: Any) -> Any:
    deliverer = {} if template is None else {"template": template}
    service = indication_service("alerts", mode="Gateway", **deliverer)
    *_, stateful_set = gateway_objects(service, defaults=dataclasses.replace(DEFAULTS, **defaults))
    return stateful_set["spec"]["template"]


def own() -> Any:
    return {"matchLabels": pod_template()["metadata"]["labels"]}


def test_without_a_template_replicas_avoid_each_other_softly() -> None:
    spec = pod_template()["spec"]
    (term,) = spec["affinity"]["podAntiAffinity"][PREFERRED]
    assert term["podAffinityTerm"] == {"topologyKey": HOST, "labelSelector": own()}
    assert {one["whenUnsatisfiable"] for one in spec["topologySpreadConstraints"]} == {
        "ScheduleAnyway"
    }
    left_out = {"nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets"}
    assert not left_out & spec.keys()


def test_an_empty_template_is_none() -> None:
    assert pod_template({}) == pod_template()


def test_what_places_a_pod_goes_into_it_as_it_is() -> None:
    template = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
    }
    spec = pod_template(template)["spec"]
    assert {name: spec[name] for name in template} == template


def test_labels_by_which_pods_are_found_go_before_the_templates() -> None:
    labels = {"team": "a", "pillion.dev/deliverer": "other"}
    metadata = pod_template({"metadata": {"labels": labels, "annotations": {"x": "y"}}})["metadata"]
    assert metadata["labels"] == {"team": "a", **own()["matchLabels"]}
    assert metadata["annotations"] == {"x": "y"}
    assert "annotations" not in pod_template()["metadata"]


def test_an_affinity_replaces_the_default_one_and_means_the_gateways_own_pods() -> None:
    named = {"matchLabels": {"app": "web"}}
    affinity = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": []}]}},
        "podAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": named}]},
        "podAntiAffinity": {
            REQUIRED: [{"topologyKey": HOST}],
            PREFERRED: [{"weight": 3, "podAffinityTerm": {"topologyKey": "zone"}}],
        },
    }
    spec = pod_template({"affinity": affinity})["spec"]
    assert spec["affinity"]["nodeAffinity"] == affinity["nodeAffinity"]
    assert spec["affinity"]["podAffinity"] == affinity["podAffinity"]
    assert spec["affinity"]["podAntiAffinity"] == {
        REQUIRED: [{"topologyKey": HOST, "labelSelector": own()}],
        PREFERRED: [
            {"weight": 3, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": own()}}
        ],
    }
    assert "affinity" not in pod_template({"affinity": {}})["spec"]


def test_constraints_replace_the_default_ones() -> None:
    hard = {"maxSkew": 2, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
    spec = pod_template({"topologySpreadConstraints": [hard]})["spec"]
    assert spec["topologySpreadConstraints"] == [{**hard, "labelSelector": own()}]
    assert (
        "topologySpreadConstraints" not in pod_template({"topologySpreadConstraints": []})["spec"]
    )


def test_volumes_come_behind_our_own() -> None:
    volume = {"name": "ca", "configMap": {"name": "ca", "optional": False}}
    mount = {"name": "ca", "mountPath": "/mnt/ca", "readOnly": True}
    spec = pod_template({"volumes": [volume], "volumeMounts": [mount]})["spec"]
    plain = pod_template()["spec"]
    assert spec["volumes"] == [*plain["volumes"], volume]
    (container,) = spec["containers"]
    assert container["volumeMounts"] == [*plain["containers"][0]["volumeMounts"], mount]


def test_pull_secrets_of_the_installation_are_for_templates_without_any() -> None:
    installed = {"pull_secrets": ("registry",)}
    assert pod_template(**installed)["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    given = pod_template({"imagePullSecrets": [{"name": "mine"}]}, **installed)
    assert given["spec"]["imagePullSecrets"] == [{"name": "mine"}]
    none = pod_template({"imagePullSecrets": []}, **installed)
    assert "imagePullSecrets" not in none["spec"]


def test_what_the_api_server_leaves_out_is_not_asked_for() -> None:
    # Else each look at the StatefulSet would find a difference, and write it again.
    claim = {"claimName": "shared", "readOnly": False}
    template = {
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": ""}],
        "volumes": [{"name": "shared", "persistentVolumeClaim": claim}],
        "volumeMounts": [{"name": "shared", "mountPath": "/mnt", "readOnly": False}],
    }
    spec = pod_template(template)["spec"]
    assert spec["tolerations"] == [{"key": "dedicated", "operator": "Equal"}]
    assert spec["volumes"][-1] == {
        "name": "shared",
        "persistentVolumeClaim": {"claimName": "shared"},
    }
    assert spec["containers"][0]["volumeMounts"][-1] == {"name": "shared", "mountPath": "/mnt"}
