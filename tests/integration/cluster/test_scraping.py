"""Prometheus with and without its operator: the chart gives both the same targets and labels."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pillion_operator.injection.container import deliverer_container
from pillion_operator.names import DELIVERER_LABEL
from pillion_operator.settings import DelivererDefaults
from pillion_testbed.helm import MATRIX, Helm, Object, find_helm, of_kind, only
from pillion_testbed.monitoring import PromtoolFailed, promtool, relabelled
from support.prometheus_operator import pod_monitor_job, service_monitor_job

# The first one may have to build helm and promtool.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

DEFAULTS = DelivererDefaults(image="i")
DELIVERER = deliverer_container("default", namespace="shop", spec={}, defaults=DEFAULTS)
GATEWAY = deliverer_container("default", namespace="shop", spec={}, defaults=DEFAULTS, gateway=True)
APPLICATION = {"name": "executor", "ports": [{"name": "blockmanager", "containerPort": 7079}]}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return find_helm(tmp_path_factory.mktemp("helm"))


def scrape_of(objects: list[Object]) -> Any:
    return yaml.safe_load(only(objects, "ConfigMap", "pillion-scrape")["data"]["scrape.yaml"])


def pod(*containers: Any, sidecar: Any = None, labels: Mapping[str, str], phase: str) -> Object:
    return {
        "metadata": {"namespace": "weather", "name": "pod-1", "labels": dict(labels)},
        "spec": {"containers": list(containers), "initContainers": [sidecar] if sidecar else []},
        "status": {"phase": phase, "podIP": "10.244.0.7"},
    }


def found_by_role_pod(found: Object) -> Iterator[dict[str, str]]:
    """What Prometheus' discovery of pods tells of each port of each container, init or not."""
    metadata, spec, status = found["metadata"], found["spec"], found["status"]
    told = {
        "__meta_kubernetes_namespace": metadata["namespace"],
        "__meta_kubernetes_pod_name": metadata["name"],
        "__meta_kubernetes_pod_phase": status["phase"],
        "__meta_kubernetes_pod_ip": status["podIP"],
    }
    for label, value in metadata["labels"].items():
        name = "".join(letter if letter.isalnum() else "_" for letter in label)
        told[f"__meta_kubernetes_pod_label_{name}"] = value
        told[f"__meta_kubernetes_pod_labelpresent_{name}"] = "true"
    for kind in ("containers", "initContainers"):
        for container in spec[kind]:
            for port in container.get("ports", ()):
                yield {
                    **told,
                    "__address__": f"{status['podIP']}:{port['containerPort']}",
                    "__meta_kubernetes_pod_container_init": str(kind == "initContainers").lower(),
                    "__meta_kubernetes_pod_container_name": container["name"],
                    "__meta_kubernetes_pod_container_port_name": port["name"],
                    "__meta_kubernetes_pod_container_port_number": str(port["containerPort"]),
                }


def by_endpoints(found: Mapping[str, str], service: Object) -> dict[str, str]:
    """The same target as discovery by a Service's endpoints tells it."""
    told = {
        **found,
        "__meta_kubernetes_service_name": service["metadata"]["name"],
        "__meta_kubernetes_endpoint_port_name": found["__meta_kubernetes_pod_container_port_name"],
    }
    for label, value in service["metadata"]["labels"].items():
        name = "".join(letter if letter.isalnum() else "_" for letter in label)
        told[f"__meta_kubernetes_service_label_{name}"] = value
    return told


@pytest.mark.parametrize("case", ["scraping", "scraping-namespaced"])
def test_promtool_takes_the_scrape_configuration(helm: Helm, tmp_path: Path, case: str) -> None:
    scrape = tmp_path / "scrape.yaml"
    scrape.write_text(
        only(helm.template(*MATRIX[case]), "ConfigMap", "pillion-scrape")["data"]["scrape.yaml"]
    )
    whole = tmp_path / "prometheus.yaml"
    whole.write_text("scrape_config_files: [scrape.yaml]\n")
    assert "SUCCESS" in promtool("check", "config", "--lint=all", "--lint-fatal", str(whole))
    scrape.write_text(scrape.read_text().replace("action: keep", "action: hold"))
    with pytest.raises(PromtoolFailed, match="unknown relabel action"):
        promtool("check", "config", str(whole))


