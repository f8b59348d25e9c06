"""Tokens that change while indications are delivered: nothing is lost, nothing is shown."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from support.resources import JSON, secret
from support.running import Running, alert, alerts, listener, resources, running
from support.token_endpoint import CLIENT, guarded


def events(bodies: list[bytes]) -> list[str]:
    return [json.loads(body)["id"] for body in bodies]


def with_client(url: str, token_url: str, **spec: Any) -> JSON:
    client = {"tokenURL": token_url, "secretRef": {"name": "client"}}
    given = {"protocol": "CloudEvents", "credentials": {"oauth2": client}, **spec}
    return listener("hook", url, **given)


async def paused(run: Running) -> JSON:
    health = run.queue("hook").health
    await run.until(lambda: health.hold is not None and health.next_attempt_at is not None)
    shown: JSON = (await run.get("/v1/queues/hook")).document["pause"]
    return shown


async def test_a_token_is_replaced_before_it_expires_and_after_it_was_revoked(
    tmp_path: Path,
) -> None:
    async with guarded() as (endpoint, taken):
        documents = (*resources(with_client(taken.url, endpoint.url)), secret("client", CLIENT))
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 3))
            await run.settled()
            assert endpoint.issued == 1
            run.time.advance(endpoint.lifetime)
            await run.publish(*alerts(3, 3))
            await run.settled()
            assert (endpoint.issued, taken.refused) == (2, 0)
            run.time.advance(60)
            endpoint.valid = "revoked"
            await run.publish(*alerts(6, 3))
            await run.failed("hook", 1)
            run.time.advance(30)
            await run.settled()
            assert (endpoint.issued, taken.refused) == (3, 1)
    assert events(taken.bodies) == [str(number) for number in range(9)]


async def test_a_wrong_secret_pauses_the_destination_until_it_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded() as (endpoint, taken):
        to = resources(with_client(taken.url, endpoint.url))
        wrong = secret("client", {**CLIENT, "clientSecret": "planted-wrong"})
        async with running(tmp_path, *to, wrong) as run:
            await run.publish(*alerts(0, 2))
            found = await paused(run)
            assert found["cause"] == "refused-credentials"
            assert "invalid_client" in found["message"]
            assert taken.bodies == []
            await run.reload(*to, secret("client", CLIENT))
            await run.settled()
            queue = (await run.get("/v1/queues/hook")).document
    assert events(taken.bodies) == ["0", "1"]
    shown = json.dumps(queue) + caplog.text
    assert [one for one in ("planted-wrong", "s3cret", "token-1") if one in shown] == []


async def test_an_endpoint_that_is_down_spends_no_attempt(tmp_path: Path) -> None:
    async with guarded() as (endpoint, taken):
        # Nothing listens at port 1.
        down = with_client(taken.url, "http://127.0.0.1:1/token", retry={"attempts": 1})
        async with running(tmp_path, *resources(down), secret("client", CLIENT)) as run:
            await run.publish(alert("a"))
            for failures in range(1, 6):
                await run.failed("hook", failures)
                run.time.advance(30)
            up = with_client(taken.url, endpoint.url, retry={"attempts": 1})
            await run.reload(*resources(up), secret("client", CLIENT))
            await run.settled()
    assert events(taken.bodies) == ["a"]


async def test_a_bearer_token_is_rotated_by_changing_its_secret(tmp_path: Path) -> None:
    async with guarded() as (endpoint, taken):
        bearer = {"bearer": {"secretRef": {"name": "token"}}}
        to = resources(listener("hook", taken.url, protocol="CloudEvents", credentials=bearer))
        endpoint.valid = "old"
        async with running(tmp_path, *to, secret("token", {"token": "old"})) as run:
            await run.publish(*alerts(0, 2))
            await run.settled()
            # The listener takes the new token alone before the Secret has it.
            endpoint.valid = "new"
            await run.publish(*alerts(2, 2))
            assert (await paused(run))["cause"] == "refused-credentials"
            await run.reload(*to, secret("token", {"token": "new"}))
            await run.settled()
    assert events(taken.bodies) == ["0", "1", "2", "3"]
    assert taken.refused == 1
