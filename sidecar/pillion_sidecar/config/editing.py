"""Changes one field of a resource in the text of a file, and nothing else of it."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from pillion_sidecar.config.yamlstream import StreamError, read_documents

_BOM = "\ufeff"
_REMEDY = "Change it by hand."


class Edited(NamedTuple):
    text: str
    #: Line of the resource's ``spec``, from 1.
    line: int


def with_field(text: str, *, kind: str, name: str, field: str, value: bool) -> Edited | None:
    """Return a file's text with a field of ``spec`` set; None without the resource. Raises
    StreamError for a text in which that cannot be done safely."""
    found = next(_specs(text, kind, name), None)
    if found is None:
        return None
    after = _changed(text, found, field, value)
    if _values(after) != _expected(text, kind, name, field, value):
        raise StreamError("its form is unusual", remedy=_REMEDY, line=0)
    return Edited(after, found.start_mark.line + 1)


def _specs(text: str, kind: str, name: str) -> Iterator[yaml.MappingNode]:
    try:
        roots = list(yaml.compose_all(text.removeprefix(_BOM), Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        raise StreamError("it is not YAML", remedy=_REMEDY, line=0) from None
    for root in roots:
        for resource in (root, *_items(root)):
            named = _member(_member(resource, "metadata"), "name")
            if _scalar(_member(resource, "kind")) == kind and _scalar(named) == name:
                spec = _member(resource, "spec")
                if not isinstance(spec, yaml.MappingNode) or not spec.value:
                    raise StreamError(f"{name} has no spec", remedy=_REMEDY, line=0)
                yield spec


def _items(root: yaml.Node | None) -> list[yaml.Node]:
    items = _member(root, "items")
    return items.value if isinstance(items, yaml.SequenceNode) else []


def _member(node: yaml.Node | None, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if _scalar(key) == name), None)


def _scalar(node: yaml.Node | None) -> str | None:
    return node.value if isinstance(node, yaml.ScalarNode) else None


def _changed(text: str, spec: yaml.MappingNode, field: str, value: bool) -> str:
    word, shift = json.dumps(value), len(text) - len(text.removeprefix(_BOM))
    known = _member(spec, field)
    if known is not None:
        begin, end = known.start_mark.index + shift, known.end_mark.index + shift
        return text[:begin] + word + text[end:]
    first = spec.value[0][0]
    if spec.flow_style:
        at = spec.start_mark.index + shift + 1
        key = field if first.style is None else f'"{field}"'
        return f"{text[:at]}{key}: {word}, {text[at:]}"
    at, end_of_line = first.start_mark.index + shift, "\r\n" if "\r\n" in text else "\n"
    indent = " " * first.start_mark.column
    return f"{text[:at]}{field}: {word}{end_of_line}{indent}{text[at:]}"


def _values(text: str) -> list[Any]:
    """Return the documents as the deliverer reads them. Raises StreamError."""
    return [one.value for one in read_documents(text.removeprefix(_BOM))]


def _expected(text: str, kind: str, name: str, field: str, value: bool) -> list[Any]:
    documents = _values(text)
    for root in documents:
        items = root.get("items") if isinstance(root, dict) else None
        for resource in (root, *(items if isinstance(items, list) else ())):
            if isinstance(resource, dict) and resource.get("kind") == kind:
                metadata = resource.get("metadata")
                if isinstance(metadata, dict) and metadata.get("name") == name:
                    resource["spec"][field] = value
    return documents
