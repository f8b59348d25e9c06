"""Each line of the table of answers, against a listener (S0.6, S0.8)."""

import asyncio
import json
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.schema.response_policy import DEFAULTS, Action
from support.http_listener import Peer, listening
from support.resources import JSON, secret
from support.running import Running, alerts, later, listener, resources, running
from support.webhooks import Receiver, receiving

RETRY = {"attempts": 5, "intervalSeconds": 30, "maximumIntervalSeconds": 120}
DAY = 86_400


def to(url: str, **spec: Any) -> tuple[JSON, ...]:
    usual = {"retry": RETRY, "indicationLifetimeSeconds": DAY}
    return resources(listener("hook", url, protocol="CloudEvents", **{**usual, **spec}))


def identifiers(receiver: Receiver) -> list[str]:
    return [json.loads(body)["id"] for _, body in receiver.received]


def statuses(action: Action, *, heeds: bool = False) -> list[int]:
    """The statuses of the table's lines with an action, one for each class."""
    named = [
        answer
        for line in DEFAULTS
        if line.action is action and line.heeds_retry_after is heeds
        for answer in line.answers
    ]
    return [int(one.replace("xx", "02")) for one in named if one[0].isdigit()]


async def paused(run: Running) -> JSON:
    health = run.queue("hook").health
    await run.until(lambda: health.is_paused and health.next_attempt_at is not None)
    found: JSON = (await run.get("/v1/queues/hook")).document
    return found


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[Any]:
    return [one for one in caplog.records if getattr(one, "event", None) == name]


@pytest.mark.parametrize("status", statuses(Action.RETRY))
async def test_an_answer_that_says_nothing_of_the_indication_is_retried(
    tmp_path: Path, status: int
) -> None:
    async with (
        receiving((status, b""), (status, b"")) as receiver,
        running(tmp_path, *to(receiver.url)) as run,
    ):
        await run.publish(*alerts(0, 2))
        for failures in (1, 2):
            await run.failed("hook", failures)
            run.time.advance(30)
        await run.settled()
    assert identifiers(receiver) == ["0", "0", "0", "1"]


@pytest.mark.parametrize("status", statuses(Action.RETRY, heeds=True))
@pytest.mark.parametrize(
    ("asked", "wait"),
    [("60", 60), ("Thu, 01 Jan 1970 00:00:00 GMT", 30), ("86400", 120), ("soon", 30)],
)
async def test_an_overloaded_listener_says_when_up_to_the_cap(
    tmp_path: Path, status: int, asked: str, wait: int
) -> None:
    answered = 0

    async def script(peer: Peer) -> None:
        nonlocal answered
        while True:
            await peer.request()
            answered += 1
            if answered == 1:
                head = f"HTTP/1.1 {status} X\r\nRetry-After: {asked}\r\nContent-Length: 0\r\n\r\n"
                await peer.send(head.encode())
            else:
                await peer.send(b"HTTP/1.1 204 X\r\nContent-Length: 0\r\n\r\n")

    async with listening(script) as there, running(tmp_path, *to(there.url)) as run:
        await run.publish(*alerts(0, 1))
        await run.failed("hook", 1)
        due = run.queue("hook").health.next_attempt_at
        assert due is not None
        assert due - run.time.monotonic() == pytest.approx(wait)
        run.retry("hook")
        await run.settled()
    assert answered == 2


@pytest.mark.parametrize("status", statuses(Action.DISCARD))
async def test_a_refused_indication_is_discarded_after_three_attempts(
    tmp_path: Path, status: int
) -> None:
    async with (
        receiving(*[(status, b"")] * 3) as receiver,
        running(tmp_path, *to(receiver.url)) as run,
    ):
        await run.publish(*alerts(0, 2))
        for attempts in (1, 2):
            await run.until(
                lambda made=attempts: (
                    len(receiver.received) == made and not run.queue("hook").in_flight
                )
            )
            run.time.advance(30)
        await run.settled()
        assert (await run.books("hook"))["discarded"] == 1
    assert identifiers(receiver) == ["0", "0", "0", "1"]


