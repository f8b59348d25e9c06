"""What the test bed's programs are found under, and how they are made."""

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pillion_testbed.binaries import (
    Binaries,
    BinariesUnavailable,
    cache_folder,
    find_binaries,
    go_version,
    run_telling,
    source_digest,
)


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"PILLION_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a/pillion/cluster"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/pillion/cluster"),
        ({}, os.path.expanduser("~/.cache/pillion/cluster")),
    ],
)
def test_the_cache_is_outside_the_checkout(environment: Mapping[str, str], folder: str) -> None:
    assert str(cache_folder(environment)) == folder


def test_whatever_changes_the_programs_changes_their_name() -> None:
    names = {
        source_digest({"main.go": b"a", "go.mod": b"b"}, ["1"]),
        source_digest({"main.go": b"a", "go.mod": b"c"}, ["1"]),
        source_digest({"main.go": b"ab", "go.mod": b""}, ["1"]),
        source_digest({"main.go": b"a", "go.mod": b"b"}, ["2"]),
    }
    assert len(names) == 4


def test_the_order_of_the_files_does_not_change_it() -> None:
    assert source_digest({"a": b"1", "b": b"2"}, []) == source_digest({"b": b"2", "a": b"1"}, [])


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.9 linux/amd64", (1, 9)),
        ("go version devel", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_the_version_of_go_is_read(said: str, version: tuple[int, int]) -> None:
    assert go_version(said) == version


def test_what_the_assets_have_is_taken_from_there(tmp_path: Path) -> None:
    etcd = program(tmp_path / "etcd")
    kubectl = program(tmp_path / "kubectl")
    found = find_binaries({"KUBEBUILDER_ASSETS": str(tmp_path)})
    assert found.command("etcd") == (str(etcd),)
    assert found.kubectl() == kubectl


def test_assets_that_are_no_folder_are_an_error() -> None:
    with pytest.raises(BinariesUnavailable, match="KUBEBUILDER_ASSETS=/nowhere is no folder"):
        find_binaries({"KUBEBUILDER_ASSETS": "/nowhere"})


class Builds:
    """Builds no program, but notes what was asked for; stands for what runs commands."""

    def __init__(self, *, succeed: bool = True) -> None:
        self.commands: list[Sequence[str]] = []
        self._succeed = succeed

    def run(self, command: Sequence[str], **options: Any) -> Any:
        class Ran:
            stdout = "go version go1.26.0"

        return Ran

    def run_telling(self, command: Sequence[str], **_options: Any) -> tuple[int, str]:
        if "-o" in command:
            self.commands.append(command)
            program(Path(command[command.index("-o") + 1]))
        return (0 if self._succeed else 1), "it said why"

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pillion_testbed.binaries.subprocess.run", self.run)
        monkeypatch.setattr("pillion_testbed.binaries.run_telling", self.run_telling)


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "path" / "go")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


@pytest.mark.usefixtures("go")
def test_two_that_ask_at_once_build_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = Builds()
    builds.stand_in(monkeypatch)
    told: list[str] = []
    found = Binaries(cache=tmp_path / "cache", say=told.append)
    threads = [threading.Thread(target=found.command, args=("etcd",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.command("etcd")[1:] == ("etcd",)
    assert found.command("kube-apiserver")[0] == found.command("etcd")[0]
    assert len(builds.commands) == 1
    assert len(told) == 1
    assert "5 minutes on four fast cores" in told[0]
    assert all("-v" in command for command in builds.commands)


@pytest.mark.usefixtures("go")
def test_a_build_that_failed_leaves_nothing_that_looks_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Binaries(cache=tmp_path / "cache", say=lambda _line: None)
    Builds(succeed=False).stand_in(monkeypatch)
    with pytest.raises(BinariesUnavailable, match=r"KUBEBUILDER_ASSETS[^$]*it said why"):
        found.command("etcd")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.name == "components"] == []
    assert list((tmp_path / "cache").rglob("making-*")) == []


@pytest.mark.usefixtures("go")
def test_prometheus_and_its_tool_are_two_programs_of_one_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = Builds()
    builds.stand_in(monkeypatch)
    found = Binaries(cache=tmp_path / "cache", say=lambda _line: None)
    server, tool = found.prometheus(), found.promtool()
    assert server.parent == tool.parent
    assert [command[-1].rpartition("/")[2] for command in builds.commands] == [
        "prometheus",
        "promtool",
    ]
    # All other kinds of discovery are most of its size.
    assert all("enable_kubernetes_sd" in " ".join(command) for command in builds.commands)


@pytest.mark.usefixtures("go")
def test_what_a_node_needs_is_made_before_the_first_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(self: Binaries, module: str, link: Sequence[str], target: Path) -> None:
        program(target)

    Builds().stand_in(monkeypatch)
    monkeypatch.setattr(Binaries, "install", install)
    told: list[str] = []
    found = Binaries(cache=tmp_path / "cache", say=told.append)
    found.prepare_node()
    before = list(told)
    assert len(before) == 3
    found.command("kubelet")
    found.probe()
    found.coredns()
    assert told == before


def test_a_long_build_tells_how_far_it_is_and_its_last_lines_are_kept() -> None:
    told: list[str] = []
    clock = count(0, 4)
    script = "print(*(f'package/{number}' for number in range(40)), sep=chr(10))"
    code, last = run_telling(
        [sys.executable, "-c", script],
        folder=None,
        environment=None,
        say=told.append,
        now=lambda: float(next(clock)),
    )
    assert code == 0
    assert last.splitlines() == [f"package/{number}" for number in range(15, 40)]
    assert "packages after" in told[0]
    assert len(told) > 2


def test_the_exit_code_of_a_build_that_fails_is_kept() -> None:
    code, last = run_telling(
        [sys.executable, "-c", "print('why'); raise SystemExit(3)"],
        folder=None,
        environment=None,
        say=lambda _line: None,
        now=lambda: 0.0,
    )
    assert (code, last) == (3, "why")
