"""Every alert of the chart fires when it should, not just before, and resolves: by promtool."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pillion_testbed.helm import ALERT_FILES, MATRIX, alert_groups, find_helm, only
from pillion_testbed.monitoring import PromtoolFailed, promtool
from support.house import ROOT

# The first one may have to build helm and promtool.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

FILES = sorted((ROOT / "tests" / "monitoring").glob("*.yaml"))
RULES = {rule["alert"]: rule for group in alert_groups() for rule in group["rules"]}
#: Units of a duration of Prometheus, in seconds.
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration: str) -> int:
    return int(duration[:-1]) * UNITS[duration[-1]]


def cases_of(alert: str) -> list[Any]:
    """The tests that are about an alert, by their names."""
    found = [test for path in FILES for test in yaml.safe_load(path.read_text())["tests"]]
    return [test for test in found if test["name"].split()[0].rstrip(":") == alert]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_rules_do_what_they_should(path: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", str(path))


def test_promtool_takes_the_rules() -> None:
    told = promtool("check", "rules", "--lint=all", *map(str, ALERT_FILES))
    found = [int(count) for count in re.findall(r"(\d+) rules found", told)]
    assert (len(found), sum(found)) == (len(ALERT_FILES), len(RULES))


def test_nothing_of_the_operator_is_asked_where_there_is_none() -> None:
    deliverers, operator = (path.read_text(encoding="utf-8") for path in ALERT_FILES)
    assert "pillion_operator_" not in deliverers
    names = [group["name"] for group in yaml.safe_load(operator)["groups"]]
    assert names == ["pillion-operator"]


def test_a_test_that_a_rule_does_not_pass_fails(tmp_path: Path) -> None:
    text = FILES[0].read_text().replace("../../charts/pillion/files/", "")
    (tmp_path / FILES[0].name).write_text(text)
    alerts = ALERT_FILES[0]
    (tmp_path / alerts.name).write_text(alerts.read_text().replace(" == 0", " == 7"))
    with pytest.raises(PromtoolFailed, match="FAILED"):
        promtool("test", "rules", str(tmp_path / FILES[0].name))


@pytest.mark.parametrize("alert", RULES)
def test_every_alert_is_seen_to_fire_to_wait_and_to_resolve(alert: str) -> None:
    firing = [test for test in cases_of(alert) if test["name"].startswith(f"{alert}:")]
    silent = [test for test in cases_of(alert) if test["name"].startswith(f"{alert} not:")]
    assert firing, f"{alert}: no test in tests/monitoring has it fire"
    assert silent, f"{alert}: no test in tests/monitoring stops just below its bound"
    for test in firing:
        looks = test["alert_rule_test"]
        assert {look["alertname"] for look in looks} == {alert}
        times = [seconds(look["eval_time"]) for look in looks]
        assert times == sorted(times)
        # Not yet, then, and no more.
        assert [bool(look.get("exp_alerts")) for look in looks] == [False, True, False]
    for test in silent:
        assert test["alert_rule_test"]
        assert not any(look.get("exp_alerts") for look in test["alert_rule_test"])


@pytest.mark.parametrize("alert", RULES)
def test_every_test_has_the_series_that_the_rule_asks_for(alert: str) -> None:
    # Without series an alert could not fire, and a test that it does not would say nothing.
    for test in cases_of(alert):
        for name in (one["series"].partition("{")[0] for one in test["input_series"]):
            asked = RULES[alert]["expr"] + RULES[alert]["annotations"]["description"]
            assert name in asked, (alert, name)


def test_the_rule_file_of_the_chart_is_the_one_that_is_tested(tmp_path: Path) -> None:
    objects = find_helm(tmp_path).template("monitoring.rules.enabled=true")
    text = only(objects, "ConfigMap", "pillion-rules")["data"]["rules.yaml"]
    assert yaml.safe_load(text) == {"groups": alert_groups()}
    rendered = tmp_path / "rules.yaml"
    rendered.write_text(text)
    assert "SUCCESS" in promtool("check", "rules", str(rendered))


def test_runbooks_are_where_the_manual_is_said_to_be(tmp_path: Path) -> None:
    objects = find_helm(tmp_path).template(*MATRIX["scraping"])
    document = yaml.safe_load(only(objects, "ConfigMap", "pillion-rules")["data"]["rules.yaml"])
    found = {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for group in document["groups"]
        for rule in group["rules"]
    }
    page = "https://manual.example.com/pillion/runbook.html"
    assert found == {alert: f"{page}#{alert.lower()}" for alert in RULES}
