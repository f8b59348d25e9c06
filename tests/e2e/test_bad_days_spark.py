"""A Spark job whose executors die under it: one's JVM is killed, one is deleted by force."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.breakable import RELAYED, Breakable, breakable
from cluster.story import Installation, submitted
from cluster.witnesses import WITHIN, once_each, same_content
from pillion_testbed.node_cluster import NodeCluster
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support.weather import ALERTS

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]

JOB = "local:///opt/pillion/jobs/weather_alerts.py"
#: Spark asks the API server for executors that it has not heard of, by default after half a minute.
SETTINGS = {"spark.kubernetes.executor.missingPodDetectDelta": "5s"}
LOST = "pillion_operator_lost_deliverer_pending_total"


@pytest.fixture(scope="module")
def days(
    own_nodes: NodeCluster, pillion: Installation, deliverer_image: str, pywbem_image: str
) -> Iterator[Breakable]:
    """A namespace with listeners and a gateway."""
    name = f"bad-days-{uuid.uuid4().hex[:6]}"
    made = breakable(
        own_nodes, pillion, namespace=name, image=deliverer_image, pywbem_image=pywbem_image
    )
    yield made
    made.kubectl.run("delete", "namespace", name, "--wait=false")


def held_by(days: Breakable, executor: str) -> int:
    """What waits for the listener that is down in an executor's sidecar."""
    return int(sum(days.metric(executor, 'pillion_destination_queue_depth{destination="dark"}')))


def test_executors_die_and_their_tasks_run_again(
    days: Breakable, weather_image: str, tmp_path: Path, report: Report
) -> None:
    """Tasks end only when the listener that is down has everything, so both die with tasks under
    way whose alerts they hold, and of which the gateway has a copy for its own listener."""
    days.dark.go_down()
    with submitted(
        days.kubectl, JOB, image=weather_image, folder=tmp_path, settings=SETTINGS
    ) as job:
        with report.step("bad days: a Spark job whose tasks wait for a listener that is down"):
            killed, forced = job.executors(2, within=240)
            wait_until(
                lambda: held_by(days, killed) > 0 and held_by(days, forced) > 0,
                within=240,
                what="both executors hold alerts",
            )
            # None publishes more before what it holds is delivered.
            wait_until(
                lambda: days.depth("dark") == held_by(days, killed) + held_by(days, forced),
                within=WITHIN,
                what="the operator has seen what they hold",
            )
            holds = held_by(days, forced)
        with report.step("bad days: kill -9 of an executor's JVM, until there is another"):
            days.kill(killed, "spark")
            wait_until(
                lambda: len(set(job.pods("executor")) - {killed, forced}) >= 1,
                within=240,
                what="an executor in its place",
            )
        with report.step("bad days: an executor deleted by force, until its loss is told"):
            days.delete(forced, "--grace-period=0", "--force")
            note = days.until_event("DelivererLost", f"Pod {forced}")
        with report.step("bad days: the listener is back, and the job succeeds"):
            days.dark.come_back()
            printed = job.wait()
    assert f"accepted={ALERTS}," in printed
    assert f"{holds} indication(s) were pending: dark {holds}." in note
    assert days.told_by_operator(LOST, "default") == holds

    # The gateway's own listener: once for each alert, whoever ran the task.
    relayed = days.board.taken(RELAYED)
    once_each(relayed)
    assert len(relayed) == ALERTS
    # The other: at least once. What came twice has the same identifier, and says the same.
    everything = {one.identifier for one in relayed}
    days.dark.until_it_has("/", everything)
    came = days.dark.taken("/")
    assert {one.identifier for one in came} == everything
    same_content(came)
    report.figure(
        "alerts that came twice when two executors died", f"{len(came) - ALERTS:,} of {ALERTS:,}"
    )
