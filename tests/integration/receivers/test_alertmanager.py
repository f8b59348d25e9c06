"""A real Alertmanager takes the alerts of the preset."""

import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pillion_sidecar.testing import FakeTime
from pillion_testbed.helm import CHART
from support.alertmanager import ALERTMANAGER, WITHOUT_ALERTMANAGER, alertmanager
from support.broker_programs import free_port
from support.running import alert, listener, resources
from support.running import running as deliverer

pytestmark = pytest.mark.skipif(ALERTMANAGER is None, reason=WITHOUT_ALERTMANAGER)
INHIBITIONS = (CHART / "files" / "inhibitions.yaml").read_text()
TRIES = 20_000
TEXT = 'Wind: 41 < 60 & "gusty" – ünïcode\\ ${x} {{ .Labels }}\nnext'


async def held(url: str) -> dict[str, Any]:
    """Its alerts, by the label event_id."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return {one["labels"].get("event_id", ""): one for one in json.loads(await answer.text())}


async def test_it_has_the_alerts_after_it_was_down(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/api/v2/alerts"
    hook = listener("on-call", url, protocol="Webhook", webhook={"preset": "Alertmanager"})
    # It shows no alert that has ended.
    now = FakeTime(epoch=time.time())
    async with deliverer(tmp_path, *resources(hook), time=now) as run:
        await run.publish(alert("a", EventID="e-1", Message=TEXT, SystemName="station-7"))
        await run.failed("on-call", 1)
        async with alertmanager(tmp_path, port):
            run.retry("on-call")
            await run.publish(alert("b", EventID="e-2", PerceivedSeverity=7))
            await run.settled()
            assert await run.books("on-call") == {"depth": 0, "delivered": 2, "discarded": 0}
            alerts = await held(url)
    assert set(alerts) == {"e-1", "e-2"}
    first, second = alerts["e-1"], alerts["e-2"]
    assert first["labels"]["alertname"] == "CIM_AlertIndication"
    assert first["labels"]["system"] == "station-7"
    assert first["annotations"]["summary"] == TEXT
    assert second["labels"]["severity"] == "critical"


def fired(name: str, destination: str) -> dict[str, Any]:
    labels = {"alertname": name, "namespace": "weather", "service": "default"}
    return {"labels": labels | {"destination": destination}}


async def sent_of(place: Path, alerts: list[dict[str, Any]], number: int) -> list[tuple[str, str]]:
    """Name and destination of those that are sent, when this many are."""
    async with (
        alertmanager(place, free_port(), rules=INHIBITIONS) as url,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(url, json=alerts) as answer:
            assert answer.status == 200
        # A task of its own tells the inhibitor of alerts.
        for _ in range(TRIES):
            async with session.get(url, params={"inhibited": "false"}) as answer:
                sent = await answer.json()
            if len(sent) == number:
                break
    labels = [one["labels"] for one in sent]
    return sorted((one["alertname"], one.get("destination", "")) for one in labels)


@pytest.mark.parametrize(
    "cause",
    ["PillionListenerUnreachable", "PillionDestinationPaused", "PillionDestinationHeld"],
)
async def test_a_listener_in_trouble_is_one_alert(tmp_path: Path, cause: str) -> None:
    effects = [
        "PillionListenerSlow",
        "PillionListenerBacklogged",
        "PillionQueueFilling",
        "PillionIndicationsDiscarded",
    ]
    all_fired = [
        *(fired(name, "siem") for name in (cause, *effects)),
        *(fired(name, "archive") for name in effects),
    ]
    # At the other destination the slow listener stands for its backlog.
    others = [name for name in effects if name != "PillionListenerBacklogged"]
    expected = [*((name, "archive") for name in others), (cause, "siem")]
    assert await sent_of(tmp_path, all_fired, len(expected)) == sorted(expected)


async def test_a_slow_listener_is_one_alert_until_its_queue_fills_up(tmp_path: Path) -> None:
    fills = ["PillionQueueFilling", "PillionIndicationsDiscarded"]
    names = ["PillionListenerSlow", "PillionListenerBacklogged", *fills]
    others = [fired("PillionListenerBacklogged", "archive")]
    all_fired = [*(fired(name, "siem") for name in names), *others]
    expected = [(name, "siem") for name in ("PillionListenerSlow", *fills)]
    expected.append(("PillionListenerBacklogged", "archive"))
    assert await sent_of(tmp_path, all_fired, len(expected)) == sorted(expected)


async def test_late_deliveries_are_one_alert(tmp_path: Path) -> None:
    names = ["PillionDeliveriesLate", "PillionDeliveriesLateForHours"]
    elsewhere = fired("PillionDeliveriesLateForHours", "")
    elsewhere["labels"]["service"] = "gateway"
    all_fired = [*(fired(name, "") for name in names), elsewhere]
    sent = await sent_of(tmp_path, all_fired, len(names))
    assert [name for name, _ in sent] == names


async def test_its_earlier_interface_is_gone_and_holds_the_destination(tmp_path: Path) -> None:
    async with alertmanager(tmp_path, free_port()) as url:
        earlier = url.replace("/api/v2/", "/api/v1/")
        hook = listener("on-call", earlier, protocol="Webhook", webhook={"template": "[]"})
        async with deliverer(tmp_path, *resources(hook)) as run:
            await run.publish(alert("a"))
            await run.until(lambda: run.queue("on-call").health.hold is not None)
            hold = run.queue("on-call").health.hold
    assert hold is not None
    assert "HTTP 410" in hold.message
