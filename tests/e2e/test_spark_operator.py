"""The stream of rules under Kubeflow's Spark operator, which submits it and restarts it."""

import os
from collections.abc import Iterator

import pytest

from cluster.story import EXAMPLE, Installation, alerts_of_a_batch, flight_board, spark_pods
from pillion_testbed import images
from pillion_testbed.binaries import find_binaries
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.node_fixtures import Nodes
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from pillion_testbed.spark_operator import NAMESPACE, spark_operator

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]

#: Seconds for each step: on a busy machine the first batch alone takes minutes.
WITHIN = 600
APPLICATION = "sparkapplication/weather-stream"


@pytest.fixture(scope="module")
def operated(
    weather: Kubectl,
    weather_image: str,
    pillion: Installation,
    node_cluster: Nodes,
    tmp_path_factory: pytest.TempPathFactory,
    report: Report,
) -> Iterator[Kubectl]:
    """The example's namespace, whose SparkApplications the operator runs."""
    operator = spark_operator(find_binaries(os.environ))
    folder = tmp_path_factory.mktemp("spark-operator")
    node_cluster.import_image(operator.image(images.weather(), into=folder / "image.tar"))
    assert weather.namespace is not None
    with report.step("Kubeflow's Spark operator, by its chart"):
        pillion.kubectl.run("create", "namespace", NAMESPACE)
        operator.install(pillion.helm, jobs=weather.namespace)
    yield weather
    weather.run("delete", APPLICATION, "--ignore-not-found")
    operator.uninstall(pillion.helm)
    pillion.kubectl.run("delete", "namespace", NAMESPACE, "--wait=false")


def driver(kubectl: Kubectl) -> str | None:
    """Return the driver's unique identifier; a restarted one has the same name."""
    found = kubectl.json("get", "pods", "--selector=spark-role=driver")["items"]
    return found[0]["metadata"]["uid"] if found else None


def test_the_operator_restarts_a_stream_which_raises_what_a_batch_raises(
    operated: Kubectl, weather_image: str, report: Report
) -> None:
    expected = alerts_of_a_batch()
    listener = flight_board(operated)
    text = (EXAMPLE / "kubeflow-sparkapplication.yaml").read_text()
    with report.step("a SparkApplication, until its stream has raised 20 alerts"):
        operated.apply(text.replace("localhost/pillion-weather:0.1.0", weather_image))
        listener.wait_for(20, within=WITHIN)
    executor = operated.json("get", "pod", spark_pods(operated, "executor")[0])
    assert [one["name"] for one in executor["spec"]["initContainers"]] == ["pillion-deliverer"]
    first = driver(operated)
    with report.step("the driver is deleted; the operator restarts it, to the last alert"):
        operated.run("delete", "pod", "weather-stream-driver", "--grace-period=5")
        assert listener.summary()["received"] < len(expected)
        wait_until(
            lambda: driver(operated) not in (None, first), within=WITHIN, what="another driver"
        )
        listener.wait_for(len(expected), within=WITHIN)
    arrived = [one.identifier for one in listener.arrivals()]
    assert len(arrived) == len(set(arrived))
    assert set(arrived) == expected
    status = operated.json("get", APPLICATION)["status"]
    assert status["applicationState"]["state"] == "RUNNING"
    assert status["executionAttempts"] == 2
