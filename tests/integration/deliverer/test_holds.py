"""Wrong credentials cost nothing: a running deliverer keeps its last good revision, one that starts
holds the destination (S0.8, docs/decisions/0022)."""

import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from pillion_cli.listener.server import Behaviour, serve
from pillion_sidecar.app import StartFailed
from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.testing import FakeTime
from support.listening import Listening, listening
from support.resources import JSON, secret
from support.running import Running, alerts, later, listener, resources, running

COUNT = 50
HOUR = 3600.0
TLS = {"caSecretRef": {"name": "ca"}, "clientCertificateSecretRef": {"name": "client"}}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def pair(certificate: trustme.LeafCert, key: trustme.LeafCert) -> JSON:
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    pem = key.private_key_pem.bytes()
    return secret("client", {"tls.crt": chain.decode(), "tls.key": pem.decode()})


@asynccontextmanager
async def asking_for_certificates(authority: trustme.CA) -> AsyncIterator[Listening]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    made = Listening(FakeTime(), Behaviour())
    async with serve(made.listener, address="127.0.0.1", port=0, tls=context) as url:
        made.url = f"{url}/".replace("http://", "https://")
        yield made


def secure(url: str, authority: trustme.CA, client: JSON) -> tuple[JSON, ...]:
    ca = secret("ca", {"ca.crt": authority.cert_pem.bytes().decode()})
    there = listener("siem", url, tls=TLS, indicationLifetimeSeconds=600)
    return (*resources(there), ca, client)


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[Any]:
    return [one for one in caplog.records if getattr(one, "event", None) == name]


async def is_held(run: Running) -> None:
    queue = run.queue("siem")
    await run.until(
        lambda: queue.health.hold is not None and queue.health.next_attempt_at is not None
    )


