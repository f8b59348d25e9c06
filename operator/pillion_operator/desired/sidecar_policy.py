"""The NetworkPolicy that lets metrics out of pods with a sidecar, where they are closed. Pure.

Policies only ever add to each other. But a pod that none has selected is open, and the first one
closes it to everything that it does not name. So this one is made only where somebody has said that
the pods are closed already, as Spark's executors are since Spark 4.2.
"""

from typing import Any

from pillion_operator.cluster.types import NETWORK_POLICY, Object
from pillion_operator.desired.metadata import managed
from pillion_operator.injection.container import TELEMETRY_PORT
from pillion_operator.injection.decision import SPARK_ROLE_LABEL
from pillion_operator.names import DELIVERER_LABEL, sidecars
from pillion_operator.settings import NetworkSettings, SidecarPolicy


def sidecar_policy(service: Object, *, settings: NetworkSettings) -> tuple[Object, ...]:
    """The policy of a service in mode Sidecar; none unless it is asked for."""
    if settings.sidecars is SidecarPolicy.NONE:
        return ()
    name = service["metadata"]["name"]
    labels = {DELIVERER_LABEL: name}
    if settings.sidecars is SidecarPolicy.SPARK_EXECUTORS:
        labels[SPARK_ROLE_LABEL] = "executor"
    spec = {
        "podSelector": {"matchLabels": labels},
        "policyTypes": ["Ingress"],
        "ingress": [telemetry_rule(settings)],
    }
    return ({**managed(NETWORK_POLICY, sidecars(name), service=service), "spec": spec},)


def telemetry_rule(settings: NetworkSettings) -> dict[str, Any]:
    """The ingress rule for a deliverer's telemetry: Prometheus and the operator ask there."""
    peers = [dict(peer) for peer in settings.telemetry_from] or [{"namespaceSelector": {}}]
    return {"from": peers, "ports": [port(TELEMETRY_PORT)]}


def port(number: int) -> dict[str, Any]:
    return {"port": number, "protocol": "TCP"}
