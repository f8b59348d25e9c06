"""The manual builds without a warning, and reads as well without a network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.house import ROOT

#: What a browser would fetch for a page, as opposed to what a reader may follow.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]+src=["']?(https?://[^"'\s>]+)"""
    r"""|<link[^>]+href=["']?(https?://[^"'\s>]+)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_in_the_navigation_and_no_link_is_broken(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in markdown()}
    assert {page for page in pages if not (site / page).exists()} == set()
    start = (site / "index.html").read_text(encoding="utf-8")
    assert {str(page) for page in pages if f'href="{page}"' not in start} <= {"index.html"}


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    fetched = {
        "".join(found)
        for page in site.rglob("*.html")
        for found in FETCHED.findall(page.read_text(encoding="utf-8"))
    }
    assert fetched == set()


def test_the_search_has_what_it_needs_without_a_server(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var ")
    for page in ("index.html", "reference/cli.html"):
        text = (site / page).read_text(encoding="utf-8")
        (source,) = re.findall(r'<script src="([^"]*iframe-worker\.js)"', text)
        assert (site / page).parent.joinpath(source).resolve().is_file()
        # The script stands in for workers before the one that makes them.
        assert text.index(source) < text.index("assets/javascripts/bundle")


def markdown() -> list[Path]:
    return sorted((ROOT / "docs").rglob("*.md"))
