"""A query that cannot be a filter says where and why, and what to write instead."""

import pytest

from pillion_cim.filters import MAX_QUERY_LENGTH, FilterError, compile_filter
from pillion_sidecar.config.schema.filter import INDICATION_FILTER
from pillion_sidecar.fields import Text
from support.filter_schema import small_schema

SCHEMA = small_schema()


def refused(query: str, language: str = "DMTF:CQL") -> FilterError:
    with pytest.raises(FilterError) as caught:
        compile_filter(query, language=language, schema=SCHEMA)
    return caught.value


ALERTS = "SELECT * FROM CIM_AlertIndication WHERE "

#: (the query, ^ before the character where the error stands; a part of the message)
MARKED = [
    ("^", "expected SELECT"),
    ("^DELETE FROM x", "expected SELECT, found 'DELETE'"),
    ("SELECT ^FROM x", "expected the name of a property"),
    ("SELECT *^", "expected FROM"),
    ("SELECT * FROM ^", "the name of a class, found the end"),
    ("SELECT * FROM ^WHERE", "the name of a class"),
    ("SELECT * FROM a^; DROP TABLE b", "';' has no meaning"),
    ("SELECT * FROM a^, b", "one class after FROM"),
    ("SELECT * FROM CIM_AlertIndication WHERE^", "the name of a property, found the end"),
    ("SELECT ^Nope FROM CIM_AlertIndication", "has no property Nope"),
    ("SELECT ^Numbers[0] FROM CIM_AlertIndication", "only whole properties"),
    (ALERTS + "^AlertTyp = 1", "CIM_AlertIndication has no property AlertTyp"),
    (ALERTS + "AlertType ^= '5'", "TypeMismatch: a number is compared with a string"),
    (ALERTS + "EventID ^> 5", "TypeMismatch: a string is compared with a number"),
    (ALERTS + "Active ^= 1", "TypeMismatch: a boolean"),
    (ALERTS + "Active ^< TRUE", "booleans have no order"),
    (ALERTS + "IndicationTime = ^'soon'", "not a CIM datetime"),
    (ALERTS + "IndicationTime ^= 5", "TypeMismatch: a datetime"),
    (ALERTS + "IndicationTime > ^'20260228******.******+000'", "asterisks"),
    (ALERTS + "IndicationTime > DATETIME(^EventID)", "DATETIME takes a string"),
    (ALERTS + "IndicationTime > ^CURRENTDATETIME()", "CURRENTDATETIME is not supported"),
    (ALERTS + "^SUBSTRING(EventID) = 'x'", "no function SUBSTRING"),
    (ALERTS + "UPPERCASE(^AlertType) = 'x'", "UPPERCASE takes a string"),
    (ALERTS + "CLASSNAME(^EventID) = 'x'", "needs something that has a class"),
    (ALERTS + "^EventID ISA CIM_Indication", "needs something that has a class"),
    (ALERTS + "'x' ^ISA CIM_Indication", "before ISA"),
    (ALERTS + "^Source = 'x'", "a reference cannot be compared"),
    (ALERTS + "^AlertType LIKE '5'", "LIKE compares a string"),
    (ALERTS + "EventID LIKE ^Message", "expected a pattern in quotes"),
    (ALERTS + "EventID LIKE 'a^+'", "+ has no meaning in a LIKE pattern"),
    (ALERTS + "EventID LIKE 'it''s ^(x)'", "( has no meaning"),
    (ALERTS + "EventID LIKE '^*'", "a * follows"),
    (ALERTS + "EventID LIKE 'a*^*'", "a * follows"),
    (ALERTS + "^CorrelatedIndications = 'x'", "this is an array"),
    (ALERTS + "ANY ^EventID = 'x'", "ANY needs an array"),
    (ALERTS + "^EventID[0] = 'x'", "EventID is not an array"),
    (ALERTS + "CorrelatedIndications[^-1] = 'x'", "an index"),
    (ALERTS + "EventID.^Name = 'x'", "behind a string"),
    (ALERTS + "CorrelatedIndications.^Name = 'x'", "behind an array"),
    (ALERTS + "^EventID", "no condition by itself"),
    (ALERTS + "CIM_InstIndication::^SourceInstance IS NULL", "neither a subclass nor a superclass"),
    (ALERTS + "AlertType = ^NULL", "never true"),
    (ALERTS + "AlertType = ^012", "leading zero"),
    (ALERTS + "AlertType = ^5x", "neither a number nor a name"),
    (ALERTS + "AlertType = ^1e999", "out of the range"),
    (ALERTS + "AlertType = ^" + "1" * 100, "too long"),
    (ALERTS + "EventID = ^'x", "does not end"),
    (ALERTS + 'EventID = ^"x"', "single quotes"),
    (ALERTS + "EventID = 'C:^\\temp'", "\\t is no escape"),
    (ALERTS + "AlertType = 5 ^EventID", "AND, OR or the end"),
    (ALERTS + "(AlertType = 5^", "expected ), found the end"),
    (ALERTS + "AlertType ^BETWEEN 1", "no condition by itself|AND, OR or the end"),
    (ALERTS + "AlertType = 5 IS ^NULL", "expected TRUE or FALSE"),
    (ALERTS + "NOT ^", "the name of a property"),
]


