"""Who makes, renews, publishes and shows the webhook's certificate."""

import asyncio
import base64
import copy
import logging
from pathlib import Path
from typing import Any

import pytest

from pillion_operator.certificates.authority import (
    CA_SECONDS,
    OVERLAP,
    SERVING_SECONDS,
    Authority,
    KeyPair,
)
from pillion_operator.certificates.webhook import (
    EAGER_INTERVAL,
    GRACE,
    INTERVAL,
    PATIENCE,
    CertificateKeeper,
    bundle_patch,
    renewed,
    serve_folder,
)
from pillion_operator.cluster.api import ApiError
from pillion_operator.cluster.types import MUTATING_WEBHOOK, SECRET, VALIDATING_WEBHOOK
from pillion_operator.settings import WebhookSettings
from pillion_sidecar.filewatch import Unusable
from support.in_background import in_background
from support.injection import MemoryApi
from support.operator_time import FakeClock

NAMESPACE = "pillion-system"
PLACE = SECRET.path(NAMESPACE, "pillion-webhook")
VALIDATION = VALIDATING_WEBHOOK.path(None, "pillion-injector")
CONFIGURATION = MUTATING_WEBHOOK.path(None, "pillion-injector")


class Replica:
    """One replica's keeper and what it shows."""

    def __init__(self, api: MemoryApi, clock: FakeClock, *, leads: bool = True) -> None:
        self.shown: list[KeyPair] = []
        self.leads = leads
        self.keeper = CertificateKeeper(
            api=api,
            settings=WebhookSettings(),
            namespace=NAMESPACE,
            leads=lambda: self.leads,
            use=self._use,
            clock=clock,
        )

    async def _use(self, pair: KeyPair) -> None:
        self.shown.append(pair)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def api() -> MemoryApi:
    api = MemoryApi()
    api.objects[CONFIGURATION] = configuration("", "b2xk")
    return api


def configuration(*bundles: str) -> Any:
    """One with so many webhooks, which trust these."""
    webhooks = [
        {"name": f"{index}.pillion.dev", "clientConfig": {"caBundle": bundle} if bundle else {}}
        for index, bundle in enumerate(bundles)
    ]
    return {"metadata": {"resourceVersion": "7"}, "webhooks": webhooks}


def stored(api: MemoryApi) -> Any:
    data = api.objects[PLACE]["data"]
    return Authority.from_data({name: base64.b64decode(value) for name, value in data.items()})


def trusted(api: MemoryApi) -> set[bytes]:
    return {
        base64.b64decode(webhook["clientConfig"]["caBundle"])
        for webhook in api.objects[CONFIGURATION]["webhooks"]
    }


async def test_the_leader_makes_the_secret_publishes_the_ca_and_shows_the_certificate(
    api: MemoryApi, clock: FakeClock
) -> None:
    replica = Replica(api, clock)
    await replica.keeper.look()
    material = stored(api)
    assert api.objects[PLACE]["type"] == "kubernetes.io/tls"
    assert replica.shown == [material.serving]
    assert trusted(api) == {material.bundle()}


async def test_a_standby_writes_nothing_and_shows_what_the_leader_made(
    api: MemoryApi, clock: FakeClock
) -> None:
    standby = Replica(api, clock, leads=False)
    await standby.keeper.look()
    assert (api.created, api.patches, standby.shown) == ([], [], [])
    await Replica(api, clock).keeper.look()
    await standby.keeper.look()
    assert standby.shown == [stored(api).serving]


async def test_a_look_at_what_is_right_writes_nothing(api: MemoryApi, clock: FakeClock) -> None:
    replica = Replica(api, clock)
    await replica.keeper.look()
    version, patches = api.objects[PLACE]["metadata"]["resourceVersion"], len(api.patches)
    await replica.keeper.look()
    assert api.objects[PLACE]["metadata"]["resourceVersion"] == version
    assert len(api.patches) == patches
    assert len(replica.shown) == 1


async def test_a_bundle_that_somebody_has_changed_is_repaired(
    api: MemoryApi, clock: FakeClock
) -> None:
    replica = Replica(api, clock)
    await replica.keeper.look()
    del api.objects[CONFIGURATION]["webhooks"][0]["clientConfig"]["caBundle"]
    await replica.keeper.look()
    assert trusted(api) == {stored(api).bundle()}
    assert [len(patch) for patch in api.patches] == [3, 2]


