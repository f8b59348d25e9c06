"""Mistakes of people who write their first resource files: each is answered with what to write."""

import json
from pathlib import Path
from typing import Any

import pytest

from pillion_cli.main import main
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import MOST_TOLD, ConfigurationError, Problem, show
from pillion_sidecar.protocols import PROTOCOLS
from support.resources import alert_filter, destination, document, service, subscription, write

DESTINATION = """\
apiVersion: pillion.dev/v1alpha1
kind: ListenerDestination
metadata:
  name: ops
"""


def refused(folder: Path) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_folder(folder)
    return caught.value


def told(folder: Path) -> list[str]:
    return [str(problem) for problem in refused(folder).problems]


def only(folder: Path) -> Problem:
    (problem,) = refused(folder).problems
    return problem


def yaml(folder: Path, text: str) -> Path:
    (folder / "a.yaml").write_text(text)
    return folder


@pytest.mark.parametrize("spec", ["", "spec:\n"])
def test_fields_beside_spec_are_to_be_indented(tmp_path: Path, spec: str) -> None:
    yaml(tmp_path, f"{DESTINATION}{spec}destination: http://h/\nprotocol: CIMXML\n")
    line = 6 if spec else 5
    assert told(tmp_path) == [
        f"a.yaml:{line}: ListenerDestination/ops: destination: stands outside spec. "
        "Indent it under spec.",
        f"a.yaml:{line + 1}: ListenerDestination/ops: protocol: stands outside spec. "
        "Indent it under spec.",
        f"a.yaml:{line + 1}: ListenerDestination/ops: protocol: is none of {', '.join(PROTOCOLS)} "
        "(value 'CIMXML'). Did you mean CIM-XML?",
    ]


def test_a_field_beside_spec_is_not_missing_in_it(tmp_path: Path) -> None:
    yaml(tmp_path, f"{DESTINATION}spec:\n  protocol: CIM-XML\ndestination: http://h/\n")
    assert only(tmp_path).field == "destination"


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("name: x", "Indent it under metadata."),
        ("Destinaton: http://h/", "Did you mean destination? Indent it under spec."),
        ("metadta: {}", "Did you mean metadata?"),
        ("intervalSeconds: 3", "Write it as spec.retry.intervalSeconds."),
        ("durability: Disk", "It is a field of IndicationService (spec.durability)."),
        ("zzz: 3", "Remove it; the known names are apiVersion, kind, metadata, spec, status."),
    ],
)
def test_an_unknown_field_beside_spec_has_its_place_named(
    tmp_path: Path, line: str, remedy: str
) -> None:
    good = "spec:\n  destination: http://h/\n  protocol: CIM-XML\n"
    assert only(yaml(tmp_path, f"{DESTINATION}{good}{line}\n")).remedy == remedy


@pytest.mark.parametrize(
    ("kind", "field", "remedy"),
    [
        (
            "ListenerDestination",
            "deliveryRetryIntervalSeconds",
            "It is a field of IndicationService (spec.deliveryRetryIntervalSeconds). "
            "In ListenerDestination it is spec.retry.intervalSeconds.",
        ),
        (
            "IndicationService",
            "retry",
            "It is a field of ListenerDestination (spec.retry). In IndicationService it is "
            "spec.deliveryRetryAttempts and spec.deliveryRetryIntervalSeconds.",
        ),
        ("ListenerDestination", "attempts", "Write it as spec.retry.attempts."),
        ("ListenerDestination", "serviceRef", "a field of IndicationSubscription"),
        ("ListenerDestination", "name", "Write it under metadata."),
        ("ListenerDestination", "protcol", "Did you mean protocol?"),
    ],
)
def test_a_field_of_another_place_has_it_named(
    tmp_path: Path, kind: str, field: str, remedy: str
) -> None:
    known = destination()["spec"] if kind == "ListenerDestination" else {}
    problem = only(write(tmp_path, document(kind, "ops", {**known, field: 5})))
    assert problem.field == f"spec.{field}"
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("spec:\n\tdestination: http://h/\n", 6),
        ("spec:\n  protocol: CIM-XML\n\tdestination: http://h/\n", 7),
        ("spec:\n  protocol: CIM-XML\n  \tdestination: http://h/\n", 7),
    ],
)
def test_a_tab_is_named_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    problem = only(yaml(tmp_path, DESTINATION + text))
    assert (problem.line, problem.remedy) == (line, "Indent with spaces.")
    assert problem.message == "is not YAML: indentation contains a tab"


