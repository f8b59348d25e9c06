"""Deliverers of the first release beside those of today: the configuration is one that all read."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

from pillion_operator.names import LEVEL_ANNOTATION
from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key
from pillion_sidecar.config.levels import FIRST_LEVEL, LEVEL
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, settled

SERVICE = Key("IndicationService", NAMESPACE, "default")
CLASSES = [{"name": "HP_AlertIndication", "superclass": "CIM_AlertIndication"}]
LISTENER = {
    "destination": "https://one.example.org/in",
    "protocol": "CloudEvents",
    "tls": {"allowCommonName": True},
}
REFERENCES = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": "one"}}
LEFT_OUT = (
    "spec.classes of IndicationService default; spec.tls.allowCommonName of ListenerDestination one"
)


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        world.resource("IndicationService", "default", {"classes": CLASSES})
        world.resource("IndicationFilter", "alerts", {"query": "SELECT * FROM CIM_AlertIndication"})
        world.resource("ListenerDestination", "one", LISTENER)
        world.resource("IndicationSubscription", "to-one", REFERENCES)
        world.pod("new", service="default")
        world.pod("old", service="default")
        world.pods["old"].schema_level = FIRST_LEVEL
        async with world.leader():
            await settled(world)
            await scenario(world)

    run_virtually(work())


def condition(world: World, wanted: str, of: Key = SERVICE) -> dict[str, Any] | None:
    status = world.api.objects[of]["status"]
    found = find_condition(status["conditions"], wanted)
    return None if found is None else dict(found)


def configuration(world: World) -> tuple[str, str]:
    """The level that the Secret names, and the text of what deliverers run on."""
    secret = world.api.objects[Key("Secret", NAMESPACE, "pillion-default-0")]
    level = secret["metadata"]["annotations"][LEVEL_ANNOTATION]
    return level, world.pods["new"].text


def test_what_the_oldest_deliverer_does_not_know_is_left_out_and_told() -> None:
    async def scenario(world: World) -> None:
        level, text = configuration(world)
        assert level == str(FIRST_LEVEL)
        assert "classes" not in text
        assert "allowCommonName" not in text
        told = condition(world, "OlderDeliverers")
        assert told is not None
        assert (told["status"], told["reason"]) == ("True", "FieldsLeftOut")
        assert told["message"] == (
            f"1 of 2 deliverers are of an older version (old), and do not know {LEFT_OUT}. The "
            "configuration of all deliverers omits them until you recreate these pods."
        )
        ready = condition(world, "Ready")
        assert ready is not None
        assert (ready["status"], ready["reason"]) == ("True", "InForce")

    run(scenario)


def test_once_the_last_one_is_gone_everything_is_in_force() -> None:
    async def scenario(world: World) -> None:
        world.remove_pod("old")
        await settled(world)
        level, text = configuration(world)
        assert level == str(LEVEL)
        assert "classes" in text
        assert "allowCommonName" in text
        assert condition(world, "OlderDeliverers") is None

    run(scenario)


def test_an_old_one_that_knows_all_that_is_used_is_told_of_too() -> None:
    async def scenario(world: World) -> None:
        world.resource("IndicationService", "default", {})
        world.resource("ListenerDestination", "one", {**LISTENER, "tls": {}})
        await settled(world)
        told = condition(world, "OlderDeliverers")
        assert told is not None
        assert told["reason"] == "NothingLeftOut"

    run(scenario)


def test_an_old_one_ends_no_subscription_that_today_goes_on() -> None:
    """The first release ends it with one fatal error, however long the interval."""

    async def scenario(world: World) -> None:
        trigger = {"failureTriggerTimeIntervalSeconds": 86_400, "onFatalErrorPolicy": "Remove"}
        world.resource("IndicationSubscription", "to-one", {**REFERENCES, **trigger})
        await settled(world)
        text = world.pods["old"].text
        assert "failureTriggerTimeIntervalSeconds" not in text
        assert ("Remove" in text, '"onFatalErrorPolicy":"Ignore"' in text) == (False, True)
        told = condition(world, "OlderDeliverers")
        assert told is not None
        both = "spec.failureTriggerTimeIntervalSeconds, spec.onFatalErrorPolicy"
        assert f"{both} of IndicationSubscription to-one" in told["message"]
        world.remove_pod("old")
        await settled(world)
        assert '"onFatalErrorPolicy":"Remove"' in world.pods["new"].text

    run(scenario)


def test_one_that_is_not_heard_keeps_what_it_can_read() -> None:
    async def scenario(world: World) -> None:
        world.pods["old"].silent = True
        await settled(world)
        assert configuration(world)[0] == str(FIRST_LEVEL)
        # Nor does another leader, which has heard nobody yet, write what it cannot read.
        other = world.copied()
        async with other.leader():
            await settled(other)
            assert configuration(other)[0] == str(FIRST_LEVEL)
            told = condition(other, "OlderDeliverers")
            assert told is not None
            assert told["message"].startswith(
                "1 of 2 deliverers do not answer and may be of an older version (old), and may not "
                f"know {LEFT_OUT}. The configuration"
            )

    run(scenario)


def test_a_destination_that_the_older_one_cannot_read_is_held_and_says_so() -> None:
    async def scenario(world: World) -> None:
        world.secret("hook", "https://one.example.org/planted")
        url = {"secretKeyRef": {"name": "hook", "key": "token"}}
        world.resource(
            "ListenerDestination", "one", {"destinationFrom": url, "protocol": "CloudEvents"}
        )
        await settled(world)
        for kind, name in (("ListenerDestination", "one"), ("IndicationSubscription", "to-one")):
            ready = condition(world, "Ready", Key(kind, NAMESPACE, name))
            assert ready is not None
            assert (ready["status"], ready["reason"]) == ("False", "OlderDeliverers")
        for wanted, status in (("Delivering", "False"), ("ListenerUnreachable", "Unknown")):
            told = condition(world, wanted, Key("ListenerDestination", NAMESPACE, "one"))
            assert told is not None
            assert (told["status"], told["reason"]) == (status, "OlderDeliverers")
        world.remove_pod("old")
        await settled(world)
        for kind, name in (("ListenerDestination", "one"), ("IndicationSubscription", "to-one")):
            ready = condition(world, "Ready", Key(kind, NAMESPACE, name))
            assert ready is not None
            assert (ready["status"], ready["reason"]) == ("True", "InForce")

    run(scenario)


def test_a_credential_that_changes_reaches_the_old_one() -> None:
    async def scenario(world: World) -> None:
        world.secret("token", "one")
        token = {"bearer": {"secretRef": {"name": "token", "key": "token"}}}
        world.resource("ListenerDestination", "one", {**LISTENER, "credentials": token})
        await settled(world)
        assert "b25l" in world.pods["old"].text
        world.secret("token", "two")
        await settled(world)
        assert "dHdv" in world.pods["old"].text
        assert "allowCommonName" not in world.pods["old"].text

    run(scenario)


def test_an_old_one_gets_the_query_without_its_list_until_it_is_gone() -> None:
    listed = "SELECT Message FROM CIM_AlertIndication"

    async def scenario(world: World) -> None:
        world.resource("IndicationFilter", "alerts", {"query": listed})
        await settled(world)
        assert listed not in configuration(world)[1]
        assert "SELECT * FROM CIM_AlertIndication" in configuration(world)[1]
        told = condition(world, "OlderDeliverers")
        assert told is not None
        said = "the list of properties in spec.query of IndicationFilter alerts"
        assert said in told["message"]
        world.remove_pod("old")
        await settled(world)
        assert listed in configuration(world)[1]

    run(scenario)
