"""What others have added to a generated object where an addition changes its meaning. Pure.

A further label in a selector selects nothing; a further container runs beside a deliverer. Such
maps and lists are the operator's alone. Whatever else is not desired belongs to others.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pillion_operator.cluster.types import Object

#: The maps that are taken whole, by their field.
_SELECTORS = frozenset({"selector", "matchLabels", "podSelector"})
#: The lists that are taken whole, by their field; their elements have names.
_LISTS = ("containers", "initContainers", "volumes", "ports")
#: The kinds whose ``data`` is mounted into deliverers.
_MOUNTED = frozenset({"Secret", "ConfigMap"})


def surplus(desired: Object, live: Object) -> tuple[tuple[str, Any], ...]:
    """The paths of what should not be there, each with what is there."""
    return tuple((path, there) for path, there, _ in _surplus(desired, live))


def without_surplus(desired: Object, live: Object) -> dict[str, Any]:
    """The merge patch that takes the surplus out; empty where there is none."""
    patch: dict[str, Any] = {}
    for _, _, place in _surplus(desired, live):
        *above, last = place
        inside = patch
        for name in above:
            inside = inside.setdefault(name, {})
        inside[last] = _kept(desired, live, place)
    return patch


def _kept(desired: Object, live: Object, place: tuple[str, ...]) -> Any:
    """What a place of the patch says: a list without its surplus, None for a key of a map."""
    wanted: Any = desired
    there: Any = live
    for name in place:
        wanted = wanted.get(name) if isinstance(wanted, Mapping) else None
        there = there[name]
    if place[-1] not in _LISTS or not isinstance(there, list):
        return None
    names = {one["name"] for one in wanted or ()}
    return [one for one in there if one["name"] in names]


def _surplus(
    desired: Object, live: Object, place: tuple[str, ...] = ()
) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    desired = _with_defaults(desired, live, place)
    if place == ("data",) or (place and place[-1] in _SELECTORS):
        for key in sorted(live.keys() - desired.keys()):
            yield _path((*place, key)), live[key], (*place, key)
    for key, value in desired.items():
        there = live.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            yield from _surplus(value, there, (*place, key))
        elif key in _LISTS and _named(value) and _named(there):
            yield from _of_list(value, there or (), (*place, key))


def _with_defaults(desired: Object, live: Object, place: tuple[str, ...]) -> Object:
    """With what is empty where it is not desired at all."""
    if not place and desired.get("kind") in _MOUNTED:
        return {"data": {}, **desired}
    if "containers" in desired:
        return {"initContainers": [], "volumes": [], **desired}
    return desired


def _of_list(
    desired: Sequence[Any], live: Sequence[Any], place: tuple[str, ...]
) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    names = {one["name"] for one in desired}
    for one in live:
        if one["name"] not in names:
            yield f"{_path(place)}[{one['name']}]", one, place


def _named(value: Any) -> bool:
    return isinstance(value, Sequence | None) and all(
        isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in value or ()
    )


def _path(place: tuple[str, ...]) -> str:
    if place[0] == "data":
        return f"data[{place[1]}]"
    return ".".join(place)
