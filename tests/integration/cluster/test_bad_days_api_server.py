"""The API server is away, or forgets what was: the operator comes round to how things are."""

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.bad_days import BadDay, bad_day
from cluster.convergence import OURS, Object
from cluster.fixtures import SKIP, SKIPPED
from cluster.kubelet import running_kubelet
from cluster.operators import OperatorProcess
from cluster.scenes import deliverer_pod, publish, serving
from pillion_testbed.binaries import find_binaries
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.helm import CRDS
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until
from support.api_proxy import HangUp
from support.cluster_resources import destination, filter_, service, subscription
from support.processes import ListenerProcess, listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

URL = "https://listener.example.com/events"
#: Indications that wait for a listener that is down.
WAITING = 5


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster for these tests alone: the controllers of another would take half a minute to come
    back from such outages, and other tests would wait for them."""
    if os.environ.get(SKIP):
        pytest.skip(SKIPPED)
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), find_binaries(os.environ), audit=True)
    plane.start()
    try:
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Kubectl:
    """kubectl for it, with our kinds there."""
    program = find_binaries(os.environ).kubectl()
    kubectl = Kubectl(program=program, kubeconfig=plane.kubeconfig())
    kubectl.apply(CRDS, "--server-side")
    kubectl.wait("-f", str(CRDS), "--for=condition=Established")
    return kubectl


@pytest.fixture
def day(plane: ControlPlane, admin: Kubectl, tmp_path: Path) -> Iterator[BadDay]:
    namespace = f"test-{uuid.uuid4().hex[:10]}"
    admin.run("create", "namespace", namespace)
    with bad_day(plane, admin, folder=tmp_path, namespaces=(namespace,)) as made:
        yield made


def resources() -> list[Object]:
    return [service(), filter_(), destination(URL), subscription()]


def more(name: str) -> list[Object]:
    """Another destination, with a subscription that leads to it."""
    return [destination(URL, name=name), subscription(f"to-{name}", to=name)]


def tried_in_vain(day: BadDay, *, times: int) -> None:
    """Wait until the operator has tried so often to reach an API server that is away."""

    def tried() -> bool:
        return sum(status == 0 for _, status in list(day.proxy.seen)) >= times

    wait_until(tried, within=30, what="the operator tries again")


def test_watches_that_are_cut_go_on(day: BadDay) -> None:
    operator = day.start()
    day.world.apply(*resources())
    day.world.converges()
    for number in range(3):
        assert day.proxy.cut_watches() > 5
        day.world.apply(*more(f"after-cut-{number}"))
        day.world.converges()
    assert operator.running.exit_code() is None


def test_a_restart_of_the_api_server_is_survived_by_the_leader(day: BadDay) -> None:
    operator = day.start(alone=False)
    day.world.apply(*resources())
    day.world.converges()
    day.plane.restart_api_server()
    day.world.apply(*more("after-restart"))
    day.world.converges()
    with day.outage():
        day.proxy.seen.clear()
        tried_in_vain(day, times=30)
    day.world.apply(*more("after-outage"))
    day.world.converges()
    assert operator.running.exit_code() is None


def test_what_was_deleted_while_history_was_forgotten_is_missed_by_the_resync_alone(
    day: BadDay,
) -> None:
    operator = day.start("--resync-interval", "3")
    day.world.apply(*resources(), *more("to-be-deleted"))
    day.world.converges()
    # Nothing of the gap can be told by a watch: it begins anew on a history that is gone.
    day.proxy.plan = lambda asked: HangUp() if "pillion.dev" in asked.path else None
    day.proxy.cut_watches()
    day.world.delete("IndicationSubscription", "to-to-be-deleted")
    day.world.delete("ListenerDestination", "to-be-deleted")
    day.plane.compact()
    day.plane.restart_api_server()
    day.proxy.plan = lambda _: None
    day.world.converges()
    content = day.world.content() or {}
    assert ("ListenerDestination", "to-be-deleted") not in content
    missed = 'pillion_operator_watch_missed_total{kind="ListenerDestination"}'
    day.world.until(lambda: operator.metrics().get(missed, 0) >= 1, "the miss is counted")
    assert operator.running.exit_code() is None


def test_an_operator_that_is_there_before_the_api_server_waits_for_it(day: BadDay) -> None:
    day.world.apply(*resources())
    with day.outage():
        running = day.operators.begin(
            "--no-webhook", "--no-leader-election", kubeconfig=day.kubeconfig
        )
        tried_in_vain(day, times=5)
    day.operators.started(running)
    day.world.converges()
    day.world.apply(*more("later"))
    day.world.converges()


# ---------------------------------------------------------------- kinds of another version


SERVICES = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/indicationservices.pillion.dev"
DESTINATIONS = SERVICES.replace("indicationservices", "listenerdestinations")


@contextmanager
def changed_schema(
    plane: ControlPlane, admin: Kubectl, path: str, change: Callable[[Object], None]
) -> Iterator[None]:
    """Have a definition say something else for a while: ``change`` gets its schema."""
    definition = plane.rest.request("GET", path)
    change(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])
    plane.rest.request("PUT", path, definition)
    try:
        yield
    finally:
        admin.apply(CRDS, "--server-side", "--force-conflicts")


def older(schema: Object) -> None:
    """Of a version without gateways and without some of the status."""
    spec = schema["spec"]
    del spec["properties"]["deliverer"]
    rules = spec.get("x-kubernetes-validations", [])
    spec["x-kubernetes-validations"] = [one for one in rules if "deliverer" not in one["rule"]]
    for name in ("durability", "injected", "missing"):
        del schema["status"]["properties"][name]


def newer(schema: Object) -> None:
    """Of a version with a field that this one does not know."""
    schema["spec"]["properties"]["novelty"] = {"type": "string"}


def test_definitions_of_an_older_version_lack_something_and_all_else_works(
    day: BadDay, plane: ControlPlane, admin: Kubectl
) -> None:
    with changed_schema(plane, admin, SERVICES, older):
        day.world.until(
            lambda: "deliverer" not in fields_that_are_kept(day), "the older definition is in force"
        )
        operator = day.start("--resync-interval", "1")
        day.world.apply(*resources())
        day.world.converges()
        assert "injected" not in day.world.status("IndicationService", "default")
        before = len(day.writes())
        for number in range(5):
            day.world.apply(*more(f"more-{number}"))
            day.world.converges()
        # Each is four statuses and a Secret; what is not kept is not written again and again.
        assert len(day.writes()) - before <= 5 * 5
        assert operator.running.exit_code() is None


def fields_that_are_kept(day: BadDay) -> Object:
    """What is left of a service's spec when it is written; nothing is."""
    tried = service("tried", deliverer={"mode": "Gateway"})
    path = f"{day.world.path('IndicationService')}?dryRun=All"
    kept: Object = day.world.request("POST", path, tried)["spec"]
    return kept


