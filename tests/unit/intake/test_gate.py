"""The shares of the door: who is read, who may wait, and when each place comes back."""

import asyncio
from collections.abc import Callable

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.auth.principal import Principal
from pillion_sidecar.intake.limits import IntakeGate, RequestSlot, Share
from support.intake import Door, alert, lines

A, B, C = (Principal("jobs", name) for name in "abc")


def nothing(_reason: str) -> None:
    pass


def filled(share: Share, principal: Principal | None) -> int:
    taken = 0
    while share.take(principal):
        taken += 1
    return taken


def test_one_principal_takes_half_and_leaves_the_rest_to_others() -> None:
    share = Share(480)
    assert filled(share, A) == 240
    assert filled(share, B) == 120
    assert filled(share, C) == 60
    assert not share.is_full


@given(st.lists(st.sampled_from([A, B, C, None]), max_size=80))
def test_a_newcomer_always_finds_a_place_where_principals_are_known(
    comers: list[Principal | None],
) -> None:
    share = Share(16)
    for one in comers:
        if one is not None:
            share.take(one)
    assert share.take(Principal("others", "newcomer"))


def test_whoever_shows_no_token_has_all_places() -> None:
    share = Share(16)
    assert filled(share, None) == 16
    assert share.is_full
    share.give(None)
    assert share.take(None)


def test_readiness_says_that_nobody_can_be_let_in() -> None:
    gate = IntakeGate(reading=1)
    assert gate.problem() == "intake is closed"
    gate.open()
    slot = gate.enter(nothing)
    assert isinstance(slot, RequestSlot)
    assert gate.problem() == "as many requests are being read as may be"
    slot.release()
    slot.release()
    assert gate.problem() is None


def test_a_principal_that_reads_too_much_is_named_and_others_come_in() -> None:
    gate = IntakeGate(reading=2)
    gate.open()
    assert isinstance(gate.enter(nothing, principal=A), RequestSlot)
    assert "system:serviceaccount:jobs:a" in str(gate.enter(nothing, principal=A))
    assert isinstance(gate.enter(nothing, principal=B), RequestSlot)


async def left_alone(door: Door, method: str, path: str, body: bytes = b"") -> asyncio.StreamWriter:
    """Ask, and return the connection without reading the answer."""
    _, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
        f"Pillion-Publisher: p\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await writer.drain()
    return writer


WAITS = [
    ("POST", "/v1/indications?ack=delivered&timeout=3600", True),
    ("POST", "/v1/flush?publisher=p&timeout=3600", False),
    ("GET", "/v1/receipts/{receipt}?timeout=3600", False),
]


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came")


async def until_waiting(door: Door, number: int) -> None:
    await until(lambda: door.gate.waiting.taken == number)


@pytest.mark.parametrize(("method", "path", "publishes"), WAITS)
async def test_a_wait_ends_when_its_client_is_gone(method: str, path: str, publishes: bool) -> None:
    async with Door().open() as door:
        mine = {"Pillion-Publisher": "p"}
        first = "/v1/indications?ack=delivered&timeout=0"
        _, document, _ = await door.post(lines(alert("0")), path=first, headers=mine)
        body = lines(alert("1")) if publishes else b""
        writer = await left_alone(door, method, path.format(receipt=document["receipt"]), body)
        await until_waiting(door, 1)
        writer.close()
        await until_waiting(door, 0)
        # The books are right: what was accepted of it is delivered, and counts.
        for number in range(len(door.queues.taken)):
            door.queues.settle(number)
        _, flushed, _ = await door.post(b"", path="/v1/flush?publisher=p&timeout=0")
        assert flushed["destinations"]["siem"]["delivered"] == 1 + publishes
        assert flushed["complete"]


async def test_those_who_wait_keep_nobody_from_publishing() -> None:
    async with Door(requests=2, waiting=2).open() as door:
        waiting = [
            await left_alone(door, *WAITS[0][:2], lines(alert(str(number)))) for number in range(2)
        ]
        await until_waiting(door, 2)
        assert door.gate.problem() is None
        assert (await door.post(lines(alert("3"))))[0] == 200
        status, document, headers = await door.post(lines(alert("4")), path=WAITS[0][1])
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "ask for ack=accepted" in document["reason"]
        status, _, _ = await door.post(b"", path="/v1/flush?publisher=p&timeout=1")
        assert status == 503
        # Who does not wait is answered.
        status, _, _ = await door.post(b"", path="/v1/flush?publisher=p&timeout=0")
        assert status == 202
        assert len(door.queues.taken) == 3
        for writer in waiting:
            writer.close()
        await until_waiting(door, 0)


async def test_a_client_that_leaves_while_it_is_read_gives_its_place_back() -> None:
    async with Door(requests=1).open() as door:
        _, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(
            b"POST /v1/indications HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n"
            b"Content-Length: 100000\r\n\r\n" + lines(alert("1"))
        )
        await door.queues.arrived.wait()
        assert (await door.post(lines(alert("2"))))[0] == 503
        writer.close()
        await until(lambda: door.gate.problem() is None)
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                door.url + "/v1/indications",
                data=lines(alert("2")),
                headers={"Content-Type": "application/x-ndjson"},
            ) as answer,
        ):
            assert answer.status == 200
