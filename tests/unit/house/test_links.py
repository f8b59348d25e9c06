"""Links between the project's own pages lead somewhere; mkdocs looks after those inside docs/."""

import re
from pathlib import Path

import pytest

from support.house import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("examples/*/README.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_links_only_to_files_that_are_there(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_picture_is_drawn_without_the_network() -> None:
    for picture in (ROOT / "docs").rglob("*.svg"):
        addresses = re.findall(r"https?://[^\s\"']+", picture.read_text(encoding="utf-8"))
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}