def is_kept(day: BadDay, kind: str, name: str, patch: Object) -> bool:
    """Whether the API server keeps the fields of the spec in a patch; nothing is written."""
    path = f"{day.world.path(kind, name)}?dryRun=All"
    answer = day.world.request("PATCH", path, patch, type="application/merge-patch+json")
    return set(patch["spec"]) <= set(answer["spec"])


def test_what_a_newer_version_of_the_definitions_knows_is_told_and_the_rest_goes_on(
    day: BadDay, plane: ControlPlane, admin: Kubectl
) -> None:
    operator = day.start()
    day.world.apply(*resources(), *more("other"))
    day.world.converges()
    told = (("ListenerDestination", "other"), ("IndicationService", "default"))
    with (
        changed_schema(plane, admin, SERVICES, newer),
        changed_schema(plane, admin, DESTINATIONS, newer),
    ):
        novelty = {"spec": {"novelty": "x"}}
        day.world.until(lambda: all(is_kept(day, *one, novelty) for one in told), "it is in force")
        # The API server goes on with the older definition in watches that are under way.
        day.proxy.cut_watches()
        day.world.patch("ListenerDestination", "other", novelty)
        day.world.becomes("ListenerDestination", "other", "Accepted", "False")
        day.world.until(
            lambda: ("ListenerDestination", "other") not in (day.world.content() or {}),
            "it is in force no longer",
        )
        day.world.becomes("ListenerDestination", "operations", "Ready", "True")
        revision = day.world.revision()
        day.world.patch("IndicationService", "default", novelty)
        day.world.becomes("IndicationService", "default", "Accepted", "False")
        assert day.world.revision() == revision
        for kind, name in told:
            day.world.patch(kind, name, {"spec": {"novelty": None}})
        day.world.converges()
    assert operator.running.exit_code() is None


