"""A rule is checked when it is made; its schema, its files and its sentences."""

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_rules import Rule, RuleError, schema
from pillion_rules.durations import LONGEST, duration_text, parse_duration, parse_time, time_text
from pillion_rules.explain import explain
from pillion_rules.fields import ColumnText, declared

GALE: dict[str, Any] = {
    "name": "weather.gale",
    "keys": ["origin"],
    "event_time": "time_hour",
    "severity": {"Critical": "wind_gust > 60", "Minor": "wind_gust > 40"},
}
SILENT = GALE | {"severity": "Major", "silent": "3 hours"}
WINDOW = {"window": "1 hour", "measure": {"n": "count(*)"}}

#: Changes of a right rule, and what the error says.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "a b"}, "rule a b: name: 'a b' is not valid; write letters"),
    ({"keys": []}, 'keys: [] is no list of columns; write for example ["origin"]'),
    ({"keys": "origin"}, "keys: 'origin' is no list of columns"),
    ({"keys": ["a", "a"]}, "keys: has a column twice; name each once"),
    ({"keys": [f"k{number}" for number in range(17)]}, "keys: has 17 columns; use 16 at most"),
    ({"event_time": "a.b"}, "event_time: 'a.b' is not valid; write the name of one column"),
    ({"severity": {}}, "severity: {} is not valid; write for example {'Major'"),
    ({"severity": {"critical": "a"}}, "'critical' is no severity of CIM; did you mean Critical?"),
    ({"severity": {"Information": "a"}}, "use Degraded/Warning or above"),
    ({"severity": {"Major": ""}}, "severity: Major: '' is no expression; write SQL as text"),
    ({"severity": {"Major": None}}, "severity: Major: None is no expression"),
    ({"severity": "Major"}, "severity: Major has no condition; write {Major: SQL}"),
    ({"clear": 3}, "clear: 3 is no expression"),
    ({"clear": "x" * 10_001}, "clear: has 10,001 characters; use 10,000 at most"),
    ({"hold": "2 hrs"}, "hold: '2 hrs' is no duration; write for example \"3 hours\""),
    ({"hold": "0 hours"}, "hold: '0 hours' is no duration"),
    ({"hold": "11 weeks"}, "hold: must be shorter than forget (30 days); raise forget"),
    ({"hold": 7200}, "hold: 7200 is no duration"),
    (
        {"keep": "3700 days"},
        "keep: '3700 days' is no duration; write for example \"3 hours\", up to",
    ),
    ({"max_gap": "1 hour"}, "max_gap: only with hold; add hold, or remove max_gap"),
    ({"hold": "1 hour", "max_gap": "2 hours"}, "max_gap: has no effect, as it is not shorter"),
    ({"repeat": "1 minute"}, "repeat: more than 10,000 repeats before forget (30 days)"),
    ({"forget": None}, "forget: None is no duration"),
    ({"message": " "}, "message: ' ' is no message"),
    ({"message": "{a.b}"}, "message: {a.b} is no name of a column; write a name alone"),
    ({"message": "{a!r:>9}"}, "message: {a!r:>9} is no name of a column"),
    ({"message": "a } b"}, "write {{ and }} for braces of the text"),
    ({"message": "".join(f"{{n{n}}}" for n in range(33))}, "message: it has more than 32 names"),
    ({"alert_type": "Weather"}, "'Weather' is no AlertType of CIM"),
    ({"cause": "high winds"}, "'high winds' is no ProbableCause of CIM; did you mean High Winds?"),
    ({"cause": ["a"]}, "['a'] is no ProbableCause of CIM"),
    ({"severity": {"7": "a"}}, "severity: '7' is no severity of CIM"),
    ({"cause": "qqq"}, "use a name of its value map, such as Threshold Crossed"),
    ({"window": "1 hour"}, "window: only with measure; add measure, or remove window"),
    ({"slide": "1 hour"}, "slide: only with window"),
    (WINDOW | {"slide": "2 hours"}, "slide: longer than window (1 hour) leaves readings out"),
    ({"rate": {"drop": "pressure"}}, "rate: only with per"),
    ({"rate": {"origin": "pressure"}, "per": "1 hour"}, "origin is one of keys; use another name"),
    (WINDOW | {"rate": {"a": "b"}, "per": "1 hour"}, "rate: not with window; make two rules"),
    ({"measure": {"a b": "c"}, "window": "1 hour"}, "measure: 'a b': 'a b' is not valid"),
    ({"watermark": "soon"}, "watermark: 'soon' is no duration"),
    ({"ahead": "0 seconds"}, "ahead: '0 seconds' is no duration"),
    ({"message": "\ud800"}, "message: has half of a surrogate pair"),
    ({"max_age": "1 minute"}, "max_age: must be longer than watermark (1 minute)"),
    ({"unless": "storm"}, "unless: 'storm' is no list of names; write for example"),
    ({"unless": ["a b"]}, "unless: 'a b' is not valid; write letters"),
    ({"unless": ["a", "a"]}, "unless: has a name twice; write each once"),
    ({"unless": [f"r{number}" for number in range(17)]}, "unless: has 17 names; use 16 at most"),
    ({"unless": ["weather.gale"]}, "unless: names the rule itself; remove it"),
]


