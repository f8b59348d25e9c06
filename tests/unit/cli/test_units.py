"""Durations and numbers as people read them."""

import pytest

from pillion_cli.units import brief, brief_number, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0.9, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (172_799, "47 h"),
        (172_800, "2 d"),
        (1e300, "9999 d"),
    ],
)
def test_a_brief_duration_has_one_unit(seconds: float, text: str) -> None:
    assert brief(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4, "4 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (352_800, "4 d 2 h"), (86_400, "1 d")],
)
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
    assert duration(1e300) == "9999 d"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (42_998, "42.9 K"),
        (100_000, "100 K"),
        (999_999, "999 K"),
        (1_000_000, "1 M"),
        (1_580_000, "1.5 M"),
        (2**53, "9007 T"),
    ],
)
def test_a_brief_number_is_rounded_down(number: int, text: str) -> None:
    assert brief_number(number) == text
