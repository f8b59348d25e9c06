"""Messages: a text with names of columns in braces, and no more than that."""

import re
from collections.abc import Mapping
from functools import lru_cache
from string import Formatter

#: Maximum characters of a message, and of a value in it.
LONGEST_MESSAGE = 1_000
LONGEST_VALUE = 200
#: Maximum names in a message.
MOST_NAMES = 32
#: Names that a message may use besides columns. A column of the same name comes first.
BUILT_IN = ("rule", "transition", "level", "at", "since", "count")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class TemplateError(Exception):
    """Says what is wrong, and the remedy."""


@lru_cache(maxsize=1_000)
def parse_template(text: str) -> tuple[tuple[str, str | None], ...]:
    """Pairs of a literal and the name after it (None: the end). Raises TemplateError."""
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise TemplateError(f"{error}; write {{{{ and }}}} for braces of the text") from None
    for _, name, specification, conversion in parts:
        if name is not None and (specification or conversion or not _NAME.fullmatch(name)):
            shown = name + (f"!{conversion}" if conversion else "")
            shown += f":{specification}" if specification else ""
            raise TemplateError(
                f"{{{shown}}} is no name of a column; write a name alone, such as {{origin}}"
            )
    if sum(name is not None for _, name, _, _ in parts) > MOST_NAMES:
        raise TemplateError(f"it has more than {MOST_NAMES} names; remove some")
    return tuple((literal, name) for literal, name, _, _ in parts)


def names_in(parts: object) -> frozenset[str]:
    """The names of columns in the parts of a template."""
    assert isinstance(parts, list | tuple)
    return frozenset(part[1] for part in parts if part[1] is not None)


def fill(parts: tuple[tuple[str, str | None], ...], values: Mapping[str, str]) -> str:
    """A name without a value is shown as ``null``."""
    filled = (
        literal if name is None else literal + values.get(name, "null")[:LONGEST_VALUE]
        for literal, name in parts
    )
    return "".join(filled)