@pytest.mark.parametrize("status", statuses(Action.PAUSE))
async def test_refused_credentials_pause_until_the_oldest_is_taken(
    tmp_path: Path, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with (
        receiving(*[(status, b"")] * 3) as receiver,
        running(tmp_path, *to(receiver.url)) as run,
    ):
        await run.publish(*alerts(0, 3))
        shown = await paused(run)
        assert shown["pause"]["cause"] == "refused-credentials"
        assert f"HTTP {status}" in shown["pause"]["message"]
        assert (shown["hold"], shown["firstLossDueTime"] is not None) == (None, True)
        labels = {"destination": "hook", "cause": "refused-credentials"}
        assert await run.metric("pillion_destination_paused", **labels) == 1
        for probes in (2, 3):
            run.time.advance(120)
            await run.until(lambda made=probes: len(receiver.received) == made)
            await paused(run)
        assert identifiers(receiver) == ["0"] * 3
        run.time.advance(120)
        await run.settled()
        assert (await run.get("/v1/queues/hook")).document["pause"] is None
    assert identifiers(receiver) == ["0", "0", "0", "0", "1", "2"]
    assert len(events(caplog, "destination-paused")) == 1
    assert len(events(caplog, "destination-resumed")) == 1


async def test_a_rotated_secret_is_tried_at_once(tmp_path: Path) -> None:
    bearer = {"bearer": {"secretRef": {"name": "token"}}}
    async with receiving((401, b""), (401, b"")) as receiver:
        documents = to(receiver.url, credentials=bearer)
        async with running(tmp_path, *documents, secret("token", {"token": "old"})) as run:
            await run.publish(*alerts(0, 2))
            await paused(run)
            await run.reload(*documents, secret("token", {"token": "wrong"}))
            await run.until(lambda: len(receiver.received) == 2)
            await paused(run)
            await run.reload(*documents, secret("token", {"token": "right"}))
            await run.settled()
    assert identifiers(receiver) == ["0", "0", "0", "1"]
    sent = [head["authorization"] for head, _ in receiver.received]
    assert sent == ["Bearer old", "Bearer wrong", "Bearer right", "Bearer right"]


async def test_a_pause_outlasts_sigkill(tmp_path: Path, journal: Path) -> None:
    async with receiving((403, b""), (403, b"")) as receiver:
        documents = to(receiver.url)
        async with running(tmp_path, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 3), ack="durable")
            await paused(run)
            await run.kept()
            since = (await run.get("/v1/queues/hook")).document["pause"]["since"]
            await run.kill()
        time = later(run.time, 10)
        async with running(tmp_path, *documents, journal=journal, time=time) as again:
            shown = await paused(again)
            await again.until(lambda: len(receiver.received) == 2)
            assert (shown["pause"]["cause"], shown["pause"]["since"], shown["depth"]) == (
                "refused-credentials",
                since,
                3,
            )
            await paused(again)
            again.time.advance(120)
            await again.settled()
    assert identifiers(receiver) == ["0", "0", "0", "1", "2"]


async def test_410_disables_where_that_is_asked_for(tmp_path: Path) -> None:
    policy = {"responsePolicy": [{"answers": ["410"], "action": "Disable"}]}
    async with (
        receiving((410, b"")) as receiver,
        running(tmp_path, *to(receiver.url, **policy)) as run,
    ):
        await run.publish(*alerts(0, 2))
        await run.until(lambda: run.queue("hook").health.hold is not None)
        run.time.advance(7 * DAY)
        shown = (await run.get("/v1/queues/hook")).document
        assert (shown["hold"]["cause"], shown["depth"]) == ("disabled", 2)
        assert "until its spec changes" in shown["hold"]["message"]
        assert (shown["pause"], shown["nextAttemptTime"]) == (None, None)
        assert len(receiver.received) == 1
        await run.reload(*to(receiver.url, **policy, queueSize=9))
        await run.settled()
    assert identifiers(receiver) == ["0", "0", "1"]


async def test_a_rule_of_the_service_comes_behind_those_of_the_destination(tmp_path: Path) -> None:
    own = [{"answers": ["503"], "action": "Discard"}]
    of_service = [{"answers": ["5xx"], "action": "Pause"}]
    async with receiving((503, b""), (502, b"")) as receiver:
        documents = resources(
            listener("hook", receiver.url, protocol="CloudEvents", retry=RETRY, responsePolicy=own),
            responsePolicy=of_service,
        )
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 2))
            shown = await paused(run)
            assert shown["pause"]["cause"] == "response-policy"
            assert shown["discarded"] == {"fatal-error": 1}
    assert identifiers(receiver) == ["0", "1"]


async def refused(word: str, tmp_path: Path, url: str) -> JSON:
    """What a queue says that a rule about the word pauses."""
    rules = [
        {"answers": [one], "action": "Pause" if one == word else "Discard"}
        for one in ("connection", "timeout", "tls")
    ]
    documents = to(url, responsePolicy=rules, timeoutSeconds=5)
    async with running(tmp_path, *documents) as run:
        await run.publish(*alerts(0, 1))
        if word == "timeout":
            await run.until(lambda: bool(run.queue("hook").in_flight))
            # The request is on its way, or at the listener.
            for _ in range(20):
                await asyncio.sleep(0)
            run.time.advance(6)
        return await paused(run)


async def test_nobody_who_listens_is_connection(tmp_path: Path) -> None:
    shown = await refused("connection", tmp_path, "http://127.0.0.1:1/")
    assert "refused" in shown["pause"]["message"]


async def test_a_connection_that_ends_without_an_answer_is_connection(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()

    async with listening(script) as there:
        shown = await refused("connection", tmp_path, there.url)
    assert shown["lastResult"]["result"] == "post-delivery-error"


async def test_no_answer_in_time_is_timeout(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.closed()

    async with listening(script) as there:
        shown = await refused("timeout", tmp_path, there.url)
    assert "timed out" in shown["pause"]["message"]


async def test_a_certificate_of_nobody_known_is_tls(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.closed()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    async with listening(script, context) as there:
        shown = await refused("tls", tmp_path, there.url)
    assert "certificate" in shown["pause"]["message"]


async def test_a_breaker_spares_a_listener_that_fails(tmp_path: Path) -> None:
    breaker = {"circuitBreaker": {"failures": 2, "probeIntervalSeconds": 100}}
    async with (
        receiving(*[(500, b"")] * 3) as receiver,
        running(tmp_path, *to(receiver.url, **breaker)) as run,
    ):
        await run.publish(*alerts(0, 2))
        await run.failed("hook", 1)
        run.time.advance(30)
        shown = await paused(run)
        assert shown["pause"]["cause"] == "circuit-breaker"
        assert shown["failingSince"] is not None
        run.time.advance(99)
        assert len(receiver.received) == 2
        run.time.advance(1)
        await run.until(lambda: len(receiver.received) == 3)
        await paused(run)
        run.time.advance(100)
        await run.settled()
    assert identifiers(receiver) == ["0", "0", "0", "0", "1"]