@pytest.mark.parametrize(("marked", "message"), MARKED)
def test_an_error_points_at_its_place(marked: str, message: str) -> None:
    column = marked.index("^")
    error = refused(marked.replace("^", "", 1))
    assert any(part in error.message for part in message.split("|")), error
    if "BETWEEN" not in marked:
        assert (error.line, error.column) == (1, column + 1), error


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        (ALERTS + "EventID LIKE 'disk^%'", "% has no meaning"),
        (ALERTS + 'EventID LIKE "say ""hi"" ^%"', "% has no meaning"),
        (ALERTS + "AlertType = ^0x5", "no hexadecimal"),
        (ALERTS + "^UPPERCASE(EventID) = 'X'", "WQL has no functions"),
        (ALERTS + "CIM_AlertIndication^::EventID = 'x'", "not part of WQL"),
        (ALERTS + "CorrelatedIndications^[0] = 'x'", "not part of WQL"),
        ("SELECT * FROM CIM_AlertIndication ^a", "expected WHERE"),
    ],
)
def test_wql_is_told_what_only_cql_has(marked: str, message: str) -> None:
    column = marked.index("^")
    error = refused(marked.replace("^", "", 1), "WQL")
    assert message in error.message
    assert (error.line, error.column) == (1, column + 1)
    assert error.remedy or "WHERE" in message


