"""YAML with line numbers and bounds: what is read, and what is refused with a place."""

import contextlib
import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.config.yamlstream import (
    DEEPEST,
    StreamError,
    plain_scalar,
    read_documents,
)

#: What stands for itself in a quoted text of YAML and JSON.
#: PyYAML writes ``0E0`` plain, as YAML 1.1 has it; in YAML 1.2, and to kubectl, it is a number.
OF_YAML_1_1 = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+")
TEXTS = st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" "), max_size=10).filter(
    lambda text: not OF_YAML_1_1.fullmatch(text)
)


def read(text: str) -> list[Any]:
    return [document.value for document in read_documents(text)]


def test_documents_of_a_stream_come_one_by_one_without_the_empty_ones() -> None:
    assert read("---\n# nothing\n---\na: 1\n---\n- b\n...\n") == [{"a": 1}, ["b"]]


def test_every_value_knows_its_line() -> None:
    (document,) = read_documents("# comment\na: 1\nb:\n  - x\n  - c: 2\n")
    assert document.lines == {
        (): 2,
        ("a",): 2,
        ("b",): 4,
        ("b", 0): 4,
        ("b", 1): 5,
        ("b", 1, "c"): 5,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("on", "on"),
        ("no", "no"),
        ("12", 12),
        ("-7", -7),
        ("0x1f", 31),
        ("0o17", 15),
        ("010", 10),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("2026-01-31", "2026-01-31"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: object) -> None:
    read_value = plain_scalar(text)
    assert read_value == value
    assert type(read_value) is type(value)


def test_quotes_and_the_str_tag_make_texts() -> None:
    assert read("[\"1\", '2', !!str 3, ! 4]") == [["1", "2", "3", "4"]]
    assert read("a: |\n  5\n") == [{"a": "5\n"}]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
        lambda below: (
            st.lists(below, max_size=3)
            | st.dictionaries(st.text("abcdé \"'", max_size=5), below, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_what_yaml_or_json_wrote_is_read_back(value: object) -> None:
    if value is not None:
        assert read(yaml.safe_dump(value, allow_unicode=True)) == [value]
        assert read(json.dumps(value, ensure_ascii=False, indent=1)) == [value]


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "twice", 3),
        ("a: &x 1\nb: *x\n", "aliases", 2),
        ("a: !!python/object:os.system x\n", "tag", 1),
        ("? [a]\n: 1\n", "key is an object or a list", 1),
        ("a: [1\nb: 2\n", "not YAML", 2),
        ("a: 'x\n", "not YAML", 2),
        ("a:\n\t- b\n", "not YAML", 2),
        ("[" * (DEEPEST + 1), "deep", 1),
        ("{a: " * 100_000, "deep", 1),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, says: str, line: int) -> None:
    with pytest.raises(StreamError) as caught:
        read(text)
    assert says in caught.value.message
    assert caught.value.line == line
    assert caught.value.remedy


def test_control_characters_are_refused() -> None:
    with pytest.raises(StreamError):
        read("a: \x00\n")


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pillion_sidecar.config.yamlstream.MOST_NODES", 50)
    assert read("[" + "1," * 40 + "]")
    with pytest.raises(StreamError, match="more than 50 values"):
        read("[" + "1," * 200 + "]")


@given(st.text(st.sampled_from("ab:-[]{},&*!|>'\"#%@?\n \t0~é\x00\U0001f600"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    # Anything but a StreamError fails the test.
    with contextlib.suppress(StreamError):
        read(text)


def test_the_parser_in_plain_python_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: [1, two, {three: 'four'}]\nb: |\n  text\n"
    expected = list(read_documents(text))
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert list(read_documents(text)) == expected