async def test_what_is_due_is_renewed_and_shown_by_every_replica(
    api: MemoryApi, clock: FakeClock
) -> None:
    leader, standby = Replica(api, clock), Replica(api, clock, leads=False)
    clock.skip(0)
    await leader.keeper.look()
    await standby.keeper.look()
    clock.skip(SERVING_SECONDS * 0.7)
    await leader.keeper.look()
    await standby.keeper.look()
    assert len(leader.shown) == 2
    assert leader.shown == standby.shown


async def test_a_ca_is_rotated_with_its_successor_trusted_first(
    api: MemoryApi, clock: FakeClock
) -> None:
    replica = Replica(api, clock)
    await replica.keeper.look()
    clock.skip(CA_SECONDS * 0.67)
    await replica.keeper.look()
    overlapping = stored(api)
    assert trusted(api) == {overlapping.bundle()}
    assert overlapping.next_ca is not None
    clock.skip(OVERLAP)
    await replica.keeper.look()
    assert stored(api).ca == overlapping.next_ca
    assert replica.shown[-1] == stored(api).serving


async def test_of_two_who_write_at_once_one_gives_way(api: MemoryApi, clock: FakeClock) -> None:
    one, other = Replica(api, clock), Replica(api, clock)
    await asyncio.gather(one.keeper.look(), other.keeper.look())
    await one.keeper.look()
    await other.keeper.look()
    assert one.shown[-1] == other.shown[-1] == stored(api).serving


async def test_a_renewal_over_a_changed_secret_gives_way(api: MemoryApi, clock: FakeClock) -> None:
    replica = Replica(api, clock)
    await replica.keeper.look()
    clock.skip(SERVING_SECONDS)
    before = await replica.keeper._kept.read()
    assert before is not None
    # Between this replica's look and its write, another writes.
    theirs = renewed(None, hosts=("pillion-webhook.pillion-system.svc",), now=clock.time())
    data = {name: base64.b64encode(value).decode() for name, value in theirs.to_data().items()}
    await api.replace({**before, "data": data})
    stale = await replica.keeper._renew(before, None)
    assert stale is None
    assert stored(api) == theirs


async def test_a_spoilt_secret_is_made_anew(api: MemoryApi, clock: FakeClock) -> None:
    replica = Replica(api, clock)
    await replica.keeper.look()
    api.objects[PLACE]["data"]["tls.crt"] = "?"
    await replica.keeper.look()
    assert replica.shown[-1] == stored(api).serving
    assert trusted(api) == {stored(api).bundle()}


