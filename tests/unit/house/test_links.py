"""Links in the project's own pages lead somewhere, anchors included."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from support.house import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("*/README.md"),
        *ROOT.glob("examples/*/README.md"),
        *ROOT.glob("docs/**/*.md"),
    ]
)
_CODE = re.compile(r"^( *)```.*?^\1```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_IDENTIFIER = re.compile(r"""\bid=["']([^"']+)|\{#([^}\s]+)\}""")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page, as Python-Markdown's toc makes them of headings."""
    text = page.read_text(encoding="utf-8")
    without_blocks = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.DOTALL | re.MULTILINE)
    found: set[str] = {one or other for one, other in _IDENTIFIER.findall(text)}
    times: Counter[str] = Counter()
    for heading in _HEADING.findall(without_blocks):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())
        found.add(f"{slug}_{times[slug]}" if times[slug] else slug)
        times[slug] += 1
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_links_only_to_what_is_there(page: Path) -> None:
    dead = []
    for name, anchor in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        target = page.parent / name if name else page
        is_there = target.exists() and (
            not anchor or target.suffix != ".md" or anchor in anchors(target)
        )
        if not is_there:
            dead.append(f"{name}#{anchor}")
    assert dead == []


def test_the_picture_is_drawn_without_the_network() -> None:
    for picture in (ROOT / "docs").rglob("*.svg"):
        addresses = re.findall(r"https?://[^\s\"']+", picture.read_text(encoding="utf-8"))
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}
