"""Bad days on a node. Something breaks while publishers publish; afterwards the publishers say what
they were told, the listeners what they took, and nothing may be missing.

What a publisher was told to be ``delivered``, and what it was told to be ``durable`` on a volume
that lives, has come. What went with a volume is told. Waits are for conditions; where others would
wait for days, intervals are seconds here (``cluster.breakable.PATIENT``).
"""

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from cluster.breakable import DARK, DELIVERER, DIRECT, RELAYED, STRAIGHT, Breakable, breakable
from cluster.story import SYSTEM, Installation
from cluster.witnesses import (
    WITHIN,
    ToldPublisher,
    in_order,
    once_each,
    publisher_pod,
    publishing,
)
from pillion_testbed.node_cluster import NodeCluster
from pillion_testbed.nodes import Node
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

BOTH = ("durable", "delivered")
BURST = 200
GATEWAY = "pillion-hub-0"
LOST = "pillion_operator_lost_deliverer_pending_total"
MISSED = "pillion_operator_missed_injections"
#: Seconds for which a listener is down: some thirty attempts, which would be a quarter of an hour
#: at the usual interval.
DOWN = 30.0


@pytest.fixture(scope="module")
def days(
    own_nodes: NodeCluster,
    pillion: Installation,
    deliverer_image: str,
    pywbem_image: str,
    report: Report,
) -> Iterator[Breakable]:
    """A namespace with listeners and a gateway."""
    name = f"bad-days-{uuid.uuid4().hex[:6]}"
    with report.step("bad days: listeners and a gateway, until all is Ready"):
        made = breakable(
            own_nodes, pillion, namespace=name, image=deliverer_image, pywbem_image=pywbem_image
        )
    yield made
    made.kubectl.run("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def both(days: Breakable) -> list[ToldPublisher]:
    """Publishers that go on all the time: one to its sidecar, one straight to the gateway."""
    return publishing(
        days.kubectl,
        publisher_pod("app", image=days.image),
        publisher_pod("straight", image=days.image, gateway="hub"),
    )


@pytest.fixture(scope="module")
def app(both: list[ToldPublisher]) -> ToldPublisher:
    return both[0]


@pytest.fixture
def darkness(days: Breakable) -> Iterator[None]:
    """The listener ``dark`` is down; after the test it is there and has all that waits for it."""
    days.dark.go_down()
    yield
    days.dark.come_back()


@pytest.fixture(autouse=True)
def nothing_lost(days: Breakable, both: list[ToldPublisher]) -> Iterator[None]:
    """Whatever the test does, the two that go on are told more afterwards, and lose nothing."""
    yield
    for publisher in both:
        publisher.until_told_more(*BOTH)
    days.nothing_lost(*both)
    for path in (DIRECT, RELAYED, STRAIGHT):
        in_order(days.board.taken(path))
    in_order(days.dark.taken("/"))


@contextmanager
def through_all(*publishers: ToldPublisher) -> Iterator[None]:
    """What happens within, these publishers see nothing of it: no refusal, no missing answer."""

    def seen() -> list[dict[str, int]]:
        # That a listener took it later than it was waited for is an answer, and no refusal.
        late = "delivered: 202"
        return [{k: v for k, v in one.otherwise().items() if k != late} for one in publishers]

    before = seen()
    yield
    for publisher in publishers:
        publisher.until_told_more(*BOTH)
    assert seen() == before


def test_a_sidecar_that_is_killed_goes_on_from_its_journal(
    days: Breakable, app: ToldPublisher, darkness: None, report: Report
) -> None:
    waits = app.burst(BURST, event=DARK)
    with report.step("bad days: kill -9 of a sidecar, until it is told more"):
        days.kill("app", DELIVERER)
        wait_until(
            lambda: days.container("app", DELIVERER)["restartCount"] == 1,
            within=WITHIN,
            what="the sidecar's restart",
        )
        app.until_told_more(*BOTH)
    assert days.container("app", "publisher")["restartCount"] == 0
    assert not days.dark.taken("/")
    days.dark.come_back()
    days.dark.until_it_has("/", waits)


def test_what_waits_at_the_end_of_a_pod_is_handed_over(
    days: Breakable, darkness: None, report: Report
) -> None:
    leaver = days.publisher("leaver")
    waits = leaver.burst(BURST, event=DARK)
    leaver.until_told_more(*BOTH)
    leaver.hold()
    began = time.monotonic()
    with report.step(f"bad days: a pod ends with {BURST} alerts for a listener that is down"):
        days.delete("leaver")
    report.figure(
        f"end of a pod whose sidecar hands {BURST} alerts over", f"{time.monotonic() - began:.1f} s"
    )
    assert days.dark.lacks("/", waits) == waits
    days.dark.come_back()
    days.dark.until_it_has("/", waits)
    # The gateway alone had them, and had each once.
    assert len([one for one in days.dark.taken("/") if one.identifier in waits]) == BURST
    for path in (DIRECT, RELAYED):
        days.board.until_it_has(path, {one for one in leaver.known() if one not in waits})
    days.board.until_it_has(RELAYED, waits)
    assert not days.told_by_operator(LOST, "default")


def test_a_listener_is_down_for_long(
    days: Breakable, app: ToldPublisher, darkness: None, report: Report
) -> None:
    """What waits for it comes in order; what goes with a volume meanwhile is told."""
    days.until_depth("dark", 0)
    before = len(days.dark.taken("/"))
    early, hasty = publishing(
        days.kubectl,
        *(publisher_pod(name, image=days.image, service="lonely") for name in ("early", "hasty")),
    )
    with report.step(f"bad days: a listener is down for {DOWN:g} s; the others get theirs"):
        end = time.monotonic() + DOWN
        first = app.burst(BURST, event=DARK)
        early.burst(30, event=DARK)
        hasty.burst(50, event=DARK)
        # The operator has seen what waits.
        days.until_depth("dark", BURST + 80)
        while time.monotonic() < end:
            app.until_told_more(*BOTH)
        more = app.burst(BURST, event=DARK)
    with report.step("bad days: a pod without handOverTo ends, and says what it leaves"):
        days.delete("early")
        note = days.until_event("DelivererLost", "Pod early", "by the last message")
    assert "with 30 pending indication(s)" in note
    with report.step("bad days: another has no time to say it, and what was last seen is told"):
        days.delete("hasty", "--grace-period=1")
        note = days.until_event("DelivererLost", "Pod hasty", "By the last answer")
    assert "50 indication(s) were pending: dark 50." in note
    wait_until(
        lambda: days.told_by_operator(LOST, "lonely") == 80, within=WITHIN, what="the metric"
    )
    told = [line for line in days.pillion.operator_logs().splitlines() if "lost-pending" in line]
    assert any("early" in line for line in told)
    assert any("hasty" in line for line in told)
    assert len(days.dark.taken("/")) == before
    with report.step("bad days: the listener is back, and has everything"):
        days.dark.come_back()
        days.dark.until_it_has("/", first | more)
    came = [one.identifier for one in days.dark.taken("/")[before:]]
    assert came == sorted(first) + sorted(more)


def test_the_operator_is_away(days: Breakable, both: list[ToldPublisher], report: Report) -> None:
    scale = ("scale", "deployment/pillion-operator", f"--namespace={SYSTEM}")
    days.kubectl.run(*scale, "--replicas=0")
    try:
        with (
            report.step("bad days: the operator is away; deliverers deliver on"),
            through_all(*both),
        ):
            days.kubectl.wait(
                "pods",
                f"--namespace={SYSTEM}",
                "--selector=app.kubernetes.io/component=operator",
                "--for=delete",
                within=60,
            )
        late = publisher_pod("late", image=days.image)
        days.kubectl.apply(json.dumps(late))
        days.kubectl.wait("pod/late", "--for=condition=Ready", within=60)
        assert "initContainers" not in days.pod("late")["spec"]
    finally:
        days.kubectl.run(*scale, "--replicas=1")
    with report.step("bad days: it is back, and tells of the pod that has no sidecar"):
        days.until_event("InjectionMissed", "IndicationService default")
        days.kubectl.wait(
            "indicationservice/default", "--for=condition=InjectionComplete=False", within=60
        )
    assert days.kubectl.json("get", "indicationservice", "default")["status"]["missing"] == 1
    assert days.told_by_operator(MISSED, "default") == 1
    days.delete("late", "--grace-period=1")


@pytest.mark.parametrize(
    "options", [(), ("--grace-period=0", "--force")], ids=["in peace", "by force"]
)
def test_the_gateway_is_deleted_under_load(
    options: tuple[str, ...], days: Breakable, both: list[ToldPublisher], report: Report
) -> None:
    app, straight = both
    before = len(days.board.taken(RELAYED))
    uid = days.pod(GATEWAY)["metadata"]["uid"]
    how = "by force" if options else "in peace"
    with report.step(f"bad days: the gateway is deleted {how}, until it is back"):
        days.delete(GATEWAY, *options)
        # The journal of the sidecar takes what is for the gateway.
        app.until_told_more("durable")
        days.kubectl.wait(f"pod/{GATEWAY}", "--for=create", within=60)
        days.kubectl.wait(f"pod/{GATEWAY}", "--for=condition=Ready", within=60)
    assert days.pod(GATEWAY)["metadata"]["uid"] != uid
    with report.step("bad days: until its publishers and sidecars get on"):
        straight.until_told_more(*BOTH)
        app.until_told_more(*BOTH)
    # A destination that may be tried twice has lost nothing to the time without a gateway.
    days.nothing_lost(app)
    assert not days.discarded("app", "relayed")
    if not options:
        # In peace it has settled what it delivered.
        once_each(days.board.taken(RELAYED)[before:])


def test_the_kubelet_is_restarted(
    days: Breakable, own_nodes: NodeCluster, both: list[ToldPublisher], report: Report
) -> None:
    pods = ("app", "straight", GATEWAY)
    before = [days.ended(pod) for pod in pods]
    # A kubelet that starts calls no pod ready before it has probed it, so the gateway's Service may
    # lead nowhere for a moment: sidecars wait for it, and publishers without one try again.
    with report.step("bad days: the kubelet is restarted under load"), through_all(both[0]):
        own_nodes.nodes["node-1"].restart_kubelet()
    assert [days.ended(pod) for pod in pods] == before


def test_the_api_server_is_away(
    days: Breakable, own_nodes: NodeCluster, both: list[ToldPublisher], report: Report
) -> None:
    before = len(days.board.taken(RELAYED))
    # A Service that led nowhere after the kubelet's restart may still lose a publisher without a
    # sidecar its first packet, and all that repeat it; it tries again.
    with report.step("bad days: the API server is away under load"), through_all(both[0]):
        own_nodes.stop_api_server()
        try:
            # Both at once: were it away for 10 s, who leads would have to be found anew.
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda one: one.until_told_more(*BOTH, count=20), both))
        finally:
            own_nodes.start_api_server()
    once_each(days.board.taken(RELAYED)[before:])


