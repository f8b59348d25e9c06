"""What a newcomer copies from the first pages is what the examples hold and the command takes."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from pillion_cli.main import command_parser, load
from support.house import ROOT
from support.manual import blocks

PAGES = (ROOT / "README.md", ROOT / "docs" / "getting-started.md")
EXAMPLE = ROOT / "examples" / "first-subscription"


def by_kind(documents: list[Any]) -> dict[str, Any]:
    return {document["kind"]: document for document in documents}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_resources_on_a_page_are_those_of_the_example(page: Path) -> None:
    files = by_kind([yaml.safe_load(path.read_bytes()) for path in EXAMPLE.glob("*.yaml")])
    shown = by_kind([doc for block in blocks(page, "yaml") for doc in yaml.safe_load_all(block)])
    assert set(shown) == set(files) - {"IndicationService"}
    for kind, document in shown.items():
        assert document == files[kind]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_on_a_page_are_taken(page: Path) -> None:
    taken = 0
    for block in blocks(page, "sh"):
        for found in re.findall(r"(?:^|\| *|\|\n *)(pillion [^|\n]+)", block, re.MULTILINE):
            _pillion, name, *arguments = shlex.split(found)
            command_parser(name, load(name)).parse_args(arguments)
            taken += 1
    assert taken >= 3
