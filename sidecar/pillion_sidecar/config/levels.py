"""Levels of the schema: what deliverers of an older version do not know, and so must not be given.

A deliverer refuses a configuration with a field that it does not know, and keeps its last good one.
So each field that is added belongs to a level, each deliverer says which one it knows, and an
operator leaves out what the oldest deliverer of a service cannot express.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pillion_sidecar.config.schema.common import RemovalAction
from pillion_sidecar.config.schema.destination import WITHHELD_URL

#: That of the first release, and of whoever says nothing of it.
FIRST_LEVEL = 1
#: The fields of ``spec`` that came with a level, by kind. Without one an older deliverer does what
#: its own version did, or what ``_INSTEAD`` says.
ADDED: Mapping[int, Mapping[str, Sequence[tuple[str, ...]]]] = {
    2: {
        "IndicationService": (("classes",), ("mof",), ("mofFrom",)),
        "IndicationSubscription": (("failureTriggerTimeIntervalSeconds",),),
        "ListenerDestination": (("destinationFrom",), ("tls", "allowCommonName")),
    }
}
#: What stands in the place of fields without which a resource could not be read, or would mean
#: harm: it waits, and ends nothing. The first release acts on ``onFatalErrorPolicy`` at once.
_INSTEAD: Mapping[tuple[str, ...], Mapping[str, Any]] = {
    ("destinationFrom",): {"destination": WITHHELD_URL, "suspended": True},
    ("failureTriggerTimeIntervalSeconds",): {"onFatalErrorPolicy": RemovalAction.IGNORE.value},
}
#: The level of this version.
LEVEL = max(ADDED)


def without_newer(
    resource: Mapping[str, Any], *, level: int
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return a resource as a deliverer of a level can read it, and the fields that are left out,
    with those in whose place something else stands."""
    spec: Mapping[str, Any] = resource.get("spec") or {}
    left_out = []
    for path in _newer(str(resource["kind"]), level):
        spec, found = _without(spec, path)
        if found:
            instead = _INSTEAD.get(path, {})
            left_out.append(f"spec.{'.'.join(path)}")
            left_out += [
                f"spec.{name}" for name, value in instead.items() if spec.get(name, value) != value
            ]
            spec = {**spec, **instead}
    return ({**resource, "spec": spec}, tuple(left_out)) if left_out else (resource, ())


def suspends(left_out: Collection[str]) -> bool:
    """Whether a destination without these fields, as ``without_newer`` names them, waits."""
    waiting = (path for path, instead in _INSTEAD.items() if "suspended" in instead)
    return any(f"spec.{'.'.join(path)}" in left_out for path in waiting)


def _newer(kind: str, level: int) -> Iterator[tuple[str, ...]]:
    for added, kinds in ADDED.items():
        if added > level:
            yield from kinds.get(kind, ())


def _without(spec: Mapping[str, Any], path: tuple[str, ...]) -> tuple[Mapping[str, Any], bool]:
    """``spec`` without a field, and whether it was there."""
    name, *rest = path
    if name not in spec:
        return spec, False
    if not rest:
        return {key: value for key, value in spec.items() if key != name}, True
    inner, found = _without(spec[name] or {}, tuple(rest))
    return {**spec, name: inner}, found
