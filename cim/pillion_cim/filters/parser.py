"""Parses tokens to a tree, by recursive descent. Depth is bounded here, so no walk of the tree
overflows the stack; chains of AND and OR are flat."""

from collections.abc import Callable
from typing import TypeVar

from pillion_cim.filters.lexer import (
    LONGEST_SHOWN,
    Dialect,
    FilterError,
    Token,
    TokenKind,
    pattern_text,
    plain_text,
    tokenize,
)
from pillion_cim.filters.syntax import (
    And,
    Call,
    Comparison,
    Condition,
    Function,
    IsA,
    IsNull,
    IsTruth,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Path,
    Quantifier,
    Query,
    Step,
    Term,
    Truth,
)

#: Characters of a query, as in the schema of resources.
MAX_QUERY_LENGTH = 8192
#: Nested parentheses, NOTs and calls.
MAX_DEPTH = 100

_RESERVED = frozenset(
    ("select", "from", "where", "and", "or", "not", "is", "null", "true", "false", "like", "isa")
)
_RESERVED_IN_CQL = _RESERVED | {"as", "any", "every"}
#: Remedies for a query with a wrong beginning.
_BEGINNINGS = {
    "select": "Begin with SELECT * FROM and the name of a class.",
    "from": "Write FROM and the name of a class behind SELECT *.",
}
#: SQL words that no filter has, and their replacement.
_ELSEWHERE = {
    "in": "Write (A = 1 OR A = 2) for A IN (1, 2).",
    "between": "Write A >= 1 AND A <= 5 for A BETWEEN 1 AND 5.",
    "contains": "Write LIKE.",
    **dict.fromkeys(
        ("limit", "order", "group", "having"), "A filter ends with the condition behind WHERE."
    ),
}
_OPERATORS = {operator.value: operator for operator in Operator} | {"!=": Operator.NOT_EQUAL}

_Node = TypeVar("_Node", Condition, Term)


def parse(query: str, dialect: Dialect) -> Query:
    """Raises FilterError for a query that is too long, too deep, or not of the dialect."""
    if len(query) > MAX_QUERY_LENGTH:
        raise FilterError(
            f"the query has {len(query):,} characters, and {MAX_QUERY_LENGTH:,} is the most",
            query=query,
            offset=MAX_QUERY_LENGTH,
        )
    return _Parser(query, dialect).query()


