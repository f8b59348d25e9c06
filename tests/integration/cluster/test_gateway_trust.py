"""Authority, certificates and keys of gateways, on a real API server."""

import base64
import json
import ssl
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import Counter, Gauge

from pillion_operator.certificates.authority import (
    CA_SECONDS,
    OVERLAP,
    SERVING_SECONDS,
    STEP,
    KeyPair,
    must_be_signed,
    not_after,
)
from pillion_operator.certificates.gateways import GatewayAuthority, ServingCertificates, hosts
from pillion_operator.cluster.api import Api
from pillion_operator.cluster.applier import Applied, Applier, Repair
from pillion_operator.cluster.issuer import IssuerKeeper
from pillion_operator.cluster.types import CONFIG_MAP, SECRET, SERVICE_ACCOUNT, Object, our_type
from pillion_operator.controllers.service import desired_state
from pillion_operator.names import SERVICE_LABEL
from pillion_operator.settings import OperatorSettings
from pillion_operator.store import Change, Key, key_of
from pillion_sidecar.auth.tokens import TokenError, TokenKeys, parse_keys, verify
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.rendered import pack, render
from support.desired import DEFAULTS
from support.operator_context import context_of
from support.operator_time import FakeClock

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds")]

KIND = our_type("IndicationService")
NAME = "shared"


class Events:
    """Where Events go."""

    def publish(self, regarding: Object, *, type: str, reason: str, note: str, action: str) -> None:
        """Nobody reads them here."""


class Leader:
    """What of a leader has to do with the trust between publishers and gateways."""

    def __init__(self, api: Api, namespace: str, clock: FakeClock) -> None:
        self.api, self.namespace, self.clock = api, namespace, clock
        self.repairs: list[Repair] = []
        self.authority = GatewayAuthority(
            api=api,
            settings=OperatorSettings(deliverer=DEFAULTS, namespace=namespace),
            clock=clock,
            changed=lambda: None,
            expiry=Gauge("expiry", "", registry=None),
        )
        self.issuer = IssuerKeeper(
            api=api,
            clock=clock,
            draw=lambda: 0.5,
            changed=lambda: None,
            reads=Counter("reads", "", ("result",), registry=None),
        )
        self._context = context_of(
            settings=OperatorSettings(deliverer=DEFAULTS, webhook=None),
            clock=clock,
            authority=self.authority,
            issuer=self.issuer,
            token_key=b"k" * 32,
        )
        self._certificates = ServingCertificates(
            authority=self.authority, clock=clock, recorder=Events()
        )
        self._seen: dict[Key, Object] = {}
        self._applier = Applier(api, installation="here", clock=clock, repaired=self.repairs.append)

    async def reconcile(self, service: Object) -> Applied:
        """Look at what time has made due, and write what is desired now."""
        await self.authority.look()
        await self.issuer.look()
        live: list[Object] = [
            {**body, "apiVersion": kind.api_version, "kind": kind.kind}
            for kind in (SECRET, CONFIG_MAP)
            for body in await self.api.list(
                kind, self.namespace, label_selector=f"{SERVICE_LABEL}={NAME}"
            )
        ]
        self._watch(live)
        rendered = pack(render([]))
        desired = desired_state(
            self._context, self._certificates, service, rendered=rendered, level=LEVEL, live=live
        )
        objects = [body for body in desired.objects if body["kind"] in ("Secret", "ConfigMap")]
        return await self._applier.sync(service, desired=objects, live=live)

    def _watch(self, live: list[Object]) -> None:
        """Tell what has become of what was there before."""
        there = {key_of(body): body for body in live}
        for key, before in self._seen.items():
            self._certificates.follow(Change(key, before, there.get(key)))
        self._seen = there

    async def files(self, name: str) -> Mapping[str, bytes]:
        secret = await self.api.get(SECRET, self.namespace, name)
        assert secret is not None
        return {key: base64.b64decode(value) for key, value in secret["data"].items()}

    async def serving(self) -> KeyPair:
        found = await self.files(f"pillion-{NAME}-tls")
        return KeyPair(certificate=found["tls.crt"], key=found["tls.key"])

    async def trusted(self) -> str:
        """What a publisher without a sidecar goes by."""
        found = await self.api.get(CONFIG_MAP, self.namespace, f"pillion-{NAME}")
        assert found is not None
        return str(found["data"]["ca.crt"])


async def made(api: Api, namespace: str, mode: str = "Gateway") -> Object:
    return await api.create(
        {
            "apiVersion": KIND.api_version,
            "kind": KIND.kind,
            "metadata": {"name": NAME, "namespace": namespace},
            "spec": {"deliverer": {"mode": mode}},
        }
    )


def issued_by(serving: KeyPair, trusted: str, service: Object, *, now: float) -> bool:
    """Whether one of the authorities has signed the certificate, for the names of the gateway."""
    end = "-----END CERTIFICATE-----\n"
    authorities = [part + end for part in trusted.split(end) if part]
    assert ssl.create_default_context(cadata=trusted).cert_store_stats()["x509_ca"]
    return any(
        not must_be_signed(
            serving, KeyPair(certificate=one.encode(), key=b""), hosts=hosts(service), now=now
        )
        for one in authorities
    )


