"""Certificates, authorities and keys reach the deliverers, and a change of them is told."""

import asyncio
import json
from typing import Any

import pytest

from pillion_operator.certificates.gateways import MOST_PATIENCE
from pillion_operator.cluster.api import ApiError
from pillion_operator.cluster.issuer import INTERVAL, KEYS_PATH
from pillion_operator.store import Key
from support import operator_fakes
from support.operator_fakes import EPOCH, LoopClock, run_virtually
from support.operator_gateways import (
    BOTH,
    GATEWAY,
    KEPT,
    NONSENSE,
    SERVING,
    SIDECARS,
    WHILE,
    files,
    good,
    serving,
    settled,
    told,
)
from support.operator_world import NAMESPACE

DAY = 86_400.0


def test_every_deliverer_gets_what_it_needs_with_its_first_configuration() -> None:
    async def scene() -> None:
        async with settled() as world:
            assert good(world, now=LoopClock().time())
            keys = json.loads(files(world, f"pillion-{GATEWAY}-0")["token-keys.json"])
            assert (keys["namespace"], keys["audience"]) == (NAMESPACE, "pillion")
            assert "token-keys.json" not in files(world, f"pillion-{SIDECARS}-0")
            bundles = {files(world, f"pillion-{name}-0")["gateway-ca.crt"] for name in BOTH}
            trusted = world.api.objects[Key("ConfigMap", NAMESPACE, f"pillion-{GATEWAY}")]
            assert bundles == {trusted["data"]["ca.crt"].encode()}

    run_virtually(scene())


def test_new_keys_reach_gateways_at_the_same_revision() -> None:
    async def scene() -> None:
        async with settled() as world:
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
        async with settled() as world:
            pass
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


@pytest.mark.parametrize("spoil", ["another's", "nonsense"])
def test_a_certificate_that_somebody_has_changed_is_as_it_was(spoil: str) -> None:
    async def scene() -> None:
        async with settled() as world:
            before = serving(world)
            body = world.api.objects[SERVING]
            kept = world.api.objects[KEPT]["data"]
            data = {"tls.crt": kept["ca.crt"], "tls.key": kept["ca.key"]}
            wrong = data if spoil == "another's" else dict.fromkeys(data, NONSENSE)
            world.api.put({**body, "data": {**body["data"], **wrong}})
            await asyncio.sleep(WHILE)
            assert serving(world) == before

    run_virtually(scene())


def test_a_certificate_is_renewed_long_before_its_end_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        async with settled() as world:
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
        async with settled() as world:
            world.api.remove(Key("IndicationService", NAMESPACE, GATEWAY))
            await asyncio.sleep(WHILE)
            left: list[Any] = [key for key in world.api.objects if f"pillion-{GATEWAY}" in key.name]
            assert left == []

    run_virtually(scene())
