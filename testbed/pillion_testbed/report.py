"""What the tests on a node did, how long each step took, and what they measured."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(".cache/e2e-report.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: what was done, for how many seconds, and whether to its end."""

    name: str
    seconds: float
    done: bool


@dataclass(slots=True, kw_only=True)
class Report:
    """Collects the steps and figures of a session."""

    clock: Callable[[], float] = time.monotonic
    steps: list[Step] = field(default_factory=list)
    figures: list[tuple[str, str]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Do one step. One within another is told before it."""
        begun, done = self.clock(), False
        try:
            yield
            done = True
        finally:
            self.steps.append(Step(name=name, seconds=self.clock() - begun, done=done))

    def figure(self, name: str, value: str) -> None:
        """Tell what was measured, with its unit."""
        self.figures.append((name, value))

    def lines(self) -> list[str]:
        """The report, in Markdown."""
        if not self.steps and not self.figures:
            return []
        told = [(one.name + ("" if one.done else " (FAILED)"), one.seconds) for one in self.steps]
        found = table(("step", "seconds"), [(name, f"{took:.1f}") for name, took in told])
        if self.figures:
            found += ["", *table(("figure", "measured"), self.figures)]
        return found


def table(heads: tuple[str, str], rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return a table of two columns in Markdown, which reads well as it is."""
    escaped = [tuple(cell.replace("|", "\\|") for cell in row) for row in (heads, *rows)]
    first, second = (max(len(row[column]) for row in escaped) for column in (0, 1))
    lines = [f"| {left:<{first}} | {right:>{second}} |" for left, right in escaped]
    lines.insert(1, f"| {'-' * first} | {'-' * (second - 1)}: |")
    return lines
