"""What a gateway keeps though nobody relays it there any more, and for how long."""

import base64
from collections.abc import Mapping

import pytest

from pillion_operator.cluster.types import Object
from pillion_operator.controllers.relay_retention import Lingering
from pillion_operator.controllers.states import ServiceStates
from pillion_operator.evaluation.namespace import Parsing
from pillion_operator.evaluation.references import References
from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.evaluation.verdict import ACCEPTED
from pillion_operator.polling.reports import DelivererReport, QueueReport, Unreachable
from pillion_operator.store import Key, Store
from pillion_sidecar.config.rendered import pack, render
from support.operator_context import context_of
from support.operator_objects import (
    DESTINATION,
    NAMESPACE,
    SERVICE,
    SUBSCRIPTION,
    changed,
    destination,
    made,
    pod,
    service,
    subscription,
)
from support.operator_time import FakeClock

HUB = Key("IndicationService", NAMESPACE, "hub")


class Deliverers:
    """What deliverers have last said."""

    def __init__(self) -> None:
        self.said: dict[str, tuple[DelivererReport | Unreachable, ...]] = {}

    def reports(self, namespace: str, service: str) -> tuple[DelivererReport | Unreachable, ...]:
        return self.said.get(service, ())


class Bench:
    """A gateway that has a subscription of the service ``default``, which does not name it."""

    def __init__(self) -> None:
        self.clock, self.store, self.states = FakeClock(), Store(), ServiceStates()
        self.deliverers, parsing, references = Deliverers(), Parsing(), References()
        self.store.subscribe(references.follow)
        self.lingering = Lingering(
            context_of(
                clock=self.clock,
                store=self.store,
                references=references,
                parsing=parsing,
                states=self.states,
                deliverers=self.deliverers,
            )
        )
        hub = service("hub", deliverer={"mode": "Gateway"})
        self.put(hub, service(), destination(), subscription(), pod("hub-0", deliverer="hub"))
        self.hold(hub, {SUBSCRIPTION: "s", DESTINATION: "d"}, "h1")
        item = parsing.parse(destination()).item
        self.hold(service(), {SUBSCRIPTION: "s", DESTINATION: item}, "s1")

    def put(self, *bodies: Object) -> None:
        for body in bodies:
            self.store.put(body)

    def hold(self, body: Object, content: Mapping[Key, str], revision: str) -> None:
        state = self.states.put(body, ServiceEvaluation(verdict=ACCEPTED, content=content))
        state.rollout.advance(revision, content)
        state.written = True

    def says(self, service: str, pod: str, *, revision: str, depth: int = 0) -> None:
        queue = QueueReport(name="d", depth=depth, capacity=9, high_water=9)
        told = DelivererReport(
            pod=pod, revision=revision, queues={"d": queue}, at=self.clock.time()
        )
        self.deliverers.said[service] = (told,)

    def left(self, *relayed: str) -> set[str]:
        return set[str]().union(*self.lingering.of(HUB, relayed=relayed).values())


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_it_goes_once_the_gateway_was_seen_to_hold_nothing_afterwards(bench: Bench) -> None:
    bench.says("hub", "hub-0", revision="h1")
    # What was seen before may be what came before the last relay.
    assert bench.left() == {"s"}
    await bench.clock.advance(1.0)
    bench.says("hub", "hub-0", revision="h1", depth=1)
    assert bench.left() == {"s"}
    await bench.clock.advance(1.0)
    bench.says("hub", "hub-0", revision="h1")
    assert bench.left() == set()


async def test_as_long_as_it_is_relayed_it_is_not_left_over(bench: Bench) -> None:
    assert bench.left("s") == set()


async def test_a_gateway_that_does_not_answer_keeps_it(bench: Bench) -> None:
    bench.left()
    await bench.clock.advance(1.0)
    bench.deliverers.said["hub"] = (Unreachable(pod="hub-0", reason="x", since=0.0),)
    assert bench.left() == {"s"}


async def test_a_sidecar_on_an_older_configuration_keeps_it(bench: Bench) -> None:
    bench.put(pod())
    bench.says("default", "p", revision="s0")
    for _ in range(3):
        await bench.clock.advance(1.0)
        bench.says("hub", "hub-0", revision="h1")
        assert bench.left() == {"s"}
    bench.says("default", "p", revision="s1")
    assert bench.left() == {"s"}
    await bench.clock.advance(1.0)
    bench.says("hub", "hub-0", revision="h1")
    assert bench.left() == set()


