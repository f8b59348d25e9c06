"""The problems of a configuration, each with its position and remedy."""

import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: What may be no printable character; the rest is ASCII that is.
_SUSPECT = re.compile(r"[^ -~]")
_LAST_OF_PLANE = 0xFFFF
#: The reason where a rendered configuration's files are not all there: it may still be written.
INCOMPLETE = "Incomplete"
#: The reason where a folder holds nothing to read.
EMPTY = "Empty"
#: The reason where a URL names a host that the deliverer does not allow.
ADDRESS_NOT_PERMITTED = "AddressNotPermitted"


def escape_controls(text: str) -> str:
    """Return ``text`` with each character that is not printable written as JSON writes it:
    ``\\u202e``.

    These are the control characters C0, DEL and C1, the line ends NEL, LS and PS, the marks of
    writing direction and all other format characters, surrogates, and what Unicode has not
    assigned.

    So text of others in a line for people, or for a log, moves no cursor, begins no line and does
    not turn the direction of writing.
    """
    return text if text.isprintable() else _SUSPECT.sub(_escaped, text)


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

    #: One CamelCase word for programs: Invalid, Required, UnknownField, Duplicate, NotFound,
    #: CredentialsNotPermitted, CredentialsUnusable, AddressNotPermitted, Unreadable, Corrupt,
    #: Incomplete, Empty, InternalError.
    reason: str
    #: What is wrong, without a full stop.
    message: str
    #: What to do about it: a sentence.
    remedy: str
    #: The file; empty: none.
    file: str = ""
    #: Line of the file, from 1; 0: not known.
    line: int = 0
    #: ``Kind/name``; empty when it is not known.
    resource: str = ""
    #: Path of the field, such as ``spec.retry.attempts``.
    field: str = ""
    #: The value complained of, shortened; empty when there is none to show.
    value: str = ""
    #: Whether it may pass with the files as they are: the system could not read them just now.
    may_pass: bool = False

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        where = ": ".join(part for part in (place, self.resource, self.field) if part)
        value = f" (value {self.value})" if self.value else ""
        return escape_controls(f"{where}: {self.message}{value}. {self.remedy}".removeprefix(": "))


#: Maximum number of problems, and of warnings, in the text of an error.
MOST_TOLD = 100


class ConfigurationError(Exception):
    """A configuration that cannot be used, with all that is wrong with it.

    The text of the error has the first :data:`MOST_TOLD` problems, and as many warnings: a warning
    may say what a problem comes from.
    """

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
        """Whether reading the same files again may end otherwise."""
        return any(problem.may_pass for problem in self.problems)

    @property
    def absent(self) -> bool:
        """Whether the only problem is that no file, or not all, have arrived."""
        return all(problem.reason in (INCOMPLETE, EMPTY) for problem in self.problems)


#: The reason of a complaint about Pillion itself.
INTERNAL_ERROR = "InternalError"
#: Maximum number of calls in the problem about a defect.
_CALLS = 5


def defect(error: Exception) -> Problem:
    """The complaint about an exception that no code expected.

    It names the exception's type and the innermost calls. The exception's text may hold what a
    Secret holds, so it is left out.
    """
    calls = traceback.extract_tb(error.__traceback__)[-_CALLS:]
    places = " < ".join(f"{Path(call.filename).name}:{call.lineno}" for call in reversed(calls))
    return Problem(
        reason=INTERNAL_ERROR,
        message=f"Pillion failed to read the resources: {type(error).__name__} at {places}",
        remedy="This is a defect of Pillion; report it, and undo the last change until it is "
        "fixed.",
    )


#: Maximum number of characters of a value in a problem.
_SHOWN = 80


def show(value: object) -> str:
    """``value`` as a complaint shows it: one line, shortened."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case str():
            text = repr(value[: _SHOWN + 1])
        case dict():
            text = "an object"
        case list():
            text = f"a list of {len(value)}"
        case _:
            text = str(value) if not isinstance(value, int) or abs(value) < 10**40 else "huge"
    return text if len(text) <= _SHOWN + 2 else text[:_SHOWN] + "…"
