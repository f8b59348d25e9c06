"""Writes ``docs/reference/http-api.md`` from the deliverer's OpenAPI document."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pillion_sidecar.openapi import PATH, openapi_document

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "http-api.md"
JSON = dict[str, Any]

_HEAD = """\
# HTTP API

<!-- Made by `make generate` from sidecar/pillion_sidecar/openapi.yaml; do not edit. -->

"""


def http_page() -> str:
    """Return the page."""
    document = openapi_document()
    operations = [
        (path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    parts = [f"{_HEAD}{document['info']['description']}\n"]
    for tag in document["tags"]:
        parts.append(f"## {tag['name']}\n\n{tag['description']}\n")
        for path, method, operation in operations:
            if operation["tags"] == [tag["name"]]:
                parts.append(_operation(document, f"{method.upper()} {path}", operation))
    parts.append("## Schemas\n\nA member with an asterisk is always present.\n")
    for name, schema in document["components"]["schemas"].items():
        parts.append(_schema(name, schema))
    parts.append(f"The document itself is at `{PATH}`.\n")
    return "\n".join(parts)


def _operation(document: JSON, title: str, operation: JSON) -> str:
    parts = [f"### `{title}`\n\n{operation['summary']}.\n"]
    if "description" in operation:
        parts.append(f"{operation['description']}\n")
    parameters = [_resolved(document, one) for one in operation.get("parameters", ())]
    if parameters:
        given = [
            (_named(one["name"], one.get("required")), str(one["in"]), *_described(one))
            for one in parameters
        ]
        parts.append(_table(("Parameter", "In", "Type", "Meaning"), given))
    if "requestBody" in operation:
        bodies = operation["requestBody"]["content"].items()
        taken = ((f"`{media}`", *_described(content)) for media, content in bodies)
        parts.append(_table(("Content-Type", "Body", "Meaning"), taken))
    answers = ((status, _resolved(document, one)) for status, one in operation["responses"].items())
    told = ((status, _bodies(one), str(one["description"])) for status, one in answers)
    parts.append(_table(("Status", "Body", "Meaning"), told))
    return "\n".join(parts)


def _resolved(document: JSON, part: JSON) -> JSON:
    if "$ref" not in part:
        return part
    found: Any = document
    for name in part["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    resolved: JSON = found
    return resolved


def _described(part: JSON) -> tuple[str, str]:
    schema = part["schema"]
    return _type(schema), part.get("description") or schema.get("description", "")


def _bodies(answer: JSON) -> str:
    found = dict.fromkeys(
        _type(content["schema"]) if media == "application/json" else f"`{media}`"
        for media, content in answer.get("content", {}).items()
    )
    return " or ".join(found)


def _schema(name: str, schema: JSON) -> str:
    described = f"{schema['description']}\n\n" if "description" in schema else ""
    if "properties" not in schema:
        return f"### {name}\n\n{described}{_type(schema)}\n"
    required = schema.get("required", ())
    rows = (
        (_named(member, member in required), *_described({"schema": one}))
        for member, one in schema["properties"].items()
    )
    return f"### {name}\n\n{described}{_table(('Member', 'Type', 'Meaning'), rows)}"


def _named(name: str, required: object) -> str:
    return f"`{name}` \\*" if required else f"`{name}`"


def _type(schema: JSON) -> str:
    """Return a schema's type in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    text = " or ".join(types)
    if schema["type"] == "array":
        text += f" of {_type(schema['items'])}"
    elif isinstance(schema.get("additionalProperties"), dict):
        text += f" of {_type(schema['additionalProperties'])}"
    elif "format" in schema:
        text += f" ({schema['format']})"
    return "; ".join((text, *_bounds(schema)))


def _bounds(schema: JSON) -> Iterator[str]:
    for key, text in (
        ("minimum", "at least {}"),
        ("exclusiveMinimum", "more than {}"),
        ("maximum", "at most {}"),
        ("maxLength", "at most {} characters"),
        ("default", "default {}"),
    ):
        # The default of a member that may be absent is null: that says nothing more.
        if schema.get(key) is not None:
            yield text.format(str(schema[key]).lower())


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> None:
    """Write the page."""
    PAGE.write_text(http_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
