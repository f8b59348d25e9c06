"""Secrets that are too large to be one: nothing is held of them, and destinations say so."""

import random
from typing import Any

import pytest

from pillion_operator.evaluation.namespace import usable
from pillion_operator.names import RENDERED
from pillion_operator.status.conditions import find_condition
from pillion_operator.store import MOST_SECRET, Key, slimmed
from pillion_operator.watching import WATCHED
from pillion_sidecar.config.schema import CREDENTIALS_LABEL
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, settled

PAGER = Key("ListenerDestination", NAMESPACE, "pager")
LARGEST = "b25l" * (MOST_SECRET // 4)


def secret(label: str | None, **data: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": NAMESPACE, "name": "token"}
    if label is not None:
        metadata["labels"] = {CREDENTIALS_LABEL: label}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


@pytest.mark.parametrize("label", ["true", "anything else", None])
def test_of_a_secret_that_is_too_large_no_data_is_held(label: str | None) -> None:
    held = slimmed(secret(label, token=LARGEST, more="b25l"))
    assert held["data"] is None
    assert not usable(held)


def test_a_secret_of_just_the_size_is_held_whole() -> None:
    held = slimmed(secret("true", token=LARGEST))
    assert held["data"] == {"token": LARGEST}
    assert usable(held)


def test_what_is_rendered_is_held_whatever_its_size() -> None:
    data = {"one": LARGEST, "two": LARGEST}
    assert slimmed(secret(RENDERED, **data))["data"] == data


def test_a_secret_without_data_can_be_used() -> None:
    empty = secret("true")
    del empty["data"]
    assert usable(slimmed(empty))


def test_only_secrets_that_say_so_are_asked_for() -> None:
    selectors = {kind.plural: selector for kind, selector in WATCHED}
    assert selectors["secrets"] == "pillion.dev/credentials in (true,rendered)"


def test_a_destination_says_that_its_secret_is_too_large_until_it_is_not() -> None:
    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        async with world.leader():
            world.resource("IndicationService", "default", {})
            world.resource(
                "ListenerDestination",
                "pager",
                {
                    "destination": "https://listener.example.org/",
                    "protocol": "CloudEvents",
                    "credentials": {"bearer": {"secretRef": {"name": "token"}}},
                },
            )
            world.api.put(secret("true", token=LARGEST, more="b25l"))
            await settled(world)
            assert accepted(world) == ("False", "CredentialsNotPermitted")
            there = world.api.objects[Key("Secret", NAMESPACE, "token")]
            world.api.put({**there, "data": {"token": "b25l"}})
            await settled(world)
            assert accepted(world) == ("True", "Accepted")

    run_virtually(work())


def accepted(world: World) -> tuple[str, str]:
    status = world.api.objects[PAGER].get("status") or {}
    found = find_condition(status.get("conditions"), "Accepted")
    assert found is not None
    return found["status"], found["reason"]
