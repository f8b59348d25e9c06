"""A deliverer as it is run, polled by the operator's own client."""

from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

from pillion_operator.clock import SystemClock
from pillion_operator.polling.client import DelivererClient
from pillion_operator.polling.reports import (
    NO_TOKEN,
    DelivererReport,
    DeliveryResult,
    Unreachable,
)
from support.resources import alert_filter, destination, service, subscription, write_rendered
from support.running import alerts
from support.sidecar import Sidecar, sidecar

TOKEN = "f" * 64


async def poll(running: Sidecar, token: str = TOKEN) -> DelivererReport | Unreachable:
    place = urlsplit(running.telemetry)
    assert place.hostname is not None
    assert place.port is not None
    async with aclosing(DelivererClient(clock=SystemClock(), port=place.port)) as client:
        return await client.poll("pod", address=place.hostname, token=token)


async def test_a_deliverer_reports_its_revision_and_its_failing_queue(tmp_path: Path) -> None:
    configuration, token_file = tmp_path / "configuration", tmp_path / "operator-token"
    configuration.mkdir()
    token_file.write_text(TOKEN)
    expired = subscription("expired", subscriptionDurationSeconds=1)
    expired["metadata"].update(uid="u-1", creationTimestamp="2026-01-01T00:00:00Z")
    rendered = write_rendered(
        configuration,
        service(),
        destination(destination="http://127.0.0.1:1/nobody", protocol="CIM-XML"),
        alert_filter(),
        subscription(),
        expired,
    )
    options = ("--operator-token-file", str(token_file), "--wait-for-configuration")

    async with sidecar(configuration, "--service", "default", *options) as running:
        await running.logged("configuration-loaded")
        idle = await poll(running)
        answer = await running.publish(*alerts(0, 1))
        await running.logged("delivery-failing")
        failing = await poll(running)
        refused = await poll(running, token="0" * 64)

    assert (answer.status, answer.document["accepted"]) == (200, 1)
    assert isinstance(idle, DelivererReport)
    assert isinstance(failing, DelivererReport)
    assert idle.revision == failing.revision == rendered.revision
    queue = idle.queues["ops"]
    assert (queue.depth, queue.last_result) == (0, None)
    queue = failing.queues["ops"]
    assert (queue.depth, queue.high_water, queue.draining) == (1, 1, False)
    assert queue.last_result is DeliveryResult.ERROR
    assert queue.last_detail
    assert None not in (
        queue.oldest_indication_time,
        queue.last_attempt_time,
        queue.next_attempt_time,
    )
    (end,) = failing.ended
    assert (end.name, end.reason, end.uid) == ("expired", "Expired", "u-1")
    assert isinstance(refused, Unreachable)
    assert refused.reason == NO_TOKEN
