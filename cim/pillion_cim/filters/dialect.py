"""The two query languages and their differences."""

from dataclasses import dataclass

from pillion_cim import CIMDataError

#: Characters of a long line that are shown on each side of the place of an error.
_CONTEXT = 60


class FilterError(CIMDataError, ValueError):
    """A query is not a valid filter.

    ``line`` and ``column`` count from 1. The text of the error shows the line of the query with a
    caret under the place, and the remedy where there is one.
    """

    def __init__(self, message: str, *, query: str, offset: int, remedy: str = "") -> None:
        start = query.rfind("\n", 0, offset) + 1
        end = query.find("\n", offset)
        self.message = message
        self.remedy = remedy
        self.line = query.count("\n", 0, offset) + 1
        self.column = offset - start + 1
        shown = _excerpt(query[start : end if end >= 0 else len(query)], offset - start)
        ending = f"\n{remedy}" if remedy else ""
        super().__init__(f"line {self.line}, column {self.column}: {message}\n{shown}{ending}")


def _excerpt(line: str, column: int) -> str:
    first = max(0, column - _CONTEXT)
    before = ("…" if first else "") + line[first:column]
    after = line[column : column + _CONTEXT]
    more = "…" if len(line) > column + _CONTEXT else ""
    # A tab keeps its width in the line of the caret.
    margin = "".join("\t" if character == "\t" else " " for character in before)
    return f"  {before}{after}{more}\n  {margin}^"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a query language has beyond the common ground.

    Common to both: AND, OR, NOT, parentheses, the six comparisons, IS [NOT] NULL, TRUE and FALSE,
    [NOT] LIKE, ISA, and dotted access into embedded instances.
    """

    name: str
    #: The characters that may stand around a string.
    quotes: str
    #: Whether a backslash escapes a quote or a backslash inside a string.
    escapes: bool
    #: Class::Property, alias, [index], ANY, EVERY, functions and hexadecimal numbers.
    extended: bool


#: OpenPegasus's WQL, with strings in either kind of quote, LIKE, ISA and dotted names added.
WQL = Dialect(name="WQL", quotes="\"'", escapes=False, extended=False)
#: The useful part of DMTF:CQL (DSP0202).
CQL = Dialect(name="DMTF:CQL", quotes="'", escapes=True, extended=True)


def find_dialect(language: str) -> Dialect | None:
    """The dialect that a QueryLanguage names, without regard to case; None for any other."""
    return {"wql": WQL, "dmtf:cql": CQL, "cim:cql": CQL}.get(language.lower())
