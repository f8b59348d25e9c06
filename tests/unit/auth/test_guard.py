"""Who is let in at a gateway, and what the others are told."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from pillion_sidecar.auth import token_middleware
from pillion_sidecar.auth.principal import Principal, Turned
from pillion_sidecar.auth.token_middleware import (
    UNREAD_BYTES,
    UNREAD_SECONDS,
    TokenCache,
    TokenMiddleware,
)
from pillion_sidecar.auth.tokens import LEEWAY, Verified, parse_keys, verify
from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.config.schema.service import AllowedPublisher
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.intake.pacing import PublisherPaces
from pillion_sidecar.telemetry.gateway import GatewayMetrics
from pillion_sidecar.testing import FakeTime
from support.intake import Door, alert, lines
from support.token_issuer import TokenIssuer

LINES = lines(alert("a"))


class Gateway:
    """A guarded door, the cluster whose tokens it takes, and whom its service names."""

    def __init__(self) -> None:
        self.issuer = TokenIssuer()
        self.publishers: Sequence[AllowedPublisher] = ()
        self.metrics = GatewayMetrics()
        #: The connections of requests that were let in.
        self.proven: list[asyncio.BaseProtocol] = []
        self.guard: TokenMiddleware
        self.door = Door(guarding=self._guard)
        self.renew()

    def _guard(self, time: FakeTime) -> TokenMiddleware:
        self.guard = TokenMiddleware(
            clock=time,
            timers=time,
            publishers=lambda: self.publishers,
            observer=self.metrics,
            proven=lambda protocol, _: self.proven.append(protocol),
            has_proven=self.proven.__contains__,
        )
        return self.guard

    def renew(self) -> None:
        """Give it the keys that the issuer has now."""
        keys = parse_keys(self.issuer.document(), name="keys")
        self.guard.use_keys(keys)
        self.metrics.keys_read(len(keys.keys))

    def token(self, **changed: Any) -> str:
        """One that is issued now."""
        return self.issuer.token(now=self.door.time.time(), **changed)

    def bearer(self, **changed: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token(**changed)}"}

    async def publish(
        self, *objects: Any, query: str = "source=s", namespace: str = "team", **headers: str
    ) -> tuple[int, Any]:
        """Publish as a service account of a namespace."""
        status, document, _ = await self.door.post(
            lines(*objects),
            path=f"/v1/indications?{query}",
            headers=self.bearer(namespace=namespace) | headers,
        )
        return status, document

    def turned_away(self) -> dict[str, float]:
        """The requests that were not let in, by reason."""
        text = "".join(self.metrics.samples())
        name = "pillion_intake_requests_turned_away_total"
        return {
            line.split('"')[1]: float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith(f"{name}{{") and not line.endswith(" 0")
        }


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


async def test_the_bearer_of_a_good_token_publishes(gateway: Gateway) -> None:
    async with gateway.door.open():
        assert await gateway.publish(alert("a")) == (
            200,
            {"accepted": 1, "duplicate": 0, "refused": []},
        )
        # The scheme is told in any case (RFC 9110, 11.1).
        headers = {"Authorization": f"bearer  {gateway.token()} "}
        assert (await gateway.door.post(LINES, headers=headers))[0] == 200
    assert gateway.turned_away() == {}


async def test_a_connection_is_a_publishers_once_a_request_is_let_in(gateway: Gateway) -> None:
    async with gateway.door.open():
        assert (await gateway.door.post(LINES))[0] == 401
        assert (await gateway.door.post(LINES, headers={"Authorization": "Bearer a.b.c"}))[0] == 401
        # A good token alone is not enough: any pod of the cluster can have one.
        assert (await gateway.publish(alert("a"), namespace="others"))[0] == 403
        assert gateway.proven == []
        # Whether or not what it asks for can be done.
        await gateway.door.post(b"no line", headers=gateway.bearer())
        await gateway.publish(alert("a"))
    assert len(gateway.proven) == 2


async def test_without_a_token_nobody_comes_in_and_is_told_what_to_send(gateway: Gateway) -> None:
    async with gateway.door.open() as door:
        status, document, headers = await door.post(LINES)
        assert status == 401
        said = (
            "there is no token; send Authorization: Bearer TOKEN with a service account's token"
            " for the audience pillion"
        )
        assert document == {"reason": said}
        assert headers["WWW-Authenticate"] == (
            f'Bearer error="invalid_token", error_description="{said}"'
        )
        assert door.queues.taken == []
    assert gateway.turned_away() == {"missing": 1}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/indications"),
        ("GET", "/v1/receipts/abc"),
        ("POST", "/v1/flush?publisher=p"),
        ("GET", "/v1/faults?publisher=p"),
        ("GET", "/v1/service"),
        ("POST", "/CIMListener"),
        ("POST", "/CIMListener/consumer"),
        ("POST", "/cimom"),
        ("GET", "/cimom"),
        ("POST", "/"),
        ("GET", "/v1/nothing"),
        ("DELETE", "/v1/indications"),
    ],
)
async def test_every_path_asks_for_a_token(gateway: Gateway, method: str, path: str) -> None:
    async with gateway.door.open() as door:
        for headers, status in (({}, 401), (gateway.bearer(namespace="others"), 403)):
            async with door.session.request(method, door.url + path, headers=headers) as answer:
                assert answer.status == status
                assert "reason" in await answer.json()
        async with door.session.request(
            method, door.url + path, headers=gateway.bearer()
        ) as answer:
            assert answer.status not in (401, 403)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "{token}",
        "Bearer {token} {token}",
        "Bearer é",
    ],
)
async def test_what_is_no_bearer_token_is_malformed(gateway: Gateway, value: str) -> None:
    async with gateway.door.open() as door:
        given = value.replace("{token}", gateway.token())
        status, document, _ = await door.post(LINES, headers={"Authorization": given})
        assert (status, document) == (401, {"reason": "Authorization is not one Bearer TOKEN"})
    assert gateway.turned_away() == {"malformed": 1}


async def test_two_tokens_are_none(gateway: Gateway) -> None:
    async with gateway.door.open() as door:
        headers = [("Authorization", f"Bearer {gateway.token()}")] * 2
        async with door.session.post(f"{door.url}/v1/indications", headers=headers) as answer:
            assert answer.status == 401


async def test_a_bad_token_is_answered_with_what_is_wrong_and_counted(gateway: Gateway) -> None:
    expired = gateway.bearer(exp=1)
    async with gateway.door.open() as door:
        status, document, headers = await door.post(LINES, headers=expired)
        assert (status, document["reason"]) == (
            401,
            "the token has expired; request another one",
        )
        assert headers["WWW-Authenticate"].endswith(f'error_description="{document["reason"]}"')
        elsewhere = gateway.bearer(aud="https://kubernetes.default.svc")
        status, document, _ = await door.post(LINES, headers=elsewhere)
        assert status == 401
        assert "for the audience pillion" in document["reason"]
    assert gateway.turned_away() == {"expired": 1, "audience": 1}


async def test_a_challenge_quotes_nothing_that_breaks_it(gateway: Gateway) -> None:
    gateway.issuer.issuer = 'https://x/"\\é'
    gateway.renew()
    bearer = gateway.bearer(iss="https://elsewhere.example")
    async with gateway.door.open() as door:
        status, document, headers = await door.post(LINES, headers=bearer)
        assert status == 401
        assert document["reason"] == 'the token was not issued by https://x/"\\é'
        assert headers["WWW-Authenticate"] == (
            'Bearer error="invalid_token",'
            ' error_description="the token was not issued by https://x/???"'
        )


# ---------------------------------------------------------------------- publishers


async def test_another_namespace_is_refused_with_its_subject_and_the_remedy(
    gateway: Gateway,
) -> None:
    async with gateway.door.open() as door:
        status, document, _ = await door.post(LINES, headers=gateway.bearer(namespace="others"))
        assert status == 403
        assert document["reason"] == (
            "system:serviceaccount:others:spark may not publish here; name it in publishers of the"
            " gateway's IndicationService"
        )
    assert gateway.turned_away() == {"forbidden": 1}


@pytest.mark.parametrize(
    ("publishers", "allowed"),
    [
        ((), {("team", "spark"), ("team", "flink")}),
        ((AllowedPublisher(namespace="others"),), {("others", "spark"), ("others", "flink")}),
        (
            (
                AllowedPublisher(namespace="team", service_account="flink"),
                AllowedPublisher(namespace="others", service_account="spark"),
            ),
            {("team", "flink"), ("others", "spark")},
        ),
    ],
)
async def test_publishers_says_who_comes_in_and_counts_at_once(
    gateway: Gateway,
    publishers: Sequence[AllowedPublisher],
    allowed: set[tuple[str, str]],
) -> None:
    async with gateway.door.open() as door:
        subjects = [(space, name) for space in ("team", "others") for name in ("spark", "flink")]
        for namespace, account in subjects:
            # Known, and good, before the configuration changes.
            await door.post(LINES, headers=gateway.bearer(namespace=namespace, account=account))
        gateway.publishers = publishers
        for namespace, account in subjects:
            bearer = gateway.bearer(namespace=namespace, account=account)
            status, _, _ = await door.post(LINES, headers=bearer)
            assert status == (200 if (namespace, account) in allowed else 403)


class Unwanted(web.Response):
    """An answer to somebody who has left."""

    async def prepare(self, request: web.BaseRequest) -> None:
        assert request.transport is not None
        request.transport.abort()
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")


async def test_whoever_does_not_wait_for_the_answer_is_no_error_of_ours(
    gateway: Gateway, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_middleware, "_answer", lambda *_: Unwanted())
    async with gateway.door.open() as door:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await door.post(LINES)
        assert (await gateway.publish(alert("a")))[0] == 200
    assert caplog.records == []


# ---------------------------------------------------------------------- keys


async def test_before_the_keys_everybody_is_told_to_come_again() -> None:
    metrics = GatewayMetrics()
    proven: list[asyncio.BaseProtocol] = []

    def guarding(time: FakeTime) -> TokenMiddleware:
        return TokenMiddleware(
            clock=time,
            timers=time,
            publishers=tuple,
            observer=metrics,
            proven=lambda protocol, _: proven.append(protocol),
            has_proven=proven.__contains__,
        )

    async with Door(guarding=guarding).open() as door:
        for headers in ({}, {"Authorization": "Bearer a.b.c"}):
            status, document, answered = await door.post(LINES, headers=headers)
            assert status == 503
            assert document["reason"] == "the keys that tokens are verified with have not come yet"
            assert answered["Retry-After"] == "5"
    assert proven == []


async def test_keys_are_rotated(gateway: Gateway) -> None:
    """As a cluster does it: the new key is published before it signs, the old one goes later."""
    async with gateway.door.open() as door:
        first = gateway.bearer()
        assert (await door.post(LINES, headers=first))[0] == 200
        gateway.issuer.add("second", "RS256")
        second = gateway.bearer(kid="second")
        status, document, _ = await door.post(LINES, headers=second)
        assert status == 401
        assert "a key that the issuer does not have" in document["reason"]
        gateway.renew()
        assert (await door.post(LINES, headers=first))[0] == 200
        assert (await door.post(LINES, headers=second))[0] == 200
        gateway.issuer.remove("first")
        gateway.renew()
        # Though it was remembered as good.
        assert (await door.post(LINES, headers=first))[0] == 401
        assert (await door.post(LINES, headers=second))[0] == 200
    assert gateway.turned_away() == {"unknown-key": 2}


# ---------------------------------------------------------------------- remembered


async def test_a_token_is_verified_once_and_remembered_until_it_expires(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[float] = []

    def counted(token: str, keys: Any, *, now: float) -> Verified:
        verified.append(now)
        return verify(token, keys, now=now)

    monkeypatch.setattr(token_middleware, "verify", counted)
    bearer = gateway.bearer()
    async with gateway.door.open() as door:
        for _ in range(3):
            assert (await door.post(LINES, headers=bearer))[0] == 200
        assert len(verified) == 1
        door.time.advance(3600 + LEEWAY + 1)
        assert (await door.post(LINES, headers=bearer))[0] == 401
        assert len(verified) == 2


def test_the_least_recently_shown_token_gives_way_and_none_is_kept_readable() -> None:
    known = TokenCache(maximum=2)
    good = Verified(Principal("team", "spark"), until=100.0)
    known.keep("one", good)
    known.keep("two", good)
    assert known.find("one", now=1.0) is good
    known.keep("three", good)
    assert (len(known), known.find("two", now=1.0)) == (2, None)
    assert known.find("one", now=100.0) is good
    assert known.find("one", now=100.5) is None
    assert len(known) == 1
    assert "three" not in repr(vars(known))


# ---------------------------------------------------------------------- bodies


async def _head(
    gateway: Gateway, *fields: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.door.port)
    head = ["POST /v1/indications HTTP/1.1", "Host: gateway", *fields, "", ""]
    writer.write("\r\n".join(head).encode())
    await writer.drain()
    return reader, writer


async def _sent(writer: asyncio.StreamWriter, total: int) -> int:
    """Send so many bytes, or as many as the other side and the kernel's buffers take."""
    for sent in range(0, total, 65_536):
        writer.write(b"x" * 65_536)
        try:
            await writer.drain()
        except ConnectionError:
            return sent
    return total


