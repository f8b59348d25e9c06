"""Whether a filter's query is understood, asked while a configuration is loaded."""

from collections.abc import Callable
from dataclasses import dataclass

from pillion_cim.filters import FilterError, compile_filter
from pillion_cim.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterProblem:
    """What is wrong with a query; line and column within it count from 1."""

    message: str
    remedy: str
    line: int
    column: int


#: Gets query and language; None: the query is understood.
CheckQuery = Callable[[str, str], FilterProblem | None]


def query_checker(schema: Schema) -> CheckQuery:
    """A check that compiles the query against the classes of ``schema``."""

    def check_query(query: str, language: str) -> FilterProblem | None:
        try:
            compiled = compile_filter(query, language=language, schema=schema)
        except FilterError as error:
            return FilterProblem(
                message=error.message,
                remedy=error.remedy or "See the manual for what a query may hold.",
                line=error.line,
                column=error.column,
            )
        if compiled.properties is not None:
            # Delivering all properties to one who asked for some would be wrong without a word.
            return FilterProblem(
                message="a list of properties is not applied yet: all would be delivered",
                remedy="Write SELECT * FROM ….",
                line=1,
                column=1,
            )
        return None

    return check_query
