"""Name resolution against name servers on loopback: one that answers, one that is silent."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.handlers.resolver import ResolutionError, Resolver
from pillion_sidecar.testing import FakeTime
from support.http_listener import send, sending
from support.name_server import name_server


@asynccontextmanager
async def resolving(nameservers: tuple[str, ...]) -> AsyncIterator[Resolver]:
    resolver = Resolver(nameservers=nameservers)
    try:
        yield resolver
    finally:
        await resolver.close()


async def test_a_name_has_the_addresses_that_dns_gives() -> None:
    async with (
        name_server("192.0.2.1", "192.0.2.2") as (_, where),
        resolving(where) as resolver,
    ):
        assert sorted(await resolver.resolve("listener.example")) == ["192.0.2.1", "192.0.2.2"]


async def test_an_answer_is_used_again() -> None:
    async with name_server("192.0.2.1") as (server, where), resolving(where) as resolver:
        await resolver.resolve("listener.example")
        asked = server.questions
        assert await resolver.resolve("listener.example") == ("192.0.2.1",)
        assert server.questions == asked


async def test_a_name_that_does_not_exist_is_told() -> None:
    async with name_server("192.0.2.1") as (server, where), resolving(where) as resolver:
        server.exists = False
        with pytest.raises(ResolutionError, match=r"listener\.example cannot be resolved"):
            await resolver.resolve("listener.example")


async def test_a_name_without_addresses_is_told() -> None:
    async with name_server("192.0.2.1") as (server, where), resolving(where) as resolver:
        server.kinds = ()
        with pytest.raises(ResolutionError, match=r"listener\.example"):
            await resolver.resolve("listener.example")


async def test_many_who_ask_for_one_name_cost_one_look_up() -> None:
    async with name_server() as (server, where), resolving(where) as resolver:
        first = asyncio.create_task(resolver.resolve("listener.example"))
        await server.asked.wait()
        others = [asyncio.create_task(resolver.resolve("listener.example")) for _ in range(100)]
        await asyncio.sleep(0)
        # A and AAAA.
        assert server.questions <= 2
        for task in (first, *others):
            task.cancel()
        await asyncio.gather(first, *others, return_exceptions=True)


async def test_who_gives_up_does_not_end_the_look_up_for_others() -> None:
    async with name_server("192.0.2.1") as (_, where), resolving(where) as resolver:
        impatient = asyncio.create_task(resolver.resolve("listener.example"))
        patient = asyncio.create_task(resolver.resolve("listener.example"))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await patient == ("192.0.2.1",)


async def test_a_look_up_that_fails_after_all_have_given_up_is_not_logged() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with name_server("192.0.2.1") as (server, where), resolving(where) as resolver:
        server.exists = False
        impatient = asyncio.create_task(resolver.resolve("listener.example"))
        await asyncio.sleep(0)
        lookups = list(resolver._lookups.values())
        impatient.cancel()
        await asyncio.wait([impatient, *lookups])
        assert lookups
        del impatient, lookups
        gc.collect()
    assert told == []


async def test_a_silent_name_server_costs_an_attempt_its_deadline_and_no_more(
    fake_time: FakeTime,
) -> None:
    async with (
        name_server() as (server, where),
        sending("http://listener.example/", fake_time, nameservers=where) as sender,
    ):
        recorder = await send(sender)
        await server.asked.wait()
        fake_time.advance(30.0)
        failure = await recorder.failure()
    assert failure.result is DeliveryResult.ERROR
    assert failure.detail == "timed out after 30 s while resolving listener.example"


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("192.0.2.7", ("192.0.2.7",)),
        ("2001:db8::7", ("2001:db8::7",)),
        ("localhost", ("127.0.0.1", "::1")),
        ("LocalHost.", ("127.0.0.1", "::1")),
    ],
)
async def test_literals_and_localhost_ask_nobody(host: str, addresses: tuple[str, ...]) -> None:
    async with name_server() as (server, where), resolving(where) as resolver:
        assert await resolver.resolve(host) == addresses
        assert server.questions == 0


@pytest.mark.parametrize("host", ["-", "a" * 64 + ".example", "x..y", "_", "\x00"])
async def test_a_name_that_can_hardly_be_raises_nothing_else(host: str) -> None:
    async with name_server("192.0.2.1") as (_, where), resolving(where) as resolver:
        # Either is an answer: names need not follow the rules for host names to exist.
        with contextlib.suppress(ResolutionError):
            assert await resolver.resolve(host)
