"""``GET /v1/service`` of a running deliverer: its configuration in force as CIM instances (D.3)."""

import socket
from pathlib import Path
from typing import Any

from support.resources import JSON, destination
from support.running import Running, resources, running


def values(document: JSON, name: str) -> dict[str, Any]:
    properties = document[name]["properties"]
    return {name: stated["value"] for name, stated in properties.items()}


async def described(run: Running) -> tuple[dict[str, Any], dict[str, Any]]:
    answer = await run.get("/v1/service")
    assert answer.status == 200
    return values(answer.document, "service"), values(answer.document, "capabilities")


async def test_the_settings_and_limits_in_force_are_told(config: Path, journal: Path) -> None:
    given = resources(destination("ops"), subscriptionRemovalAction="Disable")
    async with running(config, *given, journal=journal, maximum_destinations=7) as run:
        service, capabilities = await described(run)
        assert service["SystemName"] == socket.gethostname()
        assert (service["Name"], service["SubscriptionRemovalAction"]) == ("default", 3)
        # With a journal, and no field of retry written.
        assert service["DeliveryRetryAttempts"] is None
        assert capabilities["MaxListenerDestinations"] == 7
        await run.reload(*resources(destination("ops"), deliveryRetryAttempts=5))
        service, _ = await described(run)
        assert (service["DeliveryRetryAttempts"], service["SubscriptionRemovalAction"]) == (5, 4)


async def test_without_a_journal_the_retry_is_that_of_dsp1054(tmp_path: Path) -> None:
    async with running(tmp_path, *resources(destination("ops"))) as run:
        service, capabilities = await described(run)
        assert (service["DeliveryRetryAttempts"], service["DeliveryRetryInterval"]) == (3, 30)
        assert capabilities["SubscriptionsPersisted"] is True


async def test_there_is_none_before_a_configuration(tmp_path: Path) -> None:
    async with running(tmp_path, wait_for_configuration=True) as run:
        answer = await run.get("/v1/service")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert answer.document == {"reason": "the configuration is not loaded yet"}


async def test_another_origins_page_is_refused_and_another_listener_does_not_serve_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, *resources(destination("ops"))) as run:
        intake, telemetry = run.deliverer.intake_url, run.deliverer.telemetry_url
        page = await run.ask(f"{intake}/v1/service", Origin="https://evil.example")
        assert page.status == 403
        elsewhere = await run.ask(f"{telemetry}/v1/service")
        assert elsewhere.status == 404
        assert "ask the intake address" in elsewhere.document["reason"]
