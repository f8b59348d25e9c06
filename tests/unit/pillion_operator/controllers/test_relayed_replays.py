"""Replays of services that relay: a gateway carries out the part whose history it has."""

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.operator_fakes import run_virtually
from support.operator_replays import (
    REPLAY,
    URL,
    apply,
    complete,
    condition,
    knows,
    message,
    populate,
    report,
    status,
)
from support.operator_world import World, settled

HUB = {"name": "hub"}
STORED = {"mode": "Gateway", "storage": {"sizeLimit": "1Gi"}}
GATEWAY = "pillion-hub-0"
RELAYED = {"deliverThrough": "Gateway"}


def relaying(
    scenario: Callable[[World], Coroutine[Any, Any, None]],
    *,
    service: dict[str, Any] | None = None,
    deliverer: dict[str, Any] | None = None,
    **listener: Any,
) -> None:
    """Run a scenario in a cluster with a sidecar of ``default`` and a gateway ``hub``."""

    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        world.resource("IndicationService", "hub", {"deliverer": deliverer or STORED})
        populate(world, service={"gatewayRef": HUB} if service is None else service, **listener)
        world.pod("sidecar", service="default")
        world.pod(GATEWAY, service="hub")
        async with world.leader():
            await settled(world)
            await scenario(world)

    run_virtually(work())


def spec_at(world: World, pod: str) -> dict[str, Any]:
    (body,) = world.pods[pod].replays.values()
    found: dict[str, Any] = body["spec"]
    return found


def test_the_gateway_gets_it_for_what_the_sidecars_relay() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        assert spec_at(world, "sidecar").get("destinations") is None
        assert spec_at(world, GATEWAY)["serviceRef"] == HUB
        assert spec_at(world, GATEWAY)["destinations"] == ["one"]
        assert world.pods["sidecar"].replays.keys() == world.pods[GATEWAY].replays.keys()
        assert "archive" in world.pods[GATEWAY].destinations
        complete(world, "sidecar")
        await settled(world)
        assert condition(world, "Complete") == ("False", "NotFinished")
        complete(world, GATEWAY, selected=5, replayed=5, delivered=5)
        await settled(world)
        assert condition(world, "Complete") == ("True", "Finished")
        assert (status(world)["deliverers"], status(world)["delivered"]) == (2, 5)
        await settled(world)
        assert not knows(world.pods[GATEWAY])
        assert "archive" not in world.pods[GATEWAY].destinations

    relaying(scenario, **RELAYED)


def test_a_gateway_that_has_no_part_is_not_waited_for() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        assert not knows(world.pods[GATEWAY])
        complete(world, "sidecar")
        await settled(world)
        assert (condition(world, "Complete")[0], status(world)["deliverers"]) == ("True", 1)

    relaying(scenario)


def test_named_destinations_are_those_of_the_gateway_or_gone() -> None:
    async def scenario(world: World) -> None:
        world.resource("ListenerDestination", "local", URL)
        apply(world, destinations=["local", "one", "gone"])
        await settled(world)
        assert spec_at(world, GATEWAY)["destinations"] == ["gone", "one"]
        assert spec_at(world, "sidecar")["destinations"] == ["local", "one", "gone"]

    relaying(scenario, **RELAYED)


def test_what_was_handed_over_is_in_the_part_of_that_gateway() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        assert spec_at(world, GATEWAY)["destinations"] == ["one"]

    relaying(scenario, service={"handOverTo": HUB})


def test_a_replay_that_sidecars_relay_needs_its_destination_at_the_gateway() -> None:
    async def scenario(world: World) -> None:
        world.resource("ListenerDestination", "archive", {**URL, **RELAYED})
        apply(world)
        await settled(world)
        assert not knows(world.pods[GATEWAY])
        assert "archive" in world.pods[GATEWAY].destinations
        # What is still there when the sidecars are done is delivered.
        world.pods[GATEWAY].backlog["archive"] = 2
        complete(world, "sidecar")
        await settled(world)
        assert condition(world, "Complete") == ("True", "Finished")
        await settled(world)
        assert "archive" in world.pods[GATEWAY].destinations
        world.pods[GATEWAY].backlog.clear()
        for _ in range(3):
            await settled(world)
        assert "archive" not in world.pods[GATEWAY].destinations

    relaying(scenario)


