"""Leaves out of a service's configuration what its oldest deliverers cannot read."""

import json
from dataclasses import replace

from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_sidecar.config.levels import (
    ADDED,
    FIRST_LEVEL,
    FIRST_OF_KIND,
    LEVEL,
    suspends,
    without_newer,
)
from pillion_sidecar.config.rendered import item_text

_KINDS = frozenset(kind for kinds in ADDED.values() for kind in kinds)

#: Why a destination is suspended that older deliverers cannot read.
OLDER_DELIVERERS = "OlderDeliverers"


def fitted(
    evaluation: ServiceEvaluation, *, level: int
) -> tuple[ServiceEvaluation, tuple[str, ...]]:
    """Return the evaluation with content that deliverers of ``level`` can read, and the fields left
    out, for a message."""
    if level >= LEVEL:
        return evaluation, ()
    content, sources, left_out = dict(evaluation.content), dict(evaluation.sources), []
    held, waiting = dict(evaluation.held), dict[str, int]()
    for key, item in evaluation.content.items():
        if key.kind not in _KINDS:
            continue
        needed = FIRST_OF_KIND.get(key.kind, FIRST_LEVEL)
        if needed > level:
            del content[key]
            left_out.append(f"{key.kind} {key.name}")
            waiting[key.name] = needed
            continue
        original = json.loads(item)
        resource, fields = without_newer(original, level=level)
        if resource is not original:
            content[key] = item_text(resource)
            sources.setdefault(key, item)
        if fields:
            left_out.append(f"{', '.join(fields)} of {key.kind} {key.name}")
            if suspends(key.kind, fields):
                held.setdefault(key.name, OLDER_DELIVERERS)
    fitting = replace(evaluation, content=content, sources=sources, held=held, waiting=waiting)
    return fitting, tuple(left_out)
