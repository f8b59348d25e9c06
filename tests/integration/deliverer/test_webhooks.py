"""Webhooks over real sockets: signed, of presets, of templates. Secrets are followed and hidden."""

import base64
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from pillion_sidecar.delivery.handler import GONE_SECONDS
from pillion_sidecar.testing import FakeTime
from support.resources import JSON, secret
from support.running import Running, alert, alerts, listener, resources, running
from support.webhooks import Receiver, receiving

KEY = "R0UTINGkey0123456789abcdefABCDEF"
NEW, OLD = ("whsec_" + base64.b64encode(text * 8).decode() for text in (b"new!", b"old!"))
SEED = bytes(range(32))
PRIVATE = "whsk_" + base64.b64encode(SEED).decode()


def signed(url: str, *keys: str, **spec: Any) -> JSON:
    references = [{"name": "hook", "key": key} for key in keys]
    credentials = {"signing": {"secretRefs": references}}
    return listener("hook", url, protocol="StandardWebhooks", credentials=credentials, **spec)


def webhook(url: str, webhook: JSON, **spec: Any) -> JSON:
    return listener("hook", url, protocol="Webhook", webhook=webhook, **spec)


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[Any]:
    return [one for one in caplog.records if getattr(one, "event", None) == name]


async def hold(run: Running) -> JSON:
    """Wait until the queue is held or paused; return what is shown of it."""
    health = run.queue("hook").health
    await run.until(lambda: health.hold is not None and health.next_attempt_at is not None)
    document = (await run.get("/v1/queues/hook")).document
    shown: JSON = document["hold"] or document["pause"]
    return shown


def real_time() -> FakeTime:
    """The public library compares a request's time with the real one."""
    return FakeTime(epoch=time.time())


async def test_the_public_library_verifies_what_arrives_while_secrets_are_replaced(
    tmp_path: Path,
) -> None:
    steps: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (("a",), {"a": OLD}),
        (("a", "b"), {"a": NEW, "b": OLD}),
        (("a",), {"a": NEW}),
        # The Secret alone changes.
        (("a",), {"a": PRIVATE}),
    ]
    async with receiving() as receiver:
        first = (*resources(signed(receiver.url, *steps[0][0])), secret("hook", steps[0][1]))
        async with running(tmp_path, *first, time=real_time()) as run:
            for number, (keys, held) in enumerate(steps):
                if number:
                    await run.reload(*resources(signed(receiver.url, *keys)), secret("hook", held))
                await run.publish(alert(f"a.{number}"))
                await run.settled()
    assert [head["webhook-id"] for head, _ in receiver.received] == [
        f"a%2E{number}" for number in range(4)
    ]
    assert [verified(receiver, OLD), verified(receiver, NEW)] == [[0, 1], [1, 2]]
    head, body = receiver.received[3]
    (version, signature) = head["webhook-signature"].split(",")
    assert version == "v1a"
    to_sign = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + body
    public = Ed25519PrivateKey.from_private_bytes(SEED).public_key()
    public.verify(base64.b64decode(signature), to_sign)


def verified(receiver: Receiver, text: str) -> list[int]:
    """The numbers of the requests that a secret verifies."""
    found = []
    for number, (head, body) in enumerate(receiver.received):
        try:
            Webhook(text).verify(body, head)
        except WebhookVerificationError:
            continue
        found.append(number)
    return found


async def test_a_retry_has_the_same_identifier(tmp_path: Path) -> None:
    async with receiving((503, b""), (500, b"")) as receiver:
        documents = (*resources(signed(receiver.url, "a")), secret("hook", {"a": NEW}))
        async with running(tmp_path, *documents) as run:
            await run.publish(alert(None))
            for failures in (1, 2):
                await run.failed("hook", failures)
                run.time.advance(30)
            await run.settled()
    assert len({head["webhook-id"] for head, _ in receiver.received}) == 1
    assert len({head["webhook-timestamp"] for head, _ in receiver.received}) == 3


async def test_a_wrong_secret_holds_the_destination_and_is_shown_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with receiving() as receiver:
        wrong = secret("hook", {"a": "whsec_planted-secret"})
        documents = resources(signed(receiver.url, "a"))
        async with running(tmp_path, *documents, wrong) as run:
            await run.publish(*alerts(0, 2))
            found = await hold(run)
            assert found["cause"] == "invalid-credentials"
            assert "spec.credentials.signing.secretRefs[0].name" in found["message"]
            assert "in its key a is not Base64" in found["message"]
            (warning,) = events(caplog, "configuration-warning")
            assert "(value 'hook')" in warning.getMessage()
            assert "planted" not in json.dumps(found) + caplog.text
            assert receiver.received == []
            await run.reload(*documents, secret("hook", {"a": NEW}))
            await run.settled()
    assert [head["webhook-id"] for head, _ in receiver.received] == ["0", "1"]


