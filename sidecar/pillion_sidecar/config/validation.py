"""Checks a value against the schema: types, bounds, unknown fields, defaults, rules. It accepts
exactly what the CRD accepts."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.fields import (
    LONGEST_QUANTITY,
    QUANTITY,
    RULED,
    Boolean,
    FieldType,
    Integer,
    Kind,
    ListOf,
    MapOf,
    Number,
    Quantity,
    Rule,
    Struct,
    Text,
)

Path = tuple[str | int, ...]

_QUANTITY = re.compile(QUANTITY)
#: Common spellings of bytes: 1GB, 1 GiB, 512 mb, 2g.
_MISSPELT_QUANTITY = re.compile(r"(?P<number>[0-9.]+) *(?P<unit>[kmgtpeKMGTPE])[iI]?[bB]?")
_BEYOND_INT64 = 2**63


def _is_quantity(text: str) -> bool:
    return len(text) <= LONGEST_QUANTITY and _QUANTITY.fullmatch(text) is not None


class Complaints:
    """Collects problems by path. ``sink`` gets reason, path, value, message, remedy."""

    def __init__(self, sink: Callable[[str, Path, object, str, str], None]) -> None:
        self._sink = sink
        self.count = 0
        self.flawed: set[str] = set()

    def add(
        self, path: Path, value: object, message: str, remedy: str, reason: str = "Invalid"
    ) -> None:
        self.count += 1
        self.flawed.update(str(step) for step in path[1:2])
        self._sink(reason, path, value, message, remedy)


def check(kind: FieldType, value: Any, path: Path, complaints: Complaints) -> Any:
    """Return ``value`` with defaults, after reporting all problems. Rules run only on valid nodes.
    As in the API server, null counts as absent."""
    before = complaints.count
    checked = _check(kind, value, path, complaints)
    if isinstance(kind, RULED) and complaints.count == before:
        _rules(kind.rules, checked, path, complaints)
    return checked


def _check(kind: FieldType, value: Any, path: Path, complaints: Complaints) -> Any:
    match kind:
        case Text():
            return _text(kind, value, path, complaints)
        case Integer():
            return _integer(kind, value, path, complaints)
        case Number():
            return _number(kind, value, path, complaints)
        case Boolean():
            return _boolean(value, path, complaints)
        case Quantity():
            return _quantity(value, path, complaints)
        case MapOf():
            return _map(kind, value, path, complaints)
        case ListOf():
            return _list(kind, value, path, complaints)
        case Struct():
            return _struct(kind, value, path, complaints)


def _rules(rules: Sequence[Rule], value: Any, path: Path, complaints: Complaints) -> None:
    for rule in rules:
        if not rule.holds(value):
            at = (*path, rule.field) if rule.field else path
            shown = value.get(rule.field) if rule.field else value
            complaints.add(at, shown, rule.message, rule.remedy)


def _wrong_type(what: str, value: Any, path: Path, complaints: Complaints) -> None:
    remedy = f"Write {what}."
    if isinstance(value, str) and what != "a text":
        remedy = f"Write {what}, without quotes."
    elif what == "a text" and not isinstance(value, dict | list):
        remedy = "Put it into quotes."
    complaints.add(path, value, f"is not {what}", remedy)


def _text(kind: Text, value: Any, path: Path, complaints: Complaints) -> Any:
    if not isinstance(value, str):
        _wrong_type("a text", value, path, complaints)
    elif kind.values and value not in kind.values:
        near = difflib.get_close_matches(value.lower(), [v.lower() for v in kind.values], n=1)
        meant = next((v for v in kind.values if near and v.lower() == near[0]), None)
        remedy = f"Did you mean {meant}?" if meant else f"Write one of {', '.join(kind.values)}."
        complaints.add(path, value, f"is none of {', '.join(kind.values)}", remedy)
    elif len(value) < kind.min_length:
        complaints.add(path, value, "is empty", "Write a value, or remove the field.")
    elif len(value) > kind.max_length:
        message = f"is {len(value):,} characters long, more than {kind.max_length:,}"
        complaints.add(path, value, message, "Shorten it.")
    return value


def _whole(value: Any) -> Any:
    # 3.0 is an integer in JSON Schema, and in the API server within 64 bits.
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _BEYOND_INT64
    return int(value) if is_whole else value


def _integer(kind: Integer, value: Any, path: Path, complaints: Complaints) -> Any:
    value = _whole(value)
    if not isinstance(value, int) or isinstance(value, bool):
        _wrong_type("a whole number", value, path, complaints)
    elif not kind.minimum <= value <= kind.maximum:
        message = f"is not within {kind.minimum:,} to {kind.maximum:,}"
        complaints.add(path, value, message, "Write a number in this range.")
    return value


def _number(kind: Number, value: Any, path: Path, complaints: Complaints) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool):
        _wrong_type("a number", value, path, complaints)
    # Neither is a NaN.
    elif not kind.minimum <= value <= kind.maximum:
        message = f"is not within {kind.minimum:,} to {kind.maximum:,}"
        complaints.add(path, value, message, "Write a number in this range.")
    return value


def _boolean(value: Any, path: Path, complaints: Complaints) -> Any:
    if not isinstance(value, bool):
        complaints.add(path, value, "is not true or false", "Write true or false, without quotes.")
    return value


def _quantity(value: Any, path: Path, complaints: Complaints) -> Any:
    value = _whole(value)
    if isinstance(value, float):
        complaints.add(path, value, "is a fraction, not a text", "Put it into quotes.")
    elif not isinstance(value, str | int) or isinstance(value, bool):
        _wrong_type("a quantity", value, path, complaints)
    elif not (_is_quantity(value) if isinstance(value, str) else 0 < value < _BEYOND_INT64):
        complaints.add(
            path,
            value,
            "is not a Kubernetes quantity more than 0",
            _quantity_remedy(value, path),
        )
    return value


def _quantity_remedy(value: str | int, path: Path) -> str:
    """``1G or 1Gi`` for ``1 GB``."""
    of_cpu = path[-1:] == ("cpu",)
    found = None if of_cpu else _MISSPELT_QUANTITY.fullmatch(str(value)[:LONGEST_QUANTITY])
    if found is not None:
        number, unit = found["number"], found["unit"].upper()
        one, other = number + unit.replace("K", "k"), f"{number}{unit}i"
        if _is_quantity(one):
            return f"Write {one}, or {other} for the binary unit."
    return f"Write a number with its unit, such as {'500m or 2' if of_cpu else '500Mi or 1Gi'}."


def _map(kind: MapOf, value: Any, path: Path, complaints: Complaints) -> Any:
    if not isinstance(value, dict):
        _wrong_type("an object", value, path, complaints)
        return value
    given = {key: item for key, item in value.items() if item is not None}
    if len(given) > kind.max_properties:
        message = f"holds {len(given):,} keys, more than {kind.max_properties:,}"
        complaints.add(path, None, message, "Remove some.")
        return value
    return {key: check(kind.value, item, (*path, key), complaints) for key, item in given.items()}


def _list(kind: ListOf, value: Any, path: Path, complaints: Complaints) -> Any:
    if not isinstance(value, list):
        _wrong_type("a list", value, path, complaints)
        return value
    if len(value) > kind.max_items:
        message = f"holds {len(value):,} items, more than {kind.max_items:,}"
        complaints.add(path, value, message, "Shorten it.")
        return value
    checked = [
        check(kind.item, item, (*path, number), complaints) for number, item in enumerate(value)
    ]
    if not kind.key and not kind.atomic:
        for number, item in enumerate(checked):
            if item in checked[:number]:
                complaints.add((*path, number), item, "is a duplicate", "Keep one of the two.")
    if kind.key:
        _refuse_repeated_keys(kind.key, checked, path, complaints)
    return checked


def _refuse_repeated_keys(key: str, items: list[Any], path: Path, complaints: Complaints) -> None:
    seen = set()
    for number, item in enumerate(items):
        name = item.get(key) if isinstance(item, dict) else None
        if isinstance(name, str):
            if name in seen:
                complaints.add(
                    (*path, number, key), name, "is the name of two", "Give each a name of its own."
                )
            seen.add(name)


def _struct(kind: Struct, value: Any, path: Path, complaints: Complaints) -> Any:
    if not isinstance(value, dict):
        _wrong_type("an object", value, path, complaints)
        return value
    known = [field.name for field in kind.fields]
    for name in value:
        if name not in known:
            complaints.add(
                (*path, name), None, "is not known", suggestion(name, known), "UnknownField"
            )
    checked: dict[str, Any] = {}
    for field in kind.fields:
        given = value.get(field.name)
        if given is None:
            given = field.default
        if given is not None:
            checked[field.name] = check(field.type, given, (*path, field.name), complaints)
        elif field.required:
            complaints.add((*path, field.name), None, "is missing", "Write it.", "Required")
    return checked


def suggestion(name: str, known: Sequence[str]) -> str:
    """Return a sentence with the most similar known name."""
    lowered = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name[:100].lower(), lowered, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {lowered[near[0]]}?"
    return f"Remove it; the known names are {', '.join(known)}."


def dotted(path: Path) -> str:
    """``spec.sourceNamespaces[0]``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step[:100]}"
    return text.removeprefix(".")