def test_sidecars_and_gateways_have_the_labels_that_a_pod_monitor_gives(
    helm: Helm, tmp_path: Path
) -> None:
    values = (*MATRIX["scraping"], *MATRIX["monitoring"])
    objects = helm.template(*values)
    theirs = pod_monitor_job(only(objects, "PodMonitor"))
    ours = scrape_of(objects)["scrape_configs"][1]
    labels = {DELIVERER_LABEL: "default", "spark-role": "executor"}
    pods = [
        pod(APPLICATION, sidecar=DELIVERER, labels=labels, phase="Running"),
        pod(APPLICATION, sidecar=DELIVERER, labels=labels, phase="Pending"),
        pod(GATEWAY, labels=labels, phase="Running"),
        pod(APPLICATION, sidecar=DELIVERER, labels=labels, phase="Succeeded"),
        pod(GATEWAY, labels=labels, phase="Failed"),
    ]
    targets = [target for one in pods for target in found_by_role_pod(one)]
    given = relabelled(ours, targets, tmp_path)
    assert given == relabelled(theirs, targets, tmp_path)
    common = {
        "namespace": "weather",
        "pod": "pod-1",
        "container": "pillion-deliverer",
        "service": "default",
        "endpoint": "pillion-metrics",
        "job": "pillion-system/pillion-deliverers",
        "instance": "10.244.0.7:8289",
    }
    assert [one for one in given if one is not None] == [common] * 3
    # Ports of the application, the intake of a gateway, and pods that have ended are no targets.
    assert given.count(None) == len(targets) - 3


def test_the_operator_has_the_labels_that_a_service_monitor_gives(
    helm: Helm, tmp_path: Path
) -> None:
    objects = helm.template(*MATRIX["scraping"], *MATRIX["monitoring"])
    theirs = service_monitor_job(only(objects, "ServiceMonitor"))
    ours = scrape_of(objects)["scrape_configs"][0]
    assert ours["honor_labels"] is theirs["honor_labels"] is True
    template = only(objects, "Deployment")["spec"]["template"]
    pods = [
        {
            "metadata": {
                "namespace": "pillion-system",
                "name": "pillion-operator-0",
                "labels": template["metadata"]["labels"],
            },
            "spec": {**template["spec"], "initContainers": []},
            "status": {"phase": phase, "podIP": "10.244.0.3"},
        }
        for phase in ("Running", "Failed")
    ]
    targets = [target for one in pods for target in found_by_role_pod(one)]
    service = only(objects, "Service", theirs_service(objects))
    given = relabelled(ours, targets, tmp_path)
    endpoints = [by_endpoints(target, service) for target in targets]
    assert given == relabelled(theirs, endpoints, tmp_path)
    assert [one for one in given if one is not None] == [
        {
            "namespace": "pillion-system",
            "pod": "pillion-operator-0",
            "container": "operator",
            "service": "pillion-operator",
            "endpoint": "telemetry",
            "job": "pillion-operator",
            "instance": "10.244.0.3:8081",
        }
    ]


def theirs_service(objects: list[Object]) -> str:
    """The Service of the ServiceMonitor: the one with a port for telemetry."""
    (found,) = [
        service["metadata"]["name"]
        for service in of_kind(objects, "Service")
        if any(port["name"] == "telemetry" for port in service["spec"]["ports"])
    ]
    return str(found)


def test_discovery_asks_for_no_more_pods_than_the_monitors_select(helm: Helm) -> None:
    objects = helm.template(*MATRIX["scraping"])
    operator, deliverers = scrape_of(objects)["scrape_configs"]
    (asked,) = operator["kubernetes_sd_configs"]
    assert asked["namespaces"] == {"names": ["pillion-system"]}
    (selector,) = asked["selectors"]
    labels = only(objects, "Deployment")["spec"]["selector"]["matchLabels"]
    assert dict(pair.split("=") for pair in selector["label"].split(",")) == labels
    (asked,) = deliverers["kubernetes_sd_configs"]
    assert asked == {"role": "pod", "selectors": [{"role": "pod", "label": DELIVERER_LABEL}]}

    namespaced = helm.template(*MATRIX["scraping-namespaced"])
    monitored = only(namespaced, "PodMonitor")["spec"]["namespaceSelector"]["matchNames"]
    (asked,) = scrape_of(namespaced)["scrape_configs"][1]["kubernetes_sd_configs"]
    assert asked["namespaces"]["names"] == monitored == ["default", "kube-public"]
    name = scrape_of(namespaced)["scrape_configs"][1]["job_name"]
    assert name == f"pillion-system/{only(namespaced, 'PodMonitor')['metadata']['name']}"
