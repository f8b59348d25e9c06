"""Replays in a cluster in memory."""

import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from pillion_operator.polling.reports import ReplayReport
from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key
from support.operator_fakes import FakeDeliverer, run_virtually
from support.operator_world import NAMESPACE, World, settled

SERVICE = Key("IndicationService", NAMESPACE, "default")
REPLAY = Key("IndicationReplay", NAMESPACE, "afternoon")
SPEC = {"destinationRef": {"name": "archive"}, "from": "2023-11-14T12:00:00Z"}
URL = {"destination": "https://archive.example.org/", "protocol": "CloudEvents"}
LISTENER = {"destination": "https://one.example.org/", "protocol": "CloudEvents"}


def populate(world: World, *, service: dict[str, Any] | None = None, **listener: Any) -> None:
    """Make a service that delivers to ``one``; a replay may go to ``archive``."""
    world.resource("IndicationService", "default", service or {})
    world.resource("IndicationFilter", "alerts", {"query": "SELECT * FROM CIM_AlertIndication"})
    world.resource("ListenerDestination", "one", {**LISTENER, **listener})
    world.resource("ListenerDestination", "archive", URL)
    world.resource(
        "IndicationSubscription",
        "to-one",
        {"filterRef": {"name": "alerts"}, "destinationRef": {"name": "one"}},
    )


def replaying(
    scenario: Callable[[World], Coroutine[Any, Any, None]],
    *,
    pods: tuple[str, ...] = ("a", "b"),
) -> None:
    """Run a scenario in a cluster with deliverers of ``default``."""

    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        populate(world)
        for name in pods:
            world.pod(name, service="default")
        async with world.leader():
            await settled(world)
            await scenario(world)

    run_virtually(work())


def apply(world: World, name: str = "afternoon", **spec: Any) -> None:
    """Apply a replay to ``archive``."""
    world.resource("IndicationReplay", name, {**SPEC, **spec})


def uid(world: World, key: Key = REPLAY) -> str:
    return str(world.api.objects[key]["metadata"]["uid"])


def report(world: World, pod: str, state: str, *, of: Key = REPLAY, **counts: Any) -> None:
    """Have a pod's deliverer say how far it is."""
    known = uid(world, of)
    world.pods[pod].replayed[known] = ReplayReport(name=of.name, uid=known, state=state, **counts)


def complete(world: World, *pods: str, **counts: Any) -> None:
    for pod in pods:
        report(world, pod, "Complete", **counts)


def status(world: World, key: Key = REPLAY) -> dict[str, Any]:
    found: dict[str, Any] = world.api.objects[key].get("status") or {}
    return found


def condition(world: World, wanted: str, key: Key = REPLAY) -> tuple[str, str]:
    found = find_condition(status(world, key).get("conditions"), wanted)
    return (found["status"], found["reason"]) if found is not None else ("", "")


def message(world: World, wanted: str, key: Key = REPLAY) -> str:
    found = find_condition(status(world, key).get("conditions"), wanted)
    assert found is not None
    return str(found["message"])


def knows(deliverer: FakeDeliverer, name: str = "afternoon") -> bool:
    """Whether a deliverer has a replay in its configuration."""
    return any(one["metadata"]["name"] == name for one in deliverer.replays.values())


@contextmanager
def writes_to(world: World, key: Key = REPLAY) -> Iterator[list[Any]]:
    """The writes to one resource inside the context."""
    found: list[Any] = []
    before = len(world.api.writes)
    yield found
    found += [body for _, written, body in world.api.writes[before:] if written == key]
