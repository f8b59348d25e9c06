"""A deliverer as it is run, polled by the operator's own client."""

from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pillion_operator.clock import SystemClock
from pillion_operator.polling.adoptions import GatewayAdoptions, Refused
from pillion_operator.polling.client import DelivererClient
from pillion_operator.polling.reports import (
    NO_TOKEN,
    DelivererReport,
    DeliveryResult,
    Unreachable,
)
from pillion_sidecar.stores.messages import CONTENT_TYPE, ClaimRequest, encode_request
from pillion_sidecar.wire.adoptions import AdoptionOrder, OrderedGroup, OrderedStores
from support.gateway_access import Gateway, running
from support.resources import (
    alert_filter,
    destination,
    service,
    subscription,
    write,
    write_rendered,
)
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar
from support.stores import OTHER, SESSION

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


async def test_a_gateway_lists_the_copies_of_its_namespace_and_takes_orders(tmp_path: Path) -> None:
    keeper = CopiesGateway(tmp_path)
    async with running(keeper):
        place = urlsplit(keeper.process.telemetry)
        assert place.hostname is not None
        async with aclosing(DelivererClient(clock=SystemClock(), port=place.port or 0)) as client:
            gateway = GatewayAdoptions(client, address=place.hostname, token=TOKEN)
            assert await gateway.copies() == []
            for account, session in (("spark", SESSION), ("other", OTHER)):
                await keeper.claim(session, account=account)
            await keeper.claim("f" * 32, namespace="guests")
            found = [(one.namespace, one.session, one.claimant) for one in await gateway.copies()]
            assert found == [("team", one, "u-1/default/pod") for one in (SESSION, OTHER)]
            assert await gateway.statuses() == []
            stores = OrderedStores(groups=[OrderedGroup(name="g", members=["a"])])
            order = AdoptionOrder(session=SESSION, service="default", stores=stores)
            # It was started without access to stores.
            assert (await gateway.order(order)).state == "Waiting"
            await keeper.process.logged("adoption-failed")
            (status,) = await gateway.statuses()
            assert (status.state, "--gateway" in str(status.problem)) == ("Failed", True)
            assert await keeper.metric('pillion_adoptions_total{result="failed"}') == 1
            other = GatewayAdoptions(client, address=place.hostname, token="0" * 64)
            with pytest.raises(Refused, match="HTTP 401"):
                await other.copies()


class CopiesGateway(Gateway):
    """A gateway that keeps copies, with the operator's token."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        write(
            self.resources,
            *resources(
                listener("siem", "http://127.0.0.1:9/"),
                deliverer={"mode": "Gateway"},
                publishers=[{"namespace": "team"}, {"namespace": "guests"}],
                journalCopies={"maximumBytes": "64Mi"},
            ),
        )
        self.issue()
        self.give_keys()
        self.operator_token = folder / "operator-token"
        self.operator_token.write_text(TOKEN)

    def options(self) -> tuple[str, ...]:
        journal = ("--journal", str(self.folder / "journal"))
        return (*super().options(), *journal, "--operator-token-file", str(self.operator_token))

    async def claim(self, session: str, **token: str) -> None:
        claim = ClaimRequest(number=1, claimant="u-1/default/pod")
        async with self.session.post(
            f"{self.process.intake}/v1/journals/{session}",
            data=encode_request(claim),
            headers={
                "Authorization": f"Bearer {self.token(**token)}",
                "Content-Type": CONTENT_TYPE,
            },
            ssl=self.context,
        ) as answer:
            assert answer.status == 200
