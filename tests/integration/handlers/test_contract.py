"""What every protocol's handler keeps, whatever it speaks (S0.8, S0.13)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.protocols import PROTOCOLS
from pillion_sidecar.testing import FakeTime
from support.protocol_peers import (
    ADAPTERS,
    AMPLE,
    BIG,
    LONG,
    TIMEOUT,
    Attempt,
    destination,
    registry,
)

pytestmark = pytest.mark.parametrize("protocol", PROTOCOLS)
FAILED = (DeliveryResult.ERROR, DeliveryResult.POST_DELIVERY_ERROR)


@pytest_asyncio.fixture
async def handlers(fake_time: FakeTime, tmp_path: Path) -> AsyncIterator[HandlerRegistry]:
    async with registry(fake_time, tmp_path) as made:
        yield made


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_it_has_an_adapter(protocol: str) -> None:
    assert protocol in ADAPTERS, "add one to tests/support/protocol_peers.py"


async def test_a_success_is_told_once(
    protocol: str, handlers: HandlerRegistry, fake_time: FakeTime, tmp_path: Path
) -> None:
    async with ADAPTERS[protocol].good(tmp_path) as peer:
        handler = handlers.create_handler(destination(protocol, peer.url, timeout_seconds=AMPLE))
        for _ in range(2):
            attempt = Attempt(handler, fake_time)
            assert attempt.told == [], "it was told within the call"
            assert (await attempt.outcome()).result is DeliveryResult.SUCCESS
            fake_time.advance(2 * TIMEOUT)
            await turns()
            assert len(attempt.told) == 1
        handler.close()


async def test_a_peer_that_hangs_costs_the_time_out_and_another_destination_nothing(
    protocol: str, handlers: HandlerRegistry, fake_time: FakeTime, tmp_path: Path
) -> None:
    adapter = ADAPTERS[protocol]
    async with adapter.hung(tmp_path) as peer, adapter.good(tmp_path) as other:
        given = destination(protocol, peer.url, timeout_seconds=LONG)
        handler = handlers.create_handler(given)
        begun = fake_time.monotonic()
        attempt = Attempt(handler, fake_time, BIG)
        await peer.reached.wait()
        await turns()

        good = destination(protocol, other.url, uid="v", timeout_seconds=AMPLE)
        neighbor = handlers.create_handler(good)
        assert (await Attempt(neighbor, fake_time).outcome()).result is DeliveryResult.SUCCESS

        fake_time.advance(begun + LONG - 0.01 - fake_time.monotonic())
        await turns()
        assert attempt.told == []
        fake_time.advance(0.02 + adapter.grace)
        await turns()
        (told,) = attempt.told
        assert told.result in FAILED
        assert "timed out" in told.detail or adapter.grace
        handler.close()
        neighbor.close()


async def test_nothing_is_told_after_close(
    protocol: str, handlers: HandlerRegistry, fake_time: FakeTime, tmp_path: Path
) -> None:
    async with ADAPTERS[protocol].hung(tmp_path) as peer:
        handler = handlers.create_handler(destination(protocol, peer.url, timeout_seconds=TIMEOUT))
        attempt = Attempt(handler, fake_time, BIG)
        await peer.reached.wait()
        handler.close()
        await turns()
        fake_time.advance(2 * TIMEOUT)
    await turns()
    assert attempt.told == []


async def test_an_attempt_is_closed_before_it_has_begun(
    protocol: str, handlers: HandlerRegistry, fake_time: FakeTime, tmp_path: Path
) -> None:
    async with ADAPTERS[protocol].good(tmp_path) as peer:
        handler = handlers.create_handler(destination(protocol, peer.url, timeout_seconds=TIMEOUT))
        attempt = Attempt(handler, fake_time)
        handler.close()
        await turns()
        fake_time.advance(2 * TIMEOUT)
        await turns()
    assert attempt.told == []


async def test_no_message_shows_a_url_from_a_secret(
    protocol: str, handlers: HandlerRegistry, fake_time: FakeTime, tmp_path: Path
) -> None:
    async with ADAPTERS[protocol].hung(tmp_path) as peer:
        given = destination(protocol, peer.url, timeout_seconds=TIMEOUT, url_is_secret=True)
        handler = handlers.create_handler(given)
        attempt = Attempt(handler, fake_time, BIG)
        await peer.reached.wait()
        await turns()
        fake_time.advance(2 * TIMEOUT)
        await turns()
        handler.close()
    (told,) = attempt.told
    assert told.result in FAILED
    assert [secret for secret in peer.secrets if secret in told.detail] == []


async def test_a_wrong_url_from_a_secret_is_not_shown(
    protocol: str, handlers: HandlerRegistry, fake_time: FakeTime, tmp_path: Path
) -> None:
    given = destination(protocol, "gopher://planted.example/planted", url_is_secret=True)
    told = await Attempt(handlers.create_handler(given), fake_time).outcome()
    assert told.hold is not None
    assert "planted" not in told.detail


async def test_without_its_extra_a_destination_is_held_by_a_text_that_names_it(
    protocol: str, fake_time: FakeTime, tmp_path: Path
) -> None:
    declared = replace(PROTOCOLS[protocol], library="pillion_not_installed", extra="planted-extra")
    async with registry(fake_time, tmp_path, protocols={protocol: declared}) as made:
        handler = made.create_handler(destination(protocol, "http://any.example/"))
        told = await Attempt(handler, fake_time).outcome()
    assert (told.result, told.hold) == (DeliveryResult.FATAL_ERROR, HoldCause.PROTOCOL)
    assert "pillion[planted-extra]" in told.detail
