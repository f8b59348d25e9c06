"""What a service's own status is made of, and the pods that are annotated once more for it."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from pillion_operator.cluster.api import ApiError
from pillion_operator.controllers.service_status import overlap_condition
from pillion_operator.names import REVISION_ANNOTATION
from pillion_operator.store import Key
from pillion_sidecar.config.schema.service import Durability
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, settled

POKE = "patch"


def virtually(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        world.pod("one", service="default")
        world.pod("two", service="default")
        async with world.leader():
            destination = {"destination": "http://listener.example.org/"}
            world.resource("ListenerDestination", "pager", destination)
            world.resource("IndicationService", "default", {})
            await settled(world)
            await scenario(world)

    run_virtually(work())


def change(world: World) -> None:
    """Have another revision rendered."""
    world.resource("IndicationService", "default", {"deliveryRetryIntervalSeconds": 7})


def pokes(world: World) -> list[tuple[str, str]]:
    """The pods that were annotated, in order, each with the revision."""
    return [
        (key.name, body["metadata"]["annotations"][REVISION_ANNOTATION])
        for verb, key, body in world.api.writes
        if verb == POKE and key.kind == "Pod"
    ]


def revision(world: World) -> str:
    status = world.api.objects[Key("IndicationService", NAMESPACE, "default")]["status"]
    return str(status["revision"])


def unless(refusing: set[str]) -> Callable[[str, Key], ApiError | None]:
    """Refuses to annotate the pods that are named."""

    def refuse(verb: str, key: Key) -> ApiError | None:
        if verb == POKE and key.kind == "Pod" and key.name in refusing:
            return ApiError(503, "ServiceUnavailable", "not now")
        return None

    return refuse


def test_who_is_behind_and_could_not_be_annotated_is_annotated_later() -> None:
    async def scenario(world: World) -> None:
        refusing = {"one"}
        world.api.refuse = unless(refusing)
        for pod in world.pods.values():
            pod.stuck = True
        before = len(pokes(world))
        change(world)
        await settled(world)
        # Both are behind; the one that was annotated is left alone, however long it takes.
        assert pokes(world)[before:] == [("two", revision(world))]
        refusing.clear()
        await settled(world)
        assert pokes(world)[before:] == [("two", revision(world)), ("one", revision(world))]
        await settled(world)
        assert len(pokes(world)) == before + 2

    virtually(scenario)


def test_a_pod_that_came_while_another_revision_was_out_is_annotated() -> None:
    async def scenario(world: World) -> None:
        world.pod("late", service="default")
        # Its kubelet has mounted what was rendered before.
        world.pods["late"].load(world.api)
        world.pods["late"].stuck = True
        world.api.refuse = unless({"late"})
        change(world)
        await asyncio.sleep(5)
        world.api.refuse = unless(set())
        await settled(world)
        assert [name for name, _ in pokes(world)].count("late") == 1

    virtually(scenario)


def test_who_has_the_revision_already_is_not_annotated_for_it() -> None:
    async def scenario(world: World) -> None:
        # Neither could be annotated; the kubelet of one was quick all the same.
        world.api.refuse = unless({"one", "two"})
        world.pods["two"].stuck = True
        before = len(pokes(world))
        change(world)
        await settled(world)
        world.api.refuse = unless(set())
        await settled(world)
        assert pokes(world)[before:] == [("two", revision(world))]
        world.pods["two"].stuck = False
        await settled(world)
        assert len(pokes(world)) == before + 1

    virtually(scenario)


def test_a_service_says_whether_another_selects_its_pods() -> None:
    alone = overlap_condition(())
    assert (alone.type, alone.status, alone.reason) == ("SelectorsOverlap", "False", "Exclusive")
    shared = overlap_condition(["a", "b"])
    assert (shared.status, shared.reason) == ("True", "PodsSelectedTwice")
    assert "podSelector of a, b selects the same pods" in shared.message


def test_the_durability_is_that_of_a_deliverer_with_a_disk_unless_the_service_says() -> None:
    def durability(world: World) -> str:
        status = world.api.objects[Key("IndicationService", NAMESPACE, "default")]["status"]
        return str(status["durability"])

    async def scenario(world: World) -> None:
        assert durability(world) == "Disk"
        world.resource("IndicationService", "default", {"durability": "StateOnly"})
        await settled(world)
        assert durability(world) == "StateOnly"
        # Some have been started before it was changed, or with no folder: the least safe counts.
        world.pods["one"].durability = Durability.DISK
        await settled(world)
        assert durability(world) == "Disk"
        world.pods["two"].durability = Durability.MEMORY
        await settled(world)
        assert durability(world) == "Memory"
        world.pods["two"].durability = Durability.STATE_ONLY
        await settled(world)
        assert durability(world) == "StateOnly"

    virtually(scenario)
