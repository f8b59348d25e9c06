"""Metadata that all objects of an IndicationService share. Pure."""

from collections.abc import Mapping
from typing import Any

from pillion_operator.cluster.ownership import labels_of, owner_reference
from pillion_operator.cluster.types import Object, ResourceType


def managed(
    kind: ResourceType,
    name: str,
    *,
    service: Object,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The head of an object that is made for ``service`` and goes with it."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": service["metadata"]["namespace"],
        "labels": {**labels_of(service["metadata"]["name"]), **(labels or {})},
        "ownerReferences": [owner_reference(service)],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
