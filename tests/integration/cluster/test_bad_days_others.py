"""Others are at work in the cluster too: who fights, who is in the way, who deletes a namespace."""

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest

from cluster.bad_days import BadDay, bad_day
from cluster.convergence import Object, World, condition
from cluster.operators import Operators, webhook_configuration
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.kubectl import Kubectl
from support.cluster_resources import destination, filter_, pod, service, subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

URL = "https://listener.example.com/events"
GATEWAY = {"mode": "Gateway", "replicas": 1}


def resources() -> list[Object]:
    return [service(), filter_(), destination(URL), subscription()]


def test_a_manager_that_fights_is_answered_ever_more_rarely_until_it_gives_up(
    day: BadDay,
) -> None:
    operator = day.start()
    gateway = service("shared", deliverer=GATEWAY)
    day.world.apply(*resources(), gateway, subscription("shared-to", by="shared"))
    day.world.converges("default", "shared")

    def repaired(*kinds: str) -> float:
        """How often each of these was repaired at least."""
        metrics = operator.metrics()
        return min(
            metrics.get(f'pillion_operator_drift_total{{kind="{kind}"}}', 0) for kind in kinds
        )

    before = len(day.writes())
    end = Event()
    thread = Thread(target=fight, args=(day, end))
    thread.start()
    try:
        # The first at once, the second 5 s later, a third would be 10 s after that.
        day.world.until(lambda: repaired("Secret", "StatefulSet") >= 2, "both are repaired twice")
    finally:
        end.set()
        thread.join()
    written = [write.resource for write in day.writes()[before:]]
    statuses = [resource for resource in written if resource.endswith("/status")]
    # Two repairs of two objects; the Secret's are two writes each.
    assert len(written) - len(statuses) <= 2 + 2 * 2
    # Why the gateway does not run changes with each pod that the fighter's replicas make.
    assert len(statuses) <= 6
    day.world.converges("default", "shared")
    day.world.until(
        lambda: (day.world.get("StatefulSet", "pillion-shared") or {})["spec"]["replicas"] == 1,
        "the gateway is as it should be",
    )
    assert "DriftRepaired" in day.world.reasons()


def fight(day: BadDay, end: Event) -> None:
    """Change what the operator has made, again and again."""
    with closing(World(day.plane, day.world.namespace)) as world:
        for number in count():
            spoiled = {"data": {f"0000000000000000.part-01-of-{number % 50 + 10}": "c3BvaWxlZA=="}}
            world.patch("Secret", "pillion-default-0", spoiled, manager="fighter")
            replicas = {"spec": {"replicas": 2 + number % 3}}
            world.patch("StatefulSet", "pillion-shared", replicas, manager="fighter")
            if end.wait(0.05):
                return


def test_a_secret_of_somebody_else_is_left_alone_until_it_is_out_of_the_way(day: BadDay) -> None:
    day.start()
    taken = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pillion-default-0"},
        "stringData": {"mine": "untouched"},
    }
    day.world.apply(taken)
    uid = (day.world.get("Secret", "pillion-default-0") or {})["metadata"]["uid"]
    day.world.apply(*resources())
    day.world.becomes("IndicationService", "default", "Ready", "False", "NotOurs")
    found = day.world.get("Secret", "pillion-default-0") or {}
    assert (found["metadata"]["uid"], list(found["data"])) == (uid, ["mine"])
    day.world.delete("Secret", "pillion-default-0")
    day.world.patch("IndicationFilter", "alerts", {"spec": {"query": "SELECT * FROM CIM_New"}})
    day.world.converges()


@pytest.fixture
def two(
    control_plane: ControlPlane,
    admin_kubectl: Kubectl,
    crds: list[str],
    namespace: str,
    tmp_path: Path,
) -> Iterator[BadDay]:
    """Operators that serve a namespace that is to be deleted, and another one."""
    doomed = f"{namespace}-doomed"
    admin_kubectl.run("create", "namespace", doomed)
    with bad_day(
        control_plane, admin_kubectl, folder=tmp_path, namespaces=(namespace, doomed)
    ) as made:
        yield made


