"""The manual as its reader finds it: pages, the blocks and tables in them."""

import re
from pathlib import Path

from support.house import ROOT

DOCS = ROOT / "docs"
#: The pages that people write; those of docs/reference/ and docs/rows.md are generated.
WRITTEN = sorted([ROOT / "README.md", *DOCS.glob("*.md")])
PAGES = [page for page in WRITTEN if page.name not in ("rows.md", "benchmarks.md")]

_CODE = re.compile(r"`([^`]+)`")


def text_of(name: str) -> str:
    """A page of ``docs/``."""
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def table(name: str, head: str) -> list[list[str]]:
    """The rows of the table of ``docs/NAME`` whose head's first cell is ``head``."""
    lines = text_of(name).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"| {head} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        rows.append([cell.strip().replace("\\|", "|") for cell in cells])
    return rows


def codes(text: str) -> list[str]:
    """What stands in backquotes."""
    return _CODE.findall(text)


def numbers(text: str) -> list[int]:
    """The whole numbers, thousands grouped or not."""
    return [int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*", text)]
