"""No status says Ready of what could not be written, or is not written yet."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from pillion_operator.cluster.api import ApiError
from pillion_operator.cluster.types import Object
from pillion_operator.controllers.service import FAILING_FOR, not_written
from pillion_operator.store import Key
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World

#: Seconds in which everything is written that can be.
WHILE = 30.0
SUBSCRIPTION = {"filterRef": {"name": "f"}, "destinationRef": {"name": "d"}}


def populate(world: World, **subscription: Any) -> None:
    world.resource("IndicationService", "default", {})
    world.resource("IndicationFilter", "f", {"query": "SELECT * FROM CIM_AlertIndication"})
    world.resource("ListenerDestination", "d", destination("one"))
    world.resource("IndicationSubscription", "s", {**SUBSCRIPTION, **subscription})


def destination(host: str) -> dict[str, Any]:
    return {"destination": f"http://{host}.example.org/", "protocol": "CloudEvents"}


def ready(world: World, kind: str, name: str) -> tuple[str, str]:
    """Status and reason of Ready, of the generation that the resource has now."""
    body = world.api.objects[Key(kind, NAMESPACE, name)]
    for condition in (body.get("status") or {}).get("conditions") or ():
        current = condition["observedGeneration"] == body["metadata"]["generation"]
        if condition["type"] == "Ready" and current:
            return condition["status"], condition["reason"]
    return "Unknown", ""


def all_ready(world: World) -> set[tuple[str, str]]:
    return {
        ready(world, kind, name)
        for kind, name in (
            ("IndicationService", "default"),
            ("ListenerDestination", "d"),
            ("IndicationSubscription", "s"),
        )
    }


def refusing(status: int) -> Callable[[str, Key], ApiError | None]:
    """Has every write of a Secret fail."""

    def refuse(verb: str, key: Key) -> ApiError | None:
        failed = verb == "apply" and key.kind == "Secret"
        return ApiError(status, "Word", "exceeded quota: secrets=10") if failed else None

    return refuse


@pytest.mark.parametrize("status", [400, 403, 500, 503])
def test_what_could_never_be_written_is_not_ready_and_heals(status: int) -> None:
    async def scene() -> None:
        world = World(random.Random(1))
        world.api.refuse = refusing(status)
        async with world.leader():
            populate(world)
            await asyncio.sleep(WHILE)
            assert all_ready(world) == {("False", "NotWritten")}

            world.api.refuse = lambda _verb, _key: None
            await asyncio.sleep(60 + WHILE)
            assert all_ready(world) == {("True", "NoDeliverers")}

    run_virtually(scene())


def test_a_change_that_cannot_be_written_is_not_ready_whatever_runs() -> None:
    async def scene() -> None:
        world = World(random.Random(1))
        async with world.leader():
            populate(world)
            world.pod("p", service="default")
            await asyncio.sleep(WHILE)
            assert all_ready(world) == {("True", "InForce")}

            world.api.refuse = refusing(403)
            # Only of the configuration, and only of the objects around it.
            world.resource("ListenerDestination", "d", destination("two"))
            world.resource("IndicationService", "default", {"deliveryRetryIntervalSeconds": 5})
            await asyncio.sleep(WHILE)
            assert all_ready(world) == {("False", "NotWritten")}

    run_virtually(scene())


def test_nothing_is_told_of_a_failure_that_is_over_soon() -> None:
    async def scene() -> None:
        world = World(random.Random(1))
        told: set[tuple[str, str]] = set()
        async with world.leader():
            world.api.watchers.append(
                lambda _event, body: told.add(ready(world, body["kind"], body["metadata"]["name"]))
            )
            world.api.refuse = refusing(503)
            populate(world)
            await asyncio.sleep(FAILING_FOR / 4)
            world.api.refuse = lambda _verb, _key: None
            await asyncio.sleep(WHILE)

        assert told == {("Unknown", ""), ("True", "NoDeliverers")}

    run_virtually(scene())


def test_a_subscription_that_is_enabled_again_is_not_ready_before_it_is_rendered() -> None:
    async def scene() -> None:
        world = World(random.Random(1))
        apply, seconds = world.api.apply, 0.0

        async def slowly(body: Object) -> Object:
            await asyncio.sleep(seconds)
            return await apply(body)

        world.api.apply = slowly  # type: ignore[method-assign]
        async with world.leader():
            populate(world, subscriptionState="Disabled")
            await asyncio.sleep(WHILE)
            assert ready(world, "IndicationSubscription", "s") == ("False", "Disabled")

            seconds = 5.0
            # Its service is being written, from before the subscription is enabled.
            world.resource("IndicationService", "default", {"deliveryRetryIntervalSeconds": 5})
            await asyncio.sleep(1.0)
            world.resource("IndicationSubscription", "s", SUBSCRIPTION)
            await asyncio.sleep(2.0)
            assert ready(world, "IndicationSubscription", "s") == ("Unknown", "")
            await asyncio.sleep(WHILE)
            assert ready(world, "IndicationSubscription", "s") == ("True", "NoDeliverers")

    run_virtually(scene())


def test_only_what_is_forbidden_is_quoted() -> None:
    assert "too secret" not in not_written(ApiError(400, "BadRequest", "too secret")).message
    assert "quota" in not_written(ApiError(403, "Forbidden", "exceeded quota")).message
    assert "does not answer" in not_written(TimeoutError("late")).message


def test_a_new_leader_knows_what_the_deliverers_of_a_refused_service_still_use() -> None:
    async def work() -> None:
        before = World(random.Random(1))
        before.calm()
        populate(before)
        before.pod("one", service="default")
        async with before.leader():
            await asyncio.sleep(WHILE)
        # While nobody leads.
        before.api.remove(Key("IndicationSubscription", NAMESPACE, "s"))
        before.resource("IndicationService", "default", {"deliveryRetryAttempts": -1})
        world = before.copied()
        used = Key("ListenerDestination", NAMESPACE, "d")
        async with world.leader():
            await asyncio.sleep(WHILE)
            assert ready(world, used.kind, used.name) == ("False", "ServiceNotAccepted")
            assert world.api.objects[used]["status"]["deliverers"] == 1
            # The remedy.
            world.resource("IndicationService", "default", {})
            await asyncio.sleep(WHILE)
            assert ready(world, used.kind, used.name) == ("True", "NotUsed")
            assert world.api.objects[used]["status"]["deliverers"] == 0

    run_virtually(work())