def test_an_operator_that_is_there_before_its_kinds_waits_for_them(
    day: BadDay, admin: Kubectl
) -> None:
    admin.run("delete", "-f", str(CRDS))
    try:
        running = day.operators.begin(
            "--no-webhook", "--no-leader-election", kubeconfig=day.kubeconfig
        )

        def told() -> bool:
            return "operator-waiting" in running.log.read_text()

        wait_until(told, within=30, what="it says what is missing")
    finally:
        admin.apply(CRDS, "--server-side")
        admin.wait("-f", str(CRDS), "--for=condition=Established")
    operator = day.operators.started(running)
    day.world.apply(*resources())
    day.world.converges()
    day.world.apply(*more("later"))
    day.world.converges()
    assert operator.running.exit_code() is None


def test_a_definition_that_is_deleted_and_applied_again_costs_no_revision(
    day: BadDay, admin: Kubectl
) -> None:
    operator = day.start()
    day.world.apply(*resources(), *more("other"))
    day.world.converges()
    before = day.world.revision()
    admin.run("delete", "crd", "listenerdestinations.pillion.dev")
    try:

        def told() -> bool:
            return "definition-gone" in operator.running.log.read_text()

        day.world.until(told, "it says what is gone")
        # Another kind goes on, and nothing is left out for want of destinations.
        day.world.apply(filter_(name="meanwhile"))
        day.world.becomes("IndicationFilter", "meanwhile", "Accepted", "True")
        assert day.world.revision() == before
        assert operator.running.exit_code() is None
    finally:
        admin.apply(CRDS, "--server-side")
        admin.wait("-f", str(CRDS), "--for=condition=Established")
    assert day.world.revision() == before
    day.world.apply(*resources(), *more("other"))
    day.world.converges()
    day.world.apply(*more("later"))
    day.world.converges()
    assert operator.running.exit_code() is None


@pytest.mark.parametrize("kind", OURS)
def test_under_load_each_definition_may_be_deleted_and_applied_again(
    day: BadDay, plane: ControlPlane, admin: Kubectl, kind: str, tmp_path: Path
) -> None:
    operator = day.start()
    with (
        listener_process(tmp_path) as listener,
        running_kubelet(plane, day.world.namespace, folder=tmp_path) as kubelet,
    ):
        ours = [service(), filter_(), destination(listener.url), subscription()]
        day.world.apply(*ours, deliverer_pod())
        url = serving(day.world, kubelet.ready("publisher"))
        with publishing(url) as load:
            load.goes_on()
            revision = day.world.revision()
            with without_definition(admin, kind):
                if kind != "IndicationService":
                    # What a service owns goes with it, sooner or later, and comes again with it.
                    wait_until(lambda: is_told_gone(operator), within=30, what="it says so")
                    assert day.world.revision() == revision
                load.goes_on()
            day.world.apply(*ours)
            serving(day.world, kubelet.ready("publisher"))
            load.goes_on()
        names = [str(number) for number in range(load.published)]
        wait_until(lambda: len(delivered(listener)) >= len(names), within=30, what="all is there")
        assert delivered(listener) == names
    assert operator.running.exit_code() is None


