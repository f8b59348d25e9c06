"""Certificates, authorities and keys reach the deliverers, and a change of them is told."""

import asyncio
import base64
import json
import random
from typing import Any

import pytest

from pillion_operator.cluster.api import ApiError
from pillion_operator.cluster.issuer import KEYS_PATH
from pillion_operator.desired.trust import hosts
from pillion_operator.gathering.issuing import INTERVAL
from pillion_operator.injection.authority import authority_from_data, must_be_signed
from pillion_operator.injection.kept import decoded
from pillion_operator.injection.tls import KeyPair
from pillion_operator.names import REVISION_ANNOTATION
from pillion_operator.reconciling.wanted import MOST_PATIENCE
from pillion_operator.store import Key
from support import operator_fakes
from support.operator_fakes import EPOCH, LoopClock, run_virtually
from support.operator_world import NAMESPACE, World

WHILE = 30.0
GATEWAY, SIDECARS = "shared", "default"
DAY = 86_400.0
KEPT = Key("Secret", "pillion-system", "pillion-gateways")


def populate(world: World) -> None:
    world.resource("IndicationService", GATEWAY, {"deliverer": {"mode": "Gateway"}})
    world.resource("IndicationService", SIDECARS, {})
    world.pod("gateway", service=GATEWAY)
    world.pod("application", service=SIDECARS)


def files(world: World, name: str) -> dict[str, bytes]:
    data = world.api.objects[Key("Secret", NAMESPACE, name)]["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def serving(world: World) -> KeyPair:
    found = files(world, f"pillion-{GATEWAY}-tls")
    return KeyPair(certificate=found["tls.crt"], key=found["tls.key"])


def told(world: World, pod: str) -> str:
    metadata = world.api.objects[Key("Pod", NAMESPACE, pod)]["metadata"]
    return str((metadata.get("annotations") or {}).get(REVISION_ANNOTATION))


def good(world: World, *, now: float) -> bool:
    ca = authority_from_data(decoded(world.api.objects[KEPT])).ca
    body = world.api.objects[Key("IndicationService", NAMESPACE, GATEWAY)]
    return not must_be_signed(serving(world), ca, hosts=hosts(body), now=now)


def test_every_deliverer_gets_what_it_needs_with_its_first_configuration() -> None:
    async def scene() -> None:
        world = World(random.Random(1))
        populate(world)
        async with world.leader():
            await asyncio.sleep(WHILE)
            assert good(world, now=LoopClock().time())
            keys = json.loads(files(world, f"pillion-{GATEWAY}-0")["token-keys.json"])
            assert (keys["namespace"], keys["audience"]) == (NAMESPACE, "pillion")
            assert "token-keys.json" not in files(world, f"pillion-{SIDECARS}-0")
            bundles = {files(world, f"pillion-{name}-0")["gateway-ca.crt"] for name in BOTH}
            trusted = world.api.objects[Key("ConfigMap", NAMESPACE, f"pillion-{GATEWAY}")]
            assert bundles == {trusted["data"]["ca.crt"].encode()}

    run_virtually(scene())


BOTH = (GATEWAY, SIDECARS)


def test_new_keys_reach_gateways_at_the_same_revision() -> None:
    async def scene() -> None:
        world = World(random.Random(1))
        populate(world)
        async with world.leader():
            await asyncio.sleep(WHILE)
            before = {pod: told(world, pod) for pod in ("gateway", "application")}
            world.api.documents[KEYS_PATH]["keys"].append(
                {"kty": "RSA", "kid": "two", "n": "AQAB", "e": "AQAB"}
            )
            await asyncio.sleep(1.2 * INTERVAL)
            keys = json.loads(files(world, f"pillion-{GATEWAY}-0")["token-keys.json"])["keys"]
            assert [key["kid"] for key in keys] == ["one", "two"]
            # An annotation that is another one is what the kubelet looks at.
            assert told(world, "gateway").startswith(f"{before['gateway']}.")
            assert told(world, "application") == before["application"]

    run_virtually(scene())


def test_a_new_leader_that_knows_nothing_leaves_what_stands_there() -> None:
    async def scene() -> None:
        world = World(random.Random(1))
        populate(world)
        async with world.leader():
            await asyncio.sleep(WHILE)
        names = [f"pillion-{name}-0" for name in BOTH] + [f"pillion-{GATEWAY}-tls"]
        before = [files(world, name) for name in names]

        later = world.copied()

        def refuse(verb: str, key: Key) -> ApiError | None:
            away = verb == "read" or key == KEPT
            return ApiError(503, "ServiceUnavailable", "not now") if away else None

        later.api.refuse = refuse
        async with later.leader():
            await asyncio.sleep(WHILE)
            assert [files(later, name) for name in names] == before

    run_virtually(scene())


@pytest.mark.parametrize("spoil", ["deleted", "another's", "nonsense"])
def test_a_certificate_that_somebody_has_changed_is_as_it_was(spoil: str) -> None:
    async def scene() -> None:
        world = World(random.Random(1))
        populate(world)
        async with world.leader():
            await asyncio.sleep(WHILE)
            key = Key("Secret", NAMESPACE, f"pillion-{GATEWAY}-tls")
            before = serving(world)
            if spoil == "deleted":
                world.api.remove(key)
            else:
                body = world.api.objects[key]
                kept = world.api.objects[KEPT]["data"]
                data = {"tls.crt": kept["ca.crt"], "tls.key": kept["ca.key"]}
                wrong = data if spoil == "another's" else dict.fromkeys(data, "bm9uZQ==")
                world.api.put({**body, "data": {**body["data"], **wrong}})
            await asyncio.sleep(WHILE)
            assert serving(world) == before

    run_virtually(scene())


def test_a_certificate_is_renewed_long_before_its_end_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        world = World(random.Random(1))
        populate(world)
        async with world.leader():
            await asyncio.sleep(WHILE)
            before, annotation = serving(world), told(world, "gateway")
            # Months in which nothing happens.
            monkeypatch.setattr(operator_fakes, "EPOCH", EPOCH + 244 * DAY)
            await asyncio.sleep(MOST_PATIENCE + WHILE)
            assert serving(world) != before
            assert good(world, now=LoopClock().time())
            assert told(world, "gateway").startswith(f"{annotation}.")

    run_virtually(scene())


def test_a_gateway_that_goes_takes_its_certificate_along() -> None:
    async def scene() -> None:
        world = World(random.Random(1))
        populate(world)
        async with world.leader():
            await asyncio.sleep(WHILE)
            world.api.remove(Key("IndicationService", NAMESPACE, GATEWAY))
            await asyncio.sleep(WHILE)
            left: list[Any] = [key for key in world.api.objects if f"pillion-{GATEWAY}" in key.name]
            assert left == []

    run_virtually(scene())
