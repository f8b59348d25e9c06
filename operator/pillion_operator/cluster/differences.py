"""Compares live objects with desired ones. Pure.

Fields that the desired object does not mention belong to others (defaults, other field managers)
and are no difference. The exception is surplus: additions that change the object's meaning, such as
a label in a selector or another container. The operator owns those maps and lists whole.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pillion_operator.cluster.types import Object
from pillion_sidecar.config.schema.fields import QUANTITY, amount

#: Maps and fields of quantities, which the API server normalizes ("1000m" to "1").
_QUANTITY_MAPS = frozenset({"requests", "limits"})
_QUANTITIES = frozenset({"sizeLimit"})
#: Maps that the operator owns whole, by field.
_SELECTORS = frozenset({"selector", "matchLabels", "podSelector"})
#: Lists that the operator owns whole, by field; their elements have names.
_LISTS = ("containers", "initContainers", "volumes", "ports")
_MOUNTED = frozenset({"Secret", "ConfigMap"})


@dataclass(frozen=True, slots=True)
class Difference:
    #: ``spec.template.spec.containers[pillion-deliverer].image``
    path: str
    #: A digest of the live value, which may be secret; empty if there is none.
    live: str


def differences(desired: Object, live: Object) -> tuple[Difference, ...]:
    """All differing fields, in the order of the desired object."""
    extra = (Difference(path, digest(there)) for path, there in surplus(desired, live))
    return (*_of_map(desired, live, ""), *extra)


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def same_quantity(one: Any, other: Any) -> bool:
    """Both may be strings or whole numbers."""
    if one == other:
        return True
    both = (one, other)
    return all(re.fullmatch(QUANTITY, str(each)) for each in both) and amount(one) == amount(other)


def _of_value(desired: Any, live: Any, path: str) -> Iterator[Difference]:
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        yield from _of_map(desired, live, path)
    elif _is_list(desired) and _is_list(live):
        yield from _of_list(desired, live, path)
    elif not _same(desired, live):
        yield Difference(path, "" if live is None else digest(live))


def _of_map(desired: Object, live: Object, path: str) -> Iterator[Difference]:
    inside = path.rpartition(".")[2]
    for key, value in desired.items():
        there = live.get(key)
        if key in _QUANTITIES or inside in _QUANTITY_MAPS:
            if same_quantity(value, there):
                continue
            yield Difference(_below(path, key), "" if there is None else digest(there))
        else:
            yield from _of_value(value, there, _below(path, key))


def _of_list(desired: Sequence[Any], live: Sequence[Any], path: str) -> Iterator[Difference]:
    keyed = _by_key(desired), _by_key(live)
    if keyed[0] and keyed[1]:
        for name, element in keyed[0].items():
            yield from _of_value(element, keyed[1].get(name), f"{path}[{name}]")
    elif len(desired) != len(live):
        yield Difference(path, digest(live))
    else:
        for index, (element, there) in enumerate(zip(desired, live, strict=True)):
            yield from _of_value(element, there, f"{path}[{index}]")


def _same(desired: Any, live: Any) -> bool:
    if live is None:
        # The API server omits empty values.
        return desired is None or (isinstance(desired, Mapping | list | tuple) and not desired)
    # True == 1 in Python, not in JSON.
    return type(desired) is type(live) and bool(desired == live)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _by_key(elements: Sequence[Any]) -> dict[Any, Any] | None:
    """The elements by their server-side apply merge key; None without one."""
    for key in ("uid", "name"):
        if all(isinstance(one, Mapping) and isinstance(one.get(key), str) for one in elements):
            keyed = {element[key]: element for element in elements}
            return keyed if len(keyed) == len(elements) else None
    return None


def _below(path: str, key: str) -> str:
    if "." in key or "/" in key:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def surplus(desired: Object, live: Object) -> tuple[tuple[str, Any], ...]:
    return tuple((path, there) for path, there, _ in _surplus(desired, live))


def without_surplus(desired: Object, live: Object) -> dict[str, Any]:
    """A merge patch that removes the surplus; empty if there is none."""
    patch: dict[str, Any] = {}
    for _, _, place in _surplus(desired, live):
        *above, last = place
        inside = patch
        for name in above:
            inside = inside.setdefault(name, {})
        inside[last] = _kept(desired, live, place)
    return patch


def _kept(desired: Object, live: Object, place: tuple[str, ...]) -> Any:
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
            yield _place((*place, key)), live[key], (*place, key)
    for key, value in desired.items():
        there = live.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            yield from _surplus(value, there, (*place, key))
        elif key in _LISTS and _named(value) and _named(there):
            yield from _surplus_of_list(value, there or (), (*place, key))


def _with_defaults(desired: Object, live: Object, place: tuple[str, ...]) -> Object:
    """Add the fields that hold surplus, empty, where the desired object lacks them."""
    if not place and desired.get("kind") in _MOUNTED:
        return {"data": {}, **desired}
    if "containers" in desired:
        return {"initContainers": [], "volumes": [], **desired}
    return desired


def _surplus_of_list(
    desired: Sequence[Any], live: Sequence[Any], place: tuple[str, ...]
) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    names = {one["name"] for one in desired}
    for one in live:
        if one["name"] not in names:
            yield f"{_place(place)}[{one['name']}]", one, place


def _named(value: Any) -> bool:
    return isinstance(value, Sequence | None) and all(
        isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in value or ()
    )


def _place(place: tuple[str, ...]) -> str:
    if place[0] == "data":
        return f"data[{place[1]}]"
    return ".".join(place)