def test_json_may_be_indented_with_tabs(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{\n\t"apiVersion": "v1",\n\t"kind" "List"\n}')
    assert "tab" not in str(only(tmp_path))


def test_two_resources_without_a_line_between_them(tmp_path: Path) -> None:
    assert only(yaml(tmp_path, DESTINATION * 2)).remedy == "Write --- between two resources."


def test_what_is_wrong_with_version_and_kind_is_told_at_once(tmp_path: Path) -> None:
    wrong = {**destination(), "apiVersion": "pillion.dev/v1", "kind": "ListenerDestinaton"}
    assert told(write(tmp_path, wrong, subscription())) == [
        "resources.yaml:2: apiVersion: is not a version that this program reads "
        "(value 'pillion.dev/v1'). Write pillion.dev/v1alpha1.",
        "resources.yaml:3: kind: is no kind of pillion.dev (value 'ListenerDestinaton'). "
        "Did you mean ListenerDestination?",
    ]


def test_a_resource_without_a_version_is_what_references_name(tmp_path: Path) -> None:
    missing = destination(protocol="x")
    del missing["apiVersion"]
    write(tmp_path, missing, alert_filter(), subscription())
    assert [problem.field for problem in refused(tmp_path).problems] == [
        "apiVersion",
        "spec.protocol",
    ]


@pytest.mark.parametrize("missing", ["apiVersion", "kind"])
def test_a_document_without_a_beginning_makes_no_dangling_reference(
    tmp_path: Path, missing: str
) -> None:
    wrong = destination()
    del wrong[missing]
    problem = only(write(tmp_path, wrong, alert_filter(), subscription()))
    assert (problem.field, problem.message) == (missing, "is missing")


def test_a_resource_of_a_misspelt_api_is_named_where_it_is_missed(tmp_path: Path) -> None:
    wrong = {**destination(), "apiVersion": "pilion.dev/v1alpha1"}
    write(tmp_path, wrong, file="destination.yaml")
    write(tmp_path, alert_filter(), subscription())
    error = refused(tmp_path)
    assert error.problems[0].remedy == (
        "Write apiVersion: pillion.dev/v1alpha1 at destination.yaml:1, which is ignored."
    )
    assert error.warnings == (
        "destination.yaml:1: 'ListenerDestination' of 'pilion.dev/v1alpha1' is ignored. "
        "Write apiVersion: pillion.dev/v1alpha1 if it is meant for Pillion",
    )
    assert str(error).endswith(f"\nwarning: {error.warnings[0]}")


def test_a_kind_of_another_api_is_ignored_without_advice(tmp_path: Path) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    (warning,) = load_folder(write(tmp_path, other, destination())).warnings
    assert warning.endswith("'ConfigMap' of 'v1' is ignored")


def test_warnings_are_shown_beside_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    write(tmp_path, other, destination(protocol="x"))
    assert main(["validate", str(tmp_path)]) == 1
    assert "warning: resources.yaml:1: 'ConfigMap' of 'v1' is ignored" in capsys.readouterr().out
    assert main(["validate", str(tmp_path), "--output", "json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["warnings"]) == 1


def test_files_that_are_not_read_are_warned_of_once(tmp_path: Path) -> None:
    write(tmp_path, destination())
    for name in ("b.txt", "a.yaml~", "d.yaml.bak", "c\n.conf", "README.md", ".hidden"):
        (tmp_path / name).write_text("kind: ListenerDestination\n")
    (tmp_path / "journal").mkdir()
    (warning,) = load_folder(tmp_path).warnings
    assert warning == (
        "a.yaml~, b.txt, c\\u000a.conf and 1 more: not read, since the name of a resource file "
        "ends in .yaml, .yml, .json or .mof"
    )


def test_a_folder_without_a_resource_file_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "destination.txt").write_text(DESTINATION)
    assert "destination.txt: not read" in str(refused(tmp_path))


def test_a_misspelt_reference_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    others = [destination(f"a-{number:02}") for number in range(20)]
    write(
        tmp_path, *others, destination("operations"), alert_filter(), subscription(to="operatons")
    )
    assert only(tmp_path).remedy.startswith("Did you mean operations? There is: a-00, ")


def test_a_misspelt_service_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    write(tmp_path, service("weather"), service("plant"))
    with pytest.raises(ConfigurationError) as caught:
        load_folder(tmp_path, service="wether")
    assert caught.value.problems[0].remedy == (
        "Did you mean weather? Choose one with --service: plant, weather."
    )


def test_the_default_of_service_ref_is_said(tmp_path: Path) -> None:
    write(tmp_path, service("weather"), destination(), alert_filter(), subscription())
    problem = only(tmp_path)
    assert problem.field == "spec.serviceRef.name"
    assert problem.message == (
        "there is no IndicationService of this name, the default of serviceRef"
    )
    assert problem.remedy == ("Write serviceRef: {name: weather}, or name the service default.")


@pytest.mark.parametrize(
    ("size", "remedy"),
    [
        ("1GB", "Write 1G, or 1Gi for the binary unit."),
        ("1.5 gb", "Write 1.5G, or 1.5Gi for the binary unit."),
        ("500mb", "Write 500M, or 500Mi for the binary unit."),
        ("64KB", "Write 64k, or 64Ki for the binary unit."),
        ("0GB", "Write a number with its unit, such as 500Mi or 1Gi."),
        ("much", "Write a number with its unit, such as 500Mi or 1Gi."),
    ],
)
def test_a_misspelt_size_is_answered_with_its_unit(tmp_path: Path, size: str, remedy: str) -> None:
    folder = write(tmp_path, service(deliverer={"storage": {"sizeLimit": size}}))
    assert only(folder).remedy == remedy


def test_a_misspelt_share_of_a_processor_is_answered_with_its_own_unit(tmp_path: Path) -> None:
    limits = {"resources": {"limits": {"cpu": "half"}}}
    problem = only(write(tmp_path, service(deliverer=limits)))
    assert problem.remedy == "Write a number with its unit, such as 500m or 2."


def test_a_problem_is_one_bounded_line_of_printable_text(tmp_path: Path) -> None:
    name, key = "a\n\x1b[31m\u202e" + "x" * 100_000, "b\r\n\x9b\u2028" + "y" * 100_000
    wrong = destination(**{key: 1})
    wrong["metadata"]["name"] = name
    wrong[key] = 1
    for problem in refused(write(tmp_path, wrong)).problems:
        assert str(problem).isprintable()
        assert len(str(problem)) < 1000


def test_what_is_not_printable_is_escaped_as_in_the_log() -> None:
    problem = Problem(reason="Invalid", message="is a\n\x1b\u202e\U000e0001", remedy="No.")
    assert str(problem) == "is a\\u000a\\u001b\\u202e\\udb40\\udc01. No."


def test_the_text_of_an_error_is_bounded(tmp_path: Path) -> None:
    wrong = [destination(f"d{number}", x=1) for number in range(MOST_TOLD + 5)]
    error = refused(write(tmp_path, *wrong))
    assert len(error.problems) == MOST_TOLD + 5
    lines = str(error).splitlines()
    assert len(lines) == MOST_TOLD + 1
    assert lines[-1] == "… and 5 more; pillion validate lists all"


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        (
            {"protocol": "MQTT", "destination": "mqtt://h/alerts", "mqtt": {"topic": "a"}},
            "Write nothing behind host and port, and the topic in mqtt.topic.",
        ),
        (
            {"protocol": "Syslog", "destination": "syslog://h/x"},
            "Write nothing behind host and port.",
        ),
        (
            {"proxy": {"url": "https://proxy:3128"}},
            "Write the scheme in front of the host, such as http://host:port.",
        ),
        (
            {"protocol": "Webhook", "webhook": {"template": '{"a": "${sverity}"}'}},
            "Write a property, which begins with a capital, or one of action, apiKey, class, "
            "correlation, discardAttempts, discardDestination, discardDetail, discardReason, ends, "
            "filterName, identifier, properties, sequenceContext, sequenceNumber, service, "
            "severity, source, time; ${$} is a dollar sign.",
        ),
    ],
)
def test_the_remedy_fits_what_was_written(
    tmp_path: Path, changes: dict[str, object], remedy: str
) -> None:
    made = destination()
    made["spec"].update(changes)
    assert only(write(tmp_path, made)).remedy == remedy


