import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: Candidates for escaping; the rest is printable ASCII.
_SUSPECT = re.compile(r"[^ -~]")
_LAST_OF_PLANE = 0xFFFF
#: Files of a rendered configuration are missing; it may still be written.
INCOMPLETE = "Incomplete"
#: The folder holds nothing to read.
EMPTY = "Empty"
ADDRESS_NOT_PERMITTED = "AddressNotPermitted"


def escape_controls(text: str) -> str:
    """Escape each character that is not printable as JSON does (``\\u202e``), so that foreign text
    in a log or terminal moves no cursor, begins no line and does not reverse the writing
    direction."""
    return text if text.isprintable() else _SUSPECT.sub(_escaped, text)


def one_line(text: str, most: int) -> str:
    """The first ``most`` characters of a peer's text; a space for each that is not printable."""
    text = text[:most]
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _escaped(found: re.Match[str]) -> str:
    letter = found[0]
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code <= _LAST_OF_PLANE:
        return f"\\u{code:04x}"
    pair = letter.encode("utf-16-be").hex()
    return f"\\u{pair[:4]}\\u{pair[4:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem. Its texts never contain data of a Secret."""

    #: CamelCase word for programs: Invalid, Required, UnknownField, Duplicate, NotFound,
    #: CredentialsNotPermitted, CredentialsUnusable, AddressNotPermitted, Unreadable, Corrupt,
    #: Incomplete, Empty, InternalError.
    reason: str
    #: No full stop.
    message: str
    #: A sentence.
    remedy: str
    file: str = ""
    #: From 1; 0: unknown.
    line: int = 0
    #: ``Kind/name``, or empty.
    resource: str = ""
    field: str = ""
    #: Shortened; may be empty.
    value: str = ""
    #: Whether a new read may succeed with the files as they are.
    may_pass: bool = False

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        where = ": ".join(part for part in (place, self.resource, self.field) if part)
        value = f" (value {self.value})" if self.value else ""
        return escape_controls(f"{where}: {self.message}{value}. {self.remedy}".removeprefix(": "))


MOST_TOLD = 100


class ConfigurationError(Exception):
    """A configuration that cannot be used. Its text has the first :data:`MOST_TOLD` problems and
    warnings: a warning may explain a problem."""

    def __init__(self, problems: Iterable[Problem], *, warnings: Iterable[str] = ()) -> None:
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)
        told = [str(problem) for problem in self.problems[:MOST_TOLD]]
        told += [f"warning: {warning}" for warning in self.warnings[:MOST_TOLD]]
        left = sum(max(0, len(of) - MOST_TOLD) for of in (self.problems, self.warnings))
        if left:
            told.append(f"… and {left:,} more; pillion validate lists all")
        super().__init__("\n".join(told))

    @property
    def incomplete(self) -> bool:
        """Whether the only problem is that files have not all arrived."""
        return all(problem.reason == INCOMPLETE for problem in self.problems)

    @property
    def may_pass(self) -> bool:
        return any(problem.may_pass for problem in self.problems)

    @property
    def absent(self) -> bool:
        """Whether the only problem is that no file, or not all, have arrived."""
        return all(problem.reason in (INCOMPLETE, EMPTY) for problem in self.problems)


INTERNAL_ERROR = "InternalError"
_CALLS = 5


def defect(error: Exception) -> Problem:
    """Return the problem for an unexpected exception: its type and innermost calls, without its
    text, which may hold a Secret's data."""
    calls = traceback.extract_tb(error.__traceback__)[-_CALLS:]
    places = " < ".join(f"{Path(call.filename).name}:{call.lineno}" for call in reversed(calls))
    return Problem(
        reason=INTERNAL_ERROR,
        message=f"Pillion failed to read the resources: {type(error).__name__} at {places}",
        remedy="This is a defect of Pillion; report it, and undo the last change until it is "
        "fixed.",
    )


_SHOWN = 80


def show(value: object) -> str:
    """Return ``value`` on one line, shortened."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case str():
            text = repr(without_password(value)[: _SHOWN + 1])
        case dict():
            text = "an object"
        case list():
            text = f"a list of {len(value)}"
        case _:
            text = str(value) if not isinstance(value, int) or abs(value) < 10**40 else "huge"
    return text if len(text) <= _SHOWN + 2 else text[:_SHOWN] + "…"


def without_password(text: str) -> str:
    """A URL, also an invalid one, without what may be a user name and a password."""
    before, at, host = text.rpartition("@")
    if not at or ":" not in before:
        return text
    scheme, separator, _ = before.partition("://")
    return f"{scheme if separator else ''}{separator}…@{host}"
