"""What ``deliverer.template`` makes of a gateway's pods. Pure.

The API server has judged the template; its lists and objects go into the pods as they are.
"""

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
    """The metadata of a gateway's pods; ``labels`` are those by which they are found."""
    given = template.get("metadata") or {}
    metadata: dict[str, Any] = {"labels": {**(given.get("labels") or {}), **labels}}
    if given.get("annotations"):
        metadata["annotations"] = dict(given["annotations"])
    return metadata


def placement(
    template: Object, *, labels: Mapping[str, str], pull_secrets: Sequence[str]
) -> dict[str, Any]:
    """The fields of the pods' spec that place them and pull their images.

    ``pull_secrets`` are those of the operator's installation, for a template without its own.
    """
    own = {"matchLabels": dict(labels)}
    spread = template.get("topologySpreadConstraints")
    if spread is None:
        spread = [_softly(_ZONE), _softly(_HOST)]
    affinity = template.get("affinity")
    if affinity is None:
        affinity = {"podAntiAffinity": {_PREFERRED: [_weighed({"topologyKey": _HOST})]}}
    secrets = template.get("imagePullSecrets")
    if secrets is None:
        secrets = [{"name": name} for name in pull_secrets]
    fields = {
        "topologySpreadConstraints": [_of_pods(one, own) for one in spread],
        "affinity": _of_neighbours(affinity, own),
        "imagePullSecrets": secrets,
        "nodeSelector": template.get("nodeSelector"),
        "tolerations": [_without_empty(one) for one in template.get("tolerations") or ()],
        "priorityClassName": template.get("priorityClassName"),
    }
    return {name: value for name, value in fields.items() if value}


def volumes(template: Object) -> list[Object]:
    return [_without_empty(volume) for volume in template.get("volumes") or ()]


def volume_mounts(template: Object) -> list[Object]:
    return [_without_empty(mount) for mount in template.get("volumeMounts") or ()]


def _without_empty(fields: Object) -> Object:
    """The fields without a ``readOnly: false`` or an empty text. The API server leaves these out of
    what it stores, so they would be a difference for ever."""
    return {
        name: _without_empty(value)
        if isinstance(value, Mapping) and name != "volumeAttributes"
        else value
        for name, value in fields.items()
        if value != "" and not (name == "readOnly" and value is False)
    }


def _softly(topology: str) -> Object:
    return {"maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": "ScheduleAnyway"}


def _weighed(term: Object) -> Object:
    return {"weight": 100, "podAffinityTerm": term}


def _of_pods(term: Object, own: Object) -> Object:
    """A term that means the gateway's own pods where it does not say which."""
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
