"""The files that serve contributors agree with the Makefile and with the pinned tools."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PULL_REQUEST = ROOT / ".github/pull_request_template.md"
PRE_COMMIT = ROOT / ".pre-commit-config.yaml"
TARGET = re.compile(r"^([a-z0-9-]+):", re.MULTILINE)
MAKE = re.compile(r"\bmake ([a-z0-9-]+)")
PINNED_ACTION = re.compile(r"[\w.-]+/[\w./-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})")


def load(path: Path) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true; BaseLoader keeps every scalar as text.
    document: dict[str, Any] = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
    return document


def steps_of(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", [*WORKFLOWS, PULL_REQUEST, PRE_COMMIT], ids=lambda p: p.name)
def test_every_named_make_target_exists(path: Path) -> None:
    named = set(MAKE.findall(path.read_text()))
    assert named
    assert named <= set(TARGET.findall((ROOT / "Makefile").read_text()))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_a_workflow_only_reads_and_pins_its_actions(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in workflow["jobs"].values())
    actions = [step["uses"] for step in steps_of(workflow) if "uses" in step]
    assert actions
    assert [action for action in actions if not PINNED_ACTION.fullmatch(action)] == []


def test_the_tests_start_at_the_oldest_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    matrix = load(ROOT / ".github/workflows/test.yml")["jobs"]["python"]["strategy"]["matrix"]
    assert project["requires-python"] == f">={matrix['python'][0]}"


def test_dependabot_names_folders_that_hold_what_it_updates() -> None:
    patterns = {"pip": ("pyproject.toml", "*.txt"), "docker": ("Dockerfile",)}
    for update in load(ROOT / ".github/dependabot.yml")["updates"]:
        for folder in update.get("directories", []):
            found = patterns[update["package-ecosystem"]]
            here = ROOT / folder.removeprefix("/")
            assert any(list(here.glob(pattern)) for pattern in found), folder


def test_pre_commit_runs_the_pinned_tools() -> None:
    # A remote hook would bring a second version of ruff and mypy, and needs a network.
    repositories = load(PRE_COMMIT)["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    hooks = repositories[0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    programs = {hook["entry"].split()[0] for hook in hooks}
    assert programs == {".venv/bin/ruff", "make"}
    constraints = (ROOT / "requirements/constraints.txt").read_text()
    assert re.search(r"^ruff==", constraints, re.MULTILINE)
    assert re.search(r"^mypy==", constraints, re.MULTILINE)
