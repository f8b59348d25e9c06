"""What the images of the tests are made of, and the digest of that, which is an image's tag."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pillion_testbed.image_base import base_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an image is made of: its Dockerfile, and what of the repository that copies."""

    repository: str
    dockerfile: str
    sources: tuple[str, ...]
    #: Another image that it stands on, and the argument of the Dockerfile that names it.
    on: "tuple[str, Recipe] | None" = None

    @property
    def ignorefile(self) -> str:
        return f"{self.dockerfile}.dockerignore"


DELIVERER = Recipe(
    repository="localhost/pillion",
    dockerfile="images/deliverer/Dockerfile",
    sources=(
        "images/build-requirements.txt",
        "images/bytecode.py",
        "images/deliverer",
        "images/prune.py",
        "images/sbom.py",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "cim",
        "cli",
        "operator",
        "plugin",
        "rules",
        "sidecar",
        "spark",
    ),
)
SPARK = Recipe(
    repository="localhost/pillion-spark",
    dockerfile="images/spark/Dockerfile",
    sources=(
        "images/build-requirements.txt",
        "images/bytecode.py",
        "images/prune.py",
        "images/sbom.py",
        "images/spark",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "cim",
        "rules",
        "spark",
    ),
)
PYWBEM_LISTENER = Recipe(
    repository="localhost/pywbem-listener",
    dockerfile="tests/images/pywbem-listener/Dockerfile",
    sources=("images/build-requirements.txt", "tests/images/pywbem-listener"),
)
WEATHER = Recipe(
    repository="localhost/pillion-weather",
    dockerfile="examples/spark-on-kubernetes/Dockerfile",
    sources=(
        "examples/rules/weather.yaml",
        "examples/spark-on-kubernetes/weather_stream.py",
        "examples/spark-weather",
    ),
    on=("SPARK", SPARK),
)
RECIPES: dict[str, Recipe] = {
    "deliverer": DELIVERER,
    "spark": SPARK,
    "pywbem-listener": PYWBEM_LISTENER,
    "weather": WEATHER,
}


def digest(recipe: Recipe, *, root: Path) -> str:
    """The tag of an image: a digest of its Dockerfile, of what that copies, and of its base."""
    below = base_key() if recipe.on is None else digest(recipe.on[1], root=root)
    found = hashlib.sha256(f"{base_key()} {below}\n".encode())
    for path in inputs(recipe, root=root):
        content = path.read_bytes()
        executable = os.access(path, os.X_OK)
        found.update(f"{path.relative_to(root)} {executable} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def inputs(recipe: Recipe, *, root: Path) -> list[Path]:
    """The files that go into an image, sorted."""
    names = (recipe.dockerfile, recipe.ignorefile, *recipe.sources)
    return sorted({path for name in names for path in _files(root / name)})


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for found in path.rglob("*"):
        if found.is_file() and "__pycache__" not in found.parts and found.suffix != ".pyc":
            yield found
