"""What a reader copies out of the manual is taken: JSON, resources, queries, commands, messages."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from pillion_cim.cimxml.export import EXPORT_HEADERS
from pillion_cim.cimxml.request import parse_export_request
from pillion_cim.filters import FilterError, compile_filter
from pillion_cim.schema import load_schema
from pillion_cli.main import command_parser, load
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.intake.decoding import decode_object
from support.manual import DOCS, PAGES, blocks, codes, table

SCHEMA = load_schema()
_COMMAND = re.compile(r"(?:^ *|\| *|\|\n *)(pillion [^|\n]+)", re.MULTILINE)


def of_each_page(language: str) -> list[object]:
    return [
        pytest.param(block, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, language), 1)
    ]


@pytest.mark.parametrize("block", of_each_page("json"))
def test_json_on_a_page_is_json_and_an_indication_is_one(block: str) -> None:
    value = json.loads(block)
    if "class" in value:
        decode_object(value, schema=SCHEMA)
    if "specversion" in value:
        decode_object(value["data"], schema=SCHEMA)


#: Of an earlier example.
OPERATIONS = """
apiVersion: pillion.dev/v1alpha1
kind: ListenerDestination
metadata: {name: operations}
spec: {destination: "http://127.0.0.1:9", protocol: CIM-XML}
"""


@pytest.mark.parametrize("block", of_each_page("yaml"))
def test_resources_on_a_page_are_loaded_without_a_complaint(block: str, tmp_path: Path) -> None:
    if "pillion.dev/v1alpha1" not in block:
        yaml.safe_load(block)
        return
    (tmp_path / "page.yaml").write_text(block, encoding="utf-8")
    if "kind: ListenerDestination" not in block and "kind: IndicationReplay" in block:
        (tmp_path / "others.yaml").write_text(OPERATIONS, encoding="utf-8")
    loaded = load_folder(tmp_path)
    # Some pages show a service alone.
    assert loaded.destinations or "kind: IndicationService" in block


@pytest.mark.parametrize("block", of_each_page("sh"))
def test_commands_on_a_page_are_taken(block: str) -> None:
    for found in _COMMAND.findall(block):
        _pillion, name, *arguments = shlex.split(found)
        command_parser(name, load(name)).parse_args(arguments)


@pytest.mark.parametrize("block", of_each_page("sh"))
def test_what_a_shell_is_given_as_json_is_json(block: str) -> None:
    for found in re.findall(r"'(\{.*?\})'", block, re.DOTALL):
        value = json.loads(found)
        if "class" in value:
            decode_object(value, schema=SCHEMA)


def test_the_lines_of_a_here_document_are_indications() -> None:
    found = re.findall(r"<<'END'\n(\{.*?)\nEND", page("getting-started.md"), re.DOTALL)
    assert len(found) == 2
    for line in "\n".join(found).splitlines():
        decode_object(json.loads(line), schema=SCHEMA)


def test_the_export_message_on_a_page_is_understood() -> None:
    (message,) = re.findall(r"<<'END'\n(<\?xml.*?)END", page("getting-started.md"), re.DOTALL)
    request = parse_export_request(dict(EXPORT_HEADERS), message.encode(), schema=SCHEMA)
    assert request.instance.get("IndicationIdentifier") == "d-1"


QUERIES = "\n".join(blocks(DOCS / "filters.md", "sql")).split("\n\n")


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_on_the_page_of_filters_compiles(query: str) -> None:
    assert compile_filter(query, language="DMTF:CQL", schema=SCHEMA).class_names


@pytest.mark.parametrize("row", table("filters.md", "condition"), ids=lambda row: row[0])
def test_a_condition_that_the_page_calls_refused_is_refused_so(row: list[str]) -> None:
    condition, language, said = codes(row[0])[0], row[1], row[2]
    query = f"SELECT * FROM CIM_AlertIndication WHERE {condition}"
    with pytest.raises(FilterError, match=re.escape(said)):
        compile_filter(query, language=language, schema=SCHEMA)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")
