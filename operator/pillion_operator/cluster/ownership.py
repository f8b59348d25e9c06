"""Which objects are an IndicationService's own. Pure."""

from collections.abc import Mapping
from typing import Any

from pillion_operator.cluster.types import (
    STATEFUL_SET,
    Object,
    ResourceType,
    annotations_of,
    labels_of,
)
from pillion_operator.names import APPLIED_ANNOTATION, MANAGED_BY, MANAGED_BY_LABEL, SERVICE_LABEL

#: (kind, namespace, name).
Identity = tuple[str, str, str]


def identity(body: Object) -> Identity:
    metadata = body["metadata"]
    return (body["kind"], metadata["namespace"], metadata["name"])


def service_labels(service: str) -> Mapping[str, str]:
    return {MANAGED_BY_LABEL: MANAGED_BY, SERVICE_LABEL: service}


def selector(owner: Object) -> str:
    labels = service_labels(owner["metadata"]["name"])
    return ",".join(f"{key}={value}" for key, value in labels.items())


def owner_reference(owner: Object) -> Object:
    """The controller reference for the garbage collector. Not blocking the owner's deletion, which
    may need another right (OwnerReferencesPermissionEnforcement)."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def belongs(body: Object, owner: Object) -> bool:
    """Whether this very IndicationService owns an object, not an earlier one of its name."""
    metadata, labels = body["metadata"], service_labels(owner["metadata"]["name"])
    if not labels.items() <= labels_of(body).items():
        return False
    return any(
        reference.get("controller") and reference.get("uid") == owner["metadata"]["uid"]
        for reference in metadata.get("ownerReferences") or ()
    )


def adoptable(body: Object, owner: Object) -> bool:
    """Whether an object has lost its label or owner, or is of an earlier service of this name: it
    has the operator's mark and the service's label, and no other controller.

    After a definition is deleted and applied again, the garbage collector may leave such objects
    for minutes. A StatefulSet is excluded: much of it cannot be changed.
    """
    metadata = body["metadata"]
    service = owner["metadata"]["name"]
    return (
        APPLIED_ANNOTATION in annotations_of(body)
        and labels_of(body).get(SERVICE_LABEL) == service
        and not any(
            reference.get("controller")
            and reference.get("uid") != owner["metadata"]["uid"]
            and not (_is_earlier(reference, owner) and body["kind"] != STATEFUL_SET.kind)
            for reference in metadata.get("ownerReferences") or ()
        )
    )


def _is_earlier(reference: Mapping[str, Any], owner: Object) -> bool:
    return (reference.get("kind"), reference.get("name"), _group(reference)) == (
        owner["kind"],
        owner["metadata"]["name"],
        _group(owner),
    )


def _group(body: Mapping[str, Any]) -> str:
    return str(body.get("apiVersion", "")).partition("/")[0]


def managed(
    kind: ResourceType,
    name: str,
    *,
    service: Object,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": service["metadata"]["namespace"],
        "labels": {**service_labels(service["metadata"]["name"]), **(labels or {})},
        "ownerReferences": [owner_reference(service)],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
