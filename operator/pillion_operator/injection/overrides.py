"""What a pod's own annotations say about the sidecar that is injected into it. Pure.

A wrong annotation never keeps a pod from being made: it is ignored with a warning.
"""

import re
from collections.abc import Mapping
from typing import Any

from pillion_operator.cluster.types import Object
from pillion_operator.names import (
    LIMITS_ANNOTATION,
    LOG_LEVEL_ANNOTATION,
    REQUESTS_ANNOTATION,
)
from pillion_sidecar.config.schema.fields import LONGEST_QUANTITY, QUANTITY, amount

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_ANNOTATIONS = {"requests": REQUESTS_ANNOTATION, "limits": LIMITS_ANNOTATION}
_QUANTITY = re.compile(QUANTITY)


def with_overrides(container: Object, pod: Object) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The sidecar ``container`` as the annotations of ``pod`` want it, and warnings of those that
    are ignored."""
    annotations = pod["metadata"].get("annotations") or {}
    changed, warnings = dict(container), []
    for found, warning in (
        _resources(container["resources"], annotations),
        _log_level(container["args"], annotations),
    ):
        changed |= found
        warnings += [warning] if warning else []
    return changed, tuple(warnings)


def _resources(
    resources: Mapping[str, Any], annotations: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    given = {
        section: annotations[annotation]
        for section, annotation in _ANNOTATIONS.items()
        if annotation in annotations
    }
    wanted: dict[str, Any] = {name: dict(value or {}) for name, value in resources.items()}
    for section, text in given.items():
        try:
            wanted[section] = {**wanted.get(section, {}), **_quantities(text)}
        except ValueError as error:
            return {}, (
                f"{_ANNOTATIONS[section]} is ignored: {error}. Write it as cpu=100m,memory=256Mi"
            )
    for name, limit in wanted.get("limits", {}).items():
        request = wanted.get("requests", {}).get(name)
        if given and _exceeds(request, limit):
            return {}, (
                f"{REQUESTS_ANNOTATION} and {LIMITS_ANNOTATION} are ignored: the sidecar would "
                f"request {request} of {name}, more than its limit of {limit}"
            )
    return ({"resources": wanted} if given else {}), ""


def _exceeds(request: Any, limit: Any) -> bool:
    """Whether the API server would refuse the pod for a request above its limit."""
    both = (request, limit)
    return all(_QUANTITY.fullmatch(str(one)) for one in both) and amount(request) > amount(limit)


def _quantities(text: str) -> dict[str, str]:
    """``cpu=100m,memory=256Mi`` as a map; raises ValueError."""
    quantities: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in _RESOURCES:
            raise ValueError(f"{name[:40]!r} is none of {', '.join(_RESOURCES)}")
        if name in quantities:
            raise ValueError(f"it names {name} twice")
        if len(value) > LONGEST_QUANTITY or not _QUANTITY.fullmatch(value):
            raise ValueError(f"{value[:40]!r} is not a quantity more than 0")
        quantities[name] = value
    return quantities


def _log_level(arguments: list[str], annotations: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    level = annotations.get(LOG_LEVEL_ANNOTATION)
    if level is None:
        return {}, ""
    if level not in LOG_LEVELS:
        return {}, (
            f"{LOG_LEVEL_ANNOTATION} is ignored: {level[:40]!r} is none of {', '.join(LOG_LEVELS)}"
        )
    return {"args": [*arguments, "--log-level", level]}, ""