@pytest.mark.parametrize("kind", [kind for kind in OURS if kind != "IndicationService"])
def test_what_waits_outlives_its_definition_and_the_operator(
    day: BadDay, plane: ControlPlane, admin: Kubectl, kind: str, tmp_path: Path
) -> None:
    operator = day.start()
    with (
        listener_process(tmp_path) as listener,
        running_kubelet(plane, day.world.namespace, folder=tmp_path) as kubelet,
    ):
        listener.behave(status=503)
        retrying = service(deliveryRetryIntervalSeconds=1, deliveryRetryAttempts=1000)
        ours = [retrying, filter_(), destination(listener.url), subscription()]
        day.world.apply(*ours, deliverer_pod())
        pod = kubelet.ready("publisher")
        url = serving(day.world, pod)
        for number in range(WAITING):
            publish(url, ack="accepted", SystemName=str(number))
        with without_definition(admin, kind):
            wait_until(lambda: is_told_gone(operator), within=30, what="it says so")
        day.world.apply(*ours)
        serving(day.world, pod)
        # Another one knows only what is in the configuration.
        assert operator.stop() == 0
        day.start()
        day.world.patch("IndicationService", "default", {"spec": {"deliveryRetryAttempts": 999}})
        serving(day.world, pod)
        publish(url, ack="accepted", SystemName=str(WAITING))
        listener.behave()
        names = [str(number) for number in range(WAITING + 1)]
        wait_until(lambda: len(delivered(listener)) >= len(names), within=30, what="all is there")
        assert delivered(listener) == names


@pytest.mark.parametrize("kind", [kind for kind in OURS if kind != "IndicationService"])
def test_what_waits_outlives_a_definition_that_is_back_at_once(
    day: BadDay, plane: ControlPlane, admin: Kubectl, kind: str, tmp_path: Path
) -> None:
    operator = day.start()
    with (
        listener_process(tmp_path) as listener,
        running_kubelet(plane, day.world.namespace, folder=tmp_path) as kubelet,
    ):
        listener.behave(status=503)
        retrying = service(deliveryRetryIntervalSeconds=1, deliveryRetryAttempts=1000)
        ours = [retrying, filter_(), destination(listener.url), subscription()]
        day.world.apply(*ours, deliverer_pod())
        pod = kubelet.ready("publisher")
        url = serving(day.world, pod)
        for number in range(WAITING):
            publish(url, ack="accepted", SystemName=str(number))
        with without_definition(admin, kind):
            pass
        wait_until(lambda: is_told_gone(operator), within=30, what="it says so")
        day.world.apply(*ours)
        serving(day.world, pod)
        listener.behave()
        names = [str(number) for number in range(WAITING)]
        wait_until(lambda: len(delivered(listener)) >= len(names), within=30, what="all is there")
        assert delivered(listener) == names


@contextmanager
def without_definition(admin: Kubectl, kind: str) -> Iterator[None]:
    """Delete the definition of a kind, and apply it again at the end."""
    admin.run("delete", "crd", f"{kind.lower()}s.pillion.dev")
    try:
        yield
    finally:
        admin.apply(CRDS, "--server-side")
        admin.wait("-f", str(CRDS), "--for=condition=Established")


def is_told_gone(operator: OperatorProcess) -> bool:
    return "definition-gone" in operator.running.log.read_text()


class Load:
    """Alerts that are published one after the other, each named by its number."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.published = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            publish(self._url, ack="accepted", SystemName=str(self.published))
            self.published += 1

    def goes_on(self) -> None:
        """Wait until more is published."""
        before = self.published
        wait_until(lambda: self.published > before + 20, within=30, what="more is published")


@contextmanager
def publishing(url: str) -> Iterator[Load]:
    """Publish as long as the context lasts."""
    load = Load(url)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(load.run)
        try:
            yield load
        finally:
            load.ended.set()
            running.result()


def delivered(listener: ListenerProcess) -> list[str]:
    """The names of what the listener took, in order."""
    record = listener.record()
    return [one["properties"]["SystemName"] for one in record if one["verdict"] == "delivered"]


def test_an_api_server_that_is_away_for_longer_than_the_lease_ends_no_leader(day: BadDay) -> None:
    operator = day.start(alone=False)
    day.world.apply(*resources())
    day.world.converges()
    with day.outage():

        def paused() -> bool:
            return "leadership-paused" in operator.running.log.read_text()

        wait_until(paused, within=60, what="it writes nothing any more")
        day.proxy.seen.clear()
        tried_in_vain(day, times=30)
    day.world.apply(*more("after-outage"))
    day.world.converges()
    assert operator.running.exit_code() is None
