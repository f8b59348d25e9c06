"""What holds for every query: only FilterError comes out of the parser, the logic is Kleene's, and
the closures give what a plain walk over the tree gives.
"""

import re

from hypothesis import given
from hypothesis import strategies as st

from pillion_cim.filters import FilterError, compile_filter
from pillion_cim.filters.lexer import CQL
from pillion_cim.filters.parser import parse
from pillion_cim.filters.syntax import (
    And,
    Comparison,
    Condition,
    IsNull,
    IsTruth,
    Like,
    Literal,
    Not,
    Or,
    Path,
    Term,
    Truth,
)
from pillion_cim.model import CIMInstance, CIMValue
from support.filter_schema import small_schema

SCHEMA = small_schema()
LANGUAGES = st.sampled_from(["WQL", "DMTF:CQL"])

VOCABULARY = (
    "SELECT FROM WHERE AND OR NOT IS NULL TRUE FALSE LIKE ISA ANY EVERY AS * ( ) [ ] . , :: = <> !="
    " < <= > >= CIM_AlertIndication CIM_InstIndication EventID AlertType Active Numbers Source"
    " SourceInstance Name UPPERCASE CLASSNAME DATETIME CURRENTDATETIME 0 1 -5 1.5 1e400 0x1F 007"
    " 'x' \"x\" 'a.*|b' '%' ' \" \\ # $ ; -- é ſ"
)
SOUP = st.lists(st.sampled_from(VOCABULARY.split()), max_size=25).map(" ".join)
LIKELY = SOUP.map(lambda soup: "SELECT * FROM CIM_AlertIndication WHERE " + soup)


@given(query=SOUP | LIKELY | st.text(max_size=60), language=LANGUAGES)
def test_nothing_but_a_filter_error_comes_out(query: str, language: str) -> None:
    try:
        made = compile_filter(query, language=language, schema=SCHEMA)
    except FilterError as error:
        place = (error.line, error.column)
    else:
        place = (1, 1)
        truth = made.evaluate(CIMInstance("CIM_AlertIndication", {"EventID": "x"}))
        assert truth in (True, False, None)
    assert place[0] >= 1
    assert 1 <= place[1] <= len(query) + 1


# --- conditions, as text, and what they mean

NUMBERS = ("AlertType", "PerceivedSeverity", "Total")
TEXTS = ("EventID", "Message", "IndicationIdentifier")
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
VALUES = st.integers(-1, 3)
STRINGS = st.sampled_from(["", "a", "ab", "b"])

atoms = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from(NUMBERS), st.sampled_from(OPERATORS), VALUES),
    st.builds("{} {} {}".format, VALUES, st.sampled_from(OPERATORS), st.sampled_from(NUMBERS)),
    st.builds("{} {} {}".format, st.sampled_from(NUMBERS), st.just("<="), st.just("Reading")),
    st.builds("{} {} '{}'".format, st.sampled_from(TEXTS), st.sampled_from(OPERATORS), STRINGS),
    st.builds(
        "{} {} '{}'".format,
        st.sampled_from(TEXTS),
        st.sampled_from(["LIKE", "NOT LIKE"]),
        st.sampled_from(["a.*", ".*b", "a*b*", ""]),
    ),
    st.builds("{} IS NULL".format, st.sampled_from(NUMBERS + TEXTS)),
    st.sampled_from(["Active", "Active = TRUE", "FALSE <> Active"]),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {} OR {})".format, inner, inner, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("(({}) IS NOT TRUE)".format, inner),
        st.builds("{} AND {} OR {}".format, inner, inner, inner),
    ),
    max_leaves=8,
)
properties = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(NUMBERS, st.none() | VALUES),
        **dict.fromkeys(TEXTS, st.none() | STRINGS),
        "Reading": st.none() | st.floats(-1, 3),
        "Active": st.none() | st.booleans(),
    },
)


def truth_of(where: str, values: dict[str, CIMValue]) -> bool | None:
    query = f"SELECT * FROM CIM_AlertIndication WHERE {where}"
    made = compile_filter(query, language="DMTF:CQL", schema=SCHEMA)
    return made.evaluate(CIMInstance("CIM_AlertIndication", values))


@given(left=conditions, right=conditions, values=properties)
def test_the_logic_is_kleenes(left: str, right: str, values: dict[str, CIMValue]) -> None:
    rank = {False: 0, None: 1, True: 2}
    truths = {rank[truth]: truth for truth in rank}
    a, b = truth_of(left, values), truth_of(right, values)
    assert truth_of(f"({left}) AND ({right})", values) is truths[min(rank[a], rank[b])]
    assert truth_of(f"({left}) OR ({right})", values) is truths[max(rank[a], rank[b])]
    assert truth_of(f"NOT ({left})", values) is truths[2 - rank[a]]
    # De Morgan, and the order of operands.
    assert truth_of(f"NOT (({left}) AND ({right}))", values) is truth_of(
        f"(NOT ({right})) OR (NOT ({left}))", values
    )


def walk(node: Condition, values: dict[str, CIMValue]) -> bool | None:
    """The meaning of a tree, without any of the compiler's short cuts."""
    match node:
        case And(operands):
            truths = [walk(operand, values) for operand in operands]
            return False if False in truths else None if None in truths else True
        case Or(operands):
            truths = [walk(operand, values) for operand in operands]
            return True if True in truths else None if None in truths else False
        case Not(operand):
            truth = walk(operand, values)
            return None if truth is None else not truth
        case IsTruth(operand, wanted):
            return walk(operand, values) is wanted
        case _:
            return walk_predicate(node, values)


def walk_predicate(node: Condition, values: dict[str, CIMValue]) -> bool | None:
    match node:
        case IsNull(term):
            return value_of(term, values) is None
        case Truth(term):
            truth = value_of(term, values)
            return truth if isinstance(truth, bool) else None
        case Like(term, pattern):
            text = value_of(term, values)
            return bool(re.fullmatch(pattern, text)) if isinstance(text, str) else None
        case Comparison(operator, left, right):
            a, b = value_of(left, values), value_of(right, values)
            if a is None or b is None:
                return None
            symbol = {"=": "==", "<>": "!="}.get(operator.value, operator.value)
            return bool(eval(f"a {symbol} b", {"a": a, "b": b}))
    raise AssertionError(node)


def value_of(term: Term, values: dict[str, CIMValue]) -> CIMValue:
    if isinstance(term, Literal):
        return term.value
    assert isinstance(term, Path)
    return values.get(term.steps[0].name)


@given(where=conditions, values=properties)
def test_closures_give_what_the_tree_means(where: str, values: dict[str, CIMValue]) -> None:
    tree = parse(f"SELECT * FROM CIM_AlertIndication WHERE {where}", CQL)
    assert tree.condition is not None
    assert truth_of(where, values) is walk(tree.condition, values)
