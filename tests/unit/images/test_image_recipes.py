"""An image's tag follows all that goes into it, and nothing else."""

import dataclasses
from pathlib import Path

import pytest

from pillion_testbed import images
from pillion_testbed.image_recipes import RECIPES, SPARK, Recipe, digest, inputs
from support.house import ROOT

RECIPE = Recipe(
    repository="localhost/thing", dockerfile="images/Dockerfile", sources=("code", "pyproject.toml")
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("images/Dockerfile", "code/a.py", "code/__pycache__/a.pyc", "pyproject.toml", "x"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize("name", ["images/Dockerfile", "code/a.py", "pyproject.toml"])
def test_a_change_of_what_goes_in_changes_the_tag(root: Path, name: str) -> None:
    before = digest(RECIPE, root=root)
    (root / name).write_text("changed")
    assert digest(RECIPE, root=root) != before


def test_a_new_source_and_a_new_mode_change_the_tag(root: Path) -> None:
    tags = {digest(RECIPE, root=root)}
    (root / "code" / "b.py").write_text("")
    tags.add(digest(RECIPE, root=root))
    (root / "code" / "b.py").chmod(0o755)
    tags.add(digest(RECIPE, root=root))
    (root / "images" / "Dockerfile.dockerignore").write_text("*")
    tags.add(digest(RECIPE, root=root))
    assert len(tags) == 4


def test_what_does_not_go_in_changes_nothing(root: Path) -> None:
    before = digest(RECIPE, root=root)
    (root / "x").write_text("changed")
    (root / "code" / "__pycache__" / "a.pyc").write_text("changed")
    assert digest(RECIPE, root=root) == before


def test_an_image_on_another_follows_that_too(root: Path) -> None:
    above = dataclasses.replace(RECIPE, sources=("x",), on=("BELOW", RECIPE))
    before = digest(above, root=root)
    (root / "code" / "a.py").write_text("changed")
    assert digest(above, root=root) != before


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_what_is_there_and_all_that_its_dockerfile_copies(name: str) -> None:
    recipe = RECIPES[name]
    files = {path.relative_to(ROOT).as_posix() for path in inputs(recipe, root=ROOT)}
    assert recipe.ignorefile in files
    for source in recipe.sources:
        assert (ROOT / source).exists(), source
    for line in (ROOT / recipe.dockerfile).read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY ") and "--from=" not in line:
            for copied in line.split()[1:-1]:
                assert any(one == copied or one.startswith(f"{copied}/") for one in files), copied


@pytest.mark.parametrize("name", RECIPES)
def test_a_dockerfile_stands_on_a_base_of_ones_choice_and_no_user_is_root(name: str) -> None:
    text = (ROOT / RECIPES[name].dockerfile).read_text(encoding="utf-8")
    assert "\nARG BASE=python:3.12-slim\n" in text
    if RECIPES[name].on is None:
        (user,) = [line.split()[1] for line in text.splitlines() if line.startswith("USER ")]
        assert int(user.split(":")[0]) >= 100
    else:
        assert RECIPES[name].on == ("SPARK", SPARK)
        assert "USER" not in text
    # No version of Python in a path: the base brings its own.
    assert "python3." not in text


def test_an_image_that_is_not_there_is_told_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert images.main(["delivery"]) == 2
    told = capsys.readouterr().err
    assert told == f"no image delivery: there are {', '.join(RECIPES)}\n"
