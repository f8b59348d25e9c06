"""JSON templates: the grammar, what is refused, and that no value leaves its text."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.templates import (
    DEEPEST,
    JSON_LIKE,
    KNOWN,
    WORDS,
    TemplateError,
    parse_template,
    parse_text,
)

WORDS_HERE: dict[str, object] = {
    **dict.fromkeys(WORDS),
    "class": "CIM_AlertIndication",
    "properties": {"Message": "a & b"},
    "sequenceNumber": 7,
}
PROPERTIES: dict[str, object] = {
    "message": "a & b <c>",
    "empty": "",
    "none": None,
    "severity": 6,
    "real": 1.5,
    "flag": True,
    "list": ["41", None],
}


def filled(template: str, **properties: object) -> Any:
    text = parse_template(template).fill(WORDS_HERE, PROPERTIES | properties)
    return json.loads(text.decode("utf-8"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain $ $5 {x} }", "plain $ $5 {x} }"),
        ("${Message}", "a & b <c>"),
        ("${MESSAGE} and ${Message}", "a & b <c> and a & b <c>"),
        ("${class} ${sequenceNumber}", "CIM_AlertIndication 7"),
        ("${Severity}/${Real}/${Flag}/${List}", '6/1.5/true/["41",null]'),
        ("[${Missing}${None}${time}]", "[]"),
        ("${Missing|None|Empty|Message|class}", "a & b <c>"),
        ("${Missing|class}", "CIM_AlertIndication"),
        ("${$}{Message} ${$}", "${Message} $"),
        ("$${Severity}", "$6"),
        ("${slack:Message}", "a &amp; b &lt;c&gt;"),
        ("${Message:9}", "a & b <c>"),
        ("${Message:8}", "a & b <…"),
        ("${Message:1}", "…"),
        ("${slack:Message:8}", "a &amp;…"),
        ("${slack:Message:7}", "a …"),
        ("${json:Message}", "a & b <c>"),
        ("${json:Severity}", 6),
        ("${json:Missing}", None),
        ("${json:List}", ["41", None]),
        ("${json:properties}", {"Message": "a & b"}),
        ("${json:properties:19}", {"Message": "a & b"}),
        ("${json:properties:18}", "{…"),
        ("\\u0024{Message}", "a & b <c>"),
    ],
)
def test_a_text_is_filled(text: str, expected: object) -> None:
    assert filled(f'{{"text": "{text}"}}') == {"text": expected}


def test_all_else_stays_as_it_is() -> None:
    document: dict[str, Any] = {"a": [1, 2.5, True, None, "ü", "", {"b": {}}, []], "c d": '"\n\\'}
    template = parse_template(json.dumps(document))
    assert json.loads(template.fill({}, {})) == document
    # One piece: nothing is put together for a delivery.
    assert len(template.parts) == 1


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("", "line 1, column 1: it is no JSON"),
        ('{\n"a": ${Message}}', "line 2, column 6: it is no JSON"),
        ('{"a": "x\ny"}', "line 1, column 9: it is no JSON"),
        ('{"a": "${Message}', "line 1, column 7: it is no JSON"),
        ('"${Message}"', "it is no JSON object or array"),
        ("7", "it is no JSON object or array"),
        ('{"a": NaN}', "it is no JSON: the number NaN"),
        ('{"a": 1e999}', "it is no JSON: the number 1e999"),
        ('{"a": ' + "1" * 5000 + "}", "it is no JSON: "),
        ('{"a": 1, "a": 2}', "it is no JSON: an object has the name 'a' twice"),
        ('{"a": {"b": ["", "${message}"]}}', "a.b[1]: '${message}' is no placeholder"),
        ('{"a": "${Message"}', "a: '${Message' is no placeholder"),
        ('{"a": "${}"}', "a: '${}' is no placeholder"),
        ('{"a": "${ Message }"}', "a: '${ Message }' is no placeholder"),
        ('{"a": "${Message:0}"}', "a: '${Message:0}' is no placeholder"),
        ('{"a": "${Message:9999999}"}', "a: '${Message:9999999}' is no placeholder"),
        ('{"a": "${xml:Message}"}', "a: '${xml:Message}' is no placeholder"),
        ('{"a": "${Message|}"}', "a: '${Message|}' is no placeholder"),
        ('{"a": "x ${json:Message}"}', "a: '${json:Message}' is not alone in its text"),
        ('{"a": "${properties}"}', "a: '${properties}' has no json:"),
        ('["${slack:Message|properties}"]', "[0]: '${slack:Message|properties}' has no json:"),
        ('{"${Message}": 1}', "the object has the name '${Message}' with a placeholder"),
        ("[" * 100_000, "it is nested more than 32 deep"),
        ("[" * 34 + "]" * 34, "it is nested more than 32 deep"),
    ],
)
def test_what_is_no_template_is_told_with_its_place(template: str, says: str) -> None:
    with pytest.raises(TemplateError) as caught:
        parse_template(template)
    assert says in str(caught.value)
    assert caught.value.remedy.endswith(".")
    assert len(str(caught.value)) < 300


def test_a_template_may_be_nested() -> None:
    deep = "[" * DEEPEST + "]" * DEEPEST
    assert parse_template(deep).parts == (deep.encode(),)


#: Values that try to end their text, or to be a placeholder themselves.
ATTACKS = (
    '"',
    '", "admin": true, "x": "',
    "\\",
    '\\"',
    "\n\r\t\x00\x1f\x7f\u2028\u2029",
    "${Message}",
    "${apiKey}",
    "${$}",
    "</script>",
    "\U0001f6a8",
    "\ud83d\udea8",
    "{}[],:",
)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("form", ["", "slack:", "json:"])
def test_no_value_leaves_its_text(attack: str, form: str) -> None:
    template = f'{{"a": "${{{form}Message}}", "b": ["${{Message}}!"]}}'
    expected = attack.encode("utf-16", "surrogatepass").decode("utf-16")
    escaped = expected.replace("<", "&lt;").replace(">", "&gt;")
    # A parser joins the halves of a pair, so they never come here apart.
    given_value = json.loads(json.dumps(attack))
    found = filled(template, message=given_value)
    assert found == {"a": escaped if form == "slack:" else expected, "b": [f"{expected}!"]}


@pytest.mark.parametrize("half", ["\ud83d", "a\ud83db"])
def test_half_a_surrogate_pair_becomes_a_question_mark(half: str) -> None:
    expected = re.sub("[\ud800-\udfff]", "?", half)
    assert filled('{"a": "${Message}", "b": "${json:Message}"}', message=half) == {
        "a": expected,
        "b": expected,
    }


@given(st.text(st.characters(exclude_categories=[])), st.integers(1, 30))
def test_any_value_stays_in_its_text_and_in_its_length(value: str, length: int) -> None:
    template = f'{{"a": "${{Message:{length}}}", "b": "${{slack:Message:{length}}}", "c": "x"}}'
    found = filled(template, message=value)
    assert found.keys() == {"a", "b", "c"}
    assert len(found["a"]) <= length
    assert len(found["b"]) <= length


@given(st.recursive(st.text() | st.integers(-9, 9), st.lists), st.integers(2, 60))
def test_json_keeps_its_length(value: object, length: int) -> None:
    template = parse_template(f'["${{json:Message:{length}}}"]')
    sent = template.fill(WORDS_HERE, {"message": value})
    json.loads(sent)
    assert len(sent) <= max(length, 5) + 2


PIECES = ["$", "{", "}", "${", ":", "|", "json:", "slack:", "Message", "class", "nope", "9", " "]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_the_schema_knows_the_same_placeholders(text: str) -> None:
    try:
        parse_template(json.dumps([text]))
    except TemplateError as error:
        unknown = "is no placeholder" in str(error)
    else:
        unknown = False
    assert (re.fullmatch(KNOWN, text) is None) == unknown


@given(st.text(max_size=30))
def test_any_text_is_a_template_or_refused(text: str) -> None:
    try:
        parse_template(text)
    except TemplateError:
        return
    assert re.fullmatch(JSON_LIKE, text) is not None


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${Message}", '"a\\"b"'),
        ('"${Message}\\', '"\\"a\\"b\\\\"'),
        ("no placeholder, ${$}5", '"no placeholder, $5"'),
        ("${Missing}", '""'),
    ],
)
def test_a_text_alone_is_a_template(text: str, filled: str) -> None:
    assert parse_text(text).fill({}, {"message": 'a"b'}).decode() == filled


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${json:Message}", "has json:"),
        ("a ${json:Message}", "is not alone"),
        ("${message}", "is no placeholder"),
        ("${Message", "is no placeholder"),
    ],
)
def test_a_text_alone_has_no_json(text: str, says: str) -> None:
    with pytest.raises(TemplateError, match=says):
        parse_text(text)
