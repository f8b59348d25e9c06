"""Commands, metrics, Prometheus alerts and conditions that a page names in a sentence exist."""

import argparse
import re
import shlex
from itertools import takewhile
from pathlib import Path

import pytest

from pillion_cli.main import command_parser, load
from pillion_operator.status.conditions import OUR_TYPES
from pillion_testbed.helm import alert_groups
from support.house import ROOT
from support.manual import PAGES, codes, text_of

ALL_PAGES = [*PAGES, ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]
ALERTS = {rule["alert"] for group in alert_groups() for rule in group["rules"]}
#: By section of the page of the architecture: where its paths begin.
FOLDERS = {
    "Inside the deliverer": ROOT / "sidecar/pillion_sidecar",
    "From resources to deliverers": ROOT / "operator/pillion_operator",
    "Where a change goes": ROOT / "cli",
}
#: Other tests compare these pages with the source.
METRICS = {
    metric
    for name in ("metrics", "operator-metrics")
    for metric in re.findall(r"`(pillion_\w+)`", text_of(f"reference/{name}.md"))
}
each_page = pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)


def words(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a parser, and the values of arguments that have a choice."""
    found: set[str] = set()
    for action in parser._actions:
        found |= {*action.option_strings, *map(str, action.choices or ())}
    return found


@each_page
def test_a_command_in_a_sentence_is_a_command(page: Path) -> None:
    for found in re.findall(r"`(pillion [a-z][^`]*)`", page.read_text(encoding="utf-8")):
        _pillion, name, *arguments = shlex.split(found)
        known = words(command_parser(name, load(name)))
        # Values of options and names of files may be anything, and so may a program after --.
        options = takewhile(lambda one: one != "--", arguments)
        assert {one for one in options if one.startswith("--")} <= known, found
        assert name != "journal" or not arguments or arguments[0] in known, found


@each_page
def test_a_prometheus_alert_on_a_page_is_a_rule_of_the_chart(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"\bPillion[A-Z][A-Za-z]+\b", text)) <= ALERTS


@each_page
def test_a_metric_on_a_page_is_in_the_reference(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    packages = "sidecar|cim|cli|operator|plugin|rules|testbed"
    named = set(re.findall(rf"\bpillion_(?!(?:{packages})\b)[a-z_]+", text))
    series = {metric + suffix for metric in METRICS for suffix in ("", "_bucket", "_sum", "_count")}
    assert named <= series


@each_page
def test_a_condition_that_a_command_waits_for_is_one_of_ours(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"--for=condition=(\w+)", text)) <= OUR_TYPES


def test_a_path_in_a_table_of_the_architecture_exists() -> None:
    missing, folder = set(), ROOT
    for line in (ROOT / "docs/architecture.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            folder = FOLDERS.get(line.removeprefix("## "), ROOT)
        if not line.startswith("| "):
            continue
        first, *others = line.strip("| ").split(" | ")
        if first == "module of `journal/`":
            folder = FOLDERS["Inside the deliverer"] / "journal"
        # The first cell names modules only in the tables of modules.
        names = {*codes(first), *(one for cell in others for one in codes(cell) if "/" in one)}
        missing |= {one for one in names if not is_there(one, folder)}
    assert missing == set()


def is_there(name: str, folder: Path) -> bool:
    """Whether a name in a table is a module or a file, or no path at all."""
    if not re.fullmatch(r"[a-z_./-]+", name):
        return True
    places = [folder / name, *(one / name for one in (ROOT, *FOLDERS.values()))]
    return any(place.exists() or place.with_suffix(".py").exists() for place in places)
