"""The picture of the modules that one indication passes."""

import re

import generate_modules_picture
from support.house import ROOT

DRAWN = generate_modules_picture.PICTURE.read_text(encoding="utf-8")


def shown(kind: str) -> list[str]:
    return re.findall(rf'class="{kind}" [^>]*><title>(\w+)</title>', DRAWN)


def test_every_module_of_the_picture_exists() -> None:
    paths = [*(ROOT / "sidecar").rglob("*.py"), *(ROOT / "cim").rglob("*.py")]
    names = {path.stem for path in paths} | {path.parent.name for path in paths}
    assert [name for name in shown("b") if name not in names] == [], "run `make generate`"


def test_the_picture_counts_what_it_shows() -> None:
    assert f"before: {len(shown('a'))} modules" in DRAWN
    assert f"now: {len(shown('b'))} modules" in DRAWN
    assert f"({len(shown('a'))}) and now ({len(shown('b'))})" in DRAWN


def test_a_module_is_in_the_row_of_its_package() -> None:
    paths = [
        "sidecar/pillion_sidecar/handlers/http/wire.py",
        "sidecar/pillion_sidecar/journal/log.py",
        "sidecar/pillion_sidecar/clock.py",
        "cim/pillion_cim/jsonform.py",
        "cim/pillion_cim/schema/__init__.py",
    ]
    found = generate_modules_picture.by_package(paths)
    assert {package: names for package, names in found.items() if names} == {
        "handlers": ["wire"],
        "journal": ["log"],
        "pillion_cim": ["jsonform", "schema"],
        "others": ["clock"],
    }