async def _waited_for(time: FakeTime) -> None:
    """Return once the guard waits for a body."""
    while time.next_due() is None:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


async def test_a_body_is_refused_before_it_comes_and_only_a_part_of_it_is_taken(
    gateway: Gateway,
) -> None:
    total = 64 * UNREAD_BYTES
    async with gateway.door.open():
        reader, writer = await _head(
            gateway, "Content-Type: application/x-ndjson", f"Content-Length: {total}"
        )
        assert (await _answer(reader))[0] == 401
        assert await _sent(writer, total) < total / 2
        writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(gateway: Gateway) -> None:
    async with gateway.door.open() as door:
        reader, writer = await _head(gateway, "Content-Length: 1000")
        assert (await _answer(reader))[0] == 401
        await _waited_for(door.time)
        door.time.advance(UNREAD_SECONDS)
        assert await reader.read() == b""
        writer.close()


async def test_whoever_sends_a_small_body_keeps_its_connection(gateway: Gateway) -> None:
    async with gateway.door.open():
        reader, writer = await _head(gateway, "Content-Length: 4")
        assert (await _answer(reader))[0] == 401
        writer.write(b"body")
        writer.write(
            f"GET /v1/faults?publisher=x HTTP/1.1\r\nHost: gateway\r\n"
            f"Authorization: Bearer {gateway.token()}\r\n\r\n".encode()
        )
        assert (await _answer(reader))[0] == 200
        writer.close()


