"""What ``pillion doctor`` finds, and how it is shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from pillion_cli.terminal import Output, Style, wrapped

_INDENT = 9


class Level(IntEnum):
    """The worst first."""

    PROBLEM = 0
    WARNING = 1
    OK = 2

    def __str__(self) -> str:
        return self.name.lower()


_STYLES = {Level.PROBLEM: Style.ALARM, Level.WARNING: Style.YELLOW, Level.OK: Style.GREEN}


@dataclass(frozen=True, slots=True)
class Finding:
    #: What was checked, such as "clock" or "way to siem".
    check: str
    level: Level
    #: In one line; may have what others sent.
    text: str
    #: What to do; empty: nothing.
    remedy: str = ""

    def document(self) -> dict[str, str]:
        return {
            "check": self.check,
            "level": str(self.level),
            "text": self.text,
            "remedy": self.remedy,
        }


def ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, remedy: str = "") -> Finding:
    return Finding(check, Level.WARNING, text, remedy)


def problem(check: str, text: str, remedy: str = "") -> Finding:
    return Finding(check, Level.PROBLEM, text, remedy)


def finding_lines(findings: Sequence[Finding], output: Output) -> Iterator[str]:
    """Yield the worst first, and a summary. Without a terminal each is one line."""
    width = None if output.width is None else max(1, output.width - _INDENT)
    for one in sorted(findings, key=lambda one: one.level):
        level = output.paint(str(one.level), _STYLES[one.level])
        padding = " " * (_INDENT - len(str(one.level)))
        text = f"{one.check}: {one.text}"
        if width is None:
            (line,) = wrapped(f"{text}; do: {one.remedy}" if one.remedy else text, None)
            yield f"{level}{padding}{line}"
            continue
        first, *more = wrapped(text, width)
        yield f"{level}{padding}{first}"
        for line in (*more, *(wrapped(f"do: {one.remedy}", width) if one.remedy else ())):
            yield f"{' ' * _INDENT}{line}"
    yield from wrapped(summary(findings), output.width)


def summary(findings: Sequence[Finding]) -> str:
    counts = [sum(one.level is level for one in findings) for level in Level]
    problems, warnings, rest = counts
    return (
        f"{problems:,} {'problem' if problems == 1 else 'problems'}, "
        f"{warnings:,} {'warning' if warnings == 1 else 'warnings'}, {rest:,} ok"
    )
