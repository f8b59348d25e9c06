"""A key that others may have: once its Secret was deleted, it never comes back."""

import asyncio
import base64
import random
from typing import Any

import pytest

from pillion_operator.certificates.authority import (
    CA_SECONDS,
    STEP,
    serving_certificate,
)
from pillion_operator.certificates.gateways import INTERVAL, hosts
from pillion_operator.certificates.secret_store import encoded
from pillion_operator.store import Key
from pillion_sidecar.config.schema import CREDENTIALS_LABEL
from support import operator_fakes
from support.operator_fakes import EPOCH, LoopClock, run_virtually
from support.operator_gateways import (
    GATEWAY,
    KEPT,
    NONSENSE,
    SERVING,
    WHILE,
    good,
    kept_ca,
    pems,
    populate,
    serving,
    settled,
    told,
    trusted,
    written,
)
from support.operator_world import LONG, NAMESPACE, World, quiet

KEPT_METADATA = ("name", "namespace", "labels", "annotations", "ownerReferences")


@pytest.mark.parametrize("failing", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(8))
def test_a_certificate_that_was_deleted_comes_back_with_another_key(
    seed: int, failing: float
) -> None:
    async def scene() -> None:
        world = World(random.Random(seed), failing=failing)
        populate(world)
        async with world.leader():
            await asyncio.sleep(LONG)
            before, annotation = serving(world), told(world, "gateway")
            world.api.remove(SERVING)
            await asyncio.sleep(LONG)
            after = serving(world)
            assert after.key != before.key
            assert good(world, now=LoopClock().time())
            # What could not be annotated, its kubelet brings later.
            assert failing or told(world, "gateway").startswith(f"{annotation}.")
            # Once, however late a watch has told of it.
            made = {body["data"]["tls.key"] for body in written(world)}
            assert len(made) == 2
            await quiet(world)
            reasons = [body["reason"] for body in world.api.all("Event")]
            assert failing or reasons.count("CertificateReplaced") == 1
            assert "DriftRepaired" not in reasons

    run_virtually(scene())


def test_a_certificate_that_is_deleted_during_a_write_does_not_come_back_by_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        async with settled() as world:
            before, writes = serving(world), len(written(world))

            def delete(verb: str, key: Key) -> None:
                if verb == "apply" and key == SERVING and len(written(world)) == writes:
                    world.api.remove(SERVING)

            world.api.refuse = delete
            # What publishers trust changes, and stands in that Secret too.
            monkeypatch.setattr(operator_fakes, "EPOCH", EPOCH + 0.67 * CA_SECONDS)
            replaced = serving_certificate(
                kept_ca(world),
                name="pillion-shared",
                hosts=hosts(world.api.objects[Key("IndicationService", NAMESPACE, GATEWAY)]),
                now=LoopClock().time(),
            )
            data = encoded({"tls.crt": replaced.certificate, "tls.key": replaced.key})
            body = world.api.objects[SERVING]
            world.api.put({**body, "data": {**body["data"], **data}})
            await asyncio.sleep(LONG)
            first, second = [one["data"]["tls.key"] for one in written(world)[writes:]][:2]
            assert first == data["tls.key"]
            assert second not in (first, encoded({"": before.key})[""])
            assert serving(world).key == base64.b64decode(second)

    run_virtually(scene())


@pytest.mark.parametrize("spoil", ["without its label", "made again"])
def test_a_secret_that_only_looks_deleted_is_in_order_again_all_the_same(spoil: str) -> None:
    async def scene() -> None:
        async with settled() as world:
            before, body = serving(world), world.api.objects[SERVING]
            metadata = {name: body["metadata"][name] for name in KEPT_METADATA}
            if spoil == "made again":
                # From a backup, say, by somebody who has deleted it first.
                world.api.remove(SERVING)
            else:
                metadata["labels"] = {
                    name: value
                    for name, value in metadata["labels"].items()
                    if name != CREDENTIALS_LABEL
                }
            world.api.put({**body, "metadata": metadata})
            await asyncio.sleep(WHILE)
            after = world.api.objects[SERVING]
            assert after["metadata"]["labels"] == body["metadata"]["labels"]
            assert serving(world).key != before.key
            assert good(world, now=LoopClock().time())
            if spoil == "made again":
                # And once more, though another one is there by now.
                world.api.put({**world.api.objects[SERVING], "data": body["data"]})
                await asyncio.sleep(WHILE)
                assert serving(world).key != before.key
            await quiet(world)

    run_virtually(scene())


