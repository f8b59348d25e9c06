"""The end of a deliverer costs no indication: what its listeners do not take stays (S0.14)."""

import asyncio

import pytest

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import RetryPolicy
from support.delivery import ERROR, HELD, Deliverer, destination
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk

GRACE = 20.0


async def drained(deliverer: Deliverer) -> float:
    """Drain; return how many seconds that took."""
    began = deliverer.time.monotonic()
    draining = asyncio.ensure_future(deliverer.service.drain(GRACE))
    while not draining.done():
        await asyncio.sleep(0)
        deliverer.advance(0.25)
    await draining
    return deliverer.time.monotonic() - began


@pytest.mark.parametrize("attempts", [0, 1, 2, 10_000])
@pytest.mark.parametrize("policy", QueueFullPolicy)
@pytest.mark.parametrize("in_flight", [1, 3])
async def test_an_end_discards_nothing_for_lack_of_attempts(attempts, policy, in_flight):
    deliverer = Deliverer()
    deliverer.answer = ERROR
    retry = RetryPolicy(attempts=attempts, interval_seconds=1.0)
    deliverer.apply(
        [
            destination(
                "ops", retry=retry, queue_size=5, queue_full_policy=policy, max_in_flight=in_flight
            )
        ]
    )
    for number in range(5):
        assert deliverer.publish(str(number)) is None
    await drained(deliverer)
    queue = deliverer.queue("ops")
    assert sum(queue.statistics.discarded.values()) == 0
    assert deliverer.service.left() == {"ops": 5}
    tried = len(deliverer.handlers["ops"].attempts)
    assert tried <= (attempts + 1) * in_flight or attempts == 10_000


@pytest.mark.parametrize(("attempts", "most"), [(0, 1.0), (2, 3.0)])
async def test_an_end_does_not_wait_where_no_attempt_is_left(attempts, most):
    deliverer = Deliverer()
    deliverer.answer = ERROR
    retry = RetryPolicy(attempts=attempts, interval_seconds=1.0)
    deliverer.apply([destination("ops", retry=retry)])
    for number in range(30):
        deliverer.publish(str(number))
    assert await drained(deliverer) <= most
    assert deliverer.service.left() == {"ops": 30}


async def test_an_end_does_not_wait_for_a_held_destination_however_long_its_grace():
    deliverer = Deliverer()
    deliverer.answer = HELD
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    began = deliverer.time.monotonic()
    draining = asyncio.ensure_future(deliverer.service.drain(600.0))
    while not draining.done():
        await asyncio.sleep(0)
        deliverer.advance(0.25)
    assert await draining == 1
    assert deliverer.time.monotonic() - began < 1.0
    assert len(deliverer.handlers["ops"].attempts) == 2


async def test_after_a_drain_that_was_no_end_attempts_are_limited_again():
    deliverer = Deliverer()
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=0, interval_seconds=1.0))])
    for identifier in "ab":
        deliverer.publish(identifier)
    await drained(deliverer)
    assert deliverer.service.left() == {"ops": 2}
    deliverer.advance(GRACE + 2.0)
    assert deliverer.service.left() == {}


async def test_an_end_over_a_journal_discards_nothing_and_the_next_run_delivers_all_in_order():
    made = OnDisk(MemoryFiles())
    made.answer = ERROR
    ops = destination("ops", retry=RetryPolicy(attempts=1, interval_seconds=1.0))
    made.apply([ops])
    for number in range(20):
        assert made.give(str(number)) is None
    await drained(made)
    assert made.service.left() == {"ops": 20}
    made.service.close()
    again = made.restart()
    again.apply([ops])
    again.advance(5.0)
    assert again.handlers["ops"].identifiers == [str(number) for number in range(20)]
    assert sum(again.queue("ops").statistics.discarded.values()) == 0
