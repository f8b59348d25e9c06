"""The locks of the images are in step with pyproject.toml and requirements/constraints.txt.

Offline: what a package asks for is read from what is installed here, at the same versions.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.house import ROOT

REMEDY = "run tools/lock-images"
LOCKS = {
    "images/deliverer/requirements.txt": ("sidecar", "cli", "operator", "protocols", "otel"),
    "images/spark/requirements.txt": ("spark-rules", "otel"),
}
OTHERS = {
    "images/build-requirements.txt": ("pip", "hatchling", "setuptools", "wheel"),
    "tests/images/pywbem-listener/requirements.txt": ("pywbem",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """A line of a lock."""

    name: str
    version: str
    #: Whether it is for other systems or other versions of Python.
    elsewhere: bool
    digests: tuple[str, ...]


def read_lock(path: str) -> dict[str, Locked]:
    text = (ROOT / path).read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, Locked] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        requirement = Requirement(line.partition(" --hash")[0])
        (pinned,) = requirement.specifier
        assert pinned.operator == "=="
        name = canonicalize_name(requirement.name)
        found[name] = Locked(
            name=name,
            version=pinned.version,
            elsewhere=requirement.marker is not None and not requirement.marker.evaluate(),
            digests=tuple(re.findall(r"--hash=(\S+)", line)),
        )
    return found


def read_extras(*names: str) -> Iterator[Requirement]:
    """What extras of the project ask for, those of the extras among them."""
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in names:
        for line in project["optional-dependencies"][name]:
            requirement = Requirement(line)
            if requirement.name == project["name"]:
                yield from read_extras(*sorted(requirement.extras))
            else:
                yield requirement


def closure(requirements: Iterable[Requirement]) -> set[str]:
    """The names of all packages that are needed here for some."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        found.add(name)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += needs(name, extra)
    return found


def needs(name: str, extra: str) -> Iterator[Requirement]:
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def constraints() -> dict[str, str]:
    text = ROOT.joinpath("requirements", "constraints.txt").read_text(encoding="utf-8")
    pinned = re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pinned}


@pytest.mark.parametrize("path", LOCKS)
def test_a_lock_holds_what_its_extras_need_and_nothing_else(path: str) -> None:
    lock, asked = read_lock(path), list(read_extras(*LOCKS[path]))
    for requirement in asked:
        name = canonicalize_name(requirement.name)
        assert name in lock, f"{path} lacks {requirement}; {REMEDY}"
        version = lock[name].version
        assert requirement.specifier.contains(version), f"{path}: {name} {version}; {REMEDY}"
    needed = closure(asked)
    held = {one.name for one in lock.values() if not one.elsewhere}
    assert held == needed, f"{path}; {REMEDY}"


@pytest.mark.parametrize("path", OTHERS)
def test_a_lock_of_tools_holds_them(path: str) -> None:
    assert set(OTHERS[path]) <= set(read_lock(path)), REMEDY


@pytest.mark.parametrize("path", [*LOCKS, *OTHERS])
def test_a_lock_has_the_versions_that_are_tested_and_a_digest_of_each(path: str) -> None:
    tested = constraints()
    for one in read_lock(path).values():
        if not one.elsewhere:
            assert one.version == tested.get(one.name), f"{path}: {one.name}; {REMEDY}"
        assert one.digests, f"{path}: {one.name}"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in one.digests)


@pytest.mark.parametrize("path", [*LOCKS, *OTHERS])
def test_a_lock_says_nothing_of_where_it_was_made(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text


def test_the_example_and_the_guide_name_the_images_spark() -> None:
    version = read_lock("images/spark/requirements.txt")["pyspark"].version
    example = ROOT / "examples" / "spark-on-kubernetes"
    guide = (ROOT / "docs" / "spark-on-kubernetes.md").read_text()
    assert f"pip install pyspark=={version}`" in guide
    for operator in ("apache", "kubeflow"):
        text = (example / f"{operator}-sparkapplication.yaml").read_text()
        assert re.findall(r"sparkVersion: (\S+)", text) == [version]
