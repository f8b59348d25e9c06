"""What no random history shows for certain: the real leader, on virtual time."""

import asyncio
import gc
import random
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from pillion_operator.names import DRAIN_FINALIZER
from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key
from pillion_sidecar.wire.queues import SubscriptionEnd
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, quiet, settled

PAGER = Key("ListenerDestination", NAMESPACE, "pager")
FILTER = Key("IndicationFilter", NAMESPACE, "alerts")
SUBSCRIPTION = Key("IndicationSubscription", NAMESPACE, "alerts-to-pager")
SERVICE = Key("IndicationService", NAMESPACE, "default")


def virtually(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        async with world.leader():
            await scenario(world)

    run_virtually(work())


def applied(world: World, *, service: dict[str, Any] | None = None, **destination: Any) -> None:
    world.resource("IndicationService", "default", service or {})
    spec = {"destination": "http://listener.example.org/", "protocol": "CloudEvents"}
    world.resource("ListenerDestination", "pager", {**spec, **destination})
    world.resource("IndicationFilter", "alerts", {"query": "SELECT * FROM CIM_AlertIndication"})
    references = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": "pager"}}
    world.resource("IndicationSubscription", "alerts-to-pager", references)


def status(world: World, key: Key) -> dict[str, Any]:
    found: dict[str, Any] = world.api.objects[key].get("status") or {}
    return found


def condition(world: World, key: Key, kind: str) -> tuple[str, str]:
    found = find_condition(status(world, key).get("conditions"), kind)
    assert found is not None
    return found["status"], found["reason"]


def test_a_destination_is_held_until_the_last_deliverer_has_nothing_of_it() -> None:
    async def scenario(world: World) -> None:
        world.pod("one", service="default")
        world.pod("two", service="default")
        applied(world, removalPolicy="Drain")
        await settled(world)
        assert world.api.objects[PAGER]["metadata"]["finalizers"] == [DRAIN_FINALIZER]
        for pod in world.pods.values():
            pod.backlog["pager"] = 3
        world.api.remove(PAGER)
        world.api.remove(SUBSCRIPTION)
        await settled(world)
        assert condition(world, PAGER, "Draining") == ("True", "Draining")
        world.pods["one"].backlog["pager"] = 0
        # One that does not answer for the moment may hold what it held.
        world.pods["two"].silent = True
        await settled(world)
        assert PAGER in world.api.objects
        # With its pod goes what it held.
        world.remove_pod("two")
        await asyncio.sleep(5)
        assert PAGER not in world.api.objects

    virtually(scenario)


def test_a_fatal_error_ends_a_subscription_although_its_service_changes_at_once() -> None:
    async def scenario(world: World, *, after: float) -> None:
        world.pod("one", service="default")
        applied(world)
        spec = world.api.objects[SUBSCRIPTION]["spec"]
        world.resource(
            "IndicationSubscription", "alerts-to-pager", {**spec, "onFatalErrorPolicy": "Disable"}
        )
        await settled(world)
        world.pods["one"].ended = (SubscriptionEnd(name="alerts-to-pager", reason="FatalError"),)
        await asyncio.sleep(after)
        # A new revision meanwhile; what the old one reported counts no more from then on.
        world.resource("IndicationService", "default", {"deliveryRetryIntervalSeconds": 7})
        await settled(world)
        first = status(world, SUBSCRIPTION)["subscriptionState"]
        world.pods["one"].ended = ()
        await settled(world)
        state = status(world, SUBSCRIPTION)["subscriptionState"]
        assert state == first
        # What the status says is what is rendered.
        assert status(world, SERVICE)["subscriptions"] == (1 if state == "Enabled" else 0)

    # Before it is asked, between its answer and the news of it, and afterwards.
    for step in range(14):
        virtually(partial(scenario, after=0.9 * step))


def test_the_removal_action_comes_by_itself() -> None:
    async def scenario(world: World) -> None:
        world.pod("one", service="default")
        rule = {
            "subscriptionRemovalAction": "Disable",
            "subscriptionRemovalTimeIntervalSeconds": 600,
        }
        applied(world, service=rule)
        await settled(world)
        world.pods["one"].failing.add("pager")
        await settled(world)
        assert status(world, SUBSCRIPTION)["subscriptionState"] == "Enabled"
        await asyncio.sleep(700)
        assert status(world, SUBSCRIPTION)["subscriptionState"] == "Disabled"
        assert status(world, SERVICE)["subscriptions"] == 0
        await quiet(world)

    virtually(scenario)


def test_nothing_is_ready_while_a_deliverer_runs_something_older() -> None:
    async def scenario(world: World) -> None:
        world.pod("one", service="default")
        world.pod("two", service="default")
        applied(world)
        await settled(world)
        assert condition(world, FILTER, "Ready") == ("True", "InForce")
        world.pods["two"].stuck = True
        world.resource("IndicationFilter", "alerts", {"query": "SELECT * FROM CIM_InstIndication"})
        await settled(world)
        for key in (FILTER, SERVICE):
            assert condition(world, key, "Ready") == ("False", "RollingOut")
        # What has not changed is in force there all the same.
        assert condition(world, PAGER, "Ready") == ("True", "InForce")
        world.remove_pod("two")
        await settled(world)
        for key in (FILTER, SERVICE):
            assert condition(world, key, "Ready") == ("True", "InForce")

    virtually(scenario)


def test_a_configuration_that_cannot_be_written_keeps_nobody_busy() -> None:
    async def scenario(world: World) -> None:
        world.api.put(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"namespace": NAMESPACE, "name": "pillion-default-0"},
                "data": {},
            }
        )
        applied(world)
        await settled(world)
        for key in (SERVICE, FILTER, PAGER, SUBSCRIPTION):
            assert condition(world, key, "Ready") == ("False", "NotOurs")
        before, writes = world.reconciles, len(world.api.writes)
        await settled(world)
        assert world.reconciles - before < 200
        assert len(world.api.writes) == writes
        world.api.remove(Key("Secret", NAMESPACE, "pillion-default-0"))
        await settled(world)
        for key in (SERVICE, FILTER, PAGER, SUBSCRIPTION):
            assert condition(world, key, "Ready") == ("True", "NoDeliverers")

    virtually(scenario)


