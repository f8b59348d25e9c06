"""What standard output is taken for."""

import pytest

from pillion_cli.terminal import Output, Style

ENVIRONMENT = ("NO_COLOR", "TERM", "COLUMNS", "LINES")


@pytest.mark.parametrize(
    ("environment", "output"),
    [
        ({}, Output(width=70, height=9, has_colours=True)),
        ({"TERM": "xterm", "NO_COLOR": ""}, Output(width=70, height=9, has_colours=True)),
        ({"NO_COLOR": "1"}, Output(width=70, height=9)),
        ({"TERM": "dumb"}, Output(width=70)),
    ],
)
def test_a_terminal_is_as_large_and_colourful_as_it_says(
    environment: dict[str, str], output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"COLUMNS": "70", "LINES": "9", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert Output.of_process() == Output()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert Output.of_process() == output


def test_nothing_is_painted_without_colours() -> None:
    assert Output(width=9, height=9).paint("a", Style.RED) == "a"
    painter = Output(width=9, height=9, has_colours=True)
    assert painter.paint("a", Style.RED) == "\x1b[31ma\x1b[0m"
    assert painter.paint("a", Style.PLAIN) == "a"
    assert painter.paint("", Style.RED) == ""
