"""Writes ``docs/reference/chart-values.md`` from the chart's ``values.yaml``.

The comment above a key is its description. A key without one has to be a section whose keys have
theirs, so that nothing stays unexplained.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
VALUES = ROOT / "charts" / "pillion" / "values.yaml"
SCHEMA = VALUES.with_name("values.schema.json")
PAGE = ROOT / "docs" / "reference" / "chart-values.md"

_KEY = re.compile(r"( *)([A-Za-z][A-Za-z0-9_]*):")
_INDENT = 2

HEAD = """# Chart values

<!-- Made from charts/pillion/values.yaml by `make generate`; do not edit. -->

Values of `charts/pillion` for `helm --set` and `--values`. Helm refuses an unknown value, or one of
another type, before it installs anything. [Installing by Helm](../helm.md) explains the choices.

| Value | Type | Default | Meaning |
| --- | --- | --- | --- |
"""


class Undescribed(Exception):
    """A value has no comment above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value: its dotted path, type, default and description."""

    path: str
    type: str
    default: Any
    description: str


def described(text: str) -> dict[tuple[str, ...], str]:
    """The descriptions in the text of a ``values.yaml``, by path; raises Undescribed."""
    found: dict[tuple[str, ...], str] = {}
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.removeprefix("#").strip())
            continue
        if (key := _KEY.match(line)) and not _inside(path[: len(key[1]) // _INDENT], found):
            path = [*path[: len(key[1]) // _INDENT], key[2]]
            if comment:
                found[tuple(path)] = " ".join(comment)
            elif not stripped.endswith(":"):
                raise Undescribed(
                    f"{'.'.join(path)}: write a comment above it that says what it is"
                )
        comment = []
    return found


def _inside(path: list[str], found: dict[tuple[str, ...], str]) -> bool:
    """Whether a key lies below one that is described as a whole."""
    return any(tuple(path[:depth]) in found for depth in range(1, len(path) + 1))


def values() -> Iterator[Value]:
    """Every value of the chart, in the order of the file."""
    text = VALUES.read_text(encoding="utf-8")
    defaults = yaml.safe_load(text)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for path, description in described(text).items():
        default, node = defaults, schema
        for key in path:
            default = default[key]
            node = _resolved(node["properties"][key], schema)
        yield Value(path=".".join(path), type=_type(node), default=default, description=description)


def _resolved(node: Any, schema: Any) -> Any:
    name = node.get("$ref", "").removeprefix("#/$defs/")
    return schema["$defs"][name] if name else node


def _type(node: Any) -> str:
    if "enum" in node:
        return " or ".join(f"`{choice}`" if choice else "empty" for choice in node["enum"])
    named = node["type"]
    text = " or ".join(named) if isinstance(named, list) else str(named)
    if "minimum" in node and "maximum" in node:
        text += f", {node['minimum']} to {node['maximum']}"
    return text


def render() -> str:
    """The page."""
    rows = (
        f"| `{value.path}` | {value.type} | `{json.dumps(value.default)}` | {value.description} |\n"
        for value in values()
    )
    return HEAD + "".join(rows)


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
