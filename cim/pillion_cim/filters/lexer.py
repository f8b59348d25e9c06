"""Splits a query into tokens with their places. Two query languages."""

import math
import re
from dataclasses import dataclass
from enum import Enum

from pillion_cim import CIMDataError

#: Characters of a long line shown on each side of an error.
_CONTEXT = 60


class FilterError(CIMDataError, ValueError):
    """A query is not a valid filter. ``line`` and ``column`` count from 1. The text shows the line
    of the query with a caret under the place, and the remedy if there is one."""

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
    # A tab keeps its width in the caret's line.
    margin = "".join("\t" if character == "\t" else " " for character in before)
    return f"  {before}{after}{more}\n  {margin}^"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The features of a query language beyond the common ones.

    Common: AND, OR, NOT, parentheses, the six comparisons, IS [NOT] NULL, TRUE and FALSE, [NOT]
    LIKE, ISA, and dotted access into embedded instances.
    """

    name: str
    quotes: str
    #: Whether a backslash escapes a quote or a backslash inside a string.
    escapes: bool
    #: Class::Property, alias, [index], ANY, EVERY, functions and hexadecimal numbers.
    extended: bool


#: OpenPegasus's WQL, plus strings in either kind of quote, LIKE, ISA and dotted names.
WQL = Dialect(name="WQL", quotes="\"'", escapes=False, extended=False)
#: The useful part of DMTF:CQL (DSP0202).
CQL = Dialect(name="DMTF:CQL", quotes="'", escapes=True, extended=True)


def find_dialect(language: str) -> Dialect | None:
    """Without regard to case; None for an unknown language."""
    return {"wql": WQL, "dmtf:cql": CQL, "cim:cql": CQL}.get(language.lower())


_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)")
_SYMBOL = re.compile(r"<=|>=|<>|!=|::|[=<>().,*\[\]]")
_LONGEST_NUMBER = 60
LONGEST_SHOWN = 40
#: Syntax of other languages, and its replacement here.
_FOREIGN = {
    "===": "Write =.",
    "==": "Write =.",
    "=>": "Write >=.",
    "=<": "Write <=.",
    "><": "Write <>.",
    "!": "Write NOT before a condition, or <> between two values.",
    "&&": "Write AND.",
    "&": "Write AND.",
    "||": "Write OR.",
    "|": "Write OR.",
    ";": "Leave it out: a filter is one query.",
    "/": "Name namespaces in sourceNamespaces.",
    ":": "Name namespaces in sourceNamespaces.",
    **dict.fromkeys("`\u2018\u2019\u201c\u201d", "Write a text as 'text'."),
}


class TokenKind(Enum):
    NAME = "a name"
    NUMBER = "a number"
    STRING = "a string"
    SYMBOL = "a symbol"
    END = "the end of the query"


@dataclass(frozen=True, slots=True)
class Token:
    """``text`` is a name or symbol as written, or a string's body between its quotes, ``quote`` the
    character around a string, ``number`` the value of a number."""

    kind: TokenKind
    text: str
    offset: int
    quote: str = ""
    number: int | float = 0

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return str(self.kind.value)
        return (
            f"{self.quote}{self.text[:LONGEST_SHOWN]}{self.quote}"
            if self.quote
            else repr(self.text[:LONGEST_SHOWN])
        )


def tokenize(query: str, dialect: Dialect) -> list[Token]:
    """Return the tokens of ``query`` and a final END.

    Raises:
        FilterError: a part of the query is no token of the dialect.
    """
    tokens: list[Token] = []
    offset = _skip_space(query, 0)
    # Whether a class name comes next.
    behind_from = False
    while offset < len(query):
        if behind_from and query[offset] in "\"'":
            raise FilterError(
                "the name of a class stands without quotes",
                query=query,
                offset=offset,
                remedy="Leave the quotes out.",
            )
        token, offset = _next_token(query, offset, dialect)
        behind_from = token.kind is TokenKind.NAME and token.text.lower() == "from"
        tokens.append(token)
        offset = _skip_space(query, offset)
    tokens.append(Token(TokenKind.END, "", len(query)))
    return tokens


def _skip_space(query: str, offset: int) -> int:
    match = _SPACE.match(query, offset)
    return match.end() if match else offset


def _next_token(query: str, offset: int, dialect: Dialect) -> tuple[Token, int]:
    if query[offset] in "\"'":
        return _string(query, offset, dialect)
    if match := _NAME.match(query, offset):
        return Token(TokenKind.NAME, match[0], offset), match.end()
    if match := _NUMBER.match(query, offset):
        return _number(query, match, dialect), match.end()
    match = _SYMBOL.match(query, offset)
    foreign = next((one for one in _FOREIGN if query.startswith(one, offset)), None)
    if match and (foreign is None or len(foreign) <= len(match[0])):
        return Token(TokenKind.SYMBOL, match[0], offset), match.end()
    raise FilterError(
        f"{foreign or query[offset]!r} has no meaning in {dialect.name}",
        query=query,
        offset=offset,
        remedy=_FOREIGN.get(foreign or "", ""),
    )


def _string(query: str, start: int, dialect: Dialect) -> tuple[Token, int]:
    quote = query[start]
    if quote not in dialect.quotes:
        raise FilterError(
            f"a string in {dialect.name} stands in single quotes",
            query=query,
            offset=start,
            remedy=_single_quoted(query, start),
        )
    offset = start + 1
    while offset < len(query):
        if (dialect.escapes and query[offset] == "\\") or query.startswith(quote * 2, offset):
            offset += 2
        elif query[offset] == quote:
            body = query[start + 1 : offset]
            return Token(TokenKind.STRING, body, start, quote=quote), offset + 1
        else:
            offset += 1
    remedy = f"Close it with {quote} (a quote inside the string is written twice)."
    raise FilterError("this string does not end", query=query, offset=start, remedy=remedy)


def _single_quoted(query: str, start: int) -> str:
    end = query.find('"', start + 1)
    body = query[start + 1 : end] if end > 0 else ""
    plain = body.isprintable() and "'" not in body and "\\" not in body
    if not plain or not 0 < len(body) <= LONGEST_SHOWN:
        return "Write 'text' instead of \"text\"."
    return f"Write '{body}'."


def _number(query: str, match: re.Match[str], dialect: Dialect) -> Token:
    text, offset = match[0], match.start()
    digits = text.lstrip("+-")
    problem, remedy = "", ""
    if _NAME.match(query, match.end()) or query[match.end() : match.end() + 1] == ".":
        problem, remedy = "this is neither a number nor a name", "Put a text in quotes."
    elif len(text) > _LONGEST_NUMBER:
        problem = "this number is too long"
    elif digits[:2] in ("0x", "0X") and not dialect.extended:
        problem, remedy = "WQL has no hexadecimal numbers", "Write the number in decimal."
    elif len(digits) > 1 and digits.isdecimal() and digits[0] == "0":
        problem, remedy = "a number has no leading zero", f"Write {digits.lstrip('0') or '0'}."
    elif isinstance(value := _value(text), float) and not math.isfinite(value):
        problem = "this number is out of the range of a real64"
    if problem:
        raise FilterError(problem, query=query, offset=offset, remedy=remedy)
    return Token(TokenKind.NUMBER, text, offset, number=_value(text))


def _value(text: str) -> int | float:
    if "x" in text.lower():
        return int(text, 16)
    if any(character in text for character in ".eE"):
        return float(text)
    return int(text)


def plain_text(token: Token, *, query: str, dialect: Dialect) -> str:
    """Return a string token's text: doubled quotes are one, and CQL's escapes are undone.

    In CQL a backslash escapes only a quote or a backslash. DSP0202's further escapes are refused,
    so that a Windows path never turns into tabs.

    Raises:
        FilterError: another escape.
    """
    text = token.text
    if not dialect.escapes:
        return text.replace(token.quote * 2, token.quote)

    def undo(match: re.Match[str]) -> str:
        if match[0] not in ("''", "\\'", "\\\\"):
            offset = token.offset + 1 + match.start()
            remedy = "Write \\\\ for a backslash and \\' or '' for a quote."
            raise FilterError(
                f"{match[0]} is no escape in a string", query=query, offset=offset, remedy=remedy
            )
        return match[0][1]

    return re.sub(r"''|\\.", undo, text, flags=re.DOTALL)


def pattern_text(token: Token) -> str:
    """A LIKE pattern: doubled quotes are one; backslashes belong to the pattern."""
    return token.text.replace(token.quote * 2, token.quote)
