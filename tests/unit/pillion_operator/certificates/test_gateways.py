"""Who makes, takes over and keeps the authority of gateways."""

import asyncio
import base64
from typing import Any

import pytest
from cryptography import x509
from prometheus_client import Gauge

from pillion_operator.certificates.authority import (
    CA_SECONDS,
    OVERLAP,
    SERVING_SECONDS,
    SKEW,
    STEP,
    Authority,
    KeyPair,
    new_ca,
    not_after,
)
from pillion_operator.certificates.gateways import INTERVAL, RETRY, GatewayAuthority
from pillion_operator.certificates.secret_store import decoded, encoded
from pillion_operator.cluster.api import ApiError
from pillion_operator.cluster.types import SECRET
from pillion_operator.settings import DelivererDefaults, OperatorSettings
from support.in_background import in_background
from support.injection import MemoryApi
from support.operator_time import FakeClock

NAMESPACE = "pillion-system"
PLACE = SECRET.path(NAMESPACE, "pillion-gateways")
GIVEN = SECRET.path(NAMESPACE, "corporate-ca")
HOSTS = ("pillion-shared.shop.svc",)


class Scene:
    """One leader's authority."""

    def __init__(
        self, api: MemoryApi, *, given: str | None = None, clock: FakeClock | None = None
    ) -> None:
        self.api = api
        self.clock = clock or FakeClock()
        self.changes = 0
        self.expiry = Gauge("expiry", "", registry=None)
        self.authority = GatewayAuthority(
            api=api,
            settings=OperatorSettings(
                deliverer=DelivererDefaults(image="i"), gateway_authority=given
            ),
            clock=self.clock,
            changed=self._changed,
            expiry=self.expiry,
        )

    def _changed(self) -> None:
        self.changes += 1

    def stored(self) -> Any:
        return Authority.from_data(decoded(self.api.objects[PLACE]))

    def certificate(self, shown: KeyPair | None = None) -> KeyPair | None:
        return self.authority.certificate(shown, name="pillion-shared", hosts=HOSTS)


def give(api: MemoryApi, pair: KeyPair) -> KeyPair:
    api.objects[GIVEN] = {"data": encoded({"tls.crt": pair.certificate, "tls.key": pair.key})}
    return pair


def issued_by(serving: KeyPair | None, ca: KeyPair) -> bool:
    assert serving is not None
    certificate = x509.load_pem_x509_certificate(serving.certificate)
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.certificate))
    except ValueError:
        return False
    return True


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi()


async def test_nothing_is_known_before_the_first_look(api: MemoryApi) -> None:
    scene = Scene(api)
    assert (scene.authority.bundle(), scene.certificate()) == (None, None)


async def test_one_is_made_kept_and_told(api: MemoryApi) -> None:
    scene = Scene(api)
    await scene.authority.look()
    secret = api.objects[PLACE]
    assert "pillion.dev/credentials" not in secret["metadata"]["labels"]
    assert scene.authority.bundle() == scene.stored().bundle()
    assert scene.expiry._value.get() == not_after(scene.stored().ca.certificate)
    await scene.authority.look()
    assert (scene.changes, api.objects[PLACE]) == (1, secret)


async def test_the_next_leader_takes_it_up(api: MemoryApi) -> None:
    first, second = Scene(api), Scene(api)
    await first.authority.look()
    await second.authority.look()
    assert second.authority.bundle() == first.authority.bundle()
    shown = first.certificate()
    assert second.certificate(shown) == shown


async def test_a_certificate_is_made_anew_only_when_it_is_due(api: MemoryApi) -> None:
    scene = Scene(api)
    await scene.authority.look()
    shown = scene.certificate()
    assert issued_by(shown, scene.stored().ca)
    scene.clock.skip(SERVING_SECONDS * 0.66)
    assert scene.certificate(shown) == shown
    scene.clock.skip(SERVING_SECONDS * 0.01)
    assert scene.certificate(shown) not in (shown, None)


async def test_a_rotation_overlaps(api: MemoryApi) -> None:
    scene = Scene(api)
    await scene.authority.look()
    old = scene.stored().ca
    scene.clock.skip(CA_SECONDS * 0.67)
    shown = scene.certificate()
    await scene.authority.look()
    both = scene.authority.bundle()
    assert both is not None
    assert both.startswith(old.certificate)
    assert len(both) > len(old.certificate)
    # What is signed within the overlap is still signed by the one that everybody trusts.
    assert scene.certificate(shown) == shown
    scene.clock.skip(OVERLAP)
    await scene.authority.look()
    assert scene.stored().ca != old
    assert issued_by(scene.certificate(shown), scene.stored().ca)
    assert old.certificate in (scene.authority.bundle() or b"")
    assert scene.changes == 3


