"""The dashboard asked of a real Prometheus that scrapes real deliverers with real traffic.

No cluster: discovery tells what Kubernetes would, and the rest is the chart's own configuration.
"""

import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from pillion_testbed.helm import CHART, MATRIX, find_helm, only
from pillion_testbed.monitoring import Prometheus, running_prometheus
from pillion_testbed.rest import wait_until
from support import steady_publisher
from support.dashboard import Query, load, queries, variables
from support.processes import SidecarProcess, listener_process, sidecar_process
from support.resources import alert_filter, destination, service, subscription

# The first one may have to build helm and Prometheus.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

DASHBOARD = load(CHART / "files" / "dashboard.json")
#: Rows about something that does not run here; tests/e2e asks for these.
ELSEWHERE = ("Gateways", "Operator")
QUERIES = [query for query in queries(DASHBOARD) if query.row not in ELSEWHERE]
ALL = dict.fromkeys(variables(DASHBOARD), ".*")
#: Short, so that rates are there soon.
INTERVAL = "10s"
WITHIN = 60.0


def has_data(prometheus: Prometheus, query: Query, values: dict[str, str]) -> bool:
    """Whether a query returns a number; NaN is what a quantile of nothing is."""
    found = prometheus.query(query.filled(values, interval=INTERVAL))
    return any(not math.isnan(float(one["value"][1])) for one in found)


def resources(good: str, dead: str) -> list[Any]:
    return [
        service(deliveryRetryIntervalSeconds=1, deliveryRetryAttempts=1000),
        alert_filter(),
        destination("good", destination=good, protocol="CloudEvents"),
        destination("dead", destination=dead, protocol="CloudEvents"),
        subscription("alerts-to-good", to="good"),
        subscription("alerts-to-dead", to="dead"),
    ]


@contextmanager
def traffic(*sidecars: SidecarProcess) -> Iterator[None]:
    """Publish to all of them, again and again, while the context lasts."""
    command = [sys.executable, steady_publisher.__file__, *(one.url for one in sidecars)]
    with subprocess.Popen(command) as process:
        try:
            yield
            assert process.poll() is None, "the publisher has ended"
        finally:
            process.terminate()


def target(sidecar: SidecarProcess, number: int) -> dict[str, Any]:
    """A deliverer as Kubernetes' discovery tells of it: a native sidecar of an executor."""
    labels = {
        "__meta_kubernetes_namespace": "weather",
        "__meta_kubernetes_pod_name": f"executor-{number}",
        "__meta_kubernetes_pod_phase": "Running",
        "__meta_kubernetes_pod_label_pillion_dev_deliverer": "default",
        "__meta_kubernetes_pod_container_init": "true",
        "__meta_kubernetes_pod_container_name": "pillion-deliverer",
        "__meta_kubernetes_pod_container_port_name": "pillion-metrics",
    }
    return {"targets": [urlsplit(sidecar.telemetry).netloc], "labels": labels}


