"""MOF from a ConfigMap over its life: a change is rendered, and what is wrong leaves the last good
revision in force."""

import base64
import gzip
import json
import random
from typing import Any

from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key
from support.operator_fakes import run_virtually
from support.operator_objects import SERVICE, config_map
from support.operator_world import NAMESPACE, World, settled

CLASSES = Key("ConfigMap", NAMESPACE, "classes")
ALERT = "class ACME_Alert : CIM_AlertIndication { uint16 Bay; };"
MORE = f"{ALERT} class ACME_Fan : ACME_Alert {{ }};"


def put(world: World, mof: str) -> None:
    body = config_map(mof)
    head = {name: body["metadata"][name] for name in ("namespace", "name", "labels")}
    there = world.api.objects.get(CLASSES)
    world.api.put({**body, "metadata": head} if there is None else {**there, "data": body["data"]})


def begin(world: World) -> None:
    world.calm()
    entry = {"configMapRef": {"name": "classes", "key": "classes.mof"}}
    world.resource("IndicationService", "default", {"mofFrom": [entry]})


def rendered(world: World) -> str:
    data = world.api.objects[Key("Secret", NAMESPACE, "pillion-default-0")]["data"]
    (part,) = [value for name, value in data.items() if ".part-" in name]
    items = json.loads(gzip.decompress(base64.b64decode(part)))["items"]
    (service,) = [one for one in items if one["kind"] == "IndicationService"]
    return str(service["spec"]["mof"])


def accepted(world: World) -> tuple[str, str]:
    status: dict[str, Any] = world.api.objects[SERVICE].get("status") or {}
    found = find_condition(status.get("conditions"), "Accepted")
    assert found is not None
    return found["status"], found["reason"]


def test_a_changed_config_map_is_rendered_and_a_wrong_one_leaves_the_last_good() -> None:
    async def work() -> None:
        world = World(random.Random(1))
        begin(world)
        async with world.leader():
            await settled(world)
            assert accepted(world) == ("False", "ConfigMapNotFound")
            put(world, ALERT)
            await settled(world)
            assert (accepted(world), rendered(world)) == (("True", "Accepted"), ALERT)
            put(world, MORE)
            await settled(world)
            assert rendered(world) == MORE
            put(world, "class ACME_Alert : CIM_AlertIndication {")
            await settled(world)
            assert (accepted(world), rendered(world)) == (("False", "Invalid"), MORE)
            world.api.remove(CLASSES)
            await settled(world)
            assert (accepted(world), rendered(world)) == (("False", "ConfigMapNotFound"), MORE)
        # Another operator finds the Secret alone.
        world = world.copied()
        async with world.leader():
            await settled(world)
            assert (accepted(world), rendered(world)) == (("False", "ConfigMapNotFound"), MORE)
            put(world, ALERT)
            await settled(world)
            assert (accepted(world), rendered(world)) == (("True", "Accepted"), ALERT)

    run_virtually(work())


def test_a_config_map_that_is_deleted_is_told_once_and_then_it_is_quiet() -> None:
    async def work() -> None:
        world = World(random.Random(1))
        begin(world)
        put(world, ALERT)
        async with world.leader():
            await settled(world)
            world.api.remove(CLASSES)
            await settled(world)
            writes = len(world.api.writes)
            await settled(world)
            assert len(world.api.writes) == writes
            assert accepted(world) == ("False", "ConfigMapNotFound")

    run_virtually(work())