@pytest.mark.parametrize("spoil", ["emptied", "spoilt"])
async def test_a_secret_that_is_spoilt_is_written_again_as_it_was(
    api: MemoryApi, spoil: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(api)
    await scene.authority.look()
    before = scene.stored()
    if spoil == "emptied":
        del api.objects[PLACE]["data"]
    else:
        api.objects[PLACE]["data"]["ca.key"] = base64.b64encode(b"none").decode()
    await scene.authority.look()
    assert (scene.stored(), scene.changes) == (before, 1)
    assert ("writes it anew" in caplog.text) == (spoil == "spoilt")


async def test_one_whose_secret_was_deleted_is_replaced_in_two_steps(
    api: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(api)
    await scene.authority.look()
    old, shown = scene.stored().ca, scene.certificate()
    del api.objects[PLACE]
    await scene.authority.look()
    both = scene.stored()
    assert both.ca == old
    assert scene.certificate(shown) == shown
    assert "Secret pillion-system/pillion-gateways was deleted" in caplog.text
    # Another leader goes on with it.
    scene = Scene(api, clock=scene.clock)
    scene.clock.skip(STEP - 1)
    await scene.authority.look()
    assert scene.stored() == both
    scene.clock.skip(1)
    await scene.authority.look()
    new = scene.stored()
    assert (new.ca, new.previous_ca) == (both.next_ca, old.certificate)
    assert issued_by(scene.certificate(shown), new.ca)
    scene.clock.skip(STEP - 1)
    await scene.authority.look()
    assert scene.authority.bundle() == new.bundle()
    scene.clock.skip(1)
    await scene.authority.look()
    assert scene.authority.bundle() == new.ca.certificate
    assert scene.stored().to_data().keys() == {"ca.crt", "ca.key"}


@pytest.mark.parametrize("after", [0, STEP])
async def test_one_whose_secret_is_deleted_twice_is_replaced_at_once(
    api: MemoryApi, after: float, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(api)
    await scene.authority.look()
    old = scene.stored()
    del api.objects[PLACE]
    await scene.authority.look()
    scene.clock.skip(after)
    await scene.authority.look()
    known = scene.authority.bundle() or b""
    del api.objects[PLACE]
    await scene.authority.look()
    only = scene.authority.bundle() or b""
    assert only == scene.stored().ca.certificate
    assert only not in known
    assert old.ca.certificate in known
    assert issued_by(scene.certificate(), scene.stored().ca)
    assert "only the one that signs now is trusted" in caplog.text


async def test_a_write_that_was_carried_out_unheard_is_no_second_deletion(api: MemoryApi) -> None:
    scene = Scene(api)
    await scene.authority.look()
    old = scene.stored().ca
    del api.objects[PLACE]

    async def unheard(body: Any, **options: Any) -> Any:
        await MemoryApi.create(api, body, **options)
        raise TimeoutError

    api.create = unheard  # type: ignore[method-assign]
    await scene.authority.look()
    assert scene.authority.bundle() == old.certificate
    await scene.authority.look()
    assert (scene.stored().ca, scene.authority.bundle()) == (old, scene.stored().bundle())
    assert scene.stored().next_ca is not None


async def test_a_given_one_that_is_given_up_goes_in_haste_once_there_is_another(
    api: MemoryApi,
) -> None:
    scene = Scene(api, given="corporate-ca")
    first = give(api, new_ca(name="corporate", now=scene.clock.time()))
    await scene.authority.look()
    # As long as it is given, there is nothing to replace it by.
    del api.objects[PLACE]
    await scene.authority.look()
    assert (scene.authority.bundle(), scene.stored().until) == (first.certificate, 0)

    second = give(api, new_ca(name="corporate", now=scene.clock.time() + 5))
    await scene.authority.look()
    del api.objects[PLACE]
    await scene.authority.look()
    for bundle in (first.certificate + second.certificate,) * 2 + (second.certificate,):
        assert sorted(pems(scene.authority.bundle())) == sorted(pems(bundle))
        scene.clock.skip(STEP)
        await scene.authority.look()


@pytest.mark.parametrize("given", ["absent", "spoilt"])
async def test_one_that_is_given_up_while_the_given_one_is_away_waits_for_it(
    api: MemoryApi, given: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(api, given="corporate-ca")
    first = give(api, new_ca(name="corporate", now=scene.clock.time()))
    await scene.authority.look()
    shown = scene.certificate()
    if given == "absent":
        del api.objects[GIVEN]
    else:
        api.objects[GIVEN]["data"]["tls.key"] = base64.b64encode(b"none").decode()
    await scene.authority.look()
    del api.objects[PLACE]
    async with in_background(scene.authority.run()):
        await scene.clock.until_sleeping()
        await scene.clock.advance(3 * RETRY)
        # It would come back as it was, and nobody would know that it was given up.
        assert PLACE not in api.objects
        assert scene.authority.bundle() == first.certificate
        assert scene.certificate(shown) == shown
        assert caplog.text.count("was deleted: its authority is trusted until") == 1
        assert "is given up" not in caplog.text

        second = give(api, new_ca(name="corporate", now=scene.clock.time() + 5))
        await scene.clock.advance(RETRY)
        both = scene.stored()
        assert (both.ca, both.next_ca) == (first, second)
        assert "is given up" in caplog.text
        await scene.clock.advance(2 * STEP + 2 * INTERVAL)
        assert scene.authority.bundle() == second.certificate


async def test_a_given_one_that_was_followed_already_is_dropped_after_a_step(
    api: MemoryApi,
) -> None:
    scene = Scene(api, given="corporate-ca")
    give(api, new_ca(name="corporate", now=scene.clock.time()))
    await scene.authority.look()
    second = give(api, new_ca(name="corporate", now=scene.clock.time() + 5))
    await scene.authority.look()
    scene.clock.skip(OVERLAP + 1)
    await scene.authority.look()
    both = scene.authority.bundle()
    del api.objects[PLACE]
    await scene.authority.look()
    assert scene.authority.bundle() == both
    scene.clock.skip(STEP)
    await scene.authority.look()
    assert scene.authority.bundle() == second.certificate


def pems(bundle: bytes | None) -> list[bytes]:
    return (bundle or b"").split(b"-----BEGIN CERTIFICATE-----\n")


async def test_of_two_who_write_at_once_one_gives_way(api: MemoryApi) -> None:
    one, other = Scene(api), Scene(api)
    await asyncio.gather(one.authority.look(), other.authority.look())
    await one.authority.look()
    await other.authority.look()
    assert one.authority.bundle() == other.authority.bundle() == one.stored().bundle()


async def test_a_given_one_signs_and_is_followed_with_an_overlap(api: MemoryApi) -> None:
    scene = Scene(api, given="corporate-ca")
    first = give(api, new_ca(name="corporate", now=scene.clock.time()))
    await scene.authority.look()
    assert scene.authority.bundle() == first.certificate
    shown = scene.certificate()
    assert issued_by(shown, first)
    second = give(api, new_ca(name="corporate", now=scene.clock.time() + 5))
    await scene.authority.look()
    assert scene.authority.bundle() == first.certificate + second.certificate
    assert scene.certificate(shown) == shown
    scene.clock.skip(OVERLAP + 1)
    await scene.authority.look()
    assert issued_by(scene.certificate(shown), second)


async def test_no_own_one_is_made_while_the_given_one_is_late(
    api: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(api, given="corporate-ca")
    async with in_background(scene.authority.run()):
        await scene.clock.until_sleeping()
        await scene.clock.advance(INTERVAL + 3 * RETRY)
        assert (scene.authority.bundle(), scene.certificate(), PLACE in api.objects) == (
            None,
            None,
            False,
        )
        # Said once, though it was looked for four times.
        assert caplog.text.count("Secret pillion-system/corporate-ca is not there: make it") == 1
        give(api, new_ca(name="corporate", now=scene.clock.time()))
        await scene.clock.advance(RETRY)
        assert scene.authority.bundle() is not None


async def test_a_given_one_that_is_spoilt_later_leaves_what_there_was(
    api: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(api, given="corporate-ca")
    first = give(api, new_ca(name="corporate", now=scene.clock.time()))
    await scene.authority.look()
    api.objects[GIVEN]["data"]["tls.key"] = base64.b64encode(b"none").decode()
    await scene.authority.look()
    assert (scene.authority.bundle(), scene.changes) == (first.certificate, 1)
    assert "tls.crt and tls.key cannot be used" in caplog.text
    assert "PRIVATE" not in caplog.text


async def test_an_authority_that_has_expired_signs_nothing(api: MemoryApi) -> None:
    scene = Scene(api, given="corporate-ca")
    give(api, new_ca(name="corporate", now=scene.clock.time()))
    await scene.authority.look()
    shown = scene.certificate()
    scene.clock.skip(CA_SECONDS + SKEW)
    await scene.authority.look()
    assert scene.certificate(shown) == shown
    assert scene.certificate(None) is None


async def test_an_outage_is_told_and_survived(
    api: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(api)
    api.down = ApiError(503, "ServiceUnavailable", "etcd is away")
    await scene.authority.look()
    assert "etcd is away; it is tried again" in caplog.text
    api.down = None
    await scene.authority.look()
    assert scene.changes == 1
