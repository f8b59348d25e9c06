"""An error of the operator itself over one object: its status says so, and no other is delayed."""

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pillion_operator.controllers import destination
from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key
from pillion_sidecar.config import addresses
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, settled

SERVICE = Key("IndicationService", NAMESPACE, "default")
FILTER = Key("IndicationFilter", NAMESPACE, "alerts")
GOOD = Key("ListenerDestination", NAMESPACE, "good")
BAD = Key("ListenerDestination", NAMESPACE, "bad")
BAD_HOST = "bad.example.org"


def virtually(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        world.pod("one", service="default")
        async with world.leader():
            world.resource("IndicationService", "default", {})
            world.resource(
                "IndicationFilter", "alerts", {"query": "SELECT * FROM CIM_AlertIndication"}
            )
            lead_to(world, "good", "good.example.org")
            await settled(world)
            await scenario(world)

    run_virtually(work())


def lead_to(world: World, name: str, host: str, **more: Any) -> None:
    spec = {"destination": f"http://{host}/", "protocol": "CloudEvents", **more}
    world.resource("ListenerDestination", name, spec)
    references = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": name}}
    world.resource("IndicationSubscription", f"to-{name}", references)


def condition(world: World, key: Key, kind: str) -> tuple[str, str]:
    found = find_condition((world.api.objects[key].get("status") or {}).get("conditions"), kind)
    assert found is not None
    return found["status"], found["reason"]


def told(world: World, key: Key) -> list[str]:
    """The reasons of the Events about an object."""
    return [
        body["reason"]
        for verb, one, body in world.api.writes
        if verb == "create" and one.kind == "Event" and body["regarding"]["name"] == key.name
    ]


@pytest.fixture
def defective(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deliverer's own judgement fails on the URL of one listener."""
    sound = addresses.host_of

    def host_of(url: str) -> str:
        if BAD_HOST in url:
            raise ZeroDivisionError("a defect")
        return sound(url)

    monkeypatch.setattr(addresses, "host_of", host_of)


@pytest.mark.usefixtures("defective")
def test_an_object_on_which_the_judgement_fails_delays_no_other() -> None:
    async def scenario(world: World) -> None:
        before = world.api.objects[SERVICE]["status"]["revision"]
        lead_to(world, "bad", BAD_HOST)
        await settled(world)
        assert condition(world, BAD, "Accepted") == ("False", "InternalError")
        assert condition(world, BAD, "Ready") == ("False", "InternalError")
        assert told(world, BAD) == ["NotAccepted"]
        # Another team's change is in force.
        lead_to(world, "good", "good.example.org", timeoutSeconds=5)
        await settled(world)
        assert condition(world, GOOD, "Ready") == ("True", "InForce")
        good = world.api.objects[GOOD]
        assert good["status"]["observedGeneration"] == good["metadata"]["generation"]
        assert condition(world, SERVICE, "Ready") == ("True", "InForce")
        assert world.api.objects[SERVICE]["status"]["revision"] != before

    virtually(scenario)


def test_a_reconcile_that_fails_is_told_in_the_objects_status_until_it_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = destination.judge_delivery

    def failing(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret text")

    async def scenario(world: World) -> None:
        monkeypatch.setattr(destination, "judge_delivery", failing)
        lead_to(world, "good", "good.example.org", timeoutSeconds=5)
        await settled(world)
        assert condition(world, GOOD, "Ready") == ("False", "InternalError")
        assert told(world, GOOD) == ["NotReady"]
        status = world.api.objects[GOOD]["status"]
        message = (find_condition(status["conditions"], "Ready") or {})["message"]
        assert "ZeroDivisionError" in message
        assert "secret text" not in message
        assert status["observedGeneration"] == world.api.objects[GOOD]["metadata"]["generation"]
        # The revision is another object's business.
        assert condition(world, SERVICE, "Ready") == ("True", "InForce")
        monkeypatch.setattr(destination, "judge_delivery", sound)
        await settled(world)
        await settled(world)
        assert condition(world, GOOD, "Ready") == ("True", "InForce")
        assert told(world, GOOD) == ["NotReady", "Ready"]

    virtually(scenario)


def test_a_service_that_cannot_be_rendered_is_not_ready_whatever_its_deliverers_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pillion_operator.controllers import service

    async def failing(*_: Any) -> Any:
        raise ZeroDivisionError

    async def scenario(world: World) -> None:
        sound = service.packed
        monkeypatch.setattr(service, "packed", failing)
        lead_to(world, "good", "good.example.org", timeoutSeconds=5)
        await settled(world)
        # Its deliverers come and go meanwhile.
        world.pod("two", service="default")
        await settled(world)
        assert condition(world, SERVICE, "Ready") == ("False", "InternalError")
        monkeypatch.setattr(service, "packed", sound)
        await settled(world)
        await settled(world)
        assert condition(world, SERVICE, "Ready") == ("True", "InForce")

    virtually(scenario)