class _Parser:
    def __init__(self, query: str, dialect: Dialect) -> None:
        self._query = query
        self._dialect = dialect
        self._tokens = tokenize(query, dialect)
        self._at = 0
        self._depth = 0
        self._reserved = _RESERVED_IN_CQL if dialect.extended else _RESERVED

    # --- the query

    def query(self) -> Query:
        self._expect_keyword("select")
        selected_offset = self._token.offset
        selected = self._selected()
        from_offset = self._token.offset
        self._expect_keyword("from")
        class_name = self._name("the name of a class")
        alias = self._alias()
        if self._is_symbol(","):
            raise self._error(
                "a filter has one class after FROM", "Make one filter for each class."
            )
        condition = self._or() if self._take_keyword("where") else None
        if self._token.kind is not TokenKind.END:
            raise self._misplaced(has_condition=condition is not None)
        return Query(
            selected=selected,
            selected_offset=selected_offset,
            from_offset=from_offset,
            class_name=class_name.text,
            class_offset=class_name.offset,
            alias=alias,
            condition=condition,
        )

    def _misplaced(self, *, has_condition: bool) -> FilterError:
        """The error for text after a condition, or in place of WHERE."""
        word = self._token.text.lower() if self._token.kind is TokenKind.NAME else ""
        remedy = _ELSEWHERE.get(word, "")
        if not has_condition:
            return self._expected("WHERE", remedy or "Write WHERE before the condition.")
        before = self._tokens[self._at - 1]
        if not remedy and before.kind is TokenKind.NAME:
            remedy = "Write a text in quotes: 'text'."
        return self._expected("AND, OR or the end of the query", remedy)

    def _selected(self) -> tuple[Path, ...] | None:
        if self._take_symbol("*"):
            return None
        if self._peek(1).text == "." and self._peek(2).text == "*":
            # Class.* and alias.* mean the same as *: there is one class.
            self._name("a name")
            self._at += 2
            return None
        paths = [self._path()]
        while self._take_symbol(","):
            paths.append(self._path())
        return tuple(paths)

    def _alias(self) -> str | None:
        if not self._dialect.extended:
            return None
        if self._take_keyword("as"):
            return self._name("an alias").text
        token = self._token
        if token.kind is TokenKind.NAME and token.text.lower() not in self._reserved:
            return self._name("an alias").text
        return None

    # --- conditions, the loosest first

    def _or(self) -> Condition:
        operands = self._chain("or", self._and)
        return operands[0] if len(operands) == 1 else Or(operands)

    def _and(self) -> Condition:
        operands = self._chain("and", self._not)
        return operands[0] if len(operands) == 1 else And(operands)

    def _chain(self, word: str, operand: Callable[[], Condition]) -> tuple[Condition, ...]:
        operands = [operand()]
        while self._take_keyword(word):
            operands.append(operand())
        return tuple(operands)

    def _not(self) -> Condition:
        if self._is_keyword("not"):
            return self._nested(self._negated)
        return self._tested()

    def _negated(self) -> Condition:
        self._expect_keyword("not")
        return Not(self._not())

    def _tested(self) -> Condition:
        condition = self._primary()
        while self._take_keyword("is"):
            negated = self._take_keyword("not")
            wanted = self._is_keyword("true")
            if not wanted and not self._is_keyword("false"):
                raise self._expected("TRUE or FALSE")
            self._at += 1
            condition = IsTruth(condition, wanted)
            if negated:
                condition = Not(condition)
        return condition

    def _primary(self) -> Condition:
        if self._is_symbol("("):
            return self._nested(self._parenthesised)
        if self._dialect.extended:
            for quantifier in Quantifier:
                if self._take_keyword(quantifier.value.lower()):
                    return self._quantified(quantifier)
        return self._predicate()

    def _parenthesised(self) -> Condition:
        self._expect_symbol("(")
        condition = self._or()
        self._expect_symbol(")")
        return condition

    def _quantified(self, quantifier: Quantifier) -> Condition:
        term = self._path()
        if self._is_keyword("like") or self._is_keyword("not"):
            return self._like(term, quantifier)
        return self._comparison(term, quantifier)

    def _predicate(self) -> Condition:
        offset = self._token.offset
        term = self._term()
        if self._token.text in _OPERATORS and self._token.kind is TokenKind.SYMBOL:
            return self._comparison(term)
        if self._is_keyword("like") or self._is_keyword("not"):
            return self._like(term)
        if self._is_keyword("isa"):
            return self._isa(term)
        if self._is_keyword("is") and (null := self._is_null(term)) is not None:
            return null
        return Truth(term, offset)

    def _comparison(self, left: Term, quantifier: Quantifier | None = None) -> Condition:
        token = self._token
        operator = _OPERATORS.get(token.text) if token.kind is TokenKind.SYMBOL else None
        if operator is None:
            raise self._expected("a comparison")
        self._at += 1
        if self._is_keyword("null"):
            test = "IS NOT NULL" if operator is Operator.NOT_EQUAL else "IS NULL"
            raise self._error("a comparison with NULL is never true", f"Write {test}.")
        return Comparison(operator, left, self._term(), token.offset, quantifier)

    def _like(self, term: Term, quantifier: Quantifier | None = None) -> Condition:
        negated = self._take_keyword("not")
        offset = self._token.offset
        self._expect_keyword("like")
        token = self._token
        if token.kind is not TokenKind.STRING:
            shown = token.text[:LONGEST_SHOWN] if token.kind is TokenKind.NAME else "text"
            raise self._expected("a pattern in quotes", f"Write '{shown}'.")
        self._at += 1
        like = Like(term, pattern_text(token), token.offset + 1, offset, quantifier)
        return Not(like) if negated else like

    def _isa(self, term: Term) -> Condition:
        token = self._token
        self._at += 1
        if not isinstance(term, Path):
            raise self._error(
                "what stands before ISA must be the class after FROM, or an embedded instance",
                "",
                token.offset,
            )
        if self._token.kind is TokenKind.STRING:
            name = self._token.text
            self._at += 1
        else:
            name = self._name("the name of a class").text
        return IsA(term, name, token.offset)

    def _is_null(self, term: Term) -> Condition | None:
        """IS [NOT] NULL; None for IS [NOT] TRUE."""
        offset = self._token.offset
        negated = self._peek(1).text.lower() == "not"
        after = self._peek(2 if negated else 1)
        if after.text.lower() != "null":
            return None
        self._at += 3 if negated else 2
        condition = IsNull(term, offset)
        return Not(condition) if negated else condition

    # --- terms

    def _term(self) -> Term:
        token = self._token
        if token.kind is TokenKind.NUMBER:
            self._at += 1
            return Literal(token.number, token.offset)
        if token.kind is TokenKind.STRING:
            self._at += 1
            text = plain_text(token, query=self._query, dialect=self._dialect)
            return Literal(text, token.offset)
        for word in ("true", "false"):
            if self._take_keyword(word):
                return Literal(word == "true", token.offset)
        if self._is_keyword("null"):
            raise self._error("a comparison with NULL is never true", "Write IS NULL.")
        if token.kind is TokenKind.NAME and self._peek(1).text == "(":
            return self._nested(self._call)
        return self._path()

    def _call(self) -> Term:
        token = self._token
        word = token.text.upper()
        if not self._dialect.extended:
            raise self._error("WQL has no functions", "Set the query language to DMTF:CQL.")
        if word == "CURRENTDATETIME":
            raise self._error(
                "CURRENTDATETIME is not supported: a filter gives the same answer at any time",
                "Compare with a fixed DATETIME('...').",
            )
        if word not in Function.__members__:
            raise self._error(
                f"there is no function {token.text}", f"There are {', '.join(Function)}."
            )
        self._at += 1
        self._expect_symbol("(")
        argument = self._term()
        self._expect_symbol(")")
        return Call(Function[word], argument, token.offset)

    def _path(self) -> Path:
        offset = self._token.offset
        steps = [self._step()]
        while self._take_symbol("."):
            steps.append(self._step())
        if len(steps) > MAX_DEPTH:
            raise self._error("this name has too many parts", "", offset)
        return Path(tuple(steps), offset)

    def _step(self) -> Step:
        token = self._name("the name of a property")
        scope = None
        if self._is_symbol("::"):
            self._only_in_cql("Class::Property")
            self._at += 1
            scope = token.text
            token = self._name("the name of a property")
        return Step(token.text, token.offset, scope, self._index())

    def _index(self) -> int | None:
        if not self._is_symbol("["):
            return None
        self._only_in_cql("an index")
        self._at += 1
        token = self._token
        if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
            raise self._expected("an index: a whole number from 0")
        self._at += 1
        self._expect_symbol("]")
        return int(token.number)

    # --- tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _peek(self, ahead: int) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _is_keyword(self, word: str) -> bool:
        return self._token.kind is TokenKind.NAME and self._token.text.lower() == word

    def _take_keyword(self, word: str) -> bool:
        found = self._is_keyword(word)
        self._at += found
        return found

    def _expect_keyword(self, word: str) -> None:
        if not self._take_keyword(word):
            raise self._expected(word.upper(), _BEGINNINGS.get(word, ""))

    def _is_symbol(self, symbol: str) -> bool:
        return self._token.kind is TokenKind.SYMBOL and self._token.text == symbol

    def _take_symbol(self, symbol: str) -> bool:
        found = self._is_symbol(symbol)
        self._at += found
        return found

    def _expect_symbol(self, symbol: str) -> None:
        if not self._take_symbol(symbol):
            raise self._expected(symbol)

    def _name(self, what: str) -> Token:
        token = self._token
        if token.kind is not TokenKind.NAME or token.text.lower() in self._reserved:
            raise self._expected(what)
        self._at += 1
        return token

    def _nested(self, parse: Callable[[], _Node]) -> _Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"the query is nested more than {MAX_DEPTH} deep", "")
        parsed = parse()
        self._depth -= 1
        return parsed

    # --- errors

    def _only_in_cql(self, what: str) -> None:
        if not self._dialect.extended:
            raise self._error(f"{what} is not part of WQL", "Set the query language to DMTF:CQL.")

    def _expected(self, what: str, remedy: str = "") -> FilterError:
        return self._error(f"expected {what}, found {self._token}", remedy)

    def _error(self, message: str, remedy: str, offset: int | None = None) -> FilterError:
        where = self._token.offset if offset is None else offset
        return FilterError(message, query=self._query, offset=where, remedy=remedy)
