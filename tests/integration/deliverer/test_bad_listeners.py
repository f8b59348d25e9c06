"""Bad listeners, end to end: each gets a clear, counted result, and costs no other anything."""

import base64
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from support.certificates import nameless_server
from support.http_listener import Peer, ok
from support.http_listener import listening as scripted
from support.listening import listening
from support.name_server import name_server
from support.resources import JSON, destination, secret, service, write
from support.running import Running, alerts, listener, resources, running
from support.sidecar import sidecar


async def last_attempt(run: Running, name: str) -> JSON:
    """What an administrator is shown of the latest attempt."""
    shown: JSON = (await run.get(f"/v1/queues/{name}")).document["attempts"][0]
    return shown


# ---------------------------------------------------------------------- isolation


async def test_a_hung_listener_costs_a_healthy_one_nothing(tmp_path: Path) -> None:
    count = 200
    async with listening(hang=True) as hung, listening() as healthy:
        documents = resources(
            listener("hung", hung.url, timeoutSeconds=30), listener("healthy", healthy.url)
        )
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, count))
            await run.delivered("healthy", count)
            # No time has passed: the attempt at the hung one is still its first.
            stuck = run.queue("hung")
            assert (
                stuck.in_flight_count,
                stuck.depth,
                sum(stuck.statistics.attempts.values()),
            ) == (
                1,
                count,
                0,
            )
            run.time.advance(30.0)
            await run.failed("hung", 1)
            attempt = await last_attempt(run, "hung")
            assert attempt["result"] == "post-delivery-error"
            assert "timed out after 30 s" in attempt["detail"]
            assert attempt["seconds"] == 30.0
        assert healthy.identifiers == [str(number) for number in range(count)]


BEHAVIOURS: list[tuple[dict[str, Any], DeliveryResult, str]] = [
    ({"status": 500}, DeliveryResult.ERROR, "HTTP 500"),
    ({"status": 404}, DeliveryResult.ERROR, "HTTP 404"),
    ({"redirect": "http://127.0.0.1:9/"}, DeliveryResult.ERROR, "HTTP 307"),
    ({"cim_error": 1}, DeliveryResult.ERROR, "CIM error 1"),
    ({"status": 204}, DeliveryResult.ERROR, "204"),
    ({"garbage": True}, DeliveryResult.ERROR, "it is not HTTP"),
    ({"close": True}, DeliveryResult.POST_DELIVERY_ERROR, ""),
]


@pytest.mark.parametrize(
    ("behaviour", "result", "detail"), BEHAVIOURS, ids=[str(row[0]) for row in BEHAVIOURS]
)
async def test_whatever_a_listener_answers_badly_all_arrive_once_it_answers_well(
    tmp_path: Path, behaviour: dict[str, Any], result: DeliveryResult, detail: str
) -> None:
    async with listening(**behaviour) as bad, listening() as good:
        documents = resources(listener("bad", bad.url), listener("good", good.url))
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 5))
            for failures in (1, 2):
                await run.failed("bad", failures)
                attempt = await last_attempt(run, "bad")
                assert attempt["result"] == result.value
                assert detail in attempt["detail"]
                assert attempt["detail"]
                if failures == 1:
                    run.retry("bad")
            bad.behave()
            run.retry("bad")
            await run.settled()
            assert run.queue("bad").statistics.discarded == dict.fromkeys(
                run.queue("bad").statistics.discarded, 0
            )
        assert bad.identifiers == good.identifiers == ["0", "1", "2", "3", "4"]


async def test_a_listener_may_ask_for_time(tmp_path: Path) -> None:
    async with listening(status=503, retry_after=600) as busy:
        async with running(tmp_path, *resources(listener("busy", busy.url))) as run:
            await run.publish(*alerts(0, 1))
            await run.failed("busy", 1)
            due = run.queue("busy").health.next_attempt_at
            assert due == run.time.monotonic() + 600.0
            busy.behave()
            run.retry("busy")
            await run.settled()
        assert busy.identifiers == ["0"]


