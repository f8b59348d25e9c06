"""LIKE: a small language of patterns, whole texts, and never a slow one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_cim.filters.patterns import PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["abcd", "xabc", "ABC", "abc\n"]),
        ("a.c", ["abc", "a.c", "a\nc", "aéc"], ["ac", "abbc"]),
        (".*", ["", "anything", "two\nlines"], []),
        ("a*", ["", "a", "aaa"], ["b", "ab"]),
        ("a.*b.*c", ["abc", "axbxbc", "abcc"], ["acb", "ab", "bc"]),
        ("a*b*a", ["a", "aa", "ba", "aba", "aabba"], ["", "ab", "abab"]),
        ("a|b|", ["a", "b", ""], ["c", "ab"]),
        ("ab|c*", ["ab", "", "ccc"], ["a", "abc"]),
        ("a\\*", ["a*"], ["a", "aa"]),
        ("\\.\\*\\|\\\\\\(", [".*|\\("], ["x"]),
        ("50%", ["50%"], ["500"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = compile_pattern(pattern, percent=True)
    assert [text for text in matching if not matches(text)] == []
    assert [text for text in others if matches(text)] == []


@pytest.mark.parametrize("pattern", ["*a", "a**", "|*", "a\\", "a+", "a(b)", "[ab]", "a{2}", "^a$"])
def test_what_means_something_elsewhere_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern, percent=True)


@pytest.mark.parametrize(
    "pattern",
    [
        "a*" * 500 + "b",
        "a*b*" * 300 + "c",
        "a*.*" * 100 + "b",
        ".*a" * 300 + "b",
        ".*" * 300 + "b",
        "|".join(["a*b*a*b*c"] * 100),
    ],
)
def test_no_pattern_backtracks_without_end(pattern: str) -> None:
    # The time-out of the test is what would fail here.
    assert not compile_pattern(pattern, percent=True)("a" * 5000)


@given(
    pattern=st.lists(
        st.sampled_from(["a", "b", ".", "a*", "b*", ".*", "|", "\\*", "\\a"]), max_size=9
    ),
    text=st.text("ab*\n", max_size=9),
)
def test_they_mean_what_they_mean_to_re(pattern: list[str], text: str) -> None:
    source = "".join(pattern)
    expected = re.fullmatch(source.replace("\\a", "a"), text, re.DOTALL) is not None
    assert compile_pattern(source, percent=True)(text) is expected
