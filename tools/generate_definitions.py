"""Writes the CustomResourceDefinitions into ``crds/`` and the chart, one file for each kind."""

import json
from pathlib import Path
from typing import Any

import yaml

from pillion_sidecar.config.schema import API_VERSION, GROUP, KINDS, VERSION
from pillion_sidecar.config.validation import Complaints, check
from pillion_sidecar.fields import (
    LONGEST_QUANTITY,
    QUANTITY,
    Boolean,
    Column,
    Field,
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
    Transition,
)

ROOT = Path(__file__).resolve().parent.parent
#: Helm reads only files inside the chart.
FOLDERS = (ROOT / "crds", ROOT / "charts" / "pillion" / "files" / "crds")
_HEADER = "# Made by `make generate`; change pillion_sidecar.config.schema instead.\n"

#: Characters of a text up to which a message begins with it.
_LONGEST_SHOWN = 2048

JSON = dict[str, Any]


def render(kind: Kind) -> str:
    """The YAML text of the kind's CustomResourceDefinition."""
    text: str = yaml.safe_dump(
        definition(kind), sort_keys=False, allow_unicode=True, width=96, default_flow_style=False
    )
    return _HEADER + text


def file_name(kind: Kind) -> str:
    """The name of the file under ``crds/``."""
    return f"{GROUP}_{kind.plural}.yaml"


def definition(kind: Kind) -> JSON:
    """The kind's CustomResourceDefinition as a JSON object."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short_name],
                "categories": ["pillion"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(column) for column in kind.columns],
                    "schema": {"openAPIV3Schema": _root(kind)},
                }
            ],
        },
    }


def _column(column: Column) -> JSON:
    rendered: JSON = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    if column.priority:
        rendered["priority"] = column.priority
    return rendered


def _root(kind: Kind) -> JSON:
    spec = {"description": kind.spec_description, **_type(kind.spec)}
    if kind.spec_optional:
        spec["default"] = {}
    return {
        "description": kind.description,
        "type": "object",
        **({} if kind.spec_optional else {"required": ["spec"]}),
        "properties": {
            "apiVersion": {"description": f"Always {API_VERSION}.", "type": "string"},
            "kind": {"description": f"Always {kind.name}.", "type": "string"},
            "metadata": {
                "type": "object",
                "properties": {"name": _name(kind)},
            },
            "spec": spec,
            "status": {
                "description": "The state that the operator reports; do not edit it.",
                **_type(kind.status),
            },
        },
    }


def _name(kind: Kind) -> JSON:
    return {"type": "string", "maxLength": kind.name_length} | _rules(kind.name_rules)


def _field(field: Field) -> JSON:
    description = field.description
    if field.assumed:
        description += f" Default: {field.assumed.replace('`', '')}."
    if field.default is not None and not isinstance(field.type, Struct):
        # ``kubectl explain`` shows no default of its own.
        description += f" Default: {_plain(field.default)}."
    rendered = {"description": description, **_type(field.type)}
    if field.default is not None:
        # The API server puts the rules to a default before it fills in those further down.
        rendered["default"] = check(field.type, field.default, (), Complaints(lambda *_: None))
    return rendered


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _type(kind: FieldType) -> JSON:
    match kind:
        case Text():
            return _text(kind)
        case Integer():
            bounds = {"minimum": kind.minimum, "maximum": kind.maximum}
            return {"type": "integer", "format": "int64", **bounds}
        case Number():
            return {"type": "number", "minimum": kind.minimum, "maximum": kind.maximum}
        case Boolean():
            return {"type": "boolean"}
        case Quantity():
            return _quantity()
        case ListOf():
            return _list(kind)
        case MapOf():
            return _map(kind)
        case Struct():
            return _struct(kind)


def _text(kind: Text) -> JSON:
    rendered: JSON = {"type": "string"}
    if kind.format:
        rendered["format"] = kind.format
    if kind.values:
        rendered["enum"] = list(kind.values)
    if kind.min_length:
        rendered["minLength"] = kind.min_length
    rendered["maxLength"] = kind.max_length
    return rendered | _rules(kind.rules, shown=kind.max_length <= _LONGEST_SHOWN)


def _quantity() -> JSON:
    # Length and pattern are asked of a text, the minimum of a number.
    return {
        "x-kubernetes-int-or-string": True,
        "minimum": 1,
        "maxLength": LONGEST_QUANTITY,
        "pattern": f"^(?:{QUANTITY})$",
    }


def _map(kind: MapOf) -> JSON:
    rendered: JSON = {
        "type": "object",
        "maxProperties": kind.max_properties,
        "additionalProperties": _type(kind.value),
    }
    return rendered | _rules(kind.rules)


def _list(kind: ListOf) -> JSON:
    rendered: JSON = {"type": "array", "maxItems": kind.max_items, "items": _type(kind.item)}
    if kind.atomic:
        return rendered | {"x-kubernetes-list-type": "atomic"}
    if kind.key:
        return rendered | {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [kind.key],
        }
    return rendered | {"x-kubernetes-list-type": "set"}


def _struct(kind: Struct) -> JSON:
    rendered: JSON = {"type": "object"}
    required = [field.name for field in kind.fields if field.required]
    if required:
        rendered["required"] = required
    rendered["properties"] = {field.name: _field(field) for field in kind.fields}
    return rendered | _rules((*kind.rules, *kind.transitions))


def _rules(rules: tuple[Rule | Transition, ...], *, shown: bool = False) -> JSON:
    """``shown``: the message begins with the value, a text. The API server shows its type."""
    if not rules:
        return {}
    return {"x-kubernetes-validations": [_rule(rule, shown=shown) for rule in rules]}


def _rule(rule: Rule | Transition, *, shown: bool) -> JSON:
    subject = f"{rule.field} {rule.message}" if rule.field else rule.message
    message = f"{subject}. {rule.remedy}"
    rendered: JSON = {"rule": rule.cel, "message": message}
    if shown:
        # A value with a line break gets the message above: this one may have none. What has an @
        # may be a URL with a password.
        named = """(self.contains("@") ? "" : "'" + self + "' ")"""
        rendered["messageExpression"] = f"{named} + {json.dumps(message)}"
    if rule.field:
        rendered["fieldPath"] = f".{rule.field}"
    return rendered


def main() -> None:
    """Write the files."""
    for folder in FOLDERS:
        folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            (folder / file_name(kind)).write_text(render(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
