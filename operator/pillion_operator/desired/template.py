"""Applies ``deliverer.template`` to a gateway's pods. Pure. The API server has validated the
template; its lists and objects are copied as they are."""

from collections.abc import Mapping, Sequence
from typing import Any

from pillion_operator.cluster.types import Object

_HOST = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def template_of(spec: Object) -> Object:
    template: Object = (spec.get("deliverer") or {}).get("template") or {}
    return template


def pod_metadata(template: Object, *, labels: Mapping[str, str]) -> dict[str, Any]:
    given = template.get("metadata") or {}
    metadata: dict[str, Any] = {"labels": {**(given.get("labels") or {}), **labels}}
    if given.get("annotations"):
        metadata["annotations"] = dict(given["annotations"])
    return metadata


def placement(
    template: Object, *, labels: Mapping[str, str], pull_secrets: Sequence[str]
) -> dict[str, Any]:
    """``labels`` select the pods; ``pull_secrets`` are the default of the operator's
    installation."""
    own = {"matchLabels": dict(labels)}
    spread = template.get("topologySpreadConstraints")
    if spread is None:
        spread = [
            {"maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": "ScheduleAnyway"}
            for topology in (_ZONE, _HOST)
        ]
    affinity = template.get("affinity")
    if affinity is None:
        preferred = {"weight": 100, "podAffinityTerm": {"topologyKey": _HOST}}
        affinity = {"podAntiAffinity": {_PREFERRED: [preferred]}}
    secrets = template.get("imagePullSecrets")
    if secrets is None:
        secrets = [{"name": name} for name in pull_secrets]
    fields = {
        "topologySpreadConstraints": [_of_pods(one, own) for one in spread],
        "affinity": _of_neighbours(affinity, own),
        "imagePullSecrets": secrets,
        "nodeSelector": template.get("nodeSelector"),
        "tolerations": [without_empty(one) for one in template.get("tolerations") or ()],
        "priorityClassName": template.get("priorityClassName"),
    }
    return {name: value for name, value in fields.items() if value}


def without_empty(fields: Object) -> Object:
    """Remove ``readOnly: false`` and empty texts, which the API server does not store: they would
    be a permanent difference."""
    return {
        name: without_empty(value)
        if isinstance(value, Mapping) and name != "volumeAttributes"
        else value
        for name, value in fields.items()
        if value != "" and not (name == "readOnly" and value is False)
    }


def _of_pods(term: Object, own: Object) -> Object:
    """A term without a selector means the gateway's own pods."""
    return term if term.get("labelSelector") else {**term, "labelSelector": own}


def _of_neighbours(affinity: Object, own: Object) -> Object:
    filled = dict(affinity)
    for way in ("podAffinity", "podAntiAffinity"):
        if way not in affinity:
            continue
        terms = dict(affinity[way])
        if _REQUIRED in terms:
            terms[_REQUIRED] = [_of_pods(term, own) for term in terms[_REQUIRED]]
        if _PREFERRED in terms:
            terms[_PREFERRED] = [
                {**one, "podAffinityTerm": _of_pods(one["podAffinityTerm"], own)}
                for one in terms[_PREFERRED]
            ]
        filled[way] = terms
    return filled