@pytest.mark.parametrize(("change", "text"), WRONG)
def test_an_error_names_the_field_and_the_remedy(change: dict[str, Any], text: str) -> None:
    with pytest.raises(RuleError) as raised:
        Rule.of(GALE | change)
    (problem,) = raised.value.problems
    assert text in problem
    assert problem.startswith("rule ")


@pytest.mark.parametrize("name", ["clear", "hold", "max_gap", "keep", "window", "rate", "per"])
def test_a_silent_rule_refuses_what_it_has_no_use_for(name: str) -> None:
    values = {"clear": "a < 1", "rate": {"a": "b"}}
    with pytest.raises(RuleError, match=f"{name}: not with silent; remove one of the two"):
        Rule.of(SILENT | {"forget": "1 day", name: values.get(name, "1 hour")})


def test_a_silent_rule_has_one_severity() -> None:
    with pytest.raises(RuleError, match="severity: with silent it is one name; write for example"):
        Rule.of(SILENT | {"severity": {"Major": "a"}})


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(RuleError) as raised:
        Rule.of(GALE | {"hold": "x", "keep": "y", "cause": "z"})
    assert len(raised.value.problems) == 3


def test_unknown_and_missing_fields_are_named() -> None:
    with pytest.raises(RuleError) as raised:
        Rule.of({"name": "a", "kyes": ["b"]})
    assert raised.value.problems == (
        "rule a: 'kyes' is no field; did you mean keys?",
        "rule a: keys is missing; add it",
        "rule a: event_time is missing; add it",
        "rule a: severity is missing; add it",
    )


def test_defaults() -> None:
    rule, silent = Rule(**GALE), Rule(**SILENT)
    assert (rule.probable_cause, silent.probable_cause) == ("Threshold Crossed", "Timeout")
    assert silent.silent_level == 5
    assert rule.durations.max_age == parse_duration("1 day 1 minute")
    assert rule.keys == ("origin",)
    assert (rule.unless, Rule(**GALE, unless=["a"]).unless) == (None, ("a",))


# ---------------------------------------------------------------------- Columns


class Column:
    """As that of pyspark: compared, it is another one, which is neither true nor false."""

    __module__ = "pyspark.sql.classic.column"

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Column<'{self.text}'>"

    def __eq__(self, other: object) -> Any:
        return Column("=")

    def __bool__(self) -> bool:
        raise ValueError

    __hash__ = None  # type: ignore[assignment]


