"""A store that answers what none can harms no claim: it counts as one that did not answer."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from pillion_sidecar.stores.copies import Copy, Epoch, Extent, FencedError, Run
from pillion_sidecar.stores.messages import (
    ClaimRequest,
    IdentitiesRequest,
    ReadRequest,
    Request,
    decode_copy,
    decode_identities,
    decode_refusal,
    decode_request,
    encode_copy,
    encode_identities,
    encode_request,
)
from pillion_sidecar.stores.ports import Answer
from support.claims import World, files_of, log_of, since
from support.crashing_files import RecordingFiles
from support.stores import NAMES, SESSION, identities_file

LOG = log_of(10, 20, 30)


def be_wrong(world: World, store: str, wrong: Callable[[Request, Answer], Answer]) -> None:
    """``wrong``: what the store answers instead."""
    right = world.stores.answer

    def answer(name: str, request: Request) -> Answer:
        told = right(name, decode_request(encode_request(request)))
        return wrong(request, told) if name == store else told

    world.stores.answer = answer  # type: ignore[method-assign]


async def waits_for(world: World, store: str) -> None:
    """Claim with a wrong store that is needed; it is named, left alone for a while, and taken once
    it is right."""
    world.stores.away = {"a"}
    claiming = asyncio.create_task(world.claim())
    await world.until(lambda: store in world.waits[-1][1])
    for _ in range(100):
        await asyncio.sleep(0)
    assert not claiming.done()
    assert len([one for name, one in world.stores.asked if name == store]) < 6
    world.stores.away = set()
    world.time.advance(60.0)
    claimed = await claiming
    assert set(claimed.answers) == set(NAMES) - {store}


@pytest.mark.parametrize("number", [0, 1, (1 << 63) - 1, 1 << 33])
async def test_a_store_that_tells_of_no_later_claim_is_waited_for(number: int) -> None:
    world = World()
    world.has_shipped(LOG, *NAMES)
    fence = FencedError("it is another's", promised=Epoch(number, "w"))
    be_wrong(world, "b", lambda request, right: fence)
    await waits_for(world, "b")
    assert max(one.number for _, one in world.stores.asked if isinstance(one, ClaimRequest)) < 9


async def test_a_store_that_always_tells_of_a_later_claim_is_left_alone() -> None:
    world = World()
    world.has_shipped(LOG, *NAMES)

    def fence(request: Request, right: Answer) -> Answer:
        assert isinstance(request, ClaimRequest)
        return FencedError("it is another's", promised=Epoch(request.number + 5, "w"))

    be_wrong(world, "b", fence)
    await waits_for(world, "b")


@pytest.mark.parametrize(
    "change",
    [
        lambda copy: replace(copy, promised=Epoch(9, "another")),
        lambda copy: replace(copy, written=copy.promised),
        lambda copy: replace(copy, written=Epoch(1 << 62, "x"), extents=()),
    ],
)
async def test_a_copy_of_another_claim_is_not_taken(change: Callable[[Copy], Copy]) -> None:
    world = World(RecordingFiles(files_of(LOG)))
    world.has_shipped(LOG, *NAMES)
    be_wrong(world, "b", lambda _, right: change(right) if isinstance(right, Copy) else right)
    await waits_for(world, "b")
    assert world.content() == files_of(LOG)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>login</html>",
        encode_identities([(1, 1 << 62)]),
        encode_identities([(1 << 40, 10)]),
    ],
)
async def test_a_list_of_identities_that_is_none_is_not_taken(body: bytes) -> None:
    log = since(log_of(10, 20, 30), 2)
    world = World()
    world.has_shipped(log, *NAMES)
    be_wrong(
        world, "a", lambda request, right: body if isinstance(request, IdentitiesRequest) else right
    )
    await world.claim()
    assert world.content() == files_of(log)
    with pytest.raises(ValueError, match=r"file of|Expected|Invalid|invalid"):
        decode_identities(body)


async def test_identities_of_another_segment_are_not_taken() -> None:
    """They would end the start."""
    log = since(log_of(10, 20, 30), 2)
    world = World()
    world.has_shipped(log, *NAMES)
    for name in NAMES:
        world.stores.stores[name].keep(SESSION, Epoch(1, "x"), 1, identities_file(1), first=0)
    be_wrong(
        world,
        "a",
        lambda request, right: (
            identities_file(7) if isinstance(request, ReadRequest) and request.identities else right
        ),
    )
    await world.claim()
    assert world.files.image()["0000000000000001.identities"] == identities_file(1)


async def test_more_than_was_asked_for_is_not_taken() -> None:
    world = World()
    world.has_shipped(LOG, *NAMES)
    be_wrong(world, "a", lambda request, right: right * 2 if isinstance(right, bytes) else right)
    await world.claim()
    assert world.content() == files_of(LOG)


ONE = Extent(1, 1.0, 100)
GOOD = Copy(promised=Epoch(3, "x"), written=Epoch(2, "y"), extents=(ONE, Extent(3, 1.0, 64)))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"written": Epoch(4, "x")}, "epoch 4, and 3 was claimed"),
        ({"promised": Epoch(1 << 63, "x")}, "no epoch"),
        ({"promised": Epoch(3, "x" * 254)}, "no epoch"),
        ({"extents": (ONE, ONE)}, "segment 1 has 100 bytes and follows 1"),
        ({"extents": (Extent(1 << 32, 1.0, 100),)}, "follows -1"),
        ({"extents": (Extent(1, float("nan"), 100),)}, "follows -1"),
        ({"extents": (Extent(1, 1.0, 1 << 32),)}, "has 4294967296 bytes"),
        ({"extents": (Extent(1, 1.0, 63),)}, "has 63 bytes"),
        ({"extents": (), "replaced": (Run((ONE,), 0),)}, "a run has no segments"),
        ({"replaced": (Run((), 0),)}, "a run has no segments"),
        ({"renewed": Run((), 0)}, "a run has no segments"),
        ({"renewed": Run((ONE,), 0)}, "segment 1"),
        ({"through": -1}, "no position"),
        ({"identities": -1}, "identities"),
    ],
)
def test_a_copy_that_no_store_can_have_is_no_answer(changed: dict[str, object], says: str) -> None:
    assert decode_copy(encode_copy(GOOD)) == GOOD
    wrong = replace(GOOD, **changed)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=says):
        decode_copy(encode_copy(wrong))


@pytest.mark.parametrize("number", [-1, 1 << 63, 1 << 65])
def test_a_refusal_with_an_epoch_that_cannot_be_is_no_refusal(number: int) -> None:
    body = b'{"error":"fenced","reason":"x","promised":[%d,"x"]}'
    assert decode_refusal(body % 5) is not None
    assert decode_refusal(body % number) is None
