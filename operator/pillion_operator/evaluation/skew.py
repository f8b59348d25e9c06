"""Deliverers of several versions in one service: the configuration is written for the oldest."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.store import Key
from pillion_sidecar.config.levels import ADDED, LEVEL, suspends, without_newer
from pillion_sidecar.config.rendered import item_text

_KINDS = frozenset(kind for kinds in ADDED.values() for kind in kinds)

#: Why a destination is suspended that an older deliverer cannot read.
OLDER_DELIVERERS = "OlderDeliverers"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Fields of one object that are not in the configuration."""

    key: Key
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.fields)} of {self.key.kind} {self.key.name}"


def fitted(
    evaluation: ServiceEvaluation, *, level: int
) -> tuple[ServiceEvaluation, tuple[LeftOut, ...]]:
    """Return the evaluation with a content that deliverers of ``level`` can read, and what is left
    out of it."""
    if level >= LEVEL:
        return evaluation, ()
    content, sources, left_out = dict(evaluation.content), dict(evaluation.sources), []
    held = dict(evaluation.held)
    for key, item in evaluation.content.items():
        if key.kind not in _KINDS:
            continue
        resource, fields = without_newer(json.loads(item), level=level)
        if fields:
            content[key] = item_text(resource)
            sources.setdefault(key, item)
            left_out.append(LeftOut(key, fields))
            if suspends(fields):
                held.setdefault(key.name, OLDER_DELIVERERS)
    return replace(evaluation, content=content, sources=sources, held=held), tuple(left_out)


def level_for(levels: Iterable[int | None], *, standing: int) -> int:
    """The level that all deliverers of a service know.

    ``levels`` are those that they say, None for one that was not heard: it may run on what stands
    there, which is of the level ``standing``.
    """
    known = (standing if level is None else level for level in levels)
    return min((LEVEL, *known))
