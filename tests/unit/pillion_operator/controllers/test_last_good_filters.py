"""An edited filter that is wrong keeps its last good version, and says which generation that is."""

import base64
import gzip
import json
import random
from typing import Any

import pytest

from pillion_operator.controllers import service
from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, settled

FILTER = Key("IndicationFilter", NAMESPACE, "alerts")
SUBSCRIPTION = Key("IndicationSubscription", NAMESPACE, "alerts-to-ops")
GOOD = "SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity > 2"
BETTER = "SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity > 4"
#: Refused by the deliverer's parser, and by the schema.
WRONG: list[dict[str, Any]] = [{"query": "SELECT FROM nowhere ("}, {"queery": GOOD}]


def begin(world: World) -> None:
    world.calm()
    world.resource("IndicationService", "default", {})
    world.resource("IndicationFilter", "alerts", {"query": GOOD})
    url = {"destination": "https://one.example.org/", "protocol": "CloudEvents"}
    world.resource("ListenerDestination", "ops", url)
    references = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": "ops"}}
    world.resource("IndicationSubscription", "alerts-to-ops", references)


def rendered(world: World) -> dict[str, Any]:
    """What the rendered Secret holds, by kind."""
    data = world.api.objects[Key("Secret", NAMESPACE, "pillion-default-0")]["data"]
    (part,) = [value for name, value in data.items() if ".part-" in name]
    document = json.loads(gzip.decompress(base64.b64decode(part)))
    return {one["kind"]: one for one in document["items"]}


def condition(world: World, key: Key, kind: str) -> dict[str, Any] | None:
    status = world.api.objects[key].get("status") or {}
    found = find_condition(status.get("conditions"), kind)
    return None if found is None else dict(found)


@pytest.mark.parametrize("wrong", WRONG, ids=["query", "schema"])
@pytest.mark.parametrize("again", [False, True], ids=["same operator", "another operator"])
def test_an_edit_that_is_wrong_leaves_the_version_before_in_force(
    wrong: dict[str, Any], again: bool
) -> None:
    async def work() -> None:
        world = World(random.Random(1))
        begin(world)
        async with world.leader():
            await settled(world)
            generation = world.api.objects[FILTER]["metadata"]["generation"]
            if not again:
                world.resource("IndicationFilter", "alerts", wrong)
                await settled(world)
                check(world, generation)
        if again:
            # Edited while no operator runs; the next one has the Secret alone.
            world.resource("IndicationFilter", "alerts", wrong)
            world = world.copied()
            async with world.leader():
                await settled(world)
                check(world, generation)
                await mend(world)
        else:
            world = world.copied()
            async with world.leader():
                await settled(world)
                check(world, generation)
                await mend(world)

    def check(world: World, generation: int) -> None:
        there = rendered(world)
        assert there["IndicationFilter"]["spec"]["query"] == GOOD
        assert there["IndicationFilter"]["metadata"]["generation"] == generation
        assert "IndicationSubscription" in there
        accepted = condition(world, FILTER, "Accepted")
        assert accepted is not None
        assert accepted["status"] == "False"
        kept = condition(world, FILTER, "EarlierGenerationInForce")
        assert kept is not None
        assert (kept["status"], kept["reason"]) == ("True", "EditNotAccepted")
        assert kept["message"] == (
            "In force until the filter is corrected: "
            f"generation {generation} in the service default."
        )
        led = condition(world, SUBSCRIPTION, "Accepted")
        assert led is not None
        assert led["status"] == "True"

    async def mend(world: World) -> None:
        world.resource("IndicationFilter", "alerts", {"query": BETTER})
        await settled(world)
        assert rendered(world)["IndicationFilter"]["spec"]["query"] == BETTER
        assert condition(world, FILTER, "EarlierGenerationInForce") is None
        accepted = condition(world, FILTER, "Accepted")
        assert accepted is not None
        assert accepted["status"] == "True"

    run_virtually(work())


def test_a_filter_that_was_never_good_or_was_made_anew_is_left_out() -> None:
    async def work() -> None:
        world = World(random.Random(1))
        begin(world)
        world.resource("IndicationFilter", "alerts", WRONG[0])
        async with world.leader():
            await settled(world)
            assert "IndicationFilter" not in rendered(world)
            world.resource("IndicationFilter", "alerts", {"query": GOOD})
            await settled(world)
            assert "IndicationFilter" in rendered(world)
            world.api.remove(FILTER)
            world.resource("IndicationFilter", "alerts", WRONG[0])
            await settled(world)
            assert "IndicationFilter" not in rendered(world)
            assert condition(world, FILTER, "EarlierGenerationInForce") is None

    run_virtually(work())


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_a_disabled_subscription_does_not_count_on_a_version_that_is_in_force_no_more(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(service, "MANY", -1)
    idle = Key("IndicationSubscription", NAMESPACE, "idle")

    async def work() -> None:
        world = World(random.Random(1))
        begin(world)
        references = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": "ops"}}
        disabled = {"subscriptionState": "Disabled", **references}
        world.resource("IndicationSubscription", idle.name, disabled)
        async with world.leader():
            await settled(world)
            world.resource("IndicationFilter", "alerts", WRONG[1])
            await settled(world)
            accepted = condition(world, idle, "Accepted")
            assert accepted is not None
            assert accepted["status"] == "True"
            world.api.remove(SUBSCRIPTION)
            await settled(world)
            assert "IndicationFilter" not in rendered(world)
            accepted = condition(world, idle, "Accepted")
            assert accepted is not None
            assert (accepted["status"], accepted["reason"]) == ("False", "FilterNotAccepted")

    run_virtually(work())


def test_nothing_is_written_while_the_version_before_is_lost_with_its_secret() -> None:
    configuration = Key("Secret", NAMESPACE, "pillion-default-0")
    default = Key("IndicationService", NAMESPACE, "default")

    async def work() -> None:
        before = World(random.Random(1))
        begin(before)
        async with before.leader():
            await settled(before)
        before.resource("IndicationFilter", "alerts", WRONG[0])
        world = before.copied()
        world.api.objects[default]["status"] = before.api.objects[default]["status"]
        del world.api.objects[configuration]
        async with world.leader():
            await settled(world)
            assert configuration not in world.api.objects
            ready = condition(world, default, "Ready")
            assert ready is not None
            assert (ready["status"], ready["reason"]) == ("False", "EarlierGenerationLost")
            assert "IndicationFilter alerts is not accepted" in ready["message"]
            # The remedy.
            world.resource("IndicationFilter", "alerts", {"query": BETTER})
            await settled(world)
            assert rendered(world)["IndicationFilter"]["spec"]["query"] == BETTER
            ready = condition(world, default, "Ready")
            assert ready is not None
            assert ready["status"] == "True"

    run_virtually(work())
