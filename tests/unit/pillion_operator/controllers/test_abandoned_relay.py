"""A former gateway that keeps what was relayed to it, and the annotation that abandons that."""

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pillion_operator.names import ABANDON_RELAY_ANNOTATION
from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, quiet, settled

GATEWAY = {"deliverer": {"mode": "Gateway"}}
SERVICE = Key("IndicationService", NAMESPACE, "default")
DESTINATION = {
    "destination": "https://listener.example.org/",
    "protocol": "CloudEvents",
    "deliverThrough": "Gateway",
}


def virtually(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """Run it where gateway ``hub`` holds 3 indications of service ``default``, which relays to
    ``spare`` by now."""

    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        async with world.leader():
            for name in ("hub", "spare"):
                world.resource("IndicationService", name, GATEWAY)
                world.pod(f"{name}-0", service=name)
            world.resource("ListenerDestination", "pager", DESTINATION)
            world.resource("IndicationFilter", "all", {"query": "SELECT * FROM CIM_Indication"})
            references = {"filterRef": {"name": "all"}, "destinationRef": {"name": "pager"}}
            world.resource("IndicationSubscription", "all", references)
            relay_to(world, "hub")
            await settled(world)
            world.pods["hub-0"].backlog["pager"] = 3
            relay_to(world, "spare")
            await settled(world)
            assert condition(world, "RelayRetained") == ("True", "GatewayMayHold")
            await scenario(world)

    run_virtually(work())


def relay_to(world: World, gateway: str) -> None:
    world.resource("IndicationService", "default", {"gatewayRef": {"name": gateway}})


def annotate(world: World, value: str | None) -> None:
    body = world.api.objects[SERVICE]
    annotations = {} if value is None else {ABANDON_RELAY_ANNOTATION: value}
    world.api.put({**body, "metadata": {**body["metadata"], "annotations": annotations}})


def found(world: World, kind: str) -> Any:
    return find_condition(world.api.objects[SERVICE]["status"]["conditions"], kind)


def condition(world: World, kind: str) -> tuple[str, str] | None:
    one = found(world, kind)
    return None if one is None else (one["status"], one["reason"])


def keeps(world: World, gateway: str = "hub") -> bool:
    """Whether the gateway's configuration has the subscription."""
    status = world.api.objects[Key("IndicationService", NAMESPACE, gateway)]["status"]
    return bool(status["subscriptions"])


def notes(world: World) -> list[str]:
    told = [one for one in world.api.all("Event") if one["reason"] == "RelayAbandoned"]
    return [str(one["note"]) for one in told]


def test_a_former_gateway_is_named_until_it_has_delivered_what_it_holds() -> None:
    async def scenario(world: World) -> None:
        assert ": hub (1 subscription(s))" in found(world, "RelayRetained")["message"]
        assert keeps(world)
        world.pods["hub-0"].backlog.clear()
        await settled(world)
        await settled(world)
        assert not keeps(world)
        assert condition(world, "RelayRetained") is None
        assert notes(world) == []

    virtually(scenario)


def test_an_abandoned_gateway_keeps_nothing_and_an_event_says_how_much_it_held() -> None:
    async def scenario(world: World) -> None:
        annotate(world, "hub")
        await settled(world)
        assert not keeps(world)
        assert keeps(world, "spare")
        assert condition(world, "RelayAbandoned") == ("True", "Abandoned")
        assert condition(world, "RelayRetained") is None
        (note,) = notes(world)
        assert note.startswith("Abandoned: hub: this gateway stops keeping 1 subscription(s)")
        assert "holds for them: 3, as it last reported" in note
        # What it says of it stays, and nothing is done again.
        world.pods["hub-0"].backlog.clear()
        message = found(world, "RelayAbandoned")["message"]
        await settled(world)
        await quiet(world)
        assert found(world, "RelayAbandoned")["message"] == message
        annotate(world, None)
        await settled(world)
        assert condition(world, "RelayAbandoned") is None

    virtually(scenario)


def test_a_gateway_whose_pod_is_gone_is_abandoned_too() -> None:
    async def scenario(world: World) -> None:
        world.remove_pod("hub-0")
        await settled(world)
        assert keeps(world)
        annotate(world, "hub")
        await settled(world)
        assert not keeps(world)
        (note,) = notes(world)
        assert "their number is unknown" in note

    virtually(scenario)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("spare", "GatewayInUse"),
        ("default", "NotRetained"),
        ("nobody", "NotRetained"),
        ("", "NotRetained"),
        (f"{NAMESPACE}/hub", "NotRetained"),
        ("x" * 10_000, "NotRetained"),
    ],
)
def test_another_value_changes_nothing_and_is_told_with_the_remedy(value: str, reason: str) -> None:
    async def scenario(world: World) -> None:
        annotate(world, value)
        await settled(world)
        assert condition(world, "RelayAbandoned") == ("False", reason)
        message = found(world, "RelayAbandoned")["message"]
        assert f"{ABANDON_RELAY_ANNOTATION} has no effect" in message
        assert "remove the annotation" in message.lower()
        assert len(message) < 1000
        assert keeps(world)
        assert keeps(world, "spare")
        assert notes(world) == []
        # The remedy.
        annotate(world, "hub")
        await settled(world)
        assert not keeps(world)

    virtually(scenario)


