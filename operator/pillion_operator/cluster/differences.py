"""Compares live objects with desired ones. Pure.

Fields that the desired object does not mention belong to others (defaults, other field managers)
and are no difference. The exception are additions that change the object's meaning, such as a label
in a selector or another container: the operator owns those maps and lists whole.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pillion_operator.cluster.types import CONFIG_MAP, SECRET, SERVICE, STATEFUL_SET, Object
from pillion_sidecar.fields import QUANTITY, amount

#: The paths of quantities, which the API server normalizes ("1000m" to "1").
_QUANTITIES = re.compile(r"\b((requests|limits)(\.[\w-]+|\[[^]]+\])|sizeLimit)$")
#: Fields that have one owner each: apply removes others' additions to them.
_SELECTORS = frozenset({"selector", "podSelector"})
_POD = ("spec", "template", "spec")
#: Maps, and lists of elements with names, that the operator owns whole. Apply leaves others'
#: additions to them.
_OWNED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    SECRET.kind: (("data",),),
    CONFIG_MAP.kind: (("data",),),
    SERVICE.kind: (("spec", "ports"),),
    STATEFUL_SET.kind: tuple((*_POD, name) for name in ("containers", "initContainers", "volumes")),
}


def differences(desired: Object, live: Object) -> dict[str, str]:
    """The paths (``spec.template.spec.containers[deliverer].image``) of all differing fields, each
    with a digest of the live value, which may be secret; empty if there is none."""
    found = dict(_of_value(desired, live, ""))
    for place, added in _additions(desired, live):
        found |= {f"{'.'.join(place)}[{name}]": digest(one) for name, one in added.items()}
    return found


def without_additions(desired: Object, live: Object) -> dict[str, Any]:
    """A merge patch that removes others' additions; empty if there are none."""
    patch: dict[str, Any] = {}
    for place, added in _additions(desired, live):
        there, inside = _at(live, place), patch
        for name in place[:-1]:
            inside = inside.setdefault(name, {})
        inside[place[-1]] = (
            dict.fromkeys(added)
            if isinstance(there, Mapping)
            else [one for one in there if one.get("name") not in added]
        )
    return patch


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def same_quantity(one: Any, other: Any) -> bool:
    """Both may be strings or whole numbers."""
    if one == other:
        return True
    both = (one, other)
    return all(re.fullmatch(QUANTITY, str(each)) for each in both) and amount(one) == amount(other)


def _of_value(desired: Any, live: Any, path: str) -> Iterator[tuple[str, str]]:
    inside = _inside(desired, live, path)
    if inside is not None:
        for below, value, there in inside:
            yield from _of_value(value, there, below)
    elif not _same(desired, live, path):
        yield path, "" if live is None else digest(live)


def _inside(desired: Any, live: Any, path: str) -> list[tuple[str, Any, Any]] | None:
    """The desired fields or elements by path, each with its live value; None if the two are
    compared whole."""
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        if path.rpartition(".")[2] in _SELECTORS:
            return None
        return [(_below(path, key), value, live.get(key)) for key, value in desired.items()]
    if not (_is_list(desired) and _is_list(live)):
        return None
    key = _merge_key([*desired, *live])
    if desired and key is not None:
        known = {one[key]: one for one in live}
        return [(f"{path}[{one[key]}]", one, known.get(one[key])) for one in desired]
    if len(desired) != len(live):
        return None
    pairs = zip(desired, live, strict=True)
    return [(f"{path}[{index}]", *pair) for index, pair in enumerate(pairs)]


def _same(desired: Any, live: Any, path: str) -> bool:
    if live is None:
        # The API server omits empty values.
        return desired is None or (isinstance(desired, Mapping | list | tuple) and not desired)
    # True == 1 in Python, not in JSON.
    if type(desired) is type(live) and desired == live:
        return True
    return _QUANTITIES.search(path) is not None and same_quantity(desired, live)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _merge_key(elements: list[Any]) -> str | None:
    """The field by which server-side apply tells the elements apart; None: by their place."""
    for key in ("uid", "name"):
        if all(isinstance(one, Mapping) and isinstance(one.get(key), str) for one in elements):
            return key
    return None


def _below(path: str, key: str) -> str:
    if "." in key or "/" in key:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _additions(desired: Object, live: Object) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Places, each with what others added there, by name."""
    for place in _OWNED.get(desired.get("kind", ""), ()):
        ours, there = _by_name(_at(desired, place)), _by_name(_at(live, place))
        if added := {name: there[name] for name in sorted(there.keys() - ours.keys())}:
            yield place, added


def _at(body: Any, place: tuple[str, ...]) -> Any:
    for name in place:
        body = (body or {}).get(name)
    return body or ()


def _by_name(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {one.get("name", ""): one for one in value}
