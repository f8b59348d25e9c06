"""What happens while a large service is evaluated in the thread."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pillion_operator.controllers import service
from pillion_operator.names import configuration_secret
from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, settled

SERVICE = Key("IndicationService", NAMESPACE, "default")
OTHER = Key("IndicationService", NAMESPACE, "other")
FILTER = Key("IndicationFilter", NAMESPACE, "alerts")
CONFIGURATION = Key("Secret", NAMESPACE, configuration_secret("default", 0))
QUERY = "SELECT * FROM CIM_InstIndication"


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MANY", -1)


def virtually(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        async with world.leader():
            world.resource("IndicationService", "default", {})
            query = {"query": "SELECT * FROM CIM_AlertIndication"}
            world.resource("IndicationFilter", "alerts", query)
            lead_to(world, "pager")
            await settled(world)
            world.api.writes.clear()
            await scenario(world)

    run_virtually(work())


def lead_to(world: World, name: str, **more: Any) -> None:
    spec = {"destination": f"http://{name}.example.org/", "protocol": "CloudEvents", **more}
    world.resource("ListenerDestination", name, spec)
    references = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": name}}
    world.resource("IndicationSubscription", f"to-{name}", references)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Have something happen during the next evaluation."""
    evaluate = service.evaluate_service

    def evaluated(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(service, "evaluate_service", evaluate)
        happens()
        return evaluate(*arguments, **more)

    monkeypatch.setattr(service, "evaluate_service", evaluated)


def written(world: World) -> list[str]:
    return [verb for verb, key, _ in world.api.writes if key == CONFIGURATION]


def condition(world: World, key: Key, kind: str) -> tuple[str, str]:
    found = find_condition((world.api.objects[key].get("status") or {}).get("conditions"), kind)
    assert found is not None
    return found["status"], found["reason"]


def test_nothing_is_written_for_a_service_that_is_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        def deleted() -> None:
            world.api.remove(SERVICE)
            world.store.remove(SERVICE)

        meanwhile(monkeypatch, deleted)
        lead_to(world, "pager", timeoutSeconds=5)
        await settled(world)
        assert SERVICE not in world.api.objects
        assert "apply" not in written(world)

    virtually(scenario)


def test_nothing_is_written_for_a_service_whose_deletion_begins_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        body = world.api.objects[SERVICE]
        body["metadata"]["finalizers"] = ["example.org/waits"]

        def deleted() -> None:
            world.api.remove(SERVICE)
            world.store.put(world.api.objects[SERVICE])

        meanwhile(monkeypatch, deleted)
        lead_to(world, "pager", timeoutSeconds=5)
        await settled(world)
        assert SERVICE in world.api.objects
        assert written(world) == []

    virtually(scenario)


def test_a_change_that_comes_meanwhile_is_in_force_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        def changed() -> None:
            world.resource("IndicationFilter", "alerts", {"query": QUERY})
            world.store.put(world.api.objects[FILTER])

        world.pod("one", service="default")
        meanwhile(monkeypatch, changed)
        lead_to(world, "pager", timeoutSeconds=5)
        await settled(world)
        assert condition(world, FILTER, "Ready") == ("True", "InForce")
        assert QUERY in world.pods["one"].text
        assert '"timeoutSeconds":5' in world.pods["one"].text

    virtually(scenario)


def test_what_only_a_subscription_that_is_refused_names_gets_a_status_though_the_service_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        # The service is evaluated after its users have been looked at.
        monkeypatch.setattr(service, "PAUSE", 5.0)
        lead_to(world, "pager", timeoutSeconds=5)
        await asyncio.sleep(1.0)
        destination = {"destination": "http://mail.example.org/", "protocol": "CloudEvents"}
        world.resource("ListenerDestination", "mail", destination)
        references = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": "mail"}}
        world.resource("IndicationSubscription", "wrong", {**references, "onFatalErrorPolicy": 7})
        await settled(world)
        mail = Key("ListenerDestination", NAMESPACE, "mail")
        assert condition(world, mail, "Ready") == ("True", "NotUsed")

    virtually(scenario)


def test_an_error_in_the_thread_is_told_and_delays_no_other_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluate = service.evaluate_service

    def failing(name: str, **more: Any) -> Any:
        if name == "default":
            raise ZeroDivisionError("a defect")
        return evaluate(name, **more)

    async def scenario(world: World) -> None:
        monkeypatch.setattr(service, "evaluate_service", failing)
        lead_to(world, "pager", timeoutSeconds=5)
        world.resource("IndicationService", "other", {})
        await settled(world)
        assert condition(world, SERVICE, "Ready") == ("False", "InternalError")
        assert condition(world, OTHER, "Ready") == ("True", "NoDeliverers")
        monkeypatch.setattr(service, "evaluate_service", evaluate)
        await settled(world)
        assert condition(world, SERVICE, "Ready") == ("True", "NoDeliverers")

    virtually(scenario)
