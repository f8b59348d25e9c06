"""``pillion rules test`` of cases with columns, whose conditions a real Spark evaluates."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.weather import RULES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

PATTERN = str(RULES.with_name("*.yaml"))
CASES = RULES.parent / "cases" / "conditions.yaml"

ONE = """
cases:
  - name: {name}
    rule: {rule}
    key: {{{key}: JFK}}
    readings:
      - {{at: 0 hours, {zero}}}
      - {{at: 1 hour, {one}}}
      - {{at: 0 hours, {zero}}}
    late: {late}
    expect: {expect}
"""


def cases(folder: Path, **changes: str) -> str:
    fields = {
        "name": "one",
        "rule": "weather.rain",
        "key": "origin",
        "zero": "precip: 0",
        "one": "precip: 0.4",
        "late": "1",
        "expect": "[{transition: raised, at: 1 hour, level: Minor}]",
    }
    path = folder / "cases.yaml"
    path.write_text(ONE.format(**fields | changes))
    return str(path)


def test_the_cases_of_the_examples_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "test", PATTERN, str(CASES)]) == Exit.OK
    assert capsys.readouterr().out.splitlines()[-1] == "4 cases, 0 failed"


def test_without_java_the_command_says_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pillion_cli.main", "rules", "test", PATTERN, str(CASES)]
    environment = os.environ | {"JAVA_HOME": str(tmp_path)}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == Exit.FAILED
    assert "pillion rules: cases with columns need Spark: Spark did not start:" in ended.stderr


@pytest.mark.parametrize(
    ("changes", "printed"),
    [
        ({}, "ok    one\n1 case, 0 failed\n"),
        ({"one": "precip: 0.2"}, "missing     raised Minor at 1 hour"),
        ({"one": "precip: null"}, "missing     raised Minor at 1 hour"),
        ({"late": "0"}, "late        expected 0 late readings, got 1"),
        ({"rule": "station.silent", "expect": "[]"}, "1 case, 0 failed"),
    ],
)
def test_conditions_decide(
    changes: dict[str, str], printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = main(["rules", "test", PATTERN, cases(tmp_path, **changes)])
    out = capsys.readouterr().out
    assert printed in out
    assert found == (Exit.OK if "0 failed" in out else Exit.FAILED)


def test_a_text_that_is_no_number_meets_no_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cases(tmp_path, one="precip: much, wind_gust: 3")
    assert main(["rules", "test", PATTERN, path]) == Exit.FAILED
    assert "missing     raised Minor" in capsys.readouterr().out


def test_a_case_whose_columns_do_not_fit_is_refused_and_the_others_are_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = tmp_path / "both.yaml"
    refused = Path(cases(tmp_path, name="first", zero="prec: 0", one="prec: 1")).read_text()
    accepted = Path(cases(tmp_path, name="second")).read_text()
    both.write_text(refused + accepted.replace("cases:\n", ""))
    assert main(["rules", "test", PATTERN, str(both)]) == Exit.FAILED
    printed = capsys.readouterr().out
    assert "FAIL  first\n      refused     rule weather.rain: severity Minor: " in printed
    assert "'precip' is no column of the readings; did you mean prec?" in printed
    assert printed.endswith("ok    second\n2 cases, 1 failed\n")