@pytest.mark.parametrize("language", ["DMTF:CQL", "WQL"])
@pytest.mark.parametrize(
    ("marked", "remedy"),
    [
        (ALERTS + "AlertType ^=> 5", "Write >=."),
        (ALERTS + "AlertType ^=< 5", "Write <=."),
        (ALERTS + "AlertType ^== 5", "Write =."),
        (ALERTS + "AlertType ^===5", "Write =."),
        (ALERTS + "AlertType ^>< 5", "Write <>."),
        (ALERTS + "^!Active", "Write NOT before a condition, or <> between two values."),
        (ALERTS + "Active = TRUE ^&& AlertType = 5", "Write AND."),
        (ALERTS + "Active = TRUE ^|| AlertType = 5", "Write OR."),
        (ALERTS + "EventID = ^\u2018x\u2019", "Write a text as 'text'."),
        (ALERTS + "EventID = 'x'^;", "Leave it out: a filter is one query."),
        (ALERTS + "EventID = ^disk", "Write 'disk' if it is a text."),
        (ALERTS + "AlertType = ^Critical", "Write a number."),
        (ALERTS + "Active = ^yes", "Write TRUE or FALSE."),
        (ALERTS + "EventID = ^EventI", "Did you mean EventID?"),
        (ALERTS + "EventID = disk ^full", "Write a text in quotes: 'text'."),
        (ALERTS + "EventID LIKE ^disk", "Write 'disk'."),
        (ALERTS + "EventID = ^NULL", "Write IS NULL."),
        (ALERTS + "EventID <> ^NULL", "Write IS NOT NULL."),
        (ALERTS + "AlertType ^IN (5, 6)", "Write (A = 1 OR A = 2) for A IN (1, 2)."),
        (ALERTS + "AlertType ^BETWEEN 5 AND 6", "Write A >= 1 AND A <= 5 for A BETWEEN 1 AND 5."),
        (ALERTS + "EventID = 'x' ^LIMIT 5", "A filter ends with the condition behind WHERE."),
        ("^CIM_AlertIndication", "Begin with SELECT * FROM and the name of a class."),
        ("SELECT * ^CIM_X", "Write FROM and the name of a class behind SELECT *."),
        ("SELECT * FROM ^'CIM_X'", "Leave the quotes out."),
        ('SELECT * FROM ^"CIM_X"', "Leave the quotes out."),
        ("SELECT * FROM root^/cimv2:CIM_X", "Name namespaces in sourceNamespaces."),
    ],
)
def test_what_other_languages_write_is_answered_with_what_to_write(
    marked: str, remedy: str, language: str
) -> None:
    error = refused(marked.replace("^", "", 1), language)
    assert (error.column, error.remedy) == (marked.index("^") + 1, remedy)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('"disk full"', "Write 'disk full'."),
        ('"it\'s"', "Write 'text' instead of \"text\"."),
        ('"' + "x" * 5000 + '"', "Write 'text' instead of \"text\"."),
        ('"a\nb"', "Write 'text' instead of \"text\"."),
        ('"open', "Write 'text' instead of \"text\"."),
    ],
)
def test_a_text_in_double_quotes_is_written_out_for_cql(text: str, remedy: str) -> None:
    assert refused(f"{ALERTS}EventID = {text}").remedy == remedy


def test_both_spellings_of_unequal_are_understood() -> None:
    for language in ("DMTF:CQL", "WQL"):
        for operator in ("!=", "<>"):
            query = f"{ALERTS}AlertType {operator} 5"
            assert compile_filter(query, language=language, schema=SCHEMA)


def test_the_text_shows_the_line_with_a_caret_and_the_remedy() -> None:
    error = refused("SELECT *\nFROM CIM_AlertIndication\nWHERE AlertTyp = 5\n  AND Active")
    assert str(error) == (
        "line 3, column 7: CIM_AlertIndication has no property AlertTyp\n"
        "  WHERE AlertTyp = 5\n"
        "        ^\n"
        "Did you mean AlertType?"
    )


def test_a_long_line_is_shown_around_the_place() -> None:
    error = refused(ALERTS + "AlertType = 1 OR " * 50 + "Nope = 1" + " OR AlertType = 1" * 50)
    assert error.column > 800
    _, shown, caret, _ = str(error).splitlines()
    assert len(shown) < 130
    assert shown[caret.index("^") :].startswith("Nope")


def test_an_unknown_language_is_refused_with_those_there_are() -> None:
    error = refused("SELECT * FROM x", "SQL")
    assert "'SQL' is not known" in str(error)
    assert error.remedy == "Set it to DMTF:CQL or WQL."


def test_length_is_bounded_as_that_of_a_resource_is() -> None:
    (query,) = (field for field in INDICATION_FILTER.spec.fields if field.name == "query")
    assert isinstance(query.type, Text)
    assert query.type.max_length == MAX_QUERY_LENGTH == 8192
    fits = (ALERTS + "AlertType = 1").ljust(MAX_QUERY_LENGTH)
    assert compile_filter(fits, language="WQL", schema=SCHEMA).query == fits
    error = refused(fits + " ")
    assert error.message == "the query has 8,193 characters, and 8,192 is the most"


@pytest.mark.parametrize("opening", ["(", "NOT ", "UPPERCASE("])
def test_depth_is_bounded(opening: str) -> None:
    assert "more than 100 deep" in refused(ALERTS + opening * 800).message
    assert "parts" in refused(ALERTS + "a" + ".a" * 3000).message