async def test_a_service_that_is_gone_keeps_it_while_any_of_its_sidecars_runs(bench: Bench) -> None:
    bench.put(pod())
    bench.says("default", "p", revision="s1")
    bench.store.remove(SERVICE)
    bench.states.pop(SERVICE, None)
    for _ in range(3):
        await bench.clock.advance(1.0)
        bench.says("hub", "hub-0", revision="h1")
        assert bench.left() == {"s"}


async def test_a_service_that_is_not_rendered_anew_yet_keeps_it(bench: Bench) -> None:
    bench.put(pod(), changed(service(), generation=2, resourceVersion="2"))
    bench.says("default", "p", revision="s1")
    bench.left()
    await bench.clock.advance(1.0)
    bench.says("hub", "hub-0", revision="h1")
    assert bench.left() == {"s"}


async def test_a_destination_that_is_not_rendered_anew_yet_keeps_it(bench: Bench) -> None:
    changed_one = destination(timeoutSeconds=7)
    bench.put(pod(), changed(changed_one, generation=2, resourceVersion="2"))
    bench.says("default", "p", revision="s1")
    bench.left()
    await bench.clock.advance(1.0)
    bench.says("hub", "hub-0", revision="h1")
    assert bench.left() == {"s"}


async def test_a_subscription_that_is_deleted_goes_as_ever(bench: Bench) -> None:
    bench.store.remove(SUBSCRIPTION)
    assert bench.left() == set()


async def test_one_that_the_gateway_serves_itself_by_now_is_not_left_over(bench: Bench) -> None:
    bench.put(changed(subscription(service="hub"), generation=2, resourceVersion="2"))
    assert bench.left() == set()


@pytest.mark.parametrize("damage", [False, True])
async def test_a_new_leader_reads_what_the_one_before_has_rendered(
    bench: Bench, damage: bool
) -> None:
    bench.states.pop(HUB, None)
    files = pack(render([{k: v for k, v in subscription().items() if k != "status"}])).files
    data = {name: base64.b64encode(content).decode() for name, content in files}
    if damage:
        data = dict.fromkeys(data, "AAAA")
    secret = made(Key("Secret", NAMESPACE, "pillion-hub-0"))
    bench.put({**secret, "data": {**data, "operator-token": "eA=="}})
    assert bench.left() == (set() if damage else {"s"})


def test_nothing_is_left_over_where_nothing_was_rendered(bench: Bench) -> None:
    bench.states.pop(HUB, None)
    assert bench.left() == set()


# ---------------------------------------------------------------- what drains by relaying


def going(bench: Bench) -> None:
    """The service names the gateway, and the destination is being deleted with Drain."""
    bench.put(
        changed(service(gatewayRef={"name": "hub"}), generation=2, resourceVersion="2"),
        changed(
            destination(removalPolicy="Drain"),
            resourceVersion="2",
            deletionTimestamp="2026-01-31T12:00:00Z",
            finalizers=["pillion.dev/drain"],
        ),
    )


def test_the_gateway_comes_after_its_guests_when_a_destination_drains(bench: Bench) -> None:
    assert bench.lingering.draining(HUB) == set()
    going(bench)
    # The sidecars are not told of it yet.
    assert bench.lingering.draining(HUB) == {"d"}
    state = bench.states.get(SERVICE)
    assert state is not None
    state.rollout.advance("s2", {})
    # One is on the revision before, then one drains, then one that did cannot be reached.
    bench.says("default", "p", revision="s1")
    assert bench.lingering.draining(HUB) == {"d"}
    bench.says("default", "p", revision="s2", depth=4)
    assert bench.lingering.draining(HUB) == {"d"}
    (last,) = bench.deliverers.said["default"]
    assert isinstance(last, DelivererReport)
    lost = Unreachable(pod="p", reason="x", since=0.0, last=last)
    bench.deliverers.said["default"] = (lost,)
    assert bench.lingering.draining(HUB) == {"d"}
    told = DelivererReport(pod="p", revision="s2", queues={}, at=0.0)
    bench.deliverers.said["default"] = (told,)
    assert bench.lingering.draining(HUB) == set()


async def test_it_is_looked_at_ever_more_rarely(bench: Bench) -> None:
    waits = []
    for _ in range(7):
        wait = bench.lingering.again(HUB, kept=True)
        assert wait is not None
        # Who looks sooner, for another reason, changes nothing.
        await bench.clock.advance(wait / 2)
        assert bench.lingering.again(HUB, kept=True) == wait / 2
        await bench.clock.advance(wait / 2)
        waits.append(wait)
    assert waits == [15, 30, 60, 120, 240, 300, 300]
    assert bench.lingering.again(HUB, kept=False) is None
    assert bench.lingering.again(HUB, kept=True) == 15
