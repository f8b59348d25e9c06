"""Few of many adoptions have a turn, and their copies room. What only waits gives way (S3.7)."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from pillion_sidecar.adoption_attempts import (
    ANSWER_SECONDS,
    CLAIMING_PATIENCE,
    MOST_AT_ONCE,
    SENDING_PATIENCE,
)
from pillion_sidecar.adoption_turns import NoRoomError, Room
from pillion_sidecar.intake.adoption import LEFT_SECONDS, MOST_ROUNDS, UNKNOWN_SECONDS
from pillion_sidecar.stores.messages import ClaimRequest, ReadRequest
from pillion_sidecar.wire.adoptions import AdoptionStatus
from support.adoption import Gone, KeptCopies
from support.adoptions import ORDER, World, gone, order_of, turns, until, until_idle
from support.delivery import destination, subscription
from support.stores import NAMES, SESSION


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """One adoption has a turn at a time."""
    monkeypatch.setattr("pillion_sidecar.adoption_attempts.MOST_AT_ONCE", 1)
    return World(tmp_path)


def away() -> KeptCopies:
    stores = KeptCopies()
    stores.away = set(NAMES)
    return stores


def told(world: World, session: str = SESSION) -> AdoptionStatus:
    return next(one for one in world.adoptions.statuses if one.session == session)


async def pass_time(world: World, seconds: float) -> None:
    """Let time pass, and threads finish what comes of it."""
    for _ in range(int(seconds)):
        world.adopter.time.advance(1.0)
        async for _ in turns():
            break


async def finish(world: World) -> None:
    async with asyncio.timeout(20):
        while world.adoptions._tasks:
            await pass_time(world, 1)


# ---------------------------------------------------------------------- turns


async def test_adoptions_that_wait_for_stores_keep_no_other_waiting(world: World) -> None:
    world.stores.keep(gone())
    for number in range(MOST_AT_ONCE):
        order = order_of(number)
        world.others[order.session] = away()
        world.adoptions.order(order)
    world.adoptions.order(ORDER)
    await until(lambda: sum(one.problem is not None for one in world.adoptions.statuses) == 8)
    assert told(world).state == "Waiting"
    await pass_time(world, CLAIMING_PATIENCE + 1)
    await until(lambda: told(world).state == "Done")
    others = [told(world, order_of(number).session) for number in range(MOST_AT_ONCE)]
    assert {one.problem for one in others} == {
        "it waits for stores: a: a is away; b: b is away; c: c is away"
    }
    # Their turn comes again.
    for number in range(MOST_AT_ONCE):
        stores = world.others[order_of(number).session]
        stores.away = set()
    await finish(world)
    assert Counter(one.state for one in world.adoptions.statuses) == {"Failed": 8, "Done": 1}
    assert world.open == 0


async def test_a_claim_that_waits_gives_way_and_begins_anew(alone: World) -> None:
    """c has it, and is not enough."""
    world = alone
    world.stores.keep(gone())
    world.stores.away = {"a", "b"}
    world.adoptions.order(ORDER)
    await until(lambda: told(world).missing == ["a", "b"])
    world.adoptions.order(order_of(1))
    await pass_time(world, CLAIMING_PATIENCE + 1)
    await until(lambda: told(world, order_of(1).session).state == "Failed")
    world.stores.away = set()
    await pass_time(world, ANSWER_SECONDS)
    await until(lambda: told(world).state == "Done")
    assert world.adopter.taken("siem") == ["1", "2", "3"]
    assert world.stores.counts() == [0, 0, 0]


async def test_what_waits_for_nobody_keeps_its_turn(alone: World) -> None:
    world = alone
    world.stores.keep(gone())
    world.adopter.fill()
    world.adoptions.order(ORDER)
    await until(lambda: told(world).state == "Sending")
    await pass_time(world, SENDING_PATIENCE + 5)
    assert told(world).state == "Sending"
    claims = [one for _, one in world.stores.asked if isinstance(one, ClaimRequest)]
    assert len({one.claimant for one in claims}) == 1
    await world.adoptions.close()


async def test_a_full_destination_gives_way_and_goes_on_where_it_was(alone: World) -> None:
    world, queues = alone, alone.adopter.queues
    world.stores.keep(gone("1", "2", "3"))
    offer = queues.offer

    def offering(*given: object, **more: object) -> object:
        if len(queues.taken) == 2:
            world.adopter.fill()
        return offer(*given, **more)  # type: ignore[arg-type]

    queues.offer = offering  # type: ignore[method-assign, assignment]
    world.adoptions.order(ORDER)
    await until(lambda: told(world).pending == 1)
    other = order_of(1)
    world.others[other.session] = KeptCopies()
    world.adoptions.order(other)
    await pass_time(world, SENDING_PATIENCE + 5)
    await until(lambda: told(world, other.session).state == "Failed")
    queues.offer = offer  # type: ignore[method-assign]
    queues.refusal = None
    await until(lambda: told(world).state in ("Done", "Sending"))
    await finish(world)
    status = told(world)
    # The first two were not offered again.
    assert (status.state, status.taken, status.duplicate) == ("Done", 3, 0)
    assert world.adopter.taken("siem") == ["1", "2", "3"]
    assert +world.counts[1] == {"taken": 3}


async def test_a_thousand_sessions_at_once_are_few_connections_and_each_has_its_turn(
    world: World,
) -> None:
    most = 0

    def asking(*_: object) -> None:
        nonlocal most
        most = max(most, world.open)

    dead = away()
    dead.asking = world.stores.asking = asking
    for number in range(999):
        if number % 20 == 0:
            world.others[order_of(number).session] = dead
        world.adoptions.order(order_of(number))
    world.stores.keep(gone())
    world.adoptions.order(ORDER)
    async with asyncio.timeout(20):
        while world.counts[0] != {"done": 1, "failed": 949}:
            await pass_time(world, 1)
    assert 0 < most <= MOST_AT_ONCE
    # Those that are in no store end, those whose stores are away wait.
    states = Counter(one.state for one in world.adoptions.statuses)
    assert (states["Done"], states["Failed"]) == (1, 949)
    assert states["Waiting"] + states["Claiming"] == 50
    await world.adoptions.close()
    assert world.scratch() == []


# ---------------------------------------------------------------------- unknown subscriptions


def two_subscriptions() -> Gone:
    made = Gone()
    made.apply([destination("siem")], [subscription("siem", "siem"), subscription("lost", "siem")])
    for identifier, name in (("1", "siem"), ("2", "lost"), ("3", "siem"), ("4", "lost")):
        made.give_all(identifier, to=[name])
    return made


async def test_what_waits_for_a_deleted_subscription_ends_and_repeats_nothing(
    world: World,
) -> None:
    world.stores.keep(two_subscriptions())
    world.adoptions.order(ORDER)
    await until(lambda: told(world).state == "Sending")
    await pass_time(world, UNKNOWN_SECONDS + (MOST_ROUNDS + 1) * LEFT_SECONDS + 5)
    await until_idle(world.adoptions)
    status = told(world)
    assert (status.state, status.problem) == (
        "Failed",
        "2 are for subscriptions that this gateway does not know: lost; create them again to have"
        " it delivered",
    )
    assert (status.pending, status.taken) == (2, 2)
    assert world.stores.counts() == [1, 1, 1]
    assert world.scratch() == []
    # Again, nothing has changed: the copy is of no use.
    world.stores.asked.clear()
    again = await world.ended()
    assert (again.state, again.problem, again.taken) == ("Failed", status.problem, 2)
    assert not any(isinstance(one, ReadRequest) for _, one in world.stores.asked)
    world.adopter.know("lost")
    status = await world.ended()
    assert (status.state, status.taken, status.duplicate) == ("Done", 4, 0)
    assert [one.identifier for one in world.adopter.queues.taken] == ["1", "3", "2", "4"]
    assert +world.counts[1] == {"taken": 4}
    assert world.stores.counts() == [0, 0, 0]


# ---------------------------------------------------------------------- room


async def test_a_copy_that_the_volume_has_no_room_for_fails_and_is_tried_again(
    world: World,
) -> None:
    world.stores.keep(gone())
    world.journal_room, world.free = 200, 900
    status = await world.ended()
    assert status.state == "Failed"
    assert "the volume has 0.0Mi free, of which the journal may need 0.0Mi; raise" in str(
        status.problem
    )
    assert world.adopter.queues.taken == []
    assert world.stores.counts() == [1, 1, 1]
    world.free = 1 << 20
    assert (await world.ended()).state == "Done"


async def test_a_copy_that_waits_for_room_says_so(world: World) -> None:
    world.stores.keep(gone())
    world.journal_room = 2000
    await world.adoptions._attempts._room.take(900)
    world.adoptions.order(ORDER)
    await until(lambda: "it waits for room" in str(told(world).problem))
    assert told(world).state == "Claiming"
    world.adoptions._attempts._room.give_back(900)
    await until_idle(world.adoptions)
    assert told(world).state == "Done"
    assert world.adoptions._attempts._room._taken == 0


class Volume:
    def __init__(self, *, journal: int, free: int) -> None:
        self.journal, self.free = journal, free
        self.room = Room(journal=lambda: self.journal, free=lambda: self.free)

    def wants(self, size: int) -> "asyncio.Task[None]":
        return asyncio.ensure_future(self.room.take(size))


async def test_copies_together_take_up_to_half_of_the_journals_room() -> None:
    volume = Volume(journal=1000, free=2000)
    await volume.room.take(300)
    await volume.room.take(200)
    last = volume.wants(100)
    await asyncio.sleep(0)
    assert volume.room.is_wanted
    volume.room.give_back(300)
    await last
    assert not volume.room.is_wanted


async def test_a_large_copy_goes_alone_and_smaller_ones_do_not_pass_it() -> None:
    volume = Volume(journal=1000, free=2000)
    await volume.room.take(10)
    large, small = volume.wants(900), volume.wants(10)
    await asyncio.sleep(0)
    assert not small.done()
    volume.room.give_back(10)
    await large
    assert not small.done()
    volume.room.give_back(900)
    await small


async def test_a_copy_never_takes_what_the_disk_does_not_have() -> None:
    volume = Volume(journal=1000, free=600)
    with pytest.raises(NoRoomError):
        await volume.room.take(200)
    with pytest.raises(NoRoomError):
        await volume.room.take(900)
    volume.free = 1899
    with pytest.raises(NoRoomError):
        await volume.room.take(900)
    volume.free = 1900
    await volume.room.take(900)


async def test_one_that_gives_up_waiting_leaves_its_room_to_others() -> None:
    volume = Volume(journal=1000, free=2000)
    await volume.room.take(500)
    first, second = volume.wants(500), volume.wants(100)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    volume.room.give_back(500)
    # It is called, and is cancelled before it hears of it.
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert volume.room.fits(500)