def test_a_condition_that_is_a_column_counts_by_its_text() -> None:
    def made(limit: int) -> Rule:
        severity = {"Critical": Column(f">(a, {limit})"), "Minor": "a > 4"}
        return Rule(**GALE | {"severity": severity}, clear=Column("<(a, 3)"))

    rule = made(6)
    assert rule == made(6) != made(7)
    assert repr(rule) == repr(made(6)) != repr(made(7))
    sentences = explain(rule)
    assert "The severity is Critical when Column<'>(a, 6)'>." in sentences
    assert "It is cleared at the first reading for which Column<'<(a, 3)'>." in sentences
    assert isinstance(dataclasses.replace(rule, hold="1 hour").clear, ColumnText)
    # Executors have the texts.
    there = pickle.loads(pickle.dumps(rule))
    assert (there, repr(there), type(there.clear)) == (rule, repr(rule), str)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"severity": Column("a")}, "severity: \"Column<'a'>\" is no severity of CIM"),
        ({"severity": {"Major": Column("x" * 10_000)}}, "Major: has 10,010 characters; use 10,000"),
        (WINDOW | {"measure": {"n": Column("a")}}, "measure: 'n': Column<'a'> is no expression"),
        ({"hold": Column("a")}, "hold: Column<'a'> is no duration"),
    ],
)
def test_a_column_is_refused_elsewhere(change: dict[str, Any], text: str) -> None:
    with pytest.raises(RuleError) as raised:
        Rule(**GALE | change)
    assert text in str(raised.value)


# ---------------------------------------------------------------------- durations


@given(st.integers(1, LONGEST))
def test_a_duration_is_read_back(micros: int) -> None:
    assert parse_duration(duration_text(micros)) == micros


@given(st.text(max_size=30))
def test_any_text_is_a_duration_and_a_time_or_none(text: str) -> None:
    parse_duration(text)
    found = parse_time(text)
    assert found is None or parse_time(time_text(found)) == found


def test_a_time_needs_a_zone() -> None:
    assert parse_time("2000-01-01T00:00:00") is None
    assert parse_time("1970-01-01T01:00:00+01:00") == 0
    assert time_text(1) == "1970-01-01T00:00:00.000001Z"
    assert time_text(10**30) == f"{10**30} us"


# ---------------------------------------------------------------------- schema and sentences


def test_the_schema_takes_right_rules_and_refuses_what_it_can() -> None:
    validator = jsonschema_rs.validator_for(schema())
    for values in (GALE, SILENT, GALE | WINDOW, GALE | {"unless": ["storm", "b-1"]}):
        assert validator.is_valid({"rules": [values]})
    #: These need more than one field, or a calculation.
    beyond = (
        "only with",
        "shorter",
        "repeats",
        "not with",
        "leaves readings",
        "one of keys",
        "itself",
    )
    for change, text in WRONG:
        is_beyond = any(one in text for one in (*beyond, "brace", "{a", "32 names", "condition"))
        is_zero = change in (
            *({"hold": "0 hours"}, {"ahead": "0 seconds"}, {"keep": "3700 days"}),
            *({"message": " "}, {"message": "\ud800"}, {"max_age": "1 minute"}),
        )
        if not (is_beyond or is_zero):
            assert not validator.is_valid({"rules": [GALE | change]}), change
    assert not validator.is_valid({"rules": [GALE | {"kyes": ["a"]}]})


def test_the_schema_has_every_field() -> None:
    rule = schema()["properties"]["rules"]["items"]
    assert list(rule["properties"]) == [name for name, _, _ in declared(Rule)]
    assert json.loads(json.dumps(schema())) == schema()


def test_a_rule_is_explained() -> None:
    rule = Rule(**GALE, hold="2 hours", max_gap="1 hour", keep="3 hours", repeat="12 hours")
    assert explain(rule) == [
        "It reads time_hour as the time of each reading.",
        "Each value of origin has an alert of its own.",
        "The severity is Critical when wind_gust > 60.",
        "The severity is Minor when wind_gust > 40.",
        "If several conditions hold, the highest severity counts.",
        "An alert is raised when readings have had a severity for 2 hours.",
        "That time begins again after 1 hour without such a reading.",
        "A reading for which a condition is null, and none holds, changes nothing.",
        "While it lasts, a reading with another severity changes it at once.",
        "While it lasts, it is sent again every 12 hours.",
        "It is cleared when every condition above is false for a reading, and no severity follows "
        "for 3 hours.",
        "After 30 days without a reading it is cleared and the state removed.",
        "Readings may arrive 1 minute later than newer ones.",
        "Its text is: {rule}",
        "Its AlertType is Quality of Service Alert, its ProbableCause Threshold Crossed.",
    ]


