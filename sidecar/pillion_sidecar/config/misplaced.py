"""Where a field belongs that stands in the wrong place of a resource. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.config.schema.fields import Kind, Struct
from pillion_sidecar.config.validation import Path, dotted, suggestion

#: The fields of every resource.
TOP = ("apiVersion", "kind", "metadata", "spec", "status")
#: Fields of ``metadata`` that are written elsewhere by mistake.
_METADATA = frozenset({"name", "namespace", "labels", "annotations"})
#: Fields this deep below ``spec`` are found; further down many have one name.
_DEEPEST = 2
#: The most places that an answer names.
_MOST_PLACES = 3
#: What another kind calls the same thing.
_SAME = {
    ("ListenerDestination", "deliveryRetryAttempts"): "spec.retry.attempts",
    ("ListenerDestination", "deliveryRetryIntervalSeconds"): "spec.retry.intervalSeconds",
    ("IndicationService", "attempts"): "spec.deliveryRetryAttempts",
    ("IndicationService", "intervalSeconds"): "spec.deliveryRetryIntervalSeconds",
    (
        "IndicationService",
        "retry",
    ): "spec.deliveryRetryAttempts and spec.deliveryRetryIntervalSeconds",
}


def below_top(kind: Kind, value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``spec`` that stand beside it."""
    known = {field.name for field in kind.spec.fields}
    return {name: item for name, item in value.items() if name in known and name not in TOP}


def top_remedy(kind: Kind, name: str) -> str:
    """What to do about an unknown field beside ``spec``."""
    if name in _METADATA:
        return "Indent it under metadata."
    known = [field.name for field in kind.spec.fields]
    if name in known:
        return "Indent it under spec."
    if (place := _elsewhere(kind, name)) is not None:
        return place
    meant = suggestion(name, TOP)
    if meant.startswith("Did") or not (meant := suggestion(name, known)).startswith("Did"):
        return suggestion(name, TOP)
    return f"{meant} Indent it under spec."


def remedy(kind: Kind, path: Path) -> str | None:
    """What to do about an unknown field at ``path`` in ``spec``; None: nothing is known of it."""
    name = str(path[-1])
    if len(path) == _DEEPEST and name in _METADATA:
        return "Write it under metadata."
    return _elsewhere(kind, name)


def _elsewhere(kind: Kind, name: str) -> str | None:
    found = _PLACES.get(name, [])
    here = [place for owner, place in found if owner == kind.name]
    if here:
        return f"Write it as {' or '.join(here)}." if len(here) <= _MOST_PLACES else None
    owners = list(dict.fromkeys(owner for owner, _ in found))
    if not found or len(found) > _MOST_PLACES:
        return None
    places = " or ".join(
        f"{owner} ({', '.join(place for of, place in found if of == owner)})" for owner in owners
    )
    same = _SAME.get((kind.name, name))
    own = f" In {kind.name} it is {same}." if same else ""
    return f"It is a field of {places}.{own}"


def _fields(struct: Struct, path: Path) -> Iterator[tuple[str, Path]]:
    for field in struct.fields:
        here = (*path, field.name)
        yield field.name, here
        if isinstance(field.type, Struct) and len(here) <= _DEEPEST:
            yield from _fields(field.type, here)


def _places() -> dict[str, list[tuple[str, str]]]:
    """The places of each field: the kind, and the path in it."""
    found: dict[str, list[tuple[str, str]]] = {}
    for kind in KINDS:
        for name, path in _fields(kind.spec, ("spec",)):
            if name not in _METADATA and name != "key":
                found.setdefault(name, []).append((kind.name, dotted(path)))
    return found


_PLACES = _places()