def test_a_file_with_two_slashes_is_one_mistake(tmp_path: Path) -> None:
    made = destination()
    made["spec"].update(protocol="File", destination="file://alerts.ndjson")
    assert only(write(tmp_path, made)).message == "names no file that Pillion writes"


PAGER = {"mode": "Gateway", "plugins": [{"name": "pager", "image": "registry.example/pager:1"}]}


@pytest.mark.parametrize(("name", "count"), [("pagr", 1), ("pager/on-call", 0)])
def test_a_plug_in_that_the_service_does_not_declare_is_a_warning(
    tmp_path: Path, name: str, count: int
) -> None:
    made = destination()
    made["spec"].update(protocol="Plugin", destination=f"plugin://{name}")
    write(tmp_path, service(deliverer=PAGER), made)
    said = (
        f"destination {made['metadata']['name']}: there is no plug-in 'pagr' in deliverer.plugins"
        " of the service: did you mean pager? there is: pager"
    )
    assert load_folder(tmp_path).warnings == (said,) * count


@pytest.mark.parametrize(("host", "count"), [("hooks.slack.com", 1), ("127.0.0.1", 0)])
def test_a_url_of_slack_in_the_resource_is_a_warning(tmp_path: Path, host: str, count: int) -> None:
    made = destination()
    url = f"https://{host}/services/T/B/x"
    made["spec"].update(protocol="Webhook", destination=url, webhook={"preset": "Slack"})
    warnings = load_folder(write(tmp_path, made)).warnings
    assert len(warnings) == count
    assert all("a URL of Slack is a credential" in one and "hooks" not in one for one in warnings)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://me:planted@one.example/", "'http://…@one.example/'"),
        ("http://me:pla@nted@one.example", "'http://…@one.example'"),
        ("me:planted@one.example", "'…@one.example'"),
        ("http://me:" + "planted" * 20 + "@one.example", "'http://…@one.example'"),
        ("me@one.example", "'me@one.example'"),
        ("http://one.example/", "'http://one.example/'"),
    ],
)
def test_what_may_be_a_password_is_not_shown(value: str, shown: str) -> None:
    assert show(value) == shown