async def test_a_publisher_that_is_let_in_no_more_gives_back_its_place(gateway: Gateway) -> None:
    asks = (
        f"GET /v1/faults?publisher=x HTTP/1.1\r\nHost: gateway\r\n"
        f"Authorization: Bearer {gateway.token()}\r\n\r\n"
    ).encode()
    async with gateway.door.open() as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        for status in (200, 200, 403):
            writer.write(asks)
            assert (await _answer(reader))[0] == status
            if len(gateway.proven) == 2:
                gateway.publishers = (AllowedPublisher(namespace="team", service_account="other"),)
        assert await reader.read() == b""
        writer.close()


async def test_too_many_unread_bodies_are_cut_off_at_once(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_middleware, "UNREAD_REQUESTS", 1)
    async with gateway.door.open() as door:
        reader, waiting = await _head(gateway, "Content-Length: 1000")
        await _answer(reader)
        await _waited_for(door.time)
        other, writer = await _head(gateway, "Content-Length: 1000")
        await _answer(other)
        assert await other.read() == b""
        for one in (waiting, writer):
            one.close()


async def test_whoever_asks_first_need_not_send_a_body_that_is_refused(gateway: Gateway) -> None:
    async with gateway.door.open():
        expect = ("Expect: 100-continue", "Content-Length: 1000000")
        reader, writer = await _head(gateway, *expect)
        assert (await _answer(reader))[0] == 401
        assert await reader.read() == b""
        writer.close()
        bearer = f"Authorization: Bearer {gateway.token()}"
        kind = "Content-Type: application/x-ndjson"
        reader, writer = await _head(
            gateway, "Expect: 100-continue", f"Content-Length: {len(LINES)}", kind, bearer
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(LINES)
        assert (await _answer(reader))[0] == 200
        writer.close()


# ---------------------------------------------------------------------- namespaces apart


@pytest.fixture
def shared(gateway: Gateway) -> Gateway:
    gateway.publishers = tuple(AllowedPublisher(namespace=name) for name in ("team", "others"))
    return gateway


async def test_two_namespaces_may_call_two_things_by_one_name(shared: Gateway) -> None:
    async with shared.door.open() as door:
        for namespace in ("team", "others"):
            first = await shared.publish(alert("a"), namespace=namespace)
            assert first == (200, {"accepted": 1, "duplicate": 0, "refused": []})
            again = await shared.publish(alert("a"), namespace=namespace)
            assert again == (200, {"accepted": 0, "duplicate": 1, "refused": []})
        # A listener is told the publisher's own source.
        assert [one.source for one in door.queues.taken] == ["s", "s"]


async def test_a_source_that_looks_like_another_namespaces_is_not(shared: Gateway) -> None:
    async with shared.door.open():
        await shared.publish(alert("a"), query="source=s")
        for namespace, source in (("others", "team/s"), ("team", "team/s")):
            _, document = await shared.publish(
                alert("a"), query=f"source={source}", namespace=namespace
            )
            assert document["accepted"] == 1


async def test_a_namespace_has_one_rate_limit_whatever_it_calls_itself(shared: Gateway) -> None:
    async with shared.door.open() as door:
        door.context.paces = PublisherPaces(RateLimit(per_second=0.1, burst=2))
        statuses = {
            namespace: [
                (await shared.publish(alert("a"), query=f"source={name}", namespace=namespace))[0]
                for name in "abc"
            ]
            for namespace in ("team", "others")
        }
        assert statuses == {"team": [200, 200, 429], "others": [200, 200, 429]}


async def test_an_identity_by_sequence_is_a_namespaces_own(shared: Gateway) -> None:
    line = alert(None, SequenceContext="c", SequenceNumber=1)
    async with shared.door.open():
        for namespace in ("team", "others"):
            for accepted in (1, 0):
                _, document = await shared.publish(line, query="ack=accepted", namespace=namespace)
                assert document["accepted"] == accepted


async def test_a_message_group_is_a_namespaces_own(shared: Gateway) -> None:
    async with shared.door.open() as door:
        members = [
            alert() | {"group": "g", "sequence": n, "ordered": True, "groupMaxIdleSeconds": 60}
            for n in (0, 1)
        ]
        for namespace in ("team", "others"):
            for member in members:
                _, document = await shared.publish(member, namespace=namespace)
                assert document["accepted"] == 1
        assert [one.group for one in door.queues.taken] == ["team/g"] * 2 + ["others/g"] * 2
        assert door.groups.active == 2
        # An order that was refused for now is its own, too.
        _, document = await shared.publish(members[0], namespace="team")
        assert document["duplicate"] == 1


async def test_a_publishers_counts_and_faults_are_its_namespaces_own(shared: Gateway) -> None:
    async with shared.door.open() as door:
        line = alert("a") | {"group": "g"}
        await shared.publish(line, **{"Pillion-Publisher": "p"})
        door.queues.settle(0, discarded=DiscardReason.FATAL_ERROR)
        others, own = shared.bearer(namespace="others"), shared.bearer()
        for path in ("/v1/faults?publisher=p", "/v1/faults?publisher=team/p"):
            status, document = await door.get(path, others)
            assert (status, document["faults"]) == (200, [])
        for path in ("/v1/flush?publisher=p", "/v1/flush?publisher=team/p"):
            assert (await door.post(b"", path=path, headers=others))[0] == 404
        status, document = await door.get("/v1/faults?publisher=p", own)
        assert status == 200
        assert [fault["group"] for fault in document["faults"]] == ["g"]
        status, document, _ = await door.post(b"", path="/v1/flush?publisher=p", headers=own)
        assert status == 200
        assert document["destinations"]["siem"]["discarded"] == {"fatal-error": 1}


async def test_a_receipt_is_its_namespaces_own(shared: Gateway) -> None:
    async with shared.door.open() as door:
        status, document = await shared.publish(
            alert("a"), query="source=s&ack=delivered&timeout=0"
        )
        assert status == 202
        path = f"/v1/receipts/{document['receipt']}?timeout=0"
        assert (await door.get(path, shared.bearer(namespace="others")))[0] == 404
        assert (await door.get(path, shared.bearer()))[0] == 202


async def test_only_the_gateways_own_namespace_relays_past_all_filters(shared: Gateway) -> None:
    shared.door.routes.takes_relayed = True
    async with shared.door.open() as door:
        for namespace, expected in (("others", 403), ("team", 200)):
            bearer = shared.bearer(namespace=namespace)
            status, document, _ = await door.post(b"", path="/v1/relay", headers=bearer)
            assert status == expected
            assert ("only sidecars" in str(document)) is (expected == 403)
        assert door.queues.taken == []


# ---------------------------------------------------------------------- telemetry


async def test_nothing_that_is_logged_answered_or_counted_has_a_token(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    bearers: Sequence[Callable[[], str]] = (
        gateway.token,
        lambda: gateway.token(exp=1),
        lambda: gateway.token(namespace="others"),
        lambda: gateway.token(header={"kid": "none"}),
    )
    told = ""
    async with gateway.door.open() as door:
        for make in bearers:
            token = make()
            _, document, headers = await door.post(
                LINES, headers={"Authorization": f"Bearer {token}"}
            )
            told += f"{document}{headers}" + "".join(gateway.metrics.samples())
            told += f"{gateway.guard!r}{vars(gateway.guard)!r}"
            for secret in token.split(".")[1:]:
                assert secret not in told + caplog.text


def test_each_reason_is_counted_from_the_start() -> None:
    metrics = GatewayMetrics()
    assert list(metrics.samples()) == []
    metrics.keys_read(2)
    metrics.keys_read(None)
    text = "".join(metrics.samples())
    for reason in Turned:
        assert f'turned_away_total{{reason="{reason}"}} 0' in text
    assert "pillion_token_keys 2" in text
    assert "pillion_token_keys_last_read_successful 0" in text
    assert "certificate" not in text
