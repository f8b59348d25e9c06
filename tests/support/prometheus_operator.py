"""What the Prometheus operator makes of a ServiceMonitor and a PodMonitor: a scrape configuration.

After its documented behaviour (monitoring.coreos.com/v1, and its user guide on relabelling), as far
as the chart's monitors use it. So labels can be compared without a Prometheus operator.
"""

from typing import Any

Job = dict[str, Any]

#: Pods that have ended are no targets (filterRunning, on by default).
_RUNNING: Job = {
    "source_labels": ["__meta_kubernetes_pod_phase"],
    "action": "drop",
    "regex": "(Failed|Succeeded)",
}


def pod_monitor_job(monitor: Any) -> Job:
    """The job of a PodMonitor with one endpoint."""
    metadata, spec = monitor["metadata"], monitor["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    relabelling = [
        _RUNNING,
        *(_present("pod", found["key"]) for found in spec["selector"]["matchExpressions"]),
        _keep("__meta_kubernetes_pod_container_port_name", endpoint["port"]),
        _label("__meta_kubernetes_namespace", "namespace"),
        _label("__meta_kubernetes_pod_container_name", "container"),
        _label("__meta_kubernetes_pod_name", "pod"),
        {"target_label": "job", "replacement": name},
        {"target_label": "endpoint", "replacement": endpoint["port"]},
        *map(_custom, endpoint.get("relabelings", ())),
    ]
    return _job(f"podMonitor/{name}/0", endpoint, relabelling)


def service_monitor_job(monitor: Any) -> Job:
    """The job of a ServiceMonitor with one endpoint, whose targets are pods."""
    metadata, spec = monitor["metadata"], monitor["spec"]
    (endpoint,) = spec["endpoints"]
    relabelling = [
        *(
            _keep(f"__meta_kubernetes_service_label_{_sanitized(label)}", value)
            for label, value in spec["selector"]["matchLabels"].items()
        ),
        _keep("__meta_kubernetes_endpoint_port_name", endpoint["port"]),
        _label("__meta_kubernetes_namespace", "namespace"),
        _label("__meta_kubernetes_service_name", "service"),
        _label("__meta_kubernetes_pod_name", "pod"),
        _label("__meta_kubernetes_pod_container_name", "container"),
        _RUNNING,
        _label("__meta_kubernetes_service_name", "job"),
        {"target_label": "endpoint", "replacement": endpoint["port"]},
    ]
    name = f"serviceMonitor/{metadata['namespace']}/{metadata['name']}/0"
    return _job(name, endpoint, relabelling)


def _job(name: str, endpoint: Any, relabelling: list[Job]) -> Job:
    return {
        "job_name": name,
        "honor_labels": bool(endpoint.get("honorLabels")),
        "scrape_interval": endpoint["interval"],
        "relabel_configs": relabelling,
    }


def _keep(source: str, value: str) -> Job:
    return {"source_labels": [source], "action": "keep", "regex": value}


def _present(of: str, label: str) -> Job:
    return _keep(f"__meta_kubernetes_{of}_labelpresent_{_sanitized(label)}", "true")


def _label(source: str, target: str) -> Job:
    return {"source_labels": [source], "target_label": target}


def _custom(relabelling: Any) -> Job:
    return {
        "source_labels": relabelling["sourceLabels"],
        "target_label": relabelling["targetLabel"],
    }


def _sanitized(label: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in label)
