"""What is wrong with an instance in JSON: every problem at once, in bounded text."""

from dataclasses import dataclass
from typing import Final

#: No more than these are told of one instance.
MAX_PROBLEMS: Final = 20
_MAX_TEXT: Final = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where it is, and what to do about it."""

    #: Where: ``class``, ``properties.AlertType``, ``properties.MessageArguments[2]``.
    field: str
    #: The value, shortened; empty where there is none.
    value: str
    message: str
    remedy: str

    def __str__(self) -> str:
        got = f" (got {self.value})" if self.value else ""
        return f"{self.field}: {self.message}{got}; {self.remedy}"


class InstanceError(ValueError):
    """The instance is not one that can be taken; ``problems`` says why."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))


class Problems:
    """Gathers the problems of one instance."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, field: str, value: object, message: str, remedy: str) -> None:
        """Note a problem; beyond MAX_PROBLEMS it is dropped."""
        if len(self._found) < MAX_PROBLEMS:
            field = field if len(field) <= 2 * _MAX_TEXT else f"…{field[-2 * _MAX_TEXT :]}"
            self._found.append(Problem(field, shorten(value), message, remedy))

    def add_missing(self, field: str, message: str, remedy: str) -> None:
        """Note that there is no value, unless a problem is known of that field or a part of it."""
        parts = (f"{field}.", f"{field}[")
        told = any(one.field == field or one.field.startswith(parts) for one in self._found)
        if not told and not self.full:
            self._found.append(Problem(field, "", message, remedy))

    @property
    def full(self) -> bool:
        """Whether there is no use in looking for more."""
        return len(self._found) >= MAX_PROBLEMS

    def check(self) -> None:
        """Raise InstanceError if there was any problem."""
        if self._found:
            raise InstanceError(tuple(self._found))


def shorten(value: object) -> str:
    """Show a value in at most some 80 characters, never walking through a large one."""
    if value is None:
        return "null"
    if isinstance(value, str):
        cut = value if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + "…"
        return ascii(cut) if not cut.isprintable() else repr(cut)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        return f"an object of {len(value)} members"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)} items"
    return f"a {type(value).__name__}"
