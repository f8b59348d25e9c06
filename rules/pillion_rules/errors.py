"""What is raised for rules, cases and states."""

import difflib
from collections.abc import Iterable


class PillionRulesError(Exception):
    """The base of this package's errors about its input."""


class RuleError(PillionRulesError):
    """A rule, or a file of rules or of cases, is wrong: every problem, with field and remedy."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class StateError(PillionRulesError):
    """A stored state cannot be read."""


def shown(value: object) -> str:
    """A value in an error message, at most 80 characters of it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def nearest(name: str, names: Iterable[str]) -> str:
    """The remedy for an unknown name: the most similar one, else all."""
    known = list(names)
    lowered = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name[:80].lower(), lowered, n=1)
    return f"did you mean {lowered[found[0]]}?" if found else f"use one of {', '.join(known)}"
