"""Releases of large groups, and the end of delivery in memory, take turns with everybody else
(S0.15, S1.5)."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from pillion_sidecar.delivery.admission import RELEASED_PER_TURN
from pillion_sidecar.delivery.settlement import DISCARDS_PER_TURN
from pillion_sidecar.indication import DiscardReason, GroupMember, Indication, Target
from pillion_sidecar.journal.ports import Journal
from support.delivery import FATAL_ERROR, SUCCESS, Deliverer, destination
from support.fake_journal import FakeJournal

MANY = 10 * RELEASED_PER_TURN
TARGETS = (Target("ops", "filter", "ops"),)
RUN = 1


def make(journal: Journal | None = None, *, suspended: bool = False) -> Deliverer:
    deliverer = Deliverer(journal=journal)
    deliverer.apply(
        [destination("ops", queue_size=8 * MANY, suspended=suspended), destination("well")]
    )
    return deliverer


def member(deliverer: Deliverer, sequence: int) -> Indication:
    return Indication(
        body=b"{}",
        class_name="C",
        accepted_at=deliverer.time.monotonic(),
        identifier=str(sequence),
        group="g",
        member=GroupMember(sequence, ordered=True),
        group_run=RUN,
        trackers=(deliverer.settlements,),
    )


def held(deliverer: Deliverer, count: int = MANY) -> list[Indication]:
    members = [member(deliverer, sequence) for sequence in range(1, count + 1)]
    for one in members:
        assert deliverer.service.hold(one, TARGETS) is None
    return members


def complete(deliverer: Deliverer, members: list[Indication]) -> None:
    """The member 0 comes, which all others have waited for."""
    assert deliverer.service.offer(member(deliverer, 0), TARGETS, completes=True) is None
    for one in members:
        deliverer.service.release(one)


def numbers(*range_of: int) -> list[str]:
    return [str(number) for number in range(*range_of)]


def test_others_have_their_turns_while_a_large_group_is_released() -> None:
    deliverer = make()
    members = held(deliverer)
    complete(deliverer, members)
    assert deliverer.queue("ops").held == MANY - RELEASED_PER_TURN
    assert deliverer.publish("urgent", "well") is None
    while not deliverer.handlers["well"].attempts:
        deliverer.step()
    assert deliverer.queue("ops").held > MANY // 2
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == numbers(MANY + 1)
    assert deliverer.queue("ops").held == 0


def on_disk() -> tuple[Deliverer, Callable[[], None]]:
    journal = FakeJournal()
    deliverer = make(journal)

    def settle() -> None:
        for _ in range(4 * MANY):
            journal.commit()
            journal.finish_loads()
            deliverer.run()
            if not deliverer.service.pending:
                return

    return deliverer, settle


def in_memory() -> tuple[Deliverer, Callable[[], None]]:
    deliverer = make()
    return deliverer, deliverer.run


@pytest.mark.parametrize("kept", [in_memory, on_disk])
def test_a_member_that_comes_while_its_group_is_released_overtakes_none(
    kept: Callable[[], tuple[Deliverer, Callable[[], None]]],
) -> None:
    deliverer, settle = kept()
    members = held(deliverer)
    complete(deliverer, members)
    assert deliverer.service.offer(member(deliverer, MANY + 1), TARGETS) is None
    deliverer.step()
    assert deliverer.service.offer(member(deliverer, MANY + 2), TARGETS) is None
    settle()
    assert deliverer.handlers["ops"].identifiers == numbers(MANY + 3)
    # Its group is through: the next one goes straight to its queue.
    assert deliverer.service.offer(member(deliverer, MANY + 3), TARGETS) is None
    assert deliverer.queue("ops").held == 0


def test_no_member_of_a_group_that_ends_during_its_release_passes_a_gap() -> None:
    deliverer = make()
    members = held(deliverer)
    deliverer.handlers["ops"].answer = FATAL_ERROR
    complete(deliverer, members)
    deliverer.service.end_group(RUN)
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.run()
    deliverer.advance(5.0)
    assert set(deliverer.handlers["ops"].identifiers) == {"0"}
    assert len(deliverer.settlements.discarded(DiscardReason.OUT_OF_ORDER)) == MANY
    assert deliverer.queue("ops").gaps.records() == ((RUN, 0, MANY + 1),)


def test_only_what_goes_on_keeps_its_gaps_after_a_restart_and_what_is_released_then() -> None:
    deliverer = make()
    members = held(deliverer)
    deliverer.handlers["ops"].answer = FATAL_ERROR
    complete(deliverer, members)
    deliverer.step()
    deliverer.service.end_other_groups(set())
    deliverer.advance(5.0)
    assert set(deliverer.handlers["ops"].identifiers) == {"0"}
    assert deliverer.queue("ops").gaps.records() == ((RUN, 0, MANY + 1),)


async def test_a_drain_waits_for_the_members_that_are_released() -> None:
    deliverer = make()
    members = held(deliverer)
    complete(deliverer, members)
    draining = asyncio.create_task(deliverer.service.drain(30.0))
    await asyncio.sleep(0)
    assert not draining.done()
    deliverer.run()
    assert await draining == 0


async def test_others_have_their_turns_while_memory_is_given_up_at_the_end() -> None:
    count = 4 * DISCARDS_PER_TURN
    deliverer = make(suspended=True)
    members = held(deliverer, count)
    for number in range(count):
        assert deliverer.publish(f"queued-{number}", "ops") is None
    ending = asyncio.create_task(deliverer.service.give_up())
    left = []
    while not ending.done():
        await asyncio.sleep(0)
        left.append(deliverer.service.pending)
    assert len(left) >= 8
    steps = [before - after for before, after in pairwise(left)]
    assert max(steps) <= DISCARDS_PER_TURN
    assert deliverer.service.pending == 0
    assert deliverer.publish("late", "ops") is not None
    deliverer.service.close()
    assert len(deliverer.settlements.discarded(DiscardReason.SHUTDOWN)) == count + len(members)


async def test_what_an_interrupted_end_has_left_is_given_up_at_the_close() -> None:
    deliverer = make(suspended=True)
    for number in range(4 * DISCARDS_PER_TURN):
        assert deliverer.publish(str(number), "ops") is None
    ending = asyncio.create_task(deliverer.service.give_up())
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    assert 0 < deliverer.service.pending < 4 * DISCARDS_PER_TURN
    deliverer.service.close()
    discarded = deliverer.settlements.discarded(DiscardReason.SHUTDOWN)
    assert discarded == numbers(4 * DISCARDS_PER_TURN)