@pytest.fixture
def doomed(two: BadDay) -> Iterator[World]:
    with closing(World(two.plane, f"{two.world.namespace}-doomed")) as made:
        yield made


def test_a_namespace_that_is_deleted_goes_and_the_others_are_served(
    two: BadDay, doomed: World
) -> None:
    operator = two.start("--resync-interval", "2")
    # It stays for as long as somebody holds something in it.
    held = service("held")
    held["metadata"]["finalizers"] = ["example.com/held"]
    doomed.apply(
        *(service(), held, service("shared", deliverer=GATEWAY)),
        *(filter_(), destination(URL, removalPolicy="Drain")),
        *(subscription(), subscription("held", by="held"), subscription("shared", by="shared")),
    )
    doomed.converges("default", "shared", "held")
    two.world.apply(*resources())
    two.world.converges()
    two.admin.run("delete", "namespace", doomed.namespace, "--wait=false")
    doomed.until(lambda: len(doomed.ours()) == 1, "all is gone but what is held")
    before = len(two.writes())
    for number in range(5):
        name = f"more-{number}"
        two.world.apply(destination(URL, name=name), subscription(f"to-{name}", to=name))
        two.world.converges()
    in_vain = [one for one in two.writes()[before:] if one.namespace == doomed.namespace]
    # Each resync may try once more; a retry without backoff would try hundreds of times.
    assert len(in_vain) <= 15
    doomed.patch("IndicationService", "held", {"metadata": {"finalizers": None}})
    two.admin.wait(f"namespace/{doomed.namespace}", "--for=delete")
    two.world.patch("IndicationFilter", "alerts", {"spec": {"query": "SELECT * FROM CIM_New"}})
    two.world.converges()
    assert operator.running.exit_code() is None


def test_two_services_that_select_the_same_pod_are_told_of_each_other(
    operators: Operators, admin_kubectl: Kubectl, world: World
) -> None:
    operator = operators.start()
    configuration = webhook_configuration(operator, namespace=world.namespace)
    admin_kubectl.apply(json.dumps(configuration))
    admin_kubectl.wait(
        f"mutatingwebhookconfiguration/{configuration['metadata']['name']}",
        "--for=jsonpath={.webhooks[0].clientConfig.caBundle}",
    )
    selector = {"podSelector": {"matchLabels": {"app": "a"}}}
    try:
        # Made in the same second, most often: then the name decides.
        world.apply(service("b", deliverer=selector), service("a", deliverer=selector))
        world.becomes("IndicationService", "a", "InjectionComplete", "True")
        world.becomes("IndicationService", "b", "InjectionComplete", "True")
        made = [one["metadata"] for one in world.all("IndicationService")]
        by_age = sorted(made, key=lambda one: (one["creationTimestamp"], one["name"]))
        older, younger = (one["name"] for one in by_age)
        for number in range(5):
            world.apply(pod(f"selected-{number}", labels={"app": "a"}))
        chosen = {
            one["metadata"]["labels"].get("pillion.dev/deliverer") for one in world.all("Pod")
        }
        assert chosen == {older}
        for name in ("a", "b"):
            world.becomes(
                "IndicationService", name, "SelectorsOverlap", "True", "PodsSelectedTwice"
            )
        exclusive = {"spec": {"deliverer": {"podSelector": {"matchLabels": {"app": "other"}}}}}
        world.patch("IndicationService", younger, exclusive)
        world.until(
            lambda: not any(overlaps(one) for one in world.all("IndicationService")),
            "neither overlaps",
        )
    finally:
        name = configuration["metadata"]["name"]
        admin_kubectl.run("delete", "mutatingwebhookconfiguration", name)


def overlaps(body: Object) -> bool:
    return condition(body, "SelectorsOverlap")[0] == "True"