def configuration(folder: Path, *sidecars: SidecarProcess) -> dict[str, Any]:
    """The chart's scrape configuration and rules, with the targets that are here."""
    objects = find_helm(folder).template(*MATRIX["scraping"])
    text = only(objects, "ConfigMap", "pillion-scrape")["data"]["scrape.yaml"]
    job = yaml.safe_load(text)["scrape_configs"][1]
    del job["kubernetes_sd_configs"]
    job |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    job["static_configs"] = [target(one, number) for number, one in enumerate(sidecars, start=1)]
    rules = folder / "rules.yaml"
    rules.write_text(only(objects, "ConfigMap", "pillion-rules")["data"]["rules.yaml"])
    return {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [job],
    }


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes two deliverers, of which one listener takes and one is dead."""
    folder = tmp_path_factory.mktemp("monitoring")
    with ExitStack() as stack:
        good = stack.enter_context(listener_process(folder))
        documents = resources(good.url, "http://127.0.0.1:9/dead")
        sidecars = []
        for name in ("one", "two"):
            own = folder / name
            own.mkdir()
            options = ("--journal", str(own / "journal"))
            sidecars.append(stack.enter_context(sidecar_process(own, *documents, options=options)))
        stack.enter_context(traffic(*sidecars))
        running = running_prometheus(configuration(folder, *sidecars), folder)
        yield stack.enter_context(running)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.row}: {query.panel}")
def test_every_panel_about_deliverers_has_data(prometheus: Prometheus, query: Query) -> None:
    wait_until(
        lambda: has_data(prometheus, query, ALL),
        within=WITHIN,
        what=f"{query.panel}: {query.filled(ALL, interval=INTERVAL)}",
    )


@pytest.mark.parametrize(
    "query",
    [query for query in queries(DASHBOARD) if query.row in ELSEWHERE],
    ids=lambda query: f"{query.row}: {query.panel}",
)
def test_every_other_query_is_one_that_prometheus_takes(
    prometheus: Prometheus, query: Query
) -> None:
    assert isinstance(prometheus.query(query.filled(ALL, interval=INTERVAL)), list)


def test_the_variables_select(prometheus: Prometheus) -> None:
    chosen = {"namespace": "weather", "service": "default", "destination": "dead|good"}
    assert chosen.keys() == variables(DASHBOARD).keys()
    for name, value in chosen.items():
        for query in QUERIES:
            if f"${name}" in query.expression and "vector(0)" not in query.expression:
                other = {**chosen, name: "nothing"}
                assert not prometheus.query(query.filled(other, interval=INTERVAL)), query.panel
                wait_until(
                    lambda query=query: has_data(prometheus, query, chosen),  # type: ignore[misc]
                    within=WITHIN,
                    what=f"{query.panel} with {name}={value}",
                )


def test_a_variable_offers_what_there_is(prometheus: Prometheus) -> None:
    offered = {}
    for name, variable in variables(DASHBOARD).items():
        match, _, label = variable["query"].removeprefix("label_values(")[:-1].rpartition(", ")
        assert label == name
        asked = Query(row="", panel=name, expression=match).filled(ALL)
        offered[name] = {found[name] for found in prometheus.series(asked)}
    assert offered == {
        "namespace": {"weather"},
        "service": {"default"},
        "destination": {"dead", "good"},
    }


def test_the_listener_that_is_behind_stands_out(prometheus: Prometheus) -> None:
    pending = "sum by (destination) (pillion_destination_queue_depth) > 20"
    (behind,) = prometheus.until(pending)
    assert behind["metric"] == {"destination": "dead"}
    state, *others = [query for query in QUERIES if query.panel.startswith("Destinations")]
    shown = {
        found["metric"]["destination"]: (found["metric"].get("cause", ""), found["value"][1])
        for found in prometheus.query(state.filled(ALL, interval=INTERVAL))
    }
    # The greatest number stands first.
    assert shown == {"dead": ("refused", "6"), "good": ("", "0")}
    for part in ("first_loss_due", "failing_since", "next_attempt"):
        (query,) = [one for one in others if part in one.expression]
        found = prometheus.query(query.filled(ALL, interval=INTERVAL))
        assert [one["metric"]["destination"] for one in found] == ["dead"], part


def test_the_alert_for_the_dead_listener_is_on_its_way_and_none_for_the_other(
    prometheus: Prometheus,
) -> None:
    def known() -> dict[str, Any]:
        return {alert["labels"]["alertname"]: alert["labels"] for alert in prometheus.alerts()}

    expected = "PillionListenerUnreachable"
    wait_until(lambda: expected in known(), within=WITHIN, what=expected)
    others = known().keys() - {"PillionOperatorAbsent"}
    assert {known()[alert]["destination"] for alert in others} == {"dead"}
    assert known()[expected] == {
        "alertname": expected,
        "severity": "critical",
        "namespace": "weather",
        "service": "default",
        "destination": "dead",
    }
