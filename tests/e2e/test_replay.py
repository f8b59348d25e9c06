"""A replay on a node: what sidecars have delivered goes to a new listener."""

import json
import uuid
from collections.abc import Iterator

import pytest

from cluster.breakable import STEADY
from cluster.story import Installation
from cluster.story_fixtures import in_namespace, restricted_namespace
from cluster.witnesses import LISTENER_PORT, Witness, publisher_pod, publishing
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support.cluster_resources import (
    destination,
    filter_,
    replay,
    service,
    subscription,
    together,
)

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

WITHIN = 120
NAME = "indreplay/afternoon"


@pytest.fixture
def kubectl(pillion: Installation) -> Iterator[Kubectl]:
    """kubectl in a namespace of the test's own."""
    name = f"replay-{uuid.uuid4().hex[:6]}"
    made = in_namespace(pillion.kubectl, name)
    made.apply(json.dumps(restricted_namespace(name)))
    yield made
    made.run("delete", "namespace", name, "--wait=false")


def test_a_replay_is_applied_waited_for_and_deleted_by_its_time_to_live(
    kubectl: Kubectl, deliverer_image: str, report: Report
) -> None:
    board = Witness(kubectl=kubectl, name="board")
    board.deploy(deliverer_image)
    url = f"http://{board.name}.{kubectl.namespace}.svc:{LISTENER_PORT}"
    with report.step("two sidecars deliver an afternoon"):
        resources = together(
            service(history={"bodies": "All"}),
            filter_(),
            destination(f"{url}/first", name="first"),
            destination(f"{url}/archive", name="archive"),
            subscription("first", to="first"),
        )
        kubectl.apply(json.dumps(resources))
        names = ("one", "two")
        pods = [publisher_pod(name, image=deliverer_image) for name in names]
        publishers = publishing(kubectl, *pods)
        for publisher in publishers:
            publisher.burst(50, event=STEADY)
            publisher.hold()
            board.until_it_has("/first", publisher.known())
    with report.step("a replay to another listener: kubectl wait returns, all is there once"):
        kubectl.apply(json.dumps(together(replay())))
        kubectl.wait(NAME, "--for=condition=Complete", within=WITHIN)
        delivered = {one.identifier for one in board.taken("/first")}
        archived = [one.identifier for one in board.taken("/archive")]
        assert sorted(archived) == sorted(delivered)
        status = kubectl.json("get", NAME)["status"]
        assert (status["state"], status["deliverers"]) == ("Complete", len(names))
        counts = [status[name] for name in ("selected", "replayed", "delivered")]
        assert counts == [len(delivered)] * 3
    with report.step("it is deleted when its time is over"):
        kubectl.apply(json.dumps(together(replay(ttlSecondsAfterFinished=1))))
        wait_until(
            lambda: not kubectl.run("get", NAME, "--ignore-not-found", "-oname"),
            within=WITHIN,
            what="the replay is gone",
        )
