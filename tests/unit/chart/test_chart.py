"""The chart's files agree with each other and with the project; helm is not needed for that."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import generate_chart_reference as reference
from pillion_operator.telemetry.metrics import Metrics
from pillion_sidecar.config.durability import (
    ALERT_SECONDS,
    effective_lifetime,
    effective_retry,
    first_loss_after,
)
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.telemetry.definitions import METRICS
from pillion_testbed.helm import alert_groups
from support.house import ROOT
from support.manual import DOCS, blocks, codes, table, text_of

CHART = ROOT / "charts" / "pillion"
DESCRIPTION = yaml.safe_load((CHART / "Chart.yaml").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
ALERTS = {"groups": alert_groups()}
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
DESCRIBED = {value.path for value in reference.values()}
_METRIC = re.compile(r"\bpillion_[a-z_]+")


def known() -> set[str]:
    """The series that deliverers and the operator have."""
    families = list(Metrics(version="0").registry.collect())
    names = {metric.name for metric in METRICS}
    for family in families:
        names |= {family.name, f"{family.name}_total"}
    return names | {f"{name}_bucket" for name in names}


def sections(node: Any, values: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every object of the schema that says what may be in it, with the values beside it."""
    if node.get("properties") and isinstance(values, dict) and "$ref" not in node:
        yield path, node, values
        for name, below in node["properties"].items():
            yield from sections(below, values.get(name), f"{path}/{name}")


def test_the_page_of_values_is_up_to_date() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.render(), "run `make generate`"


def test_a_value_without_a_description_is_refused() -> None:
    with pytest.raises(reference.Undescribed, match=r"section\.value: write a comment above it"):
        reference.described("section:\n  value: 1\n")


def test_a_description_is_of_the_key_below_it_and_of_all_in_it() -> None:
    text = "# First\n# line.\na: 1\nb:\n  # Inner.\n  c:\n    d: 2\n# Last.\ne: 3\n"
    assert reference.described(text) == {
        ("a",): "First line.",
        ("b", "c"): "Inner.",
        ("e",): "Last.",
    }


def test_the_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert DESCRIPTION["appVersion"] == project["version"]
    assert DESCRIPTION["version"] == project["version"]
    assert DESCRIPTION["kubeVersion"] == ">=1.29.0-0"


def test_the_schema_knows_every_value_and_no_other() -> None:
    found = list(sections(SCHEMA, VALUES))
    assert len(found) > 10
    for path, node, values in found:
        assert node["additionalProperties"] is False, path
        if values:  # an empty one is the user's to fill
            assert node["properties"].keys() - {"global"} == values.keys(), path


def test_every_section_of_the_values_is_read_by_a_template() -> None:
    # A value that no template reads would be a promise that nobody keeps.
    files = [path for path in (CHART / "templates").rglob("*") if path.is_file()]
    templates = "".join(path.read_text() for path in files)
    assert {name for name in VALUES if f".Values.{name}" not in templates} == set()


def test_the_definitions_are_there_as_copies() -> None:
    source = {path.name: path.read_bytes() for path in (ROOT / "crds").glob("*.yaml")}
    copies = {path.name: path.read_bytes() for path in (CHART / "files" / "crds").glob("*.yaml")}
    # By names: to show how two of them differ takes half a minute.
    differing = [name for name in source | copies if source.get(name) != copies.get(name)]
    assert differing == [], "run `make generate`"


def test_a_definition_has_the_one_place_where_the_chart_writes_its_annotation() -> None:
    for path in (CHART / "files" / "crds").glob("*.yaml"):
        text = path.read_text()
        assert text.count("\nmetadata:\n") == 1, path
        assert "annotations" not in yaml.safe_load(text)["metadata"], path


def test_alerts_and_panels_ask_for_metrics_that_there_are() -> None:
    asked = [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]
    asked += [
        target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
    ]
    named = {name for expression in asked for name in _METRIC.findall(expression)}
    assert len(named) > 15
    assert named <= known()


def test_every_alert_says_how_bad_it_is_and_what_has_happened() -> None:
    rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["expr"].count("{") == rule["expr"].count("}")


def rules() -> list[Any]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def test_the_manual_lists_every_alert() -> None:
    listed = [codes(row[0])[0] for row in table("monitoring.md", "Prometheus alert")]
    assert listed == [rule["alert"] for rule in rules()]


