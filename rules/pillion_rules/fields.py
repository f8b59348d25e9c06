"""What a field of a rule may be. The one declaration of each field is the metadata of
:class:`pillion_rules.rule.Rule`: the checks, the JSON schema and the manual are made from it."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from pillion_rules.durations import PATTERN, parse_duration
from pillion_rules.errors import nearest, shown
from pillion_rules.names import levels, value_map
from pillion_rules.templates import LONGEST_MESSAGE, TemplateError, parse_template

#: Maximum entries of a list or an object in a rule.
MOST_ENTRIES = 16
LONGEST_EXPRESSION = 10_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class Kind(StrEnum):
    """The type of a field, as the manual calls it."""

    NAME = "name"
    NAMES = "list of names"
    COLUMN = "column"
    COLUMNS = "list of columns"
    EXPRESSION = "expression"
    EXPRESSIONS = "expressions by column"
    SEVERITY = "severity, or expressions by severity"
    DURATION = "duration"
    DELAY = "duration, or `0 seconds`"
    MESSAGE = "message"
    ALERT_TYPE = "AlertType"
    CAUSE = "ProbableCause"


@dataclass(frozen=True, slots=True)
class Declared:
    """What is known of a field beside its name and default."""

    kind: Kind
    text: str
    #: The default as the manual states it, where it is not the value in the class.
    default: str = ""


def about(kind: Kind, text: str, *, default: str = "") -> dict[str, Declared]:
    """The metadata of a field."""
    return {"declared": Declared(kind, text, default)}


def declared(rule_class: type[Any]) -> Iterator[tuple[str, Declared, bool]]:
    """Each field: name, declaration, whether it is required."""
    for one in dataclasses.fields(rule_class):
        if one.init:
            is_required = (
                one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
            )
            yield one.name, cast(Declared, one.metadata["declared"]), is_required


# ---------------------------------------------------------------------- Columns


class ColumnText(str):
    """The text of a condition that is a Column of pyspark. Pickled or copied, it is text alone, as
    executors need no conditions and a Column cannot go there."""

    column: Any

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def text_of(value: Any) -> Any:
    """Return a Column as its text, and any other value as it is. pyspark is not imported."""
    if not any(
        one.__name__ == "Column" and one.__module__.startswith("pyspark.sql.")
        for one in type(value).__mro__
    ):
        return value
    made = ColumnText(value)
    made.column = value
    return made


# ---------------------------------------------------------------------- checks


def problems_of(kind: Kind, value: object) -> Iterator[str]:
    """What is wrong with a value, each with a remedy."""
    yield from _CHECKS[kind](value)


def _text_like(pattern: re.Pattern[str], remedy: str) -> Callable[[object], Iterator[str]]:
    def check(value: object) -> Iterator[str]:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            yield f"{shown(value)} is not valid; {remedy}"

    return check


_name = _text_like(NAME, "write letters, digits, '.', '_' and '-', at most 100, such as fans.hot")


def _names(value: object) -> Iterator[str]:
    if not isinstance(value, list | tuple) or not value:
        yield f'{shown(value)} is no list of names; write for example ["weather.storm"]'
        return
    if len(value) > MOST_ENTRIES:
        yield f"has {len(value)} names; use {MOST_ENTRIES} at most"
    for one in value[:MOST_ENTRIES]:
        yield from _name(one)
    if len({str(one) for one in value}) < len(value):
        yield "has a name twice; write each once"


_column = _text_like(COLUMN, "write the name of one column: letters, digits and '_'")


def _columns(value: object) -> Iterator[str]:
    if not isinstance(value, list | tuple) or not value:
        yield f'{shown(value)} is no list of columns; write for example ["origin"]'
        return
    if len(value) > MOST_ENTRIES:
        yield f"has {len(value)} columns; use {MOST_ENTRIES} at most"
    for one in value[:MOST_ENTRIES]:
        yield from _column(one)
    if len({str(one) for one in value}) < len(value):
        yield "has a column twice; name each once"


def _expression(value: object) -> Iterator[str]:
    if not isinstance(value, str) or not value.strip():
        yield f"{shown(value)} is no expression; write SQL as text, such as 'wind_gust > 40'"
    elif len(value) > LONGEST_EXPRESSION:
        yield f"has {len(value):,} characters; use {LONGEST_EXPRESSION:,} at most"


def _expressions(value: object) -> Iterator[str]:
    if not isinstance(value, Mapping) or not value:
        yield f'{shown(value)} is not valid; write names with SQL, such as {{"n": "count(*)"}}'
        return
    if len(value) > MOST_ENTRIES:
        yield f"has {len(value)} entries; use {MOST_ENTRIES} at most"
        return
    for name, one in value.items():
        yield from (f"{shown(name)}: {problem}" for problem in _column(name))
        yield from (f"{shown(name)}: {problem}" for problem in _expression(one))


def _severity(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from _level(value)
        return
    if not isinstance(value, Mapping) or not value:
        yield f"{shown(value)} is not valid; write for example {{'Major': 'wind_gust > 40'}}"
        return
    for name, one in value.items():
        yield from _level(name)
        yield from (f"{name}: {problem}" for problem in _expression(one))


def _level(name: object) -> Iterator[str]:
    if name == "Information":
        yield "Information is the severity of a cleared alert; use Degraded/Warning or above"
    elif name not in levels():
        yield f"{shown(name)} is no severity of CIM; {nearest(str(name), levels())}"


def _duration(value: object) -> Iterator[str]:
    found = parse_duration(value) if isinstance(value, str) else None
    if not found:
        yield f'{shown(value)} is no duration; write for example "3 hours", up to 3,660 days'


def _delay(value: object) -> Iterator[str]:
    if not isinstance(value, str) or parse_duration(value) != 0:
        yield from _duration(value)


def _message(value: object) -> Iterator[str]:
    if not isinstance(value, str) or not value.strip():
        yield f"{shown(value)} is no message; write text such as '{{origin}}: gusts'"
    elif len(value) > LONGEST_MESSAGE:
        yield f"has {len(value):,} characters; use {LONGEST_MESSAGE:,} at most"
    elif re.search("[\ud800-\udfff]", value):
        yield "has half of a surrogate pair; write the whole character"
    else:
        try:
            parse_template(value)
        except TemplateError as error:
            yield str(error)


def _one_of(property_name: str) -> Callable[[object], Iterator[str]]:
    def check(value: object) -> Iterator[str]:
        known = value_map(property_name)
        if not isinstance(value, str) or value not in known:
            yield f"{shown(value)} is no {property_name} of CIM; {_near(str(value), known)}"

    return check


def _near(value: str, known: Mapping[str, int]) -> str:
    found = nearest(value, known)
    many = len(known) > MOST_ENTRIES and not found.endswith("?")
    return "use a name of its value map, such as Threshold Crossed" if many else found


_CHECKS: Mapping[Kind, Callable[[object], Iterator[str]]] = {
    Kind.NAME: _name,
    Kind.NAMES: _names,
    Kind.COLUMN: _column,
    Kind.COLUMNS: _columns,
    Kind.EXPRESSION: _expression,
    Kind.EXPRESSIONS: _expressions,
    Kind.SEVERITY: _severity,
    Kind.DURATION: _duration,
    Kind.DELAY: _delay,
    Kind.MESSAGE: _message,
    Kind.ALERT_TYPE: _one_of("AlertType"),
    Kind.CAUSE: _one_of("ProbableCause"),
}


# ---------------------------------------------------------------------- schema


def schema_of(kind: Kind) -> dict[str, Any]:
    """The JSON schema of a field."""
    is_name = kind in (Kind.NAME, Kind.NAMES)
    word = {"type": "string", "pattern": f"^{(NAME if is_name else COLUMN).pattern}$"}
    expression = {"type": "string", "minLength": 1, "maxLength": LONGEST_EXPRESSION}
    match kind:
        case Kind.NAME | Kind.COLUMN:
            return word
        case Kind.NAMES | Kind.COLUMNS:
            bounds = {"minItems": 1, "maxItems": MOST_ENTRIES, "uniqueItems": True}
            return {"type": "array", "items": word, **bounds}
        case Kind.EXPRESSION:
            return expression
        case Kind.EXPRESSIONS:
            bounds = {"minProperties": 1, "maxProperties": MOST_ENTRIES}
            names = {"pattern": f"^{COLUMN.pattern}$"}
            entries = {"propertyNames": names, "additionalProperties": expression}
            return {"type": "object", **entries, **bounds}
        case Kind.SEVERITY:
            of_levels = {name: expression for name in levels()}
            by_level = {"type": "object", "properties": of_levels, "additionalProperties": False}
            return {"anyOf": [{"enum": list(levels())}, {**by_level, "minProperties": 1}]}
        case Kind.DURATION | Kind.DELAY:
            return {"type": "string", "pattern": PATTERN}
        case Kind.MESSAGE:
            return {"type": "string", "minLength": 1, "maxLength": LONGEST_MESSAGE}
        case Kind.ALERT_TYPE | Kind.CAUSE:
            return {"enum": list(value_map(kind.value))}
