"""What is said where a machine cannot run a node."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pillion_testbed.requirements import IMAGE_PROGRAMS, PLUGINS, PROGRAMS, missing


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    for name in PLUGINS:
        (tmp_path / name).touch()
    return tmp_path


def having(*lacking: str) -> Callable[[str], str | None]:
    return lambda name: None if name in lacking else f"/bin/{name}"


def lines(plugins: Path, *lacking: str, system: str = "Linux", user: int = 0) -> list[str]:
    programs = PROGRAMS | IMAGE_PROGRAMS
    return missing(
        programs, system=system, user=user, which=having(*lacking), plugins=[Path("/no"), plugins]
    )


def test_nothing_is_said_where_all_is_there(plugins: Path) -> None:
    assert lines(plugins) == []


def test_packages_are_named_once_with_the_command_that_installs_them(plugins: Path) -> None:
    assert lines(plugins, "containerd", "ctr", "ip", "buildah") == [
        "apt-get install --no-install-recommends buildah containerd iproute2"
    ]


def test_one_plugin_that_is_not_there_is_the_whole_package(plugins: Path) -> None:
    (plugins / "portmap").unlink()
    assert lines(plugins) == ["apt-get install --no-install-recommends containernetworking-plugins"]


def test_root_is_needed(plugins: Path) -> None:
    assert lines(plugins, user=1000) == ["it needs root, and this is user 1000"]


def test_elsewhere_than_on_linux_nothing_else_helps(plugins: Path) -> None:
    assert lines(plugins, "runc", system="Darwin", user=501) == [
        "it needs Linux, and this is Darwin"
    ]