def test_every_alert_has_a_section_of_the_manual_to_which_it_leads() -> None:
    sections = re.findall(r"^### (Pillion\w+)$", text_of("runbook.md"), flags=re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules()]
    for rule in rules():
        # The manual's pages have anchors of this form for their headings.
        anchor = f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook_url"] == anchor


def test_every_alerts_section_says_what_it_means_what_to_look_at_what_to_do_and_when_it_ends() -> (
    None
):
    runbook = text_of("runbook.md").split("## By symptom")[0]
    for section in runbook.split("\n### ")[1:]:
        parts = re.findall(r"^- \*\*([A-Za-z ]+):\*\*", section, flags=re.MULTILINE)
        assert parts == ["Meaning", "Look at", "Do", "Over"], section.splitlines()[0]


def test_the_alert_of_a_dead_listener_fires_before_the_first_loss_by_default() -> None:
    group = next(group for group in ALERTS["groups"] if group["name"] == "pillion-listeners")
    (rule,) = [one for one in group["rules"] if one["alert"] == "PillionListenerUnreachable"]
    assert "for" not in rule
    (bound,) = {int(number) for number in re.findall(r"(?:> |- )(\d\d+)\b", rule["expr"])}
    every = int(group["interval"].removesuffix("s"))
    monitoring = VALUES["monitoring"]
    for section in ("podMonitor", "scrapeConfig"):
        # What Prometheus itself takes where nothing is set is a minute.
        assert int(monitoring[section]["interval"].removesuffix("s")) <= 60
    assert max(bound, 60) + every <= ALERT_SECONDS
    destination = ListenerDestination(
        name="siem", uid="1", destination="http://siem.example/", protocol="CIM-XML"
    )
    for durability in Durability:
        retry = effective_retry(destination, durability)
        lifetime = effective_lifetime(destination, durability)
        first_loss = first_loss_after(retry, lifetime=lifetime)
        assert first_loss is not None
        assert first_loss > ALERT_SECONDS


#: What says where it is: an alert without one of these is about the whole installation.
_PLACES = ("destination", "pod", "service", "kind", "namespace", "job")


def test_every_alert_says_in_words_what_its_labels_are_about() -> None:
    for rule in rules():
        text = rule["annotations"]["summary"] + rule["annotations"]["description"]
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        grouped = re.search(r"by \(([a-z, ]+)\)", rule["expr"])
        labels = set(grouped[1].split(", ")) if grouped else {"namespace", "pod"}
        if rule["alert"] == "PillionOperatorAbsent":
            continue
        narrowest = next(place for place in _PLACES if place in labels)
        assert f"$labels.{narrowest} " in text, rule["alert"]
        named = set(re.findall(r"\$labels\.(\w+)", text))
        assert named <= labels | {"namespace", "pod"}, rule["alert"]


def set_by(path: str, part: Any) -> Iterator[str]:
    """The dotted paths of what a part of a page's values sets, as far as the chart knows them."""
    if isinstance(part, dict) and path not in DESCRIBED:
        for name, below in part.items():
            yield from set_by(f"{path}.{name}".lstrip("."), below)
    else:
        yield path


@pytest.mark.parametrize(
    "block", [*blocks(DOCS / "helm.md", "yaml"), *blocks(DOCS / "rights.md", "yaml")]
)
def test_values_on_the_page_are_values_of_the_chart(block: str) -> None:
    assert set(set_by("", yaml.safe_load(block))) <= DESCRIBED


def test_values_named_on_the_page_are_values_of_the_chart() -> None:
    sections = "|".join(name for name, value in VALUES.items() if isinstance(value, dict))
    # The last section names values of other charts, too.
    page, _, _ = text_of("helm.md").partition("\n## Beside other charts\n")
    page += text_of("rights.md")
    named = set(re.findall(rf"`((?:{sections})\.[A-Za-z.]+)", page))
    assert len(named) > 8
    assert named <= DESCRIBED


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_values_beside_those_of_other_charts_are_values_of_the_chart() -> None:
    rows = table("helm.md", "for what")
    assert len(rows) > 20
    named = [name for row in rows for name in codes(row[1])]
    assert len(set(named)) == len(named)
    assert {name for name in named if name not in DESCRIBED} == set()