def test_silent_windows_and_rates_are_explained() -> None:
    silent = explain(Rule(**SILENT, input="weather"))
    assert "An alert of severity Major is raised after 3 hours without a reading." in silent
    assert "It reads time_hour as the time of each reading of the input weather." in silent
    late = explain(Rule(**GALE, **WINDOW, slide="10 minutes"))
    assert (
        "It judges windows of 1 hour, of which one begins every 10 minutes: n is count(*)." in late
    )
    falls = explain(Rule(**GALE, rate={"drop": "pressure"}, per="1 hour", clear="drop >\n 0"))
    assert "It judges the change per 1 hour since the last reading: drop is pressure." in falls
    assert "It is cleared at the first reading for which drop > 0." in falls


def test_other_rules_that_come_first_are_explained() -> None:
    found = explain(Rule(**GALE, unless=["weather.storm", "station.silent"]))
    assert found[-5:-3] == [
        "While weather.storm or station.silent is raised for the same origin, nothing is sent but "
        "the clear of an alert that was sent.",
        "What it is at the end of that time is sent then.",
    ]


# ---------------------------------------------------------------------- files

FILE = "rules:\n  - {name: %s, keys: [a], event_time: t, severity: {Major: a > 1}}\n"


def test_the_files_of_a_pattern_are_loaded_in_order(tmp_path: Path) -> None:
    for name in "ba":
        (tmp_path / f"{name}.yaml").write_text(FILE % name)
    assert [rule.name for rule in Rule.load(tmp_path / "*.yaml")] == ["a", "b"]
    assert [rule.name for rule in Rule.load(str(tmp_path / "b.yaml"))] == ["b"]


def test_a_name_may_be_there_once_in_all_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(FILE % "same")
    with pytest.raises(RuleError) as raised:
        Rule.load(tmp_path / "*.yaml")
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    assert str(raised.value) == f"{second}: same: name: {first} has this name too; use another one"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is no file of rules; write `rules:` and a list, nothing else"),
        (b"rules: []", "is no file of rules"),
        (b"rules: [a]\nmore: b", "is no file of rules"),
        (b"rules: [a]", "entry 1: 'a' is no object; write fields"),
        (b"rules: [{name: a, name: b}]", ":1: 'name' is there twice; correct the YAML there"),
        (b"rules: [&x {name: a}, *x]", ":1: an alias is not allowed"),
        (b"rules: [{[a]: b}]", ":1: a key is no text"),
        (b"rules:\n\t- a", ":2: found character '\\t' that cannot start any token"),
        (b"rules: \xff", "is not UTF-8; save it as UTF-8"),
        (b"rules: \x00", "correct the YAML"),
        (b"[" * 40, ":1: nested in more than 32 levels; correct the YAML there"),
        (b"#" * (2**20 + 1), "larger than 1,048,576 bytes; split it"),
        (b"rules: [{name: a}]", "rule a: keys is missing; add it"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_the_remedy(
    content: bytes, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_bytes(content)
    with pytest.raises(RuleError) as raised:
        Rule.load(path)
    assert text in raised.value.problems[0]
    assert raised.value.problems[0].startswith(str(path))


def test_a_pattern_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no such file; name a file, or a pattern such as"):
        Rule.load(tmp_path / "*.yaml")


def test_plain_values_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "rules: [{name: on, keys: [yes], event_time: no, severity: {Major: true}, message: 1:30}]"
    )
    (rule,) = Rule.load(path)
    assert (rule.name, rule.keys, rule.message) == ("on", ("yes",), "1:30")
