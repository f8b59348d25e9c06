"""What a deliverer would warn of is a condition: unknown classes, and two names of one listener."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, settled

CLASSES = [{"name": "HP_AlertIndication", "superclass": "CIM_AlertIndication"}]
ONE = {"destination": "http://one.example.org:8080/in", "protocol": "CloudEvents"}
TWO = {"destination": "http://two.example.org:8080/in", "protocol": "CloudEvents"}


def run(scenario: Callable[[World], Awaitable[None]], *, query: str) -> None:
    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        world.resource("IndicationService", "default", {})
        world.resource("IndicationFilter", "alerts", {"query": query})
        for name, destination in (("one", ONE), ("two", TWO)):
            world.resource("ListenerDestination", name, destination)
            references = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": name}}
            world.resource("IndicationSubscription", f"to-{name}", references)
        async with world.leader():
            await settled(world)
            await scenario(world)

    run_virtually(work())


def condition(world: World, kind: str, name: str, wanted: str) -> dict[str, Any] | None:
    status = world.api.objects[Key(kind, NAMESPACE, name)]["status"]
    found = find_condition(status["conditions"], wanted)
    return None if found is None else dict(found)


def test_an_unknown_class_is_told_of_with_the_nearest_until_the_service_declares_it() -> None:
    async def scenario(world: World) -> None:
        alerts = ("IndicationFilter", "alerts", "ClassUnknown")
        found = condition(world, *alerts)
        assert found is not None
        assert (found["status"], found["reason"]) == ("True", "NotDeclared")
        assert found["message"] == (
            "In the service default: no class HP_AlertIndication is known, so it stands for itself "
            "alone, without subclasses. Did you mean CIM_AlertIndication? Classes are declared in "
            "IndicationService.spec.classes, or by MOF."
        )
        # It is in force all the same.
        accepted = condition(world, "IndicationFilter", "alerts", "Accepted")
        assert accepted is not None
        assert accepted["status"] == "True"
        events = [body for kind, _, body in world.api.writes if kind == "create"]
        assert "ClassUnknown" in str(events)
        world.resource("IndicationService", "default", {"classes": CLASSES})
        await settled(world)
        assert condition(world, *alerts) is None
        mof = "class HP_AlertIndication : CIM_AlertIndication { };"
        world.resource("IndicationService", "default", {"mof": mof})
        await settled(world)
        assert condition(world, *alerts) is None
        world.resource("IndicationService", "default", {})
        await settled(world)
        assert condition(world, *alerts) is not None

    run(scenario, query="SELECT * FROM HP_AlertIndication")


def test_destinations_under_two_names_of_maybe_one_listener_are_told_of_each_other() -> None:
    async def scenario(world: World) -> None:
        one = ("ListenerDestination", "one", "SharedPortAndPath")
        two = ("ListenerDestination", "two", "SharedPortAndPath")
        assert condition(world, *one) is None
        # Of several deliverers none sends identifiers under Auto.
        for name, destination in (("one", ONE), ("two", TWO)):
            sent = {**destination, "sequenceIdentifiers": "Send"}
            world.resource("ListenerDestination", name, sent)
        await settled(world)
        for which, other in ((one, "two (http://two."), (two, "one (http://one.")):
            found = condition(world, *which)
            assert found is not None
            assert (found["status"], found["reason"]) == ("True", "OtherHostName")
            assert found["message"].startswith(f"{other}example.org:8080/in) has the same port and")
        world.resource("ListenerDestination", "two", {**TWO, "sequenceIdentifiers": "Omit"})
        await settled(world)
        assert condition(world, *one) is None
        assert condition(world, *two) is None

    run(scenario, query="SELECT * FROM CIM_AlertIndication")
