"""Cases, the command that runs them, and the manual that shows them."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import generate_rules_reference as reference
from pillion_cli.exits import Exit
from pillion_cli.main import main
from pillion_rules import Rule, RuleError
from pillion_rules.cases import load_cases, run_case
from support.house import ROOT
from support.manual import DOCS, blocks

EXAMPLES = ROOT / "examples" / "rules"
RULES = """
rules:
  - {name: fog, keys: [origin], event_time: t, severity: {Major: a, Critical: b}, message: "{v}"}
"""
CASE = {
    "name": "one",
    "rule": "fog",
    "key": {"origin": "EWR"},
    "readings": [
        {"at": "1 hour", "level": "Major", "v": "x"},
        {"at": "2 hours", "level": "Critical", "v": "y"},
        {"at": "2000-01-01T03:00:00Z", "level": "clear", "v": "z"},
    ],
    "expect": [
        {"transition": "raised", "at": "1 hour", "level": "Major", "text": "x", "count": 1},
        {"transition": "changed", "at": "2 hours", "since": "1 hour"},
        {"transition": "cleared", "at": "3 hours"},
    ],
}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def write(tmp_path: Path, *changes: dict[str, Any]) -> Path:
    """A file with a case for each change; None removes a field."""
    path = tmp_path / "cases.yaml"
    cases = [
        {name: value for name, value in (CASE | change).items() if value is not None}
        for change in changes
    ]
    path.write_text(json.dumps({"cases": cases}))
    return path


def differences(rules: Path, tmp_path: Path, **change: Any) -> list[tuple[str, str]]:
    (case,) = load_cases(write(tmp_path, change), Rule.load(rules))
    return [(one.kind, one.text) for one in run_case(case)]


def test_a_case_that_passes_has_no_difference(rules: Path, tmp_path: Path) -> None:
    assert differences(rules, tmp_path) == []
    by_levels = {
        "readings": None,
        "every": "1 hour",
        "levels": ["null", "Major", "Critical", "clear"],
    }
    without_text = [{"transition": "raised", "at": "1 hour", "text": "null"}, *CASE["expect"][1:]]
    assert differences(rules, tmp_path, **by_levels, expect=without_text) == []


def test_windows_of_maintenance_hide_transitions(rules: Path, tmp_path: Path) -> None:
    windows = [{"start": "30 minutes", "end": "90 minutes"}, {"start": "2 hours", "end": "9 hours"}]
    raised = {"transition": "raised", "at": "90 minutes", "since": "1 hour", "text": "x"}
    expect = [raised, CASE["expect"][2]]
    assert differences(rules, tmp_path, maintenance=windows, expect=expect) == []


def test_other_rules_hide_transitions_while_the_case_has_them_raised(
    rules: Path, tmp_path: Path
) -> None:
    storm = "{name: storm, keys: [origin], event_time: t, severity: {Major: c}}"
    rules.write_text(f"{RULES.rstrip().removesuffix('}')}, unless: [storm]}}\n  - {storm}\n")
    # By levels the other rule is not judged.
    assert differences(rules, tmp_path) == []
    raised = {"transition": "raised", "at": "90 minutes", "since": "1 hour", "text": "x"}
    expect = [raised, *CASE["expect"][1:]]
    spans = [{"start": "1 hour", "end": "90 minutes"}]
    assert differences(rules, tmp_path, unless=spans, expect=expect) == []
    changes = ({}, {"unless": []}, {"rule": "storm", "unless": [], "readings": []})
    with pytest.raises(RuleError) as error:
        load_cases(write(tmp_path, *changes), Rule.load(rules))
    assert str(error.value).endswith("case one: unless: storm names no other rule; remove it")
    judged, given = load_cases(write(tmp_path, *changes[:2]), Rule.load(rules))
    assert ([one.name for one in judged.others], given.others) == (["storm"], ())


def test_every_difference_is_named(rules: Path, tmp_path: Path) -> None:
    expect = [
        {"transition": "raised", "at": "1 hour", "level": "Minor", "text": "q", "since": "0 hours"},
        {"transition": "repeated", "at": "2 hours", "level": "Major"},
        {"transition": "cleared", "at": "3 hours", "count": 9, "reason": "forgotten"},
    ]
    raised = "raised Major at 1 hour (2000-01-01T01:00:00Z)"
    cleared = "cleared Critical at 3 hours (2000-01-01T03:00:00Z)"
    begin, later = "0 seconds (2000-01-01T00:00:00Z)", "1 hour (2000-01-01T01:00:00Z)"
    assert differences(rules, tmp_path, expect=expect, late=1) == [
        ("differs", f"{raised}: level: expected Minor, got Major"),
        ("differs", f"{raised}: since: expected {begin}, got {later}"),
        ("differs", f"{raised}: text: expected 'q', got 'x'"),
        ("missing", "repeated Major at 2 hours (2000-01-01T02:00:00Z)"),
        ("differs", f"{cleared}: count: expected 9, got 2"),
        ("differs", f"{cleared}: reason: expected forgotten, got none"),
        ("unexpected", "changed Critical at 2 hours (2000-01-01T02:00:00Z)"),
        ("late", "expected 1 late readings, got 0"),
    ]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rule": "frog"}, "rule: no rule has the name 'frog'; did you mean fog?"),
    ({"name": None}, "name: is missing, or no text"),
    ({"key": None}, "key: is missing, or no object"),
    ({"key": {}}, "key: origin is missing, or no text; write a value for it"),
    ({"key": {"origin": "a", "x": "b"}}, "key: 'x' is no field; use one of origin"),
    ({"keys": {}}, "the case: 'keys' is no field; did you mean key?"),
    ({"start": "noon"}, "start: 'noon' is no time; write for example 2000-01-01T00:00:00Z"),
    ({"until": "noon"}, "until: 'noon' is no time; write a duration from start"),
    ({"late": "-1"}, "late: '-1' is no whole number; write for example 2"),
    ({"readings": None}, "readings: write either readings, or every and levels"),
    ({"levels": []}, "readings: write either readings, or every and levels"),
    ({"readings": "a"}, "readings: 'a' is no list; write one"),
    ({"readings": [{"level": "Major"}]}, "readings 1: at is missing; write for example"),
    ({"readings": [{"at": "1 hour", "origin": "a"}]}, "readings 1: origin is one of keys; write"),
    ({"readings": [{"at": "1 hour", "level": "major"}]}, "level: 'major' is unknown; did you mean"),
    ({"readings": [{"at": "1 hour", "v": ["a"]}]}, "readings 1: v: ['a'] is no text"),
    ({"readings": None, "levels": ["Major"]}, "every: is missing, or no text"),
    ({"readings": None, "levels": [], "every": "x"}, "every: 'x' is no duration; write 1 hour"),
    ({"readings": None, "levels": [["a"]], "every": "1 hour"}, "levels 1: ['a'] is unknown"),
    (
        {"readings": None, "levels": ["Fatal/NonRecoverable"], "every": "1 hour"},
        "level: Fatal/NonRecoverable is no severity of",
    ),
    ({"maintenance": "a"}, "maintenance: 'a' is no list; write one"),
    ({"maintenance": [{"start": "1 hour"}]}, "maintenance 1: end is missing; add it"),
    ({"maintenance": [{"strat": "1 hour"}]}, "maintenance 1: 'strat' is no field; did you mean st"),
    ({"maintenance": [{"start": "1 hour", "end": "x"}]}, "maintenance 1: end: 'x' is no time"),
    (
        {"maintenance": [{"start": "1 hour", "end": "1 hour"}]},
        "maintenance 1: start is not before end; correct one of them",
    ),
    ({"expect": None}, "expect: is missing; write [] if nothing is expected"),
    ({"expect": ["a"]}, "expect 1: is missing, or no object"),
    ({"expect": [{"at": "1 hour"}]}, "expect 1: transition is missing; add it"),
    ({"expect": [{"at": "1 hour", "transition": "rased"}]}, "did you mean raised?"),
    ({"expect": [{"at": "1 hour", "transition": "raised", "level": "x"}]}, "level: 'x' is unknown"),
]


@pytest.mark.parametrize(("change", "text"), WRONG)
def test_an_error_of_a_case_names_the_field_and_the_remedy(
    change: dict[str, Any], text: str, rules: Path, tmp_path: Path
) -> None:
    path = write(tmp_path, change)
    with pytest.raises(RuleError) as raised:
        load_cases(path, Rule.load(rules))
    assert text in str(raised.value)
    assert str(raised.value).startswith(f"{path}: case ")


def test_the_problems_of_all_cases_are_reported(rules: Path, tmp_path: Path) -> None:
    path = write(tmp_path, {"rule": "x"}, {}, {"late": "x"})
    with pytest.raises(RuleError) as raised:
        load_cases(path, Rule.load(rules))
    assert len(raised.value.problems) == 2


# ---------------------------------------------------------------------- pillion rules


def test_the_command_tests_cases(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = str(write(tmp_path, {}, {"name": "two\x1b", "expect": CASE["expect"][:2]}))
    assert main(["rules", "test", str(rules), cases, "--levels"]) == Exit.FAILED
    assert capsys.readouterr().out == (
        "ok    one\n"
        "FAIL  two\\u001b\n"
        "      unexpected  cleared Critical at 3 hours (2000-01-01T03:00:00Z)\n"
        "2 cases, 1 failed\n"
    )
    assert main(["rules", "test", str(rules), cases, "--levels", "--output", "json"]) == Exit.FAILED
    document = json.loads(capsys.readouterr().out)
    assert document["failed"] == 1
    assert document["cases"][0] == {"name": "one", "rule": "fog", "differences": []}
    assert document["cases"][1]["differences"][0]["kind"] == "unexpected"
    passing = str(write(tmp_path, {}))
    assert main(["rules", "test", str(rules), passing, "--levels"]) == Exit.OK
    assert capsys.readouterr().out == "ok    one\n1 case, 0 failed\n"


def test_the_command_explains_rules(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "explain", str(rules)]) == Exit.OK
    printed = capsys.readouterr().out
    assert printed.startswith("fog\n  It reads t as the time of each reading.\n")
    assert main(["rules", "explain", str(rules), "--output", "json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["fog"][0].startswith("It reads t")


@pytest.mark.parametrize("action", [["explain"], ["test", "cases.yaml"]])
def test_the_command_refuses_names_of_rules_that_there_are_not(
    rules: Path, action: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rules.write_text(f"{RULES.rstrip().removesuffix('}')}, unless: [fgo]}}\n")
    name, *others = action
    assert main(["rules", name, str(rules), *others]) == Exit.FAILED
    text = "rule fog: unless: no rule has the name 'fgo'"
    assert text in capsys.readouterr().err


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "schema"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["title"] == "Rules of Pillion"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["test", "a", "--levels"], "CASES: is missing"),
        (["explain"], "RULES: is missing"),
        (["explain", "a", "b"], "CASES: not for explain"),
        (["schema", "a"], "RULES: not for schema"),
        (["explain", "a", "--levels"], "--levels: not for explain"),
    ],
)
def test_a_wrong_command_line_is_refused(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", *arguments]) == Exit.USAGE
    assert f"pillion rules: {text}" in capsys.readouterr().err


def test_the_command_prints_a_bounded_number_of_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("rules:\n" + "  - \x22a\\u001b\x22\n" * 150)
    assert main(["rules", "explain", str(path)]) == Exit.FAILED
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 101
    assert lines[-1] == "50 problems more; correct these first"


# ---------------------------------------------------------------------- the manual


@pytest.mark.parametrize("case", reference.example_cases())
def test_a_case_of_the_example_passes(case: Any) -> None:
    assert run_case(case) == []


def test_the_pages_are_up_to_date() -> None:
    text = reference.MANUAL.read_text(encoding="utf-8")
    assert reference.manual_page(text) == text
    assert reference.REFERENCE.read_text(encoding="utf-8") == reference.reference_page()


def test_the_manual_shows_every_rule_of_the_example() -> None:
    text = reference.MANUAL.read_text(encoding="utf-8")
    shown = re.findall(r"<!-- rule: (.+) -->", text)
    rules = Rule.load(str(reference.EXAMPLES / "*.yaml"))
    assert sorted(shown) == sorted(rule.name for rule in rules)


def test_the_cases_of_the_manual_are_right(tmp_path: Path) -> None:
    by_columns, by_levels = (one for one in blocks(DOCS / "rules.md", "yaml") if "cases:" in one)
    path = tmp_path / "cases.yaml"
    path.write_text(by_levels)
    (case,) = load_cases(path, Rule.load(reference.RULES))
    assert (run_case(case), case.has_levels) == ([], True)
    # A test with Spark runs the one with columns, which is an example.
    _, examples = reference.CASES.with_name("conditions.yaml").read_text().split("cases:\n")
    _, entry = by_columns.split("cases:\n")
    assert entry.strip() in examples


def test_cases_with_columns_need_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark_pillion.case_runs", None)
    path = tmp_path / "cases.yaml"
    (by_columns, _) = (one for one in blocks(DOCS / "rules.md", "yaml") if "cases:" in one)
    path.write_text(by_columns)
    rules = str(reference.EXAMPLES / "*.yaml")
    assert main(["rules", "test", rules, str(path)]) == Exit.FAILED
    assert "cases with columns need pyspark: pip install" in capsys.readouterr().err
    # By levels alone no reading has one.
    assert main(["rules", "test", rules, str(path), "--levels"]) == Exit.FAILED


def test_the_program_of_the_manual_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = (one for one in blocks(DOCS / "rules.md", "python") if "pyspark" not in one)
    exec(compile(program, "rules.md", "exec"), {})
    assert capsys.readouterr().out.startswith("raised Major 10 fan 3: 84 °C ")
