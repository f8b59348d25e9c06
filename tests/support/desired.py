"""IndicationServices as the API server has them, and what is desired for them."""

from collections.abc import Mapping
from typing import Any

from pillion_operator.settings import DelivererDefaults

DEFAULTS = DelivererDefaults(image="registry.example.org/pillion:1")


def indication_service(
    name: str = "default",
    *,
    namespace: str = "shop",
    spec: Mapping[str, Any] | None = None,
    **deliverer: Any,
) -> dict[str, Any]:
    """An IndicationService with these fields of ``spec.deliverer``."""
    return {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": "IndicationService",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"},
        "spec": {**(spec or {}), "deliverer": deliverer},
    }
