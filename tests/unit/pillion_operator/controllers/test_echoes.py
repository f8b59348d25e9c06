"""What the operator has written itself comes back by the watches, and is no news."""

import asyncio
import random
from copy import deepcopy

import pytest

from pillion_operator.cluster.types import Object
from pillion_operator.store import Key
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, settled


def evaluations(world: World) -> float:
    """How often a service was reconciled whole."""
    return sum(
        sample.value
        for metric in world.metrics.reconciles.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels["kind"] == "IndicationService"
    )


def answering_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the watches tell of a write after its answer, as they mostly do."""
    tell = world.api._tell

    def later(event: str, body: Object) -> None:
        asyncio.get_running_loop().call_later(0.1, tell, event, deepcopy(body))

    monkeypatch.setattr(world.api, "_latency", lambda: 0.0)
    monkeypatch.setattr(world.api, "_tell", later)


async def _evaluated(count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """How often services are evaluated for a change of a destination that ``count`` services have,
    and for a foreign change of a Secret of one."""
    world = World(random.Random(1))
    answering_first(world, monkeypatch)
    async with world.leader():
        listener = {"destination": "http://listener.example.org/", "protocol": "CloudEvents"}
        world.resource("ListenerDestination", "operations", listener)
        world.resource("IndicationFilter", "alerts", {"query": "SELECT * FROM CIM_AlertIndication"})
        for number in range(count):
            world.resource("IndicationService", f"service-{number}", {})
            references = {
                "serviceRef": {"name": f"service-{number}"},
                "filterRef": {"name": "alerts"},
                "destinationRef": {"name": "operations"},
            }
            world.resource("IndicationSubscription", f"subscription-{number}", references)
        await settled(world)
        before = evaluations(world)
        other = {**listener, "destination": "http://listener.example.org/other"}
        world.resource("ListenerDestination", "operations", other)
        await settled(world)
        changed = evaluations(world) - before
        secret = world.api.objects[Key("Secret", NAMESPACE, "pillion-service-0-0")]
        world.api.put({**secret, "data": {}})
        await settled(world)
        assert world.api.objects[Key("Secret", NAMESPACE, "pillion-service-0-0")]["data"]
        return changed, evaluations(world) - before - changed


def test_a_change_has_each_service_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    changed, repaired = run_virtually(_evaluated(3, monkeypatch))
    assert changed == 3
    assert repaired == 1
