"""Subscriptions that come before what they name."""

import asyncio
import random
from collections import Counter

import pytest

from pillion_operator.cluster.types import Object
from pillion_operator.controllers.filter_and_subscription import (
    LONGEST,
    QUIET,
    MissingReferenceDelay,
)
from pillion_operator.evaluation.verdict import ACCEPTED, Verdict
from pillion_operator.store import Change, Key
from support.operator_fakes import run_virtually
from support.operator_time import FakeClock
from support.operator_world import World, settled

SUBSCRIPTION = "IndicationSubscription"
KEY = Key(SUBSCRIPTION, "shop", "all-to-operations")
SOMETHING: Object = {}
MISSING = Verdict(False, "ServiceNotFound", "There is none.")


def came(name: str, namespace: str = "shop", kind: str = "IndicationFilter") -> Change:
    return Change(Key(kind, namespace, name), None, SOMETHING)


def test_what_is_missing_is_waited_for_until_nothing_more_comes() -> None:
    clock = FakeClock()
    delay = MissingReferenceDelay(clock=clock)
    assert delay.wait(KEY, MISSING) == QUIET
    clock.skip(QUIET / 2)
    delay.follow(came("alerts"))
    assert delay.wait(KEY, MISSING) == QUIET
    clock.skip(QUIET)
    assert delay.wait(KEY, MISSING) == 0


@pytest.mark.parametrize(
    "change",
    [
        came("alerts", namespace="elsewhere"),
        came("publisher-1", kind="Pod"),
        Change(Key("IndicationFilter", "shop", "alerts"), SOMETHING, SOMETHING),
        Change(Key("IndicationFilter", "shop", "alerts"), SOMETHING, None),
    ],
    ids=["elsewhere", "of another kind", "a change", "a removal"],
)
def test_what_brings_nothing_new_is_no_reason_to_wait(change: Change) -> None:
    clock = FakeClock()
    delay = MissingReferenceDelay(clock=clock)
    delay.wait(KEY, MISSING)
    clock.skip(QUIET)
    delay.follow(change)
    assert delay.wait(KEY, MISSING) == 0


def test_patience_ends_though_something_comes_all_the_time() -> None:
    clock = FakeClock()
    delay = MissingReferenceDelay(clock=clock)
    waited = 0.0
    while delay.wait(KEY, MISSING) > 0:
        clock.skip(QUIET / 4)
        waited += QUIET / 4
        delay.follow(came(f"filter-{waited}"))
    assert waited == LONGEST
    delay.follow(came("one more"))
    assert delay.wait(KEY, MISSING) == 0


@pytest.mark.parametrize("back", [ACCEPTED, None], ids=["found", "made anew"])
def test_what_goes_missing_again_is_waited_for_again(back: Verdict | None) -> None:
    clock = FakeClock()
    delay = MissingReferenceDelay(clock=clock)
    delay.wait(KEY, MISSING)
    clock.skip(QUIET)
    if back is None:
        delay.follow(Change(KEY, SOMETHING, None))
    else:
        assert delay.wait(KEY, back) == 0
    assert delay.wait(KEY, MISSING) == QUIET


def test_what_is_wrong_by_itself_is_told_at_once() -> None:
    assert (
        MissingReferenceDelay(clock=FakeClock()).wait(KEY, Verdict(False, "InvalidValue", "No."))
        == 0
    )


def test_nothing_is_kept_of_namespaces_where_it_is_quiet() -> None:
    clock = FakeClock()
    delay = MissingReferenceDelay(clock=clock)
    for number in range(100):
        delay.follow(came("alerts", namespace=f"namespace-{number}"))
        clock.skip(QUIET)
    assert len(delay._newest) == 1


def subscribe(world: World, name: str) -> None:
    references = {
        "serviceRef": {"name": "default"},
        "filterRef": {"name": "alerts"},
        "destinationRef": {"name": "operations"},
    }
    world.resource(SUBSCRIPTION, name, references)


async def _applied_backwards() -> World:
    world = World(random.Random(1))
    async with world.leader():
        for number in range(30):
            subscribe(world, f"subscription-{number}")
            await asyncio.sleep(0.05)
        world.resource("IndicationFilter", "alerts", {"query": "SELECT * FROM CIM_AlertIndication"})
        await asyncio.sleep(0.6)
        destination = {"destination": "http://listener.example.org/", "protocol": "CloudEvents"}
        world.resource("ListenerDestination", "operations", destination)
        await asyncio.sleep(0.6)
        world.resource("IndicationService", "default", {})
        await settled(world)
    return world


def test_a_folder_applied_backwards_costs_one_write_for_each_subscription() -> None:
    world = run_virtually(_applied_backwards())
    told = Counter(key.kind for _, key, _ in world.api.writes)
    assert told[SUBSCRIPTION] == 30
    assert told["Event"] == 0
    for key, body in world.api.objects.items():
        if key.kind == SUBSCRIPTION:
            conditions = {one["type"]: one["status"] for one in body["status"]["conditions"]}
            assert conditions == {"Accepted": "True", "Ready": "True"}


async def _without_a_service(count: int) -> World:
    world = World(random.Random(1))
    async with world.leader():
        for number in range(count):
            subscribe(world, f"subscription-{number}")
            # Longer than a service waits for more changes: each comes alone.
            await asyncio.sleep(0.2)
        await settled(world)
        assert all(
            body["status"]["conditions"][0]["reason"] == "ServiceNotFound"
            for key, body in world.api.objects.items()
            if key.kind == SUBSCRIPTION
        )
        for number in range(count):
            world.api.remove(Key(SUBSCRIPTION, "shop", f"subscription-{number}"))
        await settled(world)
    return world


def test_each_subscription_without_a_service_costs_as_much_as_the_first() -> None:
    few, many = (run_virtually(_without_a_service(count)).reconciles for count in (100, 300))
    assert many < 4 * few