TOP_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
#: Often misplaced.
_METADATA = frozenset({"name", "namespace", "labels", "annotations"})
#: Deeper fields often share a name.
_DEEPEST = 2
_MOST_PLACES = 3
#: Names in other kinds.
_SYNONYMS = {
    ("ListenerDestination", "deliveryRetryAttempts"): "spec.retry.attempts",
    ("ListenerDestination", "deliveryRetryIntervalSeconds"): "spec.retry.intervalSeconds",
    ("IndicationService", "attempts"): "spec.deliveryRetryAttempts",
    ("IndicationService", "intervalSeconds"): "spec.deliveryRetryIntervalSeconds",
    (
        "IndicationService",
        "retry",
    ): "spec.deliveryRetryAttempts and spec.deliveryRetryIntervalSeconds",
}


def beside_spec(kind: Kind, value: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in kind.spec.fields}
    return {name: item for name, item in value.items() if name in known and name not in TOP_FIELDS}


def top_field_remedy(kind: Kind, name: str) -> str:
    if name in _METADATA:
        return "Indent it under metadata."
    known = [field.name for field in kind.spec.fields]
    if name in known:
        return "Indent it under spec."
    if (place := _elsewhere(kind, name)) is not None:
        return place
    meant = suggestion(name, TOP_FIELDS)
    if meant.startswith("Did") or not (meant := suggestion(name, known)).startswith("Did"):
        return suggestion(name, TOP_FIELDS)
    return f"{meant} Indent it under spec."


def misplaced_remedy(kind: Kind, path: Path) -> str | None:
    """Return the remedy for an unknown field, or None."""
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
    same = _SYNONYMS.get((kind.name, name))
    own = f" In {kind.name} it is {same}." if same else ""
    return f"It is a field of {places}.{own}"


def _paths(struct: Struct, path: Path) -> Iterator[tuple[str, Path]]:
    for field in struct.fields:
        here = (*path, field.name)
        yield field.name, here
        if isinstance(field.type, Struct) and len(here) <= _DEEPEST:
            yield from _paths(field.type, here)


def _places() -> dict[str, list[tuple[str, str]]]:
    """Field to (kind, path)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for kind in KINDS:
        for name, path in _paths(kind.spec, ("spec",)):
            if name not in _METADATA and name != "key":
                found.setdefault(name, []).append((kind.name, dotted(path)))
    return found


_PLACES = _places()
