"""What a user installs: the wheel holds every room, typed, and the one command."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.house import ROOT, packages


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("pillion-*.whl")
    return zipfile.ZipFile(built)


def test_each_room_is_whole_and_says_that_it_is_typed(wheel: zipfile.ZipFile) -> None:
    shipped = set(wheel.namelist())
    for name, folder in packages().items():
        assert f"{name}/py.typed" in shipped
        files = [
            path
            for path in folder.rglob("*")
            if path.suffix in {".py", ".json", ".txt", ".yaml", ".html", ".css", ".js"}
        ]
        assert {str(Path(name, path.relative_to(folder))) for path in files} <= shipped


def test_nothing_but_the_rooms_is_shipped(wheel: zipfile.ZipFile) -> None:
    tops = {entry.split("/")[0] for entry in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(packages())


def test_there_is_one_command_which_is_a_plug_in_of_kubectl_too(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert wheel.read(entry_points).decode() == (
        "[console_scripts]\n"
        "kubectl-pillion = pillion_cli.main:main\n"
        "kubectl_complete-pillion = pillion_cli.kubectl:main\n"
        "pillion = pillion_cli.main:main\n"
    )


def test_the_packages_and_folders_that_were_asked_for_are_used() -> None:
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {
        re.split(r"[<>=\[]", requirement)[0]
        for extra in project["optional-dependencies"].values()
        for requirement in extra
    }
    assert {"kopf", "kubernetes", "aiohttp", "lxml", "prometheus-client", "pyspark"} <= needed
    folders = {path.name for path in ROOT.iterdir()}
    assert {"operator", "sidecar", "charts", "crds", "tests", "Makefile"} <= folders