@pytest.mark.parametrize("obstacle", ["backlog", "silent", "stuck"])
def test_a_cancelled_replay_that_sidecars_relay_keeps_its_destination_at_the_gateway(
    obstacle: str,
) -> None:
    async def scenario(world: World) -> None:
        world.resource("ListenerDestination", "archive", {**URL, **RELAYED})
        apply(world)
        await settled(world)
        report(world, "sidecar", "Running", selected=5, replayed=5)
        await settled(world)
        # It waits for the gateway, does not answer, or still knows the replay.
        sidecar = world.pods["sidecar"]
        if obstacle == "backlog":
            sidecar.backlog["archive"] = 3
        else:
            setattr(sidecar, obstacle, True)
        world.api.remove(REPLAY)
        for _ in range(3):
            await settled(world)
        assert "archive" in world.pods[GATEWAY].destinations
        # Another leader keeps it too.
        other = world.copied()
        async with other.leader():
            await settled(other)
            assert "archive" in world.pods[GATEWAY].destinations
        # The last that is relayed comes to the gateway.
        sidecar.backlog.clear()
        sidecar.silent = sidecar.stuck = False
        world.pods[GATEWAY].backlog["archive"] = 3
        for _ in range(3):
            await settled(world)
        assert "archive" in world.pods[GATEWAY].destinations
        world.pods[GATEWAY].backlog.clear()
        for _ in range(3):
            await settled(world)
        assert "archive" not in world.pods[GATEWAY].destinations
        assert "archive" not in sidecar.destinations

    relaying(scenario)


def test_a_cancelled_replay_leaves_the_gateway_with_the_last_sidecar() -> None:
    async def scenario(world: World) -> None:
        world.resource("ListenerDestination", "archive", {**URL, **RELAYED})
        apply(world)
        world.pods["sidecar"].backlog["archive"] = 3
        await settled(world)
        world.api.remove(REPLAY)
        await settled(world)
        assert "archive" in world.pods[GATEWAY].destinations
        world.remove_pod("sidecar")
        for _ in range(3):
            await settled(world)
        assert "archive" not in world.pods[GATEWAY].destinations

    relaying(scenario)


def test_the_pod_of_a_gateway_with_a_claim_may_come_again() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        complete(world, "sidecar")
        await settled(world)
        report(world, GATEWAY, "Running", selected=5, replayed=2)
        await settled(world)
        world.remove_pod(GATEWAY)
        await settled(world)
        assert condition(world, "Complete") == ("False", "NotFinished")
        assert status(world)["goneDeliverers"] == 0
        world.pod(GATEWAY, service="hub")
        complete(world, GATEWAY, selected=5, replayed=5)
        await settled(world)
        told = status(world)
        assert (told["state"], told["replayed"], told["deliverers"]) == ("Complete", 5, 2)

    relaying(scenario, **RELAYED)


def test_the_pod_of_a_gateway_without_a_claim_is_gone_with_its_history() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        complete(world, "sidecar")
        await settled(world)
        report(world, GATEWAY, "Running", selected=5, replayed=2)
        await settled(world)
        world.remove_pod(GATEWAY)
        await settled(world)
        assert condition(world, "Complete") == ("True", "DeliverersGone")

    relaying(scenario, deliverer={"mode": "Gateway"}, **RELAYED)


def test_more_destinations_than_a_replay_may_name_are_refused_by_name_of_the_field() -> None:
    async def scenario(world: World) -> None:
        for number in range(101):
            name = f"d{number}"
            url = f"https://one.example.org/{name}"
            spec = {**URL, **RELAYED, "destination": url}
            world.resource("ListenerDestination", name, spec)
            references = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": name}}
            world.resource("IndicationSubscription", name, references)
        apply(world)
        await settled(world)
        assert condition(world, "Accepted") == ("False", "TooManyDestinations")
        assert message(world, "Accepted").startswith("spec.destinations: the gateway hub")

    relaying(scenario)


def test_a_replay_of_a_relayed_destination_without_a_gateway_waits_for_it() -> None:
    async def scenario(world: World) -> None:
        world.resource("ListenerDestination", "archive", {**URL, **RELAYED})
        apply(world)
        await settled(world)
        assert condition(world, "Accepted") == ("False", "GatewayMissing")
        # Its own pods know it, and wait.
        assert knows(world.pods["sidecar"])
        world.resource("IndicationService", "default", {"gatewayRef": HUB})
        await settled(world)
        assert condition(world, "Accepted") == ("True", "Accepted")

    relaying(scenario, service={})


def test_a_missing_gateway_is_told_of_what_is_relayed() -> None:
    async def scenario(world: World) -> None:
        world.resource("ListenerDestination", "archive", {**URL, **RELAYED})
        apply(world)
        await settled(world)
        assert condition(world, "Accepted") == ("False", "GatewayNotFound")
        assert status(world)["state"] == "Waiting"

    relaying(scenario, service={"gatewayRef": {"name": "none"}})