@pytest.mark.parametrize("seed", range(12))
def test_no_key_that_was_deleted_ever_comes_back(seed: int) -> None:
    async def scene() -> None:
        draw = random.Random(seed)
        world = World(draw, failing=draw.choice((0.0, 0.2)))
        populate(world)
        async with world.leader():
            await asyncio.sleep(LONG)
            gone: list[Any] = []
            for _ in range(8):
                harm(world, draw.choice(("delete", "delete", "spoil", "restore", "give up")), gone)
                await asyncio.sleep(draw.choice((0.0, 0.01, 0.05, 0.1, 0.3, 1.0, 5.0, 40.0)))
            world.calm()
            await asyncio.sleep(LONG + 2 * (STEP + INTERVAL))
            assert world.api.objects[SERVING]["data"]["tls.key"] not in [
                body["data"]["tls.key"] for body in gone if body["data"]["tls.key"] != NONSENSE
            ]
            assert good(world, now=LoopClock().time())
            assert trusted(world) == kept_ca(world).certificate

    run_virtually(scene())


def harm(world: World, what: str, gone: list[Any]) -> None:
    """Do something to the gateway's Secret; ``gone`` are those that were deleted."""
    body = world.api.objects.get(SERVING)
    if what == "give up":
        world.api.remove(KEPT)
    elif body is None:
        return
    elif what == "delete":
        gone.append(body)
        world.api.remove(SERVING)
    elif what == "spoil":
        world.api.put({**body, "data": {**body["data"], "tls.key": NONSENSE}})
    elif gone:
        world.api.put({**body, "data": gone[-1]["data"]})


def test_whoever_keeps_deleting_a_certificate_gets_another_ever_more_rarely() -> None:
    async def scene() -> None:
        async with settled() as world:
            writes = len(written(world))
            for _ in range(600):
                world.api.remove(SERVING)
                await asyncio.sleep(1.0)
            assert 5 <= len(written(world)) - writes <= 9
            await asyncio.sleep(LONG)
            assert good(world, now=LoopClock().time())

    run_virtually(scene())


def test_a_service_that_is_a_gateway_again_has_another_key() -> None:
    async def scene() -> None:
        async with settled() as world:
            before = serving(world)
            world.resource("IndicationService", GATEWAY, {"deliverer": {"mode": "Sidecar"}})
            await asyncio.sleep(WHILE)
            assert SERVING not in world.api.objects
            world.resource("IndicationService", GATEWAY, {"deliverer": {"mode": "Gateway"}})
            await asyncio.sleep(WHILE)
            assert serving(world).key != before.key
            assert good(world, now=LoopClock().time())

    run_virtually(scene())


def test_an_authority_that_was_deleted_is_trusted_until_gateways_show_another() -> None:
    async def scene() -> None:
        async with settled() as world:
            old, shown = kept_ca(world), serving(world)
            world.api.remove(KEPT)
            await asyncio.sleep(INTERVAL + WHILE)
            assert kept_ca(world) == old
            assert serving(world) == shown
            assert trusted(world).startswith(old.certificate)
            both = trusted(world)
            await asyncio.sleep(STEP + INTERVAL)
            assert kept_ca(world) != old
            assert serving(world).key != shown.key
            assert good(world, now=LoopClock().time())
            assert sorted(pems(trusted(world))) == sorted(pems(both))
            await asyncio.sleep(STEP + INTERVAL)
            assert trusted(world) == kept_ca(world).certificate
            await quiet(world)

    run_virtually(scene())


def test_an_authority_that_is_deleted_twice_is_trusted_no_more() -> None:
    async def scene() -> None:
        async with settled() as world:
            old = kept_ca(world)
            for _ in range(2):
                world.api.remove(KEPT)
                await asyncio.sleep(INTERVAL + WHILE)
            assert old.certificate not in trusted(world)
            assert trusted(world) == kept_ca(world).certificate
            assert good(world, now=LoopClock().time())

    run_virtually(scene())
