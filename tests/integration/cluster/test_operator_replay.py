"""An IndicationReplay with a real API server, operator and deliverer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.convergence import World
from cluster.kubelet import Kubelet
from cluster.operators import Operators
from cluster.scenes import WITHIN, deliverer_pod, publish, serving
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from support.cluster_resources import (
    Resource,
    destination,
    filter_,
    replay,
    service,
    subscription,
    together,
)
from support.processes import ListenerProcess, listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

REPLAY = ("IndicationReplay", "afternoon")
NAME = "indreplay/afternoon"
COUNT = 20
#: Nobody listens there.
NOWHERE = "http://127.0.0.1:1/"


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[ListenerProcess]:
    (tmp_path / "first").mkdir()
    with listener_process(tmp_path / "first") as running:
        yield running


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[ListenerProcess]:
    (tmp_path / "second").mkdir()
    with listener_process(tmp_path / "second") as running:
        yield running


def systems(listener: ListenerProcess) -> list[str]:
    return [one["properties"]["SystemName"] for one in listener.record()]


def resources(url: str, archive: str, **spec: Any) -> list[Resource]:
    return [
        service(history={"bodies": "All"}, **spec),
        filter_(),
        destination(url),
        destination(archive, name="archive"),
        subscription(),
    ]


def apply(kubectl: Kubectl, **spec: Any) -> None:
    kubectl.apply(json.dumps(together(replay(**spec))))


def complete(kubectl: Kubectl) -> None:
    kubectl.wait(NAME, "--for=condition=Complete", within=int(WITHIN))


def afternoon(world: World, kubelet: Kubelet, listener: ListenerProcess) -> None:
    """Have a deliverer deliver some indications."""
    url = serving(world, kubelet.ready("publisher"))
    for number in range(COUNT):
        publish(url, ack="accepted", SystemName=str(number))
    world.until(lambda: len(listener.record()) == COUNT, "all is delivered")


def test_what_was_delivered_is_delivered_to_another_destination(
    world: World,
    operators: Operators,
    kubectl: Kubectl,
    kubelet: Kubelet,
    listener: ListenerProcess,
    archive: ListenerProcess,
) -> None:
    operators.start("--no-webhook")
    world.apply(*resources(listener.url, archive.url), deliverer_pod())
    afternoon(world, kubelet, listener)
    apply(kubectl)
    complete(kubectl)
    assert sorted(map(int, systems(archive))) == list(range(COUNT))
    status = world.status(*REPLAY)
    counts = {name: status[name] for name in ("selected", "replayed", "delivered", "discarded")}
    assert counts == {
        "selected": COUNT,
        "replayed": COUNT,
        "delivered": COUNT,
        "discarded": 0,
    }
    assert (status["state"], status["deliverers"], status["goneDeliverers"]) == ("Complete", 1, 0)
    head, row = kubectl.run("get", "indreplay").splitlines()
    assert head.split() == ["NAME", "STATE", "REPLAYED", "ACCEPTED", "DESTINATION", "AGE"]
    assert row.split()[1:5] == ["Complete", str(COUNT), "True", "archive"]
    # It leaves the configuration, and its destination with it.
    gone = {REPLAY, ("ListenerDestination", "archive")}
    world.until(lambda: not gone & set(world.content() or {}), "the configuration is as before")


def test_a_killed_operator_replays_nothing_twice(
    world: World,
    operators: Operators,
    kubectl: Kubectl,
    kubelet: Kubelet,
    listener: ListenerProcess,
    archive: ListenerProcess,
) -> None:
    first = operators.start("--no-webhook")
    world.apply(*resources(listener.url, archive.url), deliverer_pod())
    afternoon(world, kubelet, listener)
    apply(kubectl, rateLimit={"perSecond": 10, "burst": 1})
    world.until(lambda: bool(archive.record()), "it has begun")
    first.kill()
    apply(kubectl, rateLimit={"perSecond": 10, "burst": 1})
    operators.start("--no-webhook")
    complete(kubectl)
    assert sorted(map(int, systems(archive))) == list(range(COUNT))
    assert world.status(*REPLAY)["delivered"] == COUNT
    # Applied again, it is the same.
    apply(kubectl, rateLimit={"perSecond": 20, "burst": 1})
    world.until(
        lambda: world.status(*REPLAY)["observedGeneration"] == 2, "the change is in the status"
    )
    assert len(archive.record()) == COUNT


def test_deleted_it_is_cancelled(
    world: World,
    operators: Operators,
    kubectl: Kubectl,
    kubelet: Kubelet,
    listener: ListenerProcess,
    archive: ListenerProcess,
) -> None:
    operators.start("--no-webhook")
    world.apply(*resources(listener.url, archive.url), deliverer_pod())
    afternoon(world, kubelet, listener)
    apply(kubectl, rateLimit={"perSecond": 0.5, "burst": 1})
    world.until(lambda: bool(archive.record()), "it has begun")
    kubectl.run("delete", NAME)
    world.until(lambda: REPLAY not in (world.content() or {}), "it is out of the configuration")
    world.converges()
    assert len(archive.record()) < COUNT


def test_without_a_deliverer_it_is_complete_and_then_deleted(
    world: World, operators: Operators, kubectl: Kubectl
) -> None:
    operators.start("--no-webhook")
    apply(kubectl)
    world.becomes(*REPLAY, "Accepted", "False", "ServiceNotFound")
    world.apply(*resources(NOWHERE, NOWHERE))
    complete(kubectl)
    assert world.condition(*REPLAY, "Complete") == ("True", "NoDeliverers")
    apply(kubectl, ttlSecondsAfterFinished=1)
    world.until(lambda: world.get(*REPLAY) is None, "it is deleted")


def test_what_a_replay_replays_cannot_be_changed(kubectl: Kubectl, crds: list[str]) -> None:
    apply(kubectl, until="2021-01-01T00:00:00Z")
    for change in (
        {"to": "other"},
        {"until": "2022-01-01T00:00:00Z"},
        {},
        {"until": "2021-01-01T00:00:00Z", "filterRef": {"name": "alerts"}},
    ):
        with pytest.raises(KubectlFailed, match="cannot be changed"):
            apply(kubectl, **change)
    apply(kubectl, until="2021-01-01T00:00:00Z", suspended=True, ttlSecondsAfterFinished=9)