def test_pods_of_a_service_that_comes_after_the_leader_are_asked() -> None:
    async def work() -> None:
        world = World(random.Random(1))
        world.pod("early", service="default")
        world.calm()
        async with world.leader():
            applied(world)
            await settled(world)
        assert status(world, SERVICE)["readyDeliverers"] == 1

    run_virtually(work())


def test_of_what_is_gone_nothing_is_kept() -> None:
    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        async with world.leader() as leader:
            applied(world, removalPolicy="Drain")
            world.secret("token", "one")
            world.pod("one", service="default")
            await settled(world)
            assert {FILTER, SERVICE, PAGER, SUBSCRIPTION} <= keys_in(leader)
            for key in (SERVICE, FILTER, PAGER, SUBSCRIPTION):
                world.api.remove(key)
            world.api.remove(Key("Secret", NAMESPACE, "token"))
            world.remove_pod("one")
            await settled(world)
            left = [key for key in world.api.objects if key.namespace == NAMESPACE]
            assert [str(key) for key in left if key.kind != "Event"] == []
            assert keys_in(leader) == set()

    run_virtually(work())


def keys_in(root: object) -> set[Key]:
    """Every key that can be reached from an object: through the operator's own, through plain
    containers, and through what is called back."""
    found: set[Key] = set()
    seen: set[int] = set()
    waiting = deque([root])
    while waiting:
        one = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Key):
            found.add(one)
        elif isinstance(one, MethodType):
            waiting.append(one.__self__)
        elif isinstance(one, FunctionType):
            waiting.extend(cell.cell_contents for cell in one.__closure__ or ())
        elif type(one).__module__.startswith("pillion_operator") or isinstance(
            one, dict | list | tuple | set | frozenset | deque
        ):
            waiting.extend(gc.get_referents(one))
    return found