@pytest.fixture
def second(days: Breakable, own_nodes: NodeCluster, report: Report) -> Iterator[Node]:
    """A second node."""
    with report.step("bad days: a second node"):
        added = own_nodes.add_node("node-2")
    yield added
    added.remove()


def test_a_node_is_cut_off(
    days: Breakable, second: Node, both: list[ToldPublisher], report: Report
) -> None:
    far = days.publisher("far", node=second.name)
    far.until_told_more(*BOTH)
    before = len(days.board.taken(RELAYED))
    app, straight = both
    missed = Counter(straight.otherwise())
    # Who has no sidecar opens a connection for each alert, and tries again where there is none.
    with through_all(app):
        second.cut_off()
        try:
            with report.step("bad days: a node is cut off, until it is NotReady"):
                second.wait_not_ready()
        finally:
            second.rejoin()
    straight.until_told_more(*BOTH)
    missed = Counter(straight.otherwise()) - missed
    report.figure(
        "answers that a publisher without a sidecar missed while another node was cut off",
        ", ".join(f"{count} {why}" for why, count in missed.items()) or "none",
    )
    count = len(far.known())
    with report.step("bad days: it is back; what waited there arrives"):
        second.wait_ready()
        far.until_told_more(*BOTH)
        far.hold()
        days.nothing_lost(far)
    assert len(far.known()) > count
    assert not days.ended("far")
    once_each(days.board.taken(RELAYED)[before:])
    days.delete("far", "--grace-period=1")
