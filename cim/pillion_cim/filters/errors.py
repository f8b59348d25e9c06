"""What is wrong with a query, where, and what to write instead."""

#: Characters of a long line that are shown on each side of the place of an error.
_CONTEXT = 60


class FilterError(ValueError):
    """A query that cannot be a filter.

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
