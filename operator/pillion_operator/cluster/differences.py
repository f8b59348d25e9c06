"""Where a live object is not as it should be. Pure.

What is not mentioned in the desired object belongs to others (the API server's defaults, other
field managers) and is never a difference, but where an addition changes its meaning
(:mod:`pillion_operator.cluster.surplus`).
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pillion_operator.cluster.surplus import surplus
from pillion_operator.cluster.types import Object
from pillion_sidecar.config.schema.fields import QUANTITY, amount

#: The maps and fields whose values are quantities, which the API server rewrites ("1000m" is "1").
_QUANTITY_MAPS = frozenset({"requests", "limits"})
_QUANTITIES = frozenset({"sizeLimit"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not as desired."""

    #: ``spec.template.spec.containers[pillion-deliverer].image``
    path: str
    #: A digest of what is there instead; empty where nothing is. Never the value, which may be
    #: secret.
    live: str


def differs(desired: Object, live: Object) -> bool:
    """Whether any desired field has another value in the live object, or none."""
    return next(_differences(desired, live), None) is not None


def differences(desired: Object, live: Object) -> tuple[Difference, ...]:
    """All fields in which the live object is not as desired, in the order of the desired one."""
    return tuple(_differences(desired, live))


def digest(value: Any) -> str:
    """The same for equal JSON values; of an object, its desired state in one word."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def same_quantity(one: Any, other: Any) -> bool:
    """Whether two quantities, as strings or whole numbers, stand for the same amount."""
    if one == other:
        return True
    both = (one, other)
    return all(re.fullmatch(QUANTITY, str(each)) for each in both) and amount(one) == amount(other)


def _differences(desired: Object, live: Object) -> Iterator[Difference]:
    yield from _of_map(desired, live, "")
    for path, there in surplus(desired, live):
        yield Difference(path, digest(there))


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
        # The API server leaves out what is empty.
        return desired is None or (isinstance(desired, Mapping | list | tuple) and not desired)
    # True == 1 in Python, not in JSON.
    return type(desired) is type(live) and bool(desired == live)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _by_key(elements: Sequence[Any]) -> dict[Any, Any] | None:
    """The elements by the key under which server-side apply merges them; None without one."""
    for key in ("uid", "name"):
        if all(isinstance(one, Mapping) and isinstance(one.get(key), str) for one in elements):
            keyed = {element[key]: element for element in elements}
            return keyed if len(keyed) == len(elements) else None
    return None


def _below(path: str, key: str) -> str:
    if "." in key or "/" in key:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key