def test_an_annotation_that_is_left_on_does_not_abandon_a_gateway_that_was_used_again() -> None:
    async def scenario(world: World) -> None:
        annotate(world, "hub")
        await settled(world)
        world.pods["hub-0"].backlog.clear()
        relay_to(world, "hub")
        await settled(world)
        assert condition(world, "RelayAbandoned") == ("False", "GatewayInUse")
        assert keeps(world)
        world.pods["hub-0"].backlog["pager"] = 2
        relay_to(world, "spare")
        await settled(world)
        assert condition(world, "RelayAbandoned") == ("False", "GatewayInUse")
        assert condition(world, "RelayRetained") == ("True", "GatewayMayHold")
        assert keeps(world)
        # Only who sets it again means what the gateway holds now.
        annotate(world, None)
        await settled(world)
        assert keeps(world)
        annotate(world, "hub")
        await settled(world)
        assert not keeps(world)
        assert sorted("holds for them: 2, " in note for note in notes(world)) == [False, True]

    virtually(scenario)


def test_a_new_leader_does_what_the_status_says_of_the_one_before() -> None:
    async def scenario(world: World) -> None:
        other = world.copied()
        annotate(other, "hub")
        told = {"type": "RelayAbandoned", "status": "True", "reason": "Abandoned"}
        other.api.objects[SERVICE]["status"] = {"conditions": [{**told, "message": "hub: 3"}]}
        async with other.leader():
            await settled(other)
            assert not keeps(other)
            assert found(other, "RelayAbandoned")["message"] == "hub: 3"

    virtually(scenario)


def test_a_gateway_that_is_deleted_keeps_nothing() -> None:
    async def scenario(world: World) -> None:
        world.api.remove(Key("IndicationService", NAMESPACE, "hub"))
        await settled(world)
        assert condition(world, "RelayRetained") is None

    virtually(scenario)


CONFIGURATION = Key("Secret", NAMESPACE, "pillion-hub-0")


def restarted(world: World, *keys: Key) -> World:
    """The same cluster with its statuses, without some objects; nobody leads it yet."""
    other = world.copied()
    for key, body in other.api.objects.items():
        if "status" in world.api.objects[key]:
            body["status"] = world.api.objects[key]["status"]
    for key in keys:
        other.api.objects.pop(key)
    return other


def test_a_gateway_whose_configuration_is_lost_keeps_all_until_it_says_that_it_holds_nothing() -> (
    None
):
    async def scenario(world: World) -> None:
        other = restarted(world, CONFIGURATION)
        async with other.leader():
            await settled(other)
            assert CONFIGURATION in other.api.objects
            assert keeps(other)
            assert condition(other, "RelayRetained") == ("True", "GatewayMayHold")
            other.pods["hub-0"].backlog.clear()
            await settled(other)
            await settled(other)
            assert not keeps(other)
            assert condition(other, "RelayRetained") is None

    virtually(scenario)


def test_a_gateway_that_is_new_keeps_nothing_of_others() -> None:
    async def scenario(world: World) -> None:
        world.resource("IndicationService", "other", GATEWAY)
        await settled(world)
        assert not keeps(world, "other")

    virtually(scenario)


def test_an_annotation_that_comes_with_a_restored_service_abandons_nothing() -> None:
    async def scenario(world: World) -> None:
        other = restarted(world)
        annotate(other, "hub")
        other.api.objects[SERVICE]["status"] = {}
        async with other.leader():
            await settled(other)
            assert condition(other, "RelayAbandoned") == ("False", "SetBefore")
            assert keeps(other)
            # The remedy.
            annotate(other, None)
            await settled(other)
            annotate(other, "hub")
            await settled(other)
            assert condition(other, "RelayAbandoned") == ("True", "Abandoned")
            assert not keeps(other)

    virtually(scenario)