async def test_a_wrong_key_at_a_start_costs_nothing_in_an_hour_and_once_mended_all_arrive_in_order(
    config: Path, journal: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    mine, other = authority.issue_cert("a.example"), authority.issue_cert("b.example")
    async with asking_for_certificates(authority) as siem:
        good = secure(siem.url, authority, pair(mine, mine))
        wrong = secure(siem.url, authority, pair(mine, other))
        siem.behave(status=503)
        async with running(config, *good, journal=journal) as run:
            answer = await run.publish(*alerts(0, COUNT), ack="durable")
            assert answer.document["accepted"] == COUNT
            await run.failed("siem", 1)
            await run.kept()
            await run.kill()
        siem.behave()
        async with running(config, *wrong, journal=journal, time=later(run.time, 1)) as again:
            (warning,) = events(caplog, "configuration-warning")
            assert "tls.crt and tls.key" in warning.getMessage()
            for _ in range(12):
                again.time.advance(HOUR / 12)
                await is_held(again)
            queue = again.queue("siem")
            assert queue.health.hold is not None
            assert queue.health.hold.cause is HoldCause.CERTIFICATES
            assert queue.depth == COUNT
            assert not sum(queue.statistics.discarded.values())
            assert siem.identifiers == []
        # A hold's pause survives a restart as a suspension's does.
        async with running(config, *wrong, journal=journal, time=later(again.time, 1)) as third:
            await is_held(third)
            assert third.queue("siem").health.pauses.spells == []
            await third.reload(*good)
            await third.settled()
    assert siem.identifiers == [str(number) for number in range(COUNT)]
    assert events(caplog, "indication-discarded") == []
    assert len(events(caplog, "destination-released")) == 1


async def test_a_running_deliverer_keeps_its_last_good_credentials(
    config: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = authority.issue_cert("a.example"), authority.issue_cert("b.example")
    async with asking_for_certificates(authority) as siem:
        good = secure(siem.url, authority, pair(mine, mine))
        async with running(config, *good) as run:
            await run.reload(*secure(siem.url, authority, pair(mine, other)))
            (refusal,) = events(caplog, "configuration-refused")
            assert "key values mismatch" in refusal.getMessage()
            await run.publish(*alerts(0, 2))
            await run.settled()
    assert siem.identifiers == ["0", "1"]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({"destination": "http://169.254.169.254/"}, "refused-address"),
        ({"destination": "http://[::1::2]/"}, "invalid-destination"),
        ({"tls": {"caSecretRef": {"name": "none"}}}, "invalid-certificates"),
        ({"tls": {"clientCertificateSecretRef": {"name": "none"}}}, "invalid-certificates"),
        (
            {"credentials": {"bearer": {"secretRef": {"name": "none", "key": "t"}}}},
            "invalid-credentials",
        ),
        ({"credentials": {"basic": {"secretRef": {"name": "unlabelled"}}}}, "invalid-credentials"),
    ],
)
async def test_a_faulty_destination_at_a_start_is_held_and_stops_no_other(
    config: Path, fault: dict[str, Any], cause: str
) -> None:
    unlabelled = secret("unlabelled", {"username": "u", "password": "p"}, labelled=False)
    async with listening() as siem, listening() as well:
        wrong = listener(
            "siem", siem.url.replace("http:", "https:") if "tls" in fault else siem.url
        )
        wrong["spec"] |= fault
        documents = (*resources(wrong, listener("well", well.url)), unlabelled)
        async with running(config, *documents) as run:
            await run.publish(*alerts(0, 5))
            await is_held(run)
            await run.delivered("well", 5)
            hold = (await run.get("/v1/queues/siem")).document["hold"]
            assert hold["cause"] == cause
            await run.reload(*resources(listener("siem", siem.url), listener("well", well.url)))
            await run.settled()
    assert siem.identifiers == well.identifiers == [str(number) for number in range(5)]


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        ("bearer", {"token": "s\u00e9same"}, {"token": "sesame"}),
        ("bearer", {"token": "s\u00e9same\nopen"}, {"token": "sesame"}),
        ("bearer", {"token": ""}, {"token": "sesame"}),
        ("bearer", {"other": "s\u00e9same"}, {"token": "sesame"}),
        (
            "basic",
            {"username": "u", "password": "s\u00e9same\x01"},
            {"username": "u", "password": "p"},
        ),
        ("basic", {"username": "u"}, {"username": "u", "password": "p"}),
    ],
)
async def test_credentials_that_no_header_can_carry_hold_their_destination_and_no_other(
    config: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    wrong: dict[str, str],
    right: dict[str, str],
) -> None:
    reference = {"name": "used", **({"key": "token"} if kind == "bearer" else {})}
    credentials = {kind: {"secretRef": reference}}
    async with listening() as siem, listening() as well:
        documents = resources(
            listener("siem", siem.url, credentials=credentials), listener("well", well.url)
        )
        async with running(config, *documents, secret("used", wrong)) as run:
            await run.publish(*alerts(0, 2))
            await is_held(run)
            await run.delivered("well", 2)
            hold = (await run.get("/v1/queues/siem")).document["hold"]
            assert hold["cause"] == "invalid-credentials"
            # Meanwhile others may change.
            others = resources(
                listener("siem", siem.url, credentials=credentials),
                listener("well", well.url, timeoutSeconds=7),
            )
            await run.reload(*others, secret("used", wrong))
            assert events(caplog, "configuration-refused") == []
            await run.reload(*documents, secret("used", right))
            await run.settled()
    assert siem.identifiers == well.identifiers == ["0", "1"]
    warning, _ = events(caplog, "configuration-warning")
    assert f"spec.credentials.{kind}.secretRef.name" in warning.getMessage()
    assert "s\u00e9same" not in caplog.text


BEARER = {"bearer": {"secretRef": {"name": "used", "key": "token"}}}
USED = secret("used", {"token": "sesame"})

UNLABELLED = secret("used", {"token": "sesame"}, labelled=False)
GARBLED = {**secret("used", {}), "data": {"token": "%%"}}


def at(url: str, **spec: Any) -> JSON:
    return listener("siem", url, **spec)


