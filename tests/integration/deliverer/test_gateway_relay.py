"""A sidecar relays through the door of a gateway: both as they are run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.asking import settled
from support.gateway_access import Gateway, running
from support.listening import Listening, listening
from support.resources import alert_filter, service, subscription, write
from support.running import alerts, listener
from support.sidecar import Sidecar, sidecar


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    made = Gateway(tmp_path)
    made.issue()
    made.give_keys()
    return made


def renew(gateway: Gateway, **changed: str) -> Path:
    """Put another token into the sidecar's file, as the kubelet does."""
    token = gateway.folder / "token"
    token.with_suffix(".new").write_text(gateway.token(**changed))
    return token.with_suffix(".new").replace(token)


@asynccontextmanager
async def relaying(gateway: Gateway, **spec: Any) -> AsyncIterator[tuple[Sidecar, Listening]]:
    """The sidecar, and the listener behind the gateway; the token is in its file."""
    async with listening() as found:
        subscribed = subscription("alerts-to-ops", "ops")
        subscribed["metadata"]["uid"] = "uid-of-alerts"
        write(
            gateway.resources,
            service("shared", deliverer={"mode": "Gateway"}, shutdownGracePeriodSeconds=0),
            service("default", gatewayRef={"name": "shared"}, shutdownGracePeriodSeconds=0),
            alert_filter(),
            subscribed,
            listener("ops", found.url, deliverThrough="Gateway", **spec),
        )
        journal = ("--journal", str(gateway.folder / "journal"))
        async with (
            running(gateway, "--service", "shared", *journal),
            sidecar(
                gateway.resources,
                *("--service", "default", "--gateway", gateway.process.intake),
                *("--gateway-ca", str(gateway.ca)),
                *("--gateway-token", str(gateway.folder / "token")),
            ) as made,
        ):
            yield made, found


async def test_a_sidecar_relays_with_its_token_while_that_and_the_keys_change(
    gateway: Gateway,
) -> None:
    renew(gateway)
    async with relaying(gateway) as (made, found):
        assert (await made.publish(*alerts(0, 3))).status == 200
        await found.delivered(3)
        # The cluster signs with another key, and takes the first one away.
        gateway.issuer.add("second", "RS256")
        gateway.issuer.remove("first")
        gateway.give_keys()
        await gateway.process.logged("token-keys-loaded", 2)
        assert (await made.publish(*alerts(3, 3))).status == 200
        await made.logged("delivery-failing")
        renew(gateway, kid="second")
        await found.delivered(6)
        assert found.identifiers == [str(number) for number in range(6)]
        # And the gateway's certificate is another one.
        gateway.issue()
        await gateway.process.logged("certificate-loaded", 2)
        assert (await made.publish(*alerts(6, 3))).status == 200
        await found.delivered(9)


async def test_what_may_not_be_relayed_waits_and_says_why(gateway: Gateway) -> None:
    renew(gateway, namespace="others")
    async with relaying(gateway) as (made, found):
        assert (await made.publish(*alerts(0, 3))).status == 200
        await made.logged("delivery-failing")
        (failing,) = made.events("delivery-failing")
        assert failing["status"] == 403
        queue = (await made.get("/v1/queues/ops")).document
        assert queue["depth"] == 3
        assert "system:serviceaccount:others:spark may not publish" in str(queue["lastResult"])
        renew(gateway)
        await found.delivered(3)
        assert found.identifiers == ["0", "1", "2"]
    token = (gateway.folder / "token").read_text()
    told = f"{made.log}{made.said}{gateway.process.log}{gateway.process.said}"
    assert token.split(".")[2] not in told


async def test_what_the_sidecar_has_discarded_is_redriven_and_marked_behind_the_gateway(
    gateway: Gateway,
) -> None:
    renew(gateway, namespace="others")
    async with relaying(gateway, queueSize=5, queueFullPolicy="DiscardOldest") as (made, found):
        # The failing queue keeps the newest.
        for number in range(20):
            await made.publish(*alerts(number, 1), query="ack=accepted")
            if not number:
                await made.logged("delivery-failing")
        lost, _ = await settled(made, 15, "result=discarded")
        renew(gateway)
        await found.delivered(5)
        redriven = 0
        while redriven < 15:
            redriven += (await made.post("/v1/outcomes/redrive")).document["redriven"]
        await found.delivered(20)
    assert sorted(found.identifiers, key=str) == sorted(map(str, range(20)))
    marked = [
        arrival.text("IndicationIdentifier")
        for arrival in found.arrivals
        if arrival.properties.get("CorrelatedIndications")
    ]
    assert marked == [one["identifier"] for one in lost]
