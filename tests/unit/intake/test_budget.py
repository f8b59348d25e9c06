"""The memory of all bodies that are being read: who gives way, and what it is told."""

import asyncio
import json
import tracemalloc
from contextlib import AbstractContextManager
from io import BytesIO

import pytest

from pillion_sidecar.auth.principal import Principal
from pillion_sidecar.intake.limits import GRACE_SECONDS, MOST_BODY_BYTES, BodyBudget, HeldBody
from pillion_sidecar.testing import FakeTime
from support.intake import Door, alert, lines

BATCH = "application/cloudevents-batch+json"


class World:
    """A budget of 10 bytes, and the bodies that ended."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.budget = BodyBudget(clock=self.time, maximum=10)
        self.ended: list[str] = []
        self.read: set[str] = set()
        self.held: list[AbstractContextManager[HeldBody]] = []

    def body(self, name: str, principal: Principal | None = None) -> HeldBody:
        def crowd_out() -> bool:
            if name in self.read:
                return False
            self.ended.append(name)
            return True

        holding = self.budget.holding(crowd_out, principal=principal)
        self.held.append(holding)
        return holding.__enter__()


def test_the_oldest_gives_way_once_it_has_had_its_time() -> None:
    world = World()
    for name in "abc":
        world.body(name).hold(3)
    world.body("d").hold(2)
    assert world.ended == ["d"]
    world.time.advance(GRACE_SECONDS)
    world.body("e").hold(2)
    assert world.ended == ["d", "a"]
    assert world.budget.used == 8


def test_what_is_read_to_its_end_keeps_its_memory() -> None:
    world = World()
    world.read = {"a"}
    for name in "ab":
        world.body(name).hold(5)
    world.time.advance(GRACE_SECONDS)
    world.body("c").hold(1)
    assert world.ended == ["b"]


def test_the_principal_that_holds_most_gives_way() -> None:
    world = World()
    mine, others = Principal("a", "a"), Principal("b", "b")
    world.body("mine", mine).hold(3)
    world.body("others", others).hold(6)
    world.time.advance(GRACE_SECONDS)
    world.body("more", mine).hold(2)
    assert world.ended == ["others"]


def test_a_body_that_ends_gives_its_memory_back() -> None:
    budget = BodyBudget(clock=FakeTime(), maximum=10)
    with budget.holding(lambda: True, principal=None) as body:
        body.hold(4)
        body.hold(9)
        assert budget.used == 9
    assert budget.used == 0


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/x-ndjson", "text/xml", BATCH]
)
async def test_stalled_bodies_are_answered_503_and_others_go_on(content_type: str) -> None:
    """400 of 1 MiB held 460 MB."""
    async with Door(requests=100).open() as door:
        size = 1 << 20
        clients = []
        for _ in range(MOST_BODY_BYTES // (size - 16) - 1):
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            writer.write(
                f"POST /v1/indications HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n"
                f"Content-Length: {size}\r\n\r\n".encode()
                + b"x" * (size - 16)
            )
            await writer.drain()
            clients.append((reader, writer))
        door.time.advance(GRACE_SECONDS)
        body = json.dumps([{"x": "x" * 2_000_000}]).encode()
        assert (await door.post(BytesIO(body), content_type=BATCH))[0] == 400
        answered = await clients[0][0].readuntil(b"\r\n")
        assert answered.split()[1] == b"503"
        assert (await door.post(lines(alert("1"))))[0] == 200
        for _, writer in clients:
            writer.transport.abort()


@pytest.mark.parametrize(
    "element", [b"0", b"[]", b'""', b"{}"], ids=["numbers", "arrays", "texts", "objects"]
)
async def test_a_batch_of_millions_takes_little_memory(element: bytes) -> None:
    """16 MiB took 1.1 GB."""
    async with Door().open() as door:
        size = 4 << 20
        body = b"[" + b",".join([element] * (size // (len(element) + 1))) + b"]"
        tracemalloc.start()
        try:
            status, document, _ = await door.post(BytesIO(body), content_type=BATCH)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert status == 400
        assert len(document["refused"]) == 10_000
        assert document["unreadFrom"] == 10_000
        assert peak < 40 << 20


async def test_an_event_that_is_too_long_is_not_built_and_the_others_are_taken() -> None:
    async with Door().open() as door:
        event = {"specversion": "1.0", "source": "s", "type": "t", "data": alert()}
        good = [json.dumps(event | {"id": str(number)}).encode() for number in range(2)]
        deep = b"[" + b"[]," * 700_000 + b"[]]"
        body = b" [ " + b" ,\n".join([good[0], deep, good[1]]) + b" ] "
        status, document, _ = await door.post(BytesIO(body), content_type=BATCH)
        assert (status, document["accepted"]) == (207, 2)
        (refused,) = document["refused"]
        assert (refused["line"], refused["reason"]) == (1, "longer than 1048576 bytes")


async def test_what_comes_before_a_broken_place_is_taken_and_the_rest_is_told() -> None:
    async with Door().open() as door:
        event = {"specversion": "1.0", "id": "1", "source": "s[{\\", "type": 't"]', "data": alert()}
        body = b"[" + json.dumps(event).encode() + b' {"a": 1}]'
        status, document, _ = await door.post(BytesIO(body), content_type=BATCH)
        assert (status, document["accepted"], document["unreadFrom"]) == (207, 1, 2)
        assert "no comma" in document["refused"][0]["reason"]