async def test_a_certificate_is_made_renewed_and_repaired(api: Api, namespace: str) -> None:
    clock = FakeClock()
    leader, service = Leader(api, namespace, clock), await made(api, namespace)
    assert (await leader.reconcile(service)).written == 3
    first = await leader.serving()
    assert issued_by(first, await leader.trusted(), service, now=clock.time())
    secret = await api.get(SECRET, namespace, f"pillion-{NAME}-tls")
    assert secret is not None
    assert secret["type"] == "kubernetes.io/tls"

    # The next leader finds everything as it should be.
    assert await Leader(api, namespace, clock).reconcile(service) == Applied()

    await spoil(api, namespace)
    await leader.reconcile(service)
    assert await leader.serving() == first
    assert [repair.body["metadata"]["name"] for repair in leader.repairs] == [f"pillion-{NAME}-tls"]

    # A key that others may have is deleted, and never comes back.
    await api.delete(SECRET, namespace, f"pillion-{NAME}-tls")
    await leader.reconcile(service)
    second = await leader.serving()
    assert second.key != first.key
    assert issued_by(second, await leader.trusted(), service, now=clock.time())
    assert await leader.reconcile(service) == Applied()

    # One that is spoilt first, too.
    await spoil(api, namespace)
    await api.delete(SECRET, namespace, f"pillion-{NAME}-tls")
    clock.skip(60)
    await leader.reconcile(service)
    third = await leader.serving()
    assert third.key not in (first.key, second.key)
    assert len(leader.repairs) == 1

    clock.skip(SERVING_SECONDS * 0.67)
    await leader.reconcile(service)
    renewed = await leader.serving()
    assert not_after(renewed.certificate) > not_after(third.certificate)
    assert issued_by(renewed, await leader.trusted(), service, now=clock.time())


async def spoil(api: Api, namespace: str) -> None:
    """Write nonsense into the gateway's Secret."""
    data = {"data": {"tls.key": base64.b64encode(b"none").decode()}}
    await api.patch(SECRET, namespace, f"pillion-{NAME}-tls", data)


@pytest.mark.parametrize("times", [1, 2])
async def test_an_authority_whose_secret_is_deleted_is_replaced_at_the_second_time_at_once(
    api: Api, namespace: str, times: int
) -> None:
    clock = FakeClock()
    leader, service = Leader(api, namespace, clock), await made(api, namespace)
    await leader.reconcile(service)
    old, shown = await leader.trusted(), await leader.serving()
    for _ in range(times):
        await api.delete(SECRET, namespace, "pillion-gateways")
        await leader.reconcile(service)
    if times == 1:
        assert (await leader.trusted()).startswith(old)
        assert await leader.serving() == shown
        # Whoever leads next goes on with it.
        leader = Leader(api, namespace, clock)
        clock.skip(STEP)
        await leader.reconcile(service)
        both = await leader.trusted()
        assert old in both
        assert issued_by(await leader.serving(), both, service, now=clock.time())
        clock.skip(STEP)
        await leader.reconcile(service)
    new = await leader.trusted()
    assert old not in new
    assert (await leader.serving()).key != shown.key
    assert issued_by(await leader.serving(), new, service, now=clock.time())
    assert (await leader.files(f"pillion-{NAME}-0"))["gateway-ca.crt"].decode() == new
    assert (await leader.files("pillion-gateways")).keys() == {"ca.crt", "ca.key"}


async def test_authorities_overlap_so_that_whoever_has_either_bundle_trusts(
    api: Api, namespace: str
) -> None:
    clock = FakeClock()
    leader, service = Leader(api, namespace, clock), await made(api, namespace)
    await leader.reconcile(service)
    old = await leader.trusted()
    clock.skip(CA_SECONDS * 0.67)
    await leader.reconcile(service)
    both = await leader.trusted()
    assert both.startswith(old)
    assert both != old
    # Publishers that have not heard yet trust what is shown.
    assert issued_by(await leader.serving(), old, service, now=clock.time())
    assert (await leader.files(f"pillion-{NAME}-0"))["gateway-ca.crt"].decode() == both
    clock.skip(OVERLAP)
    await leader.reconcile(service)
    shown = await leader.serving()
    assert not issued_by(shown, old, service, now=clock.time())
    assert issued_by(shown, both, service, now=clock.time())


async def issued(api: Api, namespace: str, *, audience: str = "pillion") -> str:
    """A token that the API server has issued to the namespace's default service account."""
    account = SERVICE_ACCOUNT.path(namespace, "default")
    answer = await api.create(
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"namespace": namespace},
            "spec": {"audiences": [audience], "expirationSeconds": 600},
        },
        path=f"{account}/token",
    )
    return str(answer["status"]["token"])


async def test_a_gateway_verifies_by_its_file_what_the_api_server_issues(
    api: Api, namespace: str
) -> None:
    leader, service = Leader(api, namespace, FakeClock()), await made(api, namespace)
    await leader.reconcile(service)
    content = (await leader.files(f"pillion-{NAME}-0"))["token-keys.json"]
    assert json.loads(content)["namespace"] == namespace
    keys: TokenKeys = parse_keys(content, name="token-keys.json")

    def principal(token: str) -> Any:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        found = verify(token, keys, now=float(claims["iat"])).principal
        return found.namespace, found.service_account

    assert principal(await issued(api, namespace)) == (namespace, "default")
    # Whether another namespace may publish is for the door to say; who it is, is known.
    assert principal(await issued(api, "default")) == ("default", "default")
    with pytest.raises(TokenError, match="audience"):
        principal(await issued(api, namespace, audience="https://elsewhere"))


async def test_a_service_of_sidecars_gets_authorities_and_no_keys(api: Api, namespace: str) -> None:
    leader, service = Leader(api, namespace, FakeClock()), await made(api, namespace, "Sidecar")
    assert (await leader.reconcile(service)).written == 1
    found = await leader.files(f"pillion-{NAME}-0")
    assert found["gateway-ca.crt"] == leader.authority.bundle()
    assert "token-keys.json" not in found
