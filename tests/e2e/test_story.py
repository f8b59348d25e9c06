"""The story that docs/spark-on-kubernetes.md tells, on a node: from ``helm install`` to alerts from
Spark's executors at listeners that are up, and a listener that is down."""

from collections import Counter
from pathlib import Path

import pytest

from cluster.story import Arrival, alerts_of_a_batch, flight_board, operations, submitted
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support.weather import ALERTS, MAJOR_ALERTS

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

ALERTS_JOB = "local:///opt/pillion/jobs/weather_alerts.py"
STREAM_JOB = "local:///opt/pillion/jobs/weather_stream.py"
COPIES = 10


def depth(kubectl: Kubectl, destination: str) -> int:
    """Return what waits for a destination, as its status says."""
    found = kubectl.json("get", "listenerdestination", destination)
    return int(found["status"].get("depth", 0))


def in_order(arrivals: list[Arrival]) -> None:
    """Nothing was held, late or given up, and numbers rise by one in each context."""
    assert Counter(one.verdict for one in arrivals) == {"delivered": len(arrivals)}
    last: dict[str, int] = {}
    for one in arrivals:
        assert one.context is not None
        assert one.number is not None
        assert one.number == last.get(one.context, -1) + 1
        last[one.context] = one.number


def test_a_batch_job_reaches_every_listener(
    weather: Kubectl, weather_image: str, tmp_path: Path, report: Report
) -> None:
    with (
        report.step(f"a Spark job in cluster mode: {ALERTS * COPIES:,} alerts by 2 executors"),
        submitted(
            weather, ALERTS_JOB, "--copies", str(COPIES), image=weather_image, folder=tmp_path
        ) as job,
    ):
        executors = job.executors(2)
        for executor in executors:
            pod = weather.json("get", "pod", executor)
            assert [one["name"] for one in pod["spec"]["initContainers"]] == ["pillion-deliverer"]
        driver = weather.json("get", "pod", job.driver())
        assert not driver["spec"].get("initContainers")
        printed = job.wait()
    assert f"accepted={ALERTS * COPIES}," in printed

    # The gateway alone delivers there: once for each alert, in one order.
    arrived = flight_board(weather).wait_for(ALERTS * COPIES)
    in_order(arrived)
    assert len({one.identifier for one in arrived}) == ALERTS * COPIES == len(arrived)
    assert len({one.context for one in arrived}) == 1

    # Each executor's deliverer delivers there: at least once, a repeat under the same identifier.
    told = operations(weather).wait_for(MAJOR_ALERTS * COPIES)
    assert len(set(told)) == MAJOR_ALERTS * COPIES

    # What goes to the one that is down waits in the gateway, and costs the others nothing.
    wait_until(
        lambda: depth(weather, "archive") == ALERTS * COPIES,
        within=120,
        what="the archive's depth in its status",
    )
    # Executors end by themselves, their sidecars with them.
    wait_until(lambda: not job.pods("executor"), within=90, what="the end of the executors")


def test_what_was_published_is_not_delivered_again(
    weather: Kubectl, weather_image: str, tmp_path: Path, report: Report
) -> None:
    """The gateway knows what other executors, of another run, have published."""
    before = flight_board(weather).summary()["received"]
    arguments = (ALERTS_JOB, "--copies", str(COPIES))
    with (
        report.step("the same job again: the gateway delivers nothing twice"),
        submitted(weather, *arguments, image=weather_image, folder=tmp_path) as job,
    ):
        printed = job.wait()
    assert f"accepted={ALERTS * COPIES}," in printed, "each executor is new, and so is its memory"
    assert flight_board(weather).summary()["received"] == before == ALERTS * COPIES


def test_a_stream_of_rules_is_killed_and_raises_what_a_batch_raises(
    weather: Kubectl, weather_image: str, tmp_path: Path, report: Report
) -> None:
    """Its checkpoint and its files are on a claim; the batch that was cut off is told by its
    identities."""
    options = ("--folder", "/data/weather", "--checkpoint", "/data/checkpoint", "--fill")
    claim = {
        f"spark.kubernetes.{role}.volumes.persistentVolumeClaim.data.{what}": value
        for role in ("driver", "executor")
        for what, value in (("options.claimName", "weather"), ("mount.path", "/data"))
    }
    # As in the guide: Python workers of the driver need memory.
    settings = {**claim, "spark.driver.memoryOverhead": "1g"}
    expected = alerts_of_a_batch()
    listener = flight_board(weather)
    known = {one.identifier for one in listener.arrivals()}
    with (
        report.step("a stream of rules, an executor killed, then the driver"),
        submitted(
            weather, STREAM_JOB, *options, image=weather_image, folder=tmp_path, settings=settings
        ) as job,
    ):
        listener.wait_for(len(known) + 20, within=240)
        weather.run("delete", "pod", job.executors(1)[0], "--grace-period=0", "--force")
        listener.wait_for(len(known) + 80, within=240)
        weather.run("delete", "pod", job.driver(), "--grace-period=5")
    stopped = listener.summary()["received"]
    assert stopped < len(known) + len(expected)
    with (
        report.step("and resumed from its checkpoint, to the end"),
        submitted(
            weather,
            STREAM_JOB,
            *(*options, "--stop-when-read"),
            image=weather_image,
            folder=tmp_path,
            settings=settings,
        ) as job,
    ):
        job.wait()
    arrived = [one.identifier for one in listener.wait_for(len(known) + len(expected))]
    assert len(arrived) == len(set(arrived))
    assert set(arrived) - known == expected
