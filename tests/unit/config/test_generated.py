"""What is made from the schema is up to date, and is what a Kubernetes API server accepts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import generate_definitions as crd
import generate_resource_reference as reference
from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.config.validation import Complaints, check
from pillion_sidecar.fields import Kind, Struct
from pillion_sidecar.protocols import PROTOCOLS

ROOT = Path(__file__).resolve().parents[3]
UP_TO_DATE = "out of date: run `make generate`"
#: Where the definitions lie: the chart has a copy, since Helm reads nothing outside of a chart.
FOLDERS = ("crds", "charts/pillion/files/crds")
IDS = [kind.name for kind in KINDS]

#: What a node may say: the part of OpenAPI v3 that structural schemas are made of.
KNOWN = {
    *("type", "description", "default", "properties", "required", "items", "enum", "format"),
    *("minimum", "maximum", "minLength", "maxLength", "maxItems", "x-kubernetes-validations"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string"),
    *("additionalProperties", "maxProperties", "pattern"),
}


def root(kind: Kind) -> dict[str, Any]:
    version = crd.definition(kind)["spec"]["versions"][0]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, below in node.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}")
    for below in ("items", "additionalProperties"):
        if below in node:
            yield from nodes(node[below], f"{path}[]")


#: Phrases that readers of ``kubectl explain`` stumbled over.
ODD = re.compile(
    r"\b(of which|which must hold|whoever|whatever|what waits|what is queued|is told|are told"
    r"|where it is left out)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_descriptions_are_plain_english(kind: Kind) -> None:
    odd = {
        path: node["description"]
        for path, node in nodes(root(kind), "")
        if ODD.search(node.get("description", ""))
    }
    assert odd == {}


#: What a node of each type must say so that it is bounded.
BOUNDS = {
    "object": {"properties"},
    "array": {"items", "maxItems", "x-kubernetes-list-type"},
    "string": {"maxLength"},
    "integer": {"minimum", "maximum", "format"},
    "number": {"minimum", "maximum"},
    "boolean": set[str](),
    # With keys that users choose, and with a number or a text for a value.
    "map": {"additionalProperties", "maxProperties"},
    "quantity": {"maxLength", "minimum", "pattern"},
}
#: What the API server bounds itself.
EXEMPT = (".apiVersion", ".kind")


def form_of(node: dict[str, Any]) -> str | None:
    """Which of ``BOUNDS`` a node must have."""
    if node.get("x-kubernetes-int-or-string"):
        return "quantity"
    return "map" if "additionalProperties" in node else node.get("type")


def structural_faults(node: dict[str, Any], path: str) -> Iterator[str]:
    """What keeps a node from being structural, or its rules from being cheap to ask."""
    if unknown := node.keys() - KNOWN:
        yield f"{path}: {unknown}"
    form = form_of(node)
    if form not in BOUNDS:
        yield f"{path}: type {form}"
    elif path not in EXEMPT and (missing := BOUNDS[form] - node.keys()):
        yield f"{path}: lacks {missing}"
    if missing := set(node.get("required", ())) - node.get("properties", {}).keys():
        yield f"{path}: requires {missing}"


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_the_definition_is_up_to_date(kind: Kind, folder: str) -> None:
    written = (ROOT / folder / crd.file_name(kind)).read_text(encoding="utf-8")
    assert written == crd.render(kind), UP_TO_DATE


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_definition_is_left_over(folder: str) -> None:
    files = {file.name for file in (ROOT / folder).glob("*.yaml")}
    assert files == {crd.file_name(kind) for kind in KINDS}


def test_the_manual_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reference" / "resources.md").read_text(encoding="utf-8")
    assert written == reference.render(), UP_TO_DATE
    protocols = (ROOT / "docs" / "reference" / "protocols.md").read_text(encoding="utf-8")
    assert protocols == reference.render_protocols(PROTOCOLS.values()), UP_TO_DATE


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_the_file_says_what_the_schema_says(kind: Kind) -> None:
    assert yaml.safe_load(crd.render(kind)) == crd.definition(kind)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_the_definition_is_structural_and_bounded(kind: Kind) -> None:
    faults = [
        fault for path, node in nodes(root(kind), "") for fault in structural_faults(node, path)
    ]
    assert faults == []


def test_the_checker_of_structure_finds_faults() -> None:
    faulty: dict[str, Any] = {
        "type": "object",
        "$ref": "#/x",
        "required": ["c"],
        "properties": {"a": {}, "b": {"type": "array"}, "d": {"type": "string"}},
    }
    found = [fault for path, node in nodes(faulty, "") for fault in structural_faults(node, path)]
    assert len(found) == 5, found


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_every_field_is_explained(kind: Kind) -> None:
    for path, node in nodes(root(kind), ""):
        if not path.startswith(".metadata") and not path.endswith("[]"):
            assert node.get("description", "").endswith("."), path


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_every_default_is_itself_valid(kind: Kind) -> None:
    complaints: list[object] = []
    for field in kind.spec.fields:
        if field.default is not None:
            sink = Complaints(lambda *complaint: complaints.append(complaint))
            check(field.type, field.default, (field.name,), sink)
    assert complaints == []


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_rules_have_messages_that_the_api_server_takes(kind: Kind) -> None:
    for path, node in nodes(root(kind), ""):
        for rule in node.get("x-kubernetes-validations", ()):
            assert "\n" not in rule["message"], path
            assert len(rule["message"]) <= 2048
            # The field that a rule complains of is one that the node has.
            named = rule.get("fieldPath", "").removeprefix(".")
            assert not named or named in node["properties"], path


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_a_default_holds_all_that_its_rules_ask_for(kind: Kind) -> None:
    # The API server puts them to the default before it fills in those further down.
    for field in kind.spec.fields:
        if isinstance(field.type, Struct) and field.default is not None:
            rendered = root(kind)["properties"]["spec"]["properties"][field.name]["default"]
            assert all(rule.holds(rendered) for rule in field.type.rules), field.name


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_kubectl_get_shows_what_an_administrator_asks_first(kind: Kind) -> None:
    definition = crd.definition(kind)["spec"]
    columns = {c["name"]: c for c in definition["versions"][0]["additionalPrinterColumns"]}
    assert "Age" in columns
    assert "Ready" in columns or "Accepted" in columns
    assert definition["names"]["categories"] == ["pillion"]
    assert definition["versions"][0]["subresources"] == {"status": {}}


def test_names_are_not_shared() -> None:
    names = [name for kind in KINDS for name in (kind.plural, kind.short_name, kind.name)]
    assert len(set(names)) == len(names)