def test_a_url_with_a_password_is_told_without_it(tmp_path: Path) -> None:
    write(tmp_path, destination(destination="http://me:planted@one.example/"))
    assert [text for text in told(tmp_path) if "planted" in text] == []
    assert only(tmp_path).value == "'http://…@one.example/'"


@pytest.mark.parametrize("field", ["rateLimit", "publisherRateLimit"])
@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ({}, "perSecond: is missing"),
        ({"burst": 5}, "perSecond: is missing"),
        ({"perSecond": 0}, "perSecond: is not within 0.001 to 1,000,000 (value 0)"),
        ({"perSecond": -1}, "perSecond: is not within 0.001 to 1,000,000"),
        ({"perSecond": 1e9}, "perSecond: is not within 0.001 to 1,000,000"),
        ({"perSecond": "5"}, "perSecond: is not a number (value '5'). Write a number, without q"),
        ({"perSecond": True}, "perSecond: is not a number"),
        ({"perSecond": 1, "burst": 0}, "burst: is not within 1 to 1,000,000"),
        ({"perSecond": 1, "burst": 2.5}, "burst: is not a whole number"),
        ({"perSecond": 1, "bursts": 2}, "bursts: is not known. Did you mean burst?"),
        (5, "is not an object"),
    ],
)
def test_a_wrong_rate_limit_is_told_with_its_bounds(
    tmp_path: Path, field: str, limit: Any, told: str
) -> None:
    spec = {field: limit}
    written = destination("ops", **spec) if field == "rateLimit" else service(**spec)
    others = (service(),) if field == "rateLimit" else ()
    write(tmp_path, written, *others)
    problem = str(only(tmp_path))
    assert f"spec.{field}" in problem
    assert told in problem


@pytest.mark.parametrize("rate", [".nan", ".inf", "-.inf", "1e-9"])
def test_a_rate_that_is_no_usable_number_is_refused(tmp_path: Path, rate: str) -> None:
    spec = "  protocol: CIM-XML\n  destination: http://h/\n  rateLimit: {perSecond: %s}\n"
    yaml(tmp_path, f"{DESTINATION}spec:\n{spec % rate}")
    assert "perSecond: is not" in str(only(tmp_path))


@pytest.mark.parametrize(("rate", "burst"), [(0.001, 1), (2.5, 3), (3, 3), (1e6, 1_000_000)])
def test_a_rate_limit_may_be_a_fraction(tmp_path: Path, rate: float, burst: int) -> None:
    limit = {"perSecond": rate}
    write(
        tmp_path,
        service(publisherRateLimit=limit),
        destination("ops", rateLimit=limit),
        alert_filter(),
        subscription("alerts", "ops"),
    )
    loaded = load_folder(tmp_path)
    limits = (loaded.destinations["ops"].rate_limit, loaded.service.publisher_rate_limit)
    for one in limits:
        assert one is not None
        assert (one.per_second, one.most_at_once) == (rate, burst)