FAULTS: dict[str, tuple[Callable[[str], JSON], tuple[JSON, ...], HoldCause]] = {
    "no such Secret": (
        lambda url: at(url, credentials=BEARER),
        (),
        HoldCause.CREDENTIALS,
    ),
    "an unlabelled Secret": (
        lambda url: at(url, credentials=BEARER),
        (UNLABELLED,),
        HoldCause.CREDENTIALS,
    ),
    "a garbled Secret": (
        lambda url: at(url, credentials=BEARER),
        (GARBLED,),
        HoldCause.CREDENTIALS,
    ),
    "unknown credentials": (
        lambda url: at(url, credentials={"baerer": {}}),
        (),
        HoldCause.CREDENTIALS,
    ),
    "no Secret of authorities": (
        lambda url: at(
            url.replace("http:", "https:"), tls={"caSecretRef": {"name": "ca", "key": "ca.crt"}}
        ),
        (),
        HoldCause.CERTIFICATES,
    ),
    "a metadata address": (
        lambda url: at("http://169.254.169.254/latest"),
        (),
        HoldCause.ADDRESS,
    ),
    "a link-local address": (lambda url: at("http://[fe80::1]/"), (), HoldCause.ADDRESS),
    "no scheme": (lambda url: at("127.0.0.1:1/cim"), (), HoldCause.DESTINATION),
    "a port beyond": (lambda url: at("http://127.0.0.1:70000/"), (), HoldCause.DESTINATION),
    "a URL of another type": (
        lambda url: at({1: 2, "a": "b"}),  # type: ignore[arg-type]
        (),
        HoldCause.DESTINATION,
    ),
    "no such protocol": (lambda url: at(url, protocol="Gopher"), (), HoldCause.PROTOCOL),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_one_destination_at_a_start_holds_it_and_no_other(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    make, secrets, cause = FAULTS[fault]
    async with listening() as siem, listening() as well:
        other = listener("well", well.url)
        wrong = (*resources(make(siem.url), other), *secrets)
        right = (*resources(at(siem.url, credentials=BEARER), other), USED)
        async with running(config, *wrong, journal=journal) as run:
            await run.publish(*alerts(0, COUNT), ack="durable")
            await is_held(run)
            await run.delivered("well", COUNT)
            hold = (await run.get("/v1/queues/siem")).document["hold"]
            assert hold["cause"] == cause.value
            await run.kill()
        async with running(config, *wrong, journal=journal, time=later(run.time, 1)) as again:
            await is_held(again)
            # Meanwhile others may change.
            changed = listener("well", well.url, timeoutSeconds=7)
            await again.reload(*resources(make(siem.url), changed), *secrets)
            assert events(caplog, "configuration-refused") == []
            assert again.queue("siem").depth == COUNT
            assert not sum(again.queue("siem").statistics.discarded.values())
            await again.reload(*right)
            await again.settled()
    assert siem.identifiers == [str(number) for number in range(COUNT)]


async def test_a_hold_is_shown_before_anything_is_published(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = resources(at("http://169.254.169.254/"))
    async with listening() as siem, running(config, *faulty) as run:
        hold = (await run.get("/v1/queues/siem")).document["hold"]
        assert hold["cause"] == HoldCause.ADDRESS.value
        assert "169.254.169.254" in hold["message"]
        labels = {"destination": "siem", "cause": HoldCause.ADDRESS.value}
        assert await run.metric("pillion_destination_held", **labels) == 1.0
        await run.reload(*resources(at(siem.url)))
        assert (await run.get("/v1/queues/siem")).document["hold"] is None
        assert len(events(caplog, "destination-held")) == 1


async def test_a_label_alone_mends_a_destination(config: Path) -> None:
    async with listening() as siem:
        documents = resources(at(siem.url, credentials=BEARER))
        async with running(config, *documents, UNLABELLED) as run:
            await run.publish(*alerts(0, 2))
            await is_held(run)
            await run.reload(*documents, USED)
            await run.settled()
    assert siem.identifiers == ["0", "1"]


async def test_a_fault_that_is_not_one_of_where_to_refuses_the_start(config: Path) -> None:
    documents = resources(at("http://169.254.169.254/", timeoutSeconds=-1))
    with pytest.raises(StartFailed, match="timeoutSeconds"):
        async with running(config, *documents):
            pass


@pytest.mark.parametrize("wrong", [{"protocol": "Gopher"}, {"credentials": {"baerer": {}}}])
async def test_a_mend_of_the_fault_alone_ends_the_hold(config: Path, wrong: dict[str, Any]) -> None:
    async with listening() as siem, running(config, *resources(at(siem.url, **wrong))) as run:
        await run.publish(*alerts(0, 2))
        await is_held(run)
        await run.reload(*resources(at(siem.url)))
        await run.settled()
    assert siem.identifiers == ["0", "1"]


async def test_another_fault_is_told_in_place_of_the_first(config: Path) -> None:
    async with listening() as siem:
        none = {"bearer": {"secretRef": {"name": "none", "key": "token"}}}
        async with running(config, *resources(at(siem.url, credentials=none))) as run:
            await run.publish(*alerts(0, 2))
            await is_held(run)
            await run.reload(*resources(at(siem.url, credentials=BEARER)), UNLABELLED)
            await is_held(run)
            hold = run.queue("siem").health.hold
            assert hold is not None
            assert "may not be used by destinations" in hold.message
