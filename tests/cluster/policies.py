"""What NetworkPolicies let through, for tests on a cluster whose network enforces none of them.

Ingress alone, as ``networking.k8s.io/v1`` has it: policies add to each other, and a pod that none
selects is open.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A pod, as policies see it."""

    namespace: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, pod: JSON) -> "Endpoint":
        """That of a pod as the API server has it."""
        metadata = pod["metadata"]
        return cls(namespace=metadata["namespace"], labels=metadata.get("labels") or {})


def lets_in(policies: Iterable[JSON], *, source: Endpoint, to: Endpoint, port: int) -> bool:
    """Whether a pod may connect to a TCP port of another. ``policies`` may be of any namespace.

    Of a namespace no label is known but that with its name. Raises ValueError for what is not
    understood: ranges of addresses, and ports by name.
    """
    selecting = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == to.namespace
        and "Ingress" in policy["spec"].get("policyTypes", ["Ingress"])
        and selects(policy["spec"].get("podSelector") or {}, to.labels)
    ]
    return not selecting or any(
        _is_port(rule, port) and _is_peer(rule, source, within=to.namespace)
        for spec in selecting
        for rule in spec.get("ingress") or ()
    )


def selects(selector: JSON, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects what has these labels."""
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    return wanted.items() <= dict(labels).items() and all(
        _holds(one, labels) for one in selector.get("matchExpressions") or ()
    )


def _holds(expression: JSON, labels: Mapping[str, str]) -> bool:
    key: str = expression["key"]
    operator: str = expression["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return (key in labels) == (operator == "Exists")
    if operator not in ("In", "NotIn"):
        raise ValueError(f"operator {operator}")
    return bool(labels.get(key) in expression["values"]) == (operator == "In")


def _is_port(rule: JSON, port: int) -> bool:
    ports = rule.get("ports")
    if not ports:
        return True
    for one in ports:
        if not isinstance(one.get("port"), int) or "endPort" in one:
            raise ValueError(f"port {one}")
    return any(one["port"] == port and one.get("protocol", "TCP") == "TCP" for one in ports)


def _is_peer(rule: JSON, source: Endpoint, *, within: str) -> bool:
    peers = rule.get("from")
    return not peers or any(_is(peer, source, within=within) for peer in peers)


def _is(peer: JSON, source: Endpoint, *, within: str) -> bool:
    if "ipBlock" in peer:
        raise ValueError(f"peer {peer}")
    namespaces = peer.get("namespaceSelector")
    named = {"kubernetes.io/metadata.name": source.namespace}
    there = source.namespace == within if namespaces is None else selects(namespaces, named)
    return there and selects(peer.get("podSelector") or {}, source.labels)
