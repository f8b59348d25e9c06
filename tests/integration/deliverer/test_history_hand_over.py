"""The history of an ending sidecar goes to the gateway of ``handOverTo``, both as they are run."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.asking import asked, settled
from support.gateway_access import Gateway, running
from support.listening import Listening, listening
from support.resources import alert_filter, service, subscription, write
from support.running import alerts, listener
from support.sidecar import Sidecar, sidecar

COUNT = 40
REFUSED = [{"answers": ["503"], "action": "Discard"}]


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    made = Gateway(tmp_path)
    made.issue()
    made.give_keys()
    (tmp_path / "token").write_text(made.token())
    return made


def configure(gateway: Gateway, ops: Listening, archive: Listening, grace: int = 20) -> None:
    write(
        gateway.resources,
        service("shared", deliverer={"mode": "Gateway"}, shutdownGracePeriodSeconds=0),
        service("default", handOverTo={"name": "shared"}, shutdownGracePeriodSeconds=grace),
        alert_filter(),
        subscription("alerts-to-ops", "ops"),
        subscription("alerts-to-archive", "archive"),
        listener("ops", ops.url, responsePolicy=REFUSED),
        listener("archive", archive.url),
    )


def ending(gateway: Gateway, *options: str) -> Any:
    """The sidecar."""
    return before_plain(
        gateway,
        gateway.process.intake,
        *("--gateway-ca", str(gateway.ca)),
        *("--gateway-token", str(gateway.folder / "token")),
        *options,
    )


def before_plain(gateway: Gateway, url: str, *options: str) -> Any:
    return sidecar(gateway.resources, "--service", "default", "--gateway", url, *options)


async def end(process: Sidecar) -> None:
    process.process.send_signal(signal.SIGTERM)
    assert await process.ended() == 0


@asynccontextmanager
async def listeners() -> AsyncIterator[tuple[Listening, Listening]]:
    async with listening(status=503) as ops, listening() as archive:
        yield ops, archive


async def at_gateway(gateway: Gateway, query: str = "") -> list[dict[str, Any]]:
    gateway.process.intake, intake = gateway.process.administration, gateway.process.intake
    try:
        return (await asked(gateway.process, query))[0]
    finally:
        gateway.process.intake = intake


@pytest.mark.parametrize("on_disk", [False, True])
async def test_what_a_sidecar_has_discarded_is_redriven_at_the_gateway(
    gateway: Gateway, on_disk: bool
) -> None:
    journal = ("--journal", str(gateway.folder / "gateway-journal"))
    own = ("--journal", str(gateway.folder / "sidecar-journal")) if on_disk else ()
    async with listeners() as (ops, archive):
        configure(gateway, ops, archive)
        async with running(gateway, "--service", "shared", *journal):
            async with ending(gateway, *own) as process:
                await process.publish(*alerts(0, COUNT), query="ack=delivered")
                before, _ = await settled(process, 2 * COUNT)
                await end(process)
                (told,) = await logged(process, "history-handed-over")
            taken = await at_gateway(gateway, "indication=true&limit=1000")
            ops.behave()
            administration = gateway.process.administration
            async with gateway.session.post(f"{administration}/v1/outcomes/redrive") as answer:
                redriven = await answer.json()
            await ops.delivered(COUNT)
            gateway.process.process.kill()
            await gateway.process.ended()
        async with running(gateway, "--service", "shared", *journal):
            after_kill = await at_gateway(gateway, "result=discarded&indication=true&limit=1000")
            if on_disk:
                # A later run on the same volume hands over what is new, and nothing again.
                async with ending(gateway, *own) as process:
                    again = await process.post("/v1/outcomes/redrive")
                    await process.publish(*alerts(COUNT, 1), query="ack=delivered")
                    await end(process)
                assert again.document["skipped"] == {"redriven": COUNT}
                later = await at_gateway(gateway, "limit=1000&result=delivered&destination=archive")
                assert len(later) == COUNT + 1
    assert (told["count"], told["discards"]) == (2 * COUNT, COUNT)
    assert [one["result"] for one in taken] == ["discarded"] * COUNT + ["delivered"] * COUNT
    assert all(one["origin"] for one in taken)
    kept = ("time", "identifier", "source", "destination", "reason", "indication", "acceptedTime")
    lost = [one for one in before if one["result"] == "discarded"]
    assert [[one.get(name) for name in kept] for one in taken[:COUNT]] == [
        [one.get(name) for name in kept] for one in lost
    ]
    assert after_kill == taken[:COUNT]
    assert redriven["redriven"] == COUNT
    assert ops.identifiers[:COUNT] == [one["identifier"] for one in lost]


async def logged(process: Sidecar, event: str) -> list[dict[str, Any]]:
    """The records of one event, once the process has ended."""
    await process.logged(event)
    return process.events(event)


async def test_what_cannot_go_is_told_and_the_end_is_as_usual(gateway: Gateway) -> None:
    async with listeners() as (ops, archive):
        configure(gateway, ops, archive)
        # A deliverer that is no gateway knows no such histories, as one of an earlier version.
        async with (
            sidecar(gateway.resources, "--service", "default") as other,
            before_plain(gateway, other.intake) as process,
        ):
            await process.publish(*alerts(0, 3), query="ack=delivered")
            await end(process)
            (told,) = await logged(process, "history-not-handed-over")
        assert (told["count"], told["discards"]) == (6, 3)
        assert "404" in told["reason"]
        configure(gateway, ops, archive, grace=1)
        async with before_plain(gateway, "http://127.0.0.1:9") as process:
            await process.publish(*alerts(0, 3), query="ack=delivered")
            await end(process)
            (told,) = await logged(process, "history-not-handed-over")
        assert (told["count"], told["discards"]) == (6, 3)
        assert "the gateway" in told["reason"]