async def test_nobody_there_is_said_with_the_address(tmp_path: Path) -> None:
    async with listening() as gone:
        url = gone.url
    async with running(tmp_path, *resources(listener("gone", url))) as run:
        await run.publish(*alerts(0, 1))
        await run.failed("gone", 1)
        attempt = await last_attempt(run, "gone")
    port = url.rstrip("/").rpartition(":")[2]
    assert attempt["detail"] == f"connection refused by 127.0.0.1 port {port}"
    assert attempt["result"] == "error"


# ---------------------------------------------------------------------- TLS and credentials


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def demanding_context(authority: trustme.CA, server_context: ssl.SSLContext) -> ssl.SSLContext:
    """A server that wants to see a certificate of its clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def authority_secret(authority: trustme.CA) -> JSON:
    return secret("authority", {"ca.crt": authority.cert_pem.bytes().decode()})


CA: JSON = {"caSecretRef": {"name": "authority", "key": "ca.crt"}}


def secure(url: str, **spec: Any) -> JSON:
    return listener("secure", url, protocol="CloudEvents", **spec)


def heads(into: list[bytes]) -> Callable[[Peer], Any]:
    """A script that takes everything, and keeps the head of each request."""

    async def script(peer: Peer) -> None:
        while True:
            head, _ = await peer.request()
            into.append(head)
            await peer.send(ok(b""))

    return script


async def test_a_certificate_of_nobody_known_is_refused_until_its_authority_is_given(
    tmp_path: Path, authority: trustme.CA, server_context: ssl.SSLContext
) -> None:
    seen: list[bytes] = []
    async with scripted(heads(seen), server_context) as https:
        unknown = resources(secure(https.url))
        async with running(tmp_path, *unknown) as run:
            await run.publish(*alerts(0, 2))
            await run.failed("secure", 1)
            attempt = await last_attempt(run, "secure")
            assert attempt["result"] == "error"
            where = f"the certificate of 127.0.0.1 port {https.port} is not accepted: "
            assert attempt["detail"].startswith(where)
            assert "issuer" in attempt["detail"]
            # The Secret and its use are taken over like anything else.
            known = (*resources(secure(https.url, tls=CA)), authority_secret(authority))
            await run.reload(*known)
            await run.settled()
            assert run.queue("secure").statistics.delivered == 2
    assert len(seen) == 2


async def test_a_certificate_for_somebody_else_is_refused(
    tmp_path: Path, authority: trustme.CA, server_context: ssl.SSLContext
) -> None:
    tls = {**CA, "serverName": "elsewhere.example"}
    async with scripted(heads([]), server_context) as https:
        documents = (*resources(secure(https.url, tls=tls)), authority_secret(authority))
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 1))
            await run.failed("secure", 1)
            attempt = await last_attempt(run, "secure")
    assert "is not accepted: Hostname mismatch" in attempt["detail"]
    assert "elsewhere.example" in attempt["detail"]
    assert "write the name that it holds as tls.serverName" in attempt["detail"]


async def test_a_certificate_with_a_common_name_alone_is_refused_until_that_is_allowed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA
) -> None:
    context = nameless_server(authority, "localhost", tmp_path_factory.mktemp("pem"))
    async with scripted(heads([]), context) as https:
        known = authority_secret(authority)
        async with running(tmp_path, *resources(secure(https.url, tls=CA)), known) as run:
            await run.publish(*alerts(0, 1))
            await run.failed("secure", 1)
            attempt = await last_attempt(run, "secure")
            assert "without any subjectAltName, set tls.allowCommonName: true" in attempt["detail"]
            allowed = {**CA, "allowCommonName": True}
            await run.reload(*resources(secure(https.url, tls=allowed)), known)
            await run.settled()
            assert run.queue("secure").statistics.delivered == 1


async def test_a_client_certificate_from_a_secret_opens_a_door_that_wants_one(
    tmp_path: Path, authority: trustme.CA, demanding_context: ssl.SSLContext
) -> None:
    made = authority.issue_cert("pillion")
    pair = {
        "tls.crt": b"".join(blob.bytes() for blob in made.cert_chain_pems).decode(),
        "tls.key": made.private_key_pem.bytes().decode(),
    }
    own = {**CA, "clientCertificateSecretRef": {"name": "own"}}
    known = authority_secret(authority)
    seen: list[bytes] = []
    async with scripted(heads(seen), demanding_context) as https:
        without = (*resources(secure(https.url, tls=CA)), known)
        async with running(tmp_path, *without) as run:
            await run.publish(*alerts(0, 1))
            await run.failed("secure", 1)
            assert not seen
            showing = (*resources(secure(https.url, tls=own)), known, secret("own", pair))
            await run.reload(*showing)
            await run.settled()
            assert run.queue("secure").statistics.delivered == 1
    assert len(seen) == 1


@pytest.mark.parametrize("protocol", ["CloudEvents", "CIM-XML"])
@pytest.mark.parametrize(
    ("credentials", "texts", "expected"),
    [
        (
            {"basic": {"secretRef": {"name": "who"}}},
            {"username": "pillion", "password": "pa:ss wörd\n"},
            b"Basic " + base64.b64encode("pillion:pa:ss wörd".encode()),
        ),
        (
            {"bearer": {"secretRef": {"name": "who", "key": "token"}}},
            {"token": "abc.def\n"},
            b"Bearer abc.def",
        ),
    ],
    ids=["basic", "bearer"],
)
async def test_credentials_come_from_a_secret_and_arrive(
    tmp_path: Path,
    authority: trustme.CA,
    server_context: ssl.SSLContext,
    *,
    protocol: str,
    credentials: JSON,
    texts: dict[str, str],
    expected: bytes,
) -> None:
    seen: list[bytes] = []
    async with scripted(heads(seen), server_context) as https:
        to = listener("ops", https.url, protocol=protocol, credentials=credentials, tls=CA)
        documents = (*resources(to), authority_secret(authority), secret("who", texts))
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 1))
            await run.until(lambda: sum(run.queue("ops").statistics.attempts.values()) == 1)
    (head,) = seen
    (line,) = [line for line in head.split(b"\r\n") if line.lower().startswith(b"authorization:")]
    assert line.partition(b": ")[2] == expected


async def test_credentials_are_shown_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    credentials = {"bearer": {"secretRef": {"name": "who", "key": "token"}}}
    async with listening(status=401) as ops:
        to = listener("ops", ops.url, credentials=credentials)
        async with running(
            tmp_path, *resources(to), secret("who", {"token": "s3cret-token"})
        ) as run:
            await run.publish(*alerts(0, 1))
            await run.until(lambda: run.queue("ops").health.is_paused)
            shown = str((await run.get("/v1/queues/ops")).document)
            assert "HTTP 401" in shown
    assert "s3cret-token" not in shown + caplog.text


# ---------------------------------------------------------------------- addresses


async def test_a_name_that_leads_to_this_machine_is_refused_after_resolution(
    tmp_path: Path,
) -> None:
    async with listening() as inside, name_server("127.0.0.1") as (_, nameservers):
        port = inside.url.rstrip("/").rpartition(":")[2]
        url = f"http://harmless.example:{port}/"
        async with running(
            tmp_path,
            *resources(listener("ops", url)),
            addresses=AddressPolicy(allow_loopback=False),
            nameservers=nameservers,
        ) as run:
            await run.publish(*alerts(0, 1))
            queue = run.queue("ops")
            await run.until(lambda: queue.health.hold is not None)
            assert queue.health.hold is not None
            assert queue.health.hold.cause is HoldCause.ADDRESS
            attempt = await last_attempt(run, "ops")
            assert (queue.depth, queue.waiting.front[0].attempts) == (1, 0)
    assert attempt["detail"] == ("127.0.0.1 is a loopback address, and those are not allowed here")
    assert inside.outcomes == []


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://127.0.0.1:5988/", ("--refuse-loopback",)),
        ("http://localhost:5988/", ("--refuse-loopback",)),
        ("http://[::1]:5988/", ("--refuse-loopback",)),
        ("http://169.254.169.254/latest/meta-data/", ()),
        ("http://169.254.1.1/", ()),
    ],
)
async def test_a_destination_whose_address_is_not_allowed_is_held_from_the_start(
    tmp_path: Path, url: str, options: tuple[str, ...]
) -> None:
    write(tmp_path, service(), destination("inside", destination=url))
    async with sidecar(tmp_path, *options) as process:
        await process.logged("deliverer-started")
        (warning,) = process.events("configuration-warning")
    said = warning["message"]
    assert "ListenerDestination/inside: spec.destination:" in said
    assert url in said
    assert "Its destination is held until then." in said
