"""The manual as its reader finds it: pages, the blocks and tables in them."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.house import ROOT

DOCS = ROOT / "docs"
#: The pages that people write; those of docs/reference/ and docs/rows.md are generated.
WRITTEN = sorted([ROOT / "README.md", *DOCS.glob("*.md")])
PAGES = [page for page in WRITTEN if page.name not in ("rows.md", "benchmarks.md")]

#: Set in the environment, it has pages written anew with what their commands print.
REWRITE = "PILLION_REWRITE_MANUAL"
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


@dataclass(frozen=True, slots=True)
class Shown:
    """One command of a page, and what the page says that it prints."""

    command: str
    prints: str


def shown_in(block: str) -> Iterator[Shown]:
    """The commands of a ``console`` block, in order."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, prints = part.partition("\n")
        yield Shown(command, prints)


def shown(page: Path) -> Iterator[Shown]:
    """The commands of a page, in order."""
    for block in blocks(page, "console"):
        yield from shown_in(block)


def keep(page: Path, printed: Sequence[Shown]) -> None:
    """Write the page anew, where the environment asks for it."""
    if not os.environ.get(REWRITE):
        return
    told_of = iter(printed)
    text = page.read_text(encoding="utf-8")
    for block in blocks(page, "console"):
        steps = [next(told_of) for _ in shown_in(block)]
        told = "".join(f"$ {one.command}\n{lines(one.prints)}" for one in steps)
        text = text.replace(f"```console\n{block}```", f"```console\n{told}```", 1)
    page.write_text(text, encoding="utf-8")


def lines(printed: str) -> str:
    """An output as it stands on the page: no blanks at the ends of its lines, and a last line."""
    text = "\n".join(line.rstrip() for line in printed.rstrip().splitlines())
    return f"{text}\n" if text else ""