async def test_a_listener_that_is_gone_is_left_alone_for_an_hour_and_loses_nothing(
    tmp_path: Path,
) -> None:
    async with receiving((410, b"")) as receiver:
        documents = (*resources(signed(receiver.url, "a")), secret("hook", {"a": NEW}))
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 2))
            found = await hold(run)
            assert found["cause"] == "invalid-destination"
            assert "HTTP 410" in found["message"]
            run.time.advance(GONE_SECONDS - 1)
            await hold(run)
            assert len(receiver.received) == 1
            run.time.advance(1)
            await run.settled()
    assert [head["webhook-id"] for head, _ in receiver.received] == ["0", "0", "1"]


@pytest.mark.parametrize("preset", ["Slack", "Teams", "PagerDuty", "Alertmanager"])
async def test_a_service_takes_what_its_preset_sends(tmp_path: Path, preset: str) -> None:
    async with receiving(service=preset) as receiver:
        needs_key = preset == "PagerDuty"
        credentials = {"apiKey": {"secretRef": {"name": "key"}}} if needs_key else None
        to = webhook(receiver.url, {"preset": preset}, credentials=credentials)
        async with running(tmp_path, *resources(to), secret("key", {"key": KEY})) as run:
            message = 'Fan "1" <!channel> ${apiKey}\\'
            await run.publish(alert("a"), alert("b", Message=message))
            await run.settled()
            assert run.queue("hook").statistics.delivered == 2
    assert receiver.complaints == []
    assert len(receiver.received) == 2


async def test_a_template_is_filled_and_a_wrong_one_holds_its_destination(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiving() as receiver:
        wrong = resources(webhook(receiver.url, {"template": '{"text": ["${json:Message}!"]}'}))
        right = resources(
            webhook(
                receiver.url, {"template": '{"text": ["${Message}!"], "n": "${json:AlertType}"}'}
            )
        )
        async with running(tmp_path, *wrong) as run:
            await run.publish(alert("a", Message='say "hi"'))
            found = await hold(run)
            assert found["cause"] == "invalid-destination"
            assert "spec.webhook.template: text[0]: '${json:Message}' is not" in found["message"]
            (warning,) = events(caplog, "configuration-warning")
            assert "text[0]" in warning.getMessage()
            await run.reload(*right)
            await run.settled()
            # A running deliverer keeps what was right.
            await run.reload(*wrong)
            assert len(events(caplog, "configuration-refused")) == 1
            await run.publish(alert("b", Message="b"))
            await run.settled()
    assert [json.loads(body) for _, body in receiver.received] == [
        {"text": ['say "hi"!'], "n": 6},
        {"text": ["b!"], "n": 6},
    ]


@pytest.mark.parametrize(
    ("key", "answers", "says"),
    [
        ("planted-key", (), "32 letters and digits"),
        (KEY, ((400, b'{"errors":["Invalid routing key"]}'),), "Invalid routing key"),
        (KEY, ((400, b'{"errors":["Invalid routing key %b"]}' % KEY.encode()),), "is not shown"),
    ],
)
async def test_a_wrong_routing_key_holds_the_destination_and_is_shown_nowhere(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    key: str,
    answers: tuple[tuple[int, bytes], ...],
    says: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with receiving(*answers, service="PagerDuty") as receiver:
        credentials = {"apiKey": {"secretRef": {"name": "key"}}}
        to = webhook(receiver.url, {"preset": "PagerDuty"}, credentials=credentials)
        async with running(tmp_path, *resources(to), secret("key", {"key": key})) as run:
            await run.publish(alert("a"))
            found = await hold(run)
            assert found["cause"] == f"{'refused' if answers else 'invalid'}-credentials"
            assert says in found["message"]
            assert key not in json.dumps((await run.get("/v1/queues/hook")).document)
            assert key not in caplog.text
            other = secret("key", {"key": KEY[::-1]})
            await run.reload(*resources(to), other)
            await run.settled()
    assert json.loads(receiver.received[-1][1])["routing_key"] == KEY[::-1]


async def test_of_an_answer_from_a_secret_url_the_status_alone_is_told(tmp_path: Path) -> None:
    async with receiving((404, b"no_service planted"), service="Slack") as receiver:
        to = webhook(receiver.url, {"preset": "Slack"})
        del to["spec"]["destination"]
        to["spec"]["destinationFrom"] = {"secretKeyRef": {"name": "url"}}
        async with running(tmp_path, *resources(to), secret("url", {"url": receiver.url})) as run:
            await run.publish(alert("a"))
            await run.failed("hook", 1)
            shown = json.dumps((await run.get("/v1/queues/hook")).document)
            assert "HTTP 404" in shown
            assert "planted" not in shown
            run.time.advance(30)
            await run.settled()