async def test_without_its_configuration_the_certificate_is_shown_all_the_same(
    api: MemoryApi, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    del api.objects[CONFIGURATION]
    replica = Replica(api, clock)
    await replica.keeper.look()
    clock.skip(GRACE)
    await replica.keeper.look()
    assert len(replica.shown) == 1
    assert "pillion-injector" in caplog.text


@pytest.mark.parametrize("leads", [True, False])
async def test_a_first_certificate_waits_a_moment_for_the_configuration(
    api: MemoryApi, clock: FakeClock, caplog: pytest.LogCaptureFixture, leads: bool
) -> None:
    """Whoever waits for readiness makes pods then, and they would be missed."""
    await Replica(api, clock).keeper.look()
    del api.objects[CONFIGURATION]
    replica = Replica(api, clock, leads=leads)
    async with in_background(replica.keeper.run()):
        await clock.until_sleeping()
        await clock.advance(GRACE - EAGER_INTERVAL)
        await clock.until_sleeping()
        assert not replica.shown
        api.objects[CONFIGURATION] = configuration("")
        await clock.advance(EAGER_INTERVAL)
        await clock.until_sleeping()
        assert trusted(api) == {stored(api).bundle()}
        assert replica.shown == [stored(api).serving]
    assert events(caplog) == []


async def test_a_certificate_that_is_renewed_waits_for_no_configuration(
    api: MemoryApi, clock: FakeClock
) -> None:
    replica = Replica(api, clock)
    await replica.keeper.look()
    del api.objects[CONFIGURATION]
    clock.skip(SERVING_SECONDS * 0.7)
    await replica.keeper.look()
    assert replica.shown[1:] == [stored(api).serving]


async def test_a_configuration_that_comes_later_still_is_found_soon(
    api: MemoryApi, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    taken = api.objects.pop(CONFIGURATION)
    replica = Replica(api, clock)
    async with in_background(replica.keeper.run()):
        for wait in (GRACE, EAGER_INTERVAL, 2 * EAGER_INTERVAL):
            await clock.until_sleeping()
            await clock.advance(wait)
        await clock.until_sleeping()
        assert len(replica.shown) == 1
        assert caplog.text.count("nothing is injected") == 1
        api.objects[CONFIGURATION] = taken
        await clock.advance(4 * EAGER_INTERVAL)
        await clock.until_sleeping()
        assert trusted(api) == {stored(api).bundle()}


async def test_whoever_becomes_the_leader_looks_at_once(api: MemoryApi, clock: FakeClock) -> None:
    await Replica(api, clock).keeper.look()
    api.objects[CONFIGURATION] = configuration("b2xk")
    replica = Replica(api, clock, leads=False)
    async with in_background(replica.keeper.run()):
        await clock.until_sleeping()
        await clock.advance(EAGER_INTERVAL)
        await clock.until_sleeping()
        # What somebody else trusts is the leader's to change, and until then this one is not ready:
        # whoever waits for the installation would find that nothing is injected.
        assert trusted(api) == {b"old"}
        assert not replica.shown
        replica.leads = True
        await clock.advance(EAGER_INTERVAL)
        await clock.until_sleeping()
        assert trusted(api) == {stored(api).bundle()}
        assert replica.shown == [stored(api).serving]


async def test_a_standby_shows_a_certificate_as_soon_as_it_is_trusted(
    api: MemoryApi, clock: FakeClock
) -> None:
    leader = Replica(api, clock)
    await leader.keeper.look()
    api.objects[CONFIGURATION] = configuration("b2xk")
    standby = Replica(api, clock, leads=False)
    async with in_background(standby.keeper.run()):
        await clock.until_sleeping()
        assert not standby.shown
        await leader.keeper.look()
        await clock.advance(EAGER_INTERVAL)
        await clock.until_sleeping()
        assert standby.shown == [stored(api).serving]


async def test_a_configuration_that_trusts_nobody_is_anybodys_to_write(
    api: MemoryApi, clock: FakeClock
) -> None:
    """Who leads may be of another version, which goes by another name, and stays until this one is
    ready."""
    await Replica(api, clock).keeper.look()
    api.objects[CONFIGURATION] = configuration("", "")
    standby = Replica(api, clock, leads=False)
    await standby.keeper.look()
    assert trusted(api) == {stored(api).bundle()}
    assert standby.shown == [stored(api).serving]


async def test_what_no_leader_makes_is_a_standbys_to_make(
    api: MemoryApi, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Who leads may go by cert-manager, or serve no webhook, and stays until this one is ready."""
    standby = Replica(api, clock, leads=False)
    async with in_background(standby.keeper.run()):
        await clock.until_sleeping()
        await clock.advance(PATIENCE - EAGER_INTERVAL)
        await clock.until_sleeping()
        assert (api.created, api.patches, standby.shown) == ([], [], [])
        await clock.advance(EAGER_INTERVAL)
        await clock.until_sleeping()
        assert standby.shown == [stored(api).serving]
        assert trusted(api) == {stored(api).bundle()}
    assert events(caplog) == ["certificate-unattended"]


async def test_trust_that_no_leader_changes_is_a_standbys_to_change(
    api: MemoryApi, clock: FakeClock
) -> None:
    await Replica(api, clock).keeper.look()
    before = copy.deepcopy(api.objects[PLACE])
    # As cert-manager has left it.
    api.objects[CONFIGURATION] = configuration("b2xk")
    standby = Replica(api, clock, leads=False)
    async with in_background(standby.keeper.run()):
        await clock.until_sleeping()
        await clock.advance(PATIENCE - EAGER_INTERVAL)
        await clock.until_sleeping()
        assert trusted(api) == {b"old"}
        assert not standby.shown
        await clock.advance(EAGER_INTERVAL)
        await clock.until_sleeping()
        assert trusted(api) == {stored(api).bundle()}
        assert standby.shown == [stored(api).serving]
    assert api.objects[PLACE] == before


async def test_of_two_standbys_that_nobody_leads_one_makes_it(
    api: MemoryApi, clock: FakeClock
) -> None:
    one, other = (Replica(api, clock, leads=False) for _ in range(2))
    async with in_background(one.keeper.run()), in_background(other.keeper.run()):
        await clock.until_sleeping(2)
        for wait in (PATIENCE, EAGER_INTERVAL):
            await clock.advance(wait)
            await clock.until_sleeping(2)
        assert one.shown == other.shown == [stored(api).serving]
        assert trusted(api) == {stored(api).bundle()}
    assert len(api.patches) == 1


async def test_a_standby_that_shows_a_certificate_leaves_the_rest_to_the_leader(
    api: MemoryApi, clock: FakeClock
) -> None:
    standby = Replica(api, clock, leads=False)
    await standby.keeper.look()
    clock.skip(PATIENCE)
    await standby.keeper.look()
    shown = stored(api).serving
    del api.objects[PLACE]
    api.objects[CONFIGURATION] = configuration("b2xk")
    async with in_background(standby.keeper.run()):
        await clock.until_sleeping()
        await clock.advance(2 * PATIENCE)
        await clock.until_sleeping()
    assert PLACE not in api.objects
    assert trusted(api) == {b"old"}
    assert standby.shown == [shown]


async def test_a_leader_that_keeps_certificates_here_is_always_in_time(
    api: MemoryApi, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    leader, standby = Replica(api, clock), Replica(api, clock, leads=False)
    async with in_background(leader.keeper.run()):
        await clock.until_sleeping()
        # Right after its look, which is the longest to wait for the next.
        api.objects[CONFIGURATION] = configuration("b2xk")
        async with in_background(standby.keeper.run()):
            await clock.until_sleeping(2)
            # Second by second: the leader's look is a thread's work, which knows no such clock.
            for _second in range(int(PATIENCE / EAGER_INTERVAL)):
                await clock.advance(EAGER_INTERVAL)
                await clock.until_sleeping(2)
            assert standby.shown == leader.shown == [stored(api).serving]
    assert events(caplog) == []
    assert len(api.created) == 1


async def test_a_standby_looks_as_seldom_as_the_leader(api: MemoryApi, clock: FakeClock) -> None:
    await Replica(api, clock).keeper.look()
    replica = Replica(api, clock, leads=False)
    async with in_background(replica.keeper.run()):
        await clock.until_sleeping()
        api.objects[PLACE]["data"] = another(clock)
        bundle = base64.b64encode(stored(api).bundle()).decode()
        for webhook in api.objects[CONFIGURATION]["webhooks"]:
            webhook["clientConfig"]["caBundle"] = bundle
        for _second in range(int(INTERVAL / EAGER_INTERVAL) - 1):
            await clock.advance(EAGER_INTERVAL)
            await clock.until_sleeping()
        assert len(replica.shown) == 1
        await clock.advance(EAGER_INTERVAL)
        await clock.until_sleeping()
        assert len(replica.shown) == 2


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The events that somebody should look at, in order."""
    urgent = (one for one in caplog.records if one.levelno >= logging.WARNING)
    return [one.event for one in urgent if hasattr(one, "event")]


def another(clock: FakeClock) -> dict[str, str]:
    """Another certificate, as a Secret has it."""
    made = renewed(None, hosts=("a.example",), now=clock.time())
    return {key: base64.b64encode(value).decode() for key, value in made.to_data().items()}


async def test_an_outage_is_told_and_survived(
    api: MemoryApi, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(api, clock)
    api.down = ApiError(503, "ServiceUnavailable", "etcd is away")
    async with in_background(replica.keeper.run()):
        await clock.until_sleeping()
        assert "etcd is away" in caplog.text
        api.down = None
        await clock.advance(EAGER_INTERVAL)
        await clock.until_sleeping()
        assert len(replica.shown) == 1


def test_a_bundle_is_written_only_to_the_webhook_that_was_read() -> None:
    assert bundle_patch(configuration("right", ""), bundle="right") == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "right"},
    ]


async def test_a_folder_is_followed(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    shown: list[KeyPair] = []

    async def use(pair: KeyPair) -> None:
        if pair.key == b"bad":
            raise Unusable("tls.crt and tls.key cannot be used")
        shown.append(pair)

    async with in_background(serve_folder(tmp_path, use=use, clock=clock)):
        await clock.until_sleeping()
        assert "tls.crt" in caplog.text
        for key, interval in ((b"1", EAGER_INTERVAL), (b"bad", INTERVAL), (b"2", INTERVAL)):
            (tmp_path / "tls.crt").write_bytes(b"certificate")
            (tmp_path / "tls.key").write_bytes(key)
            await clock.advance(interval)
            await clock.until_sleeping()
        assert [pair.key for pair in shown] == [b"1", b"2"]


async def test_the_validating_configuration_trusts_the_same_authority(
    api: MemoryApi, clock: FakeClock
) -> None:
    api.objects[VALIDATION] = configuration("")
    await Replica(api, clock).keeper.look()
    (webhook,) = api.objects[VALIDATION]["webhooks"]
    assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == stored(api).bundle()
