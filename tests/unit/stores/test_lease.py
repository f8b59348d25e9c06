"""The right to deliver: renewed by enough stores, and over in time (S3.9)."""

import logging
from dataclasses import replace

import pytest

from pillion_sidecar.stores.copies import Epoch
from pillion_sidecar.stores.lease import BEATS, Lease
from pillion_sidecar.stores.messages import ClaimRequest
from pillion_sidecar.stores.quorum import Between, StoreGroup
from pillion_sidecar.testing import FakeTime
from support.stores import MEMBERSHIP, SESSION, Writer

SECONDS = 40.0


class World:
    def __init__(
        self,
        time: FakeTime,
        *,
        delay: float = 0.0,
        timers: FakeTime | None = None,
        **membership: object,
    ) -> None:
        self.time = time
        self.beats = self.changes = 0
        self.lease = Lease(
            replace(MEMBERSHIP, **membership),
            seconds=SECONDS,
            delay=delay,
            clock=time,
            timers=timers or time,
        )
        self.lease.follow(self._change)
        self.lease.start(self._beat)

    def _beat(self) -> None:
        self.beats += 1

    def _change(self) -> None:
        self.changes += 1

    def renew(self, *stores: str) -> None:
        for store in stores:
            self.lease.renew(store, self.time.monotonic())


def test_it_holds_once_enough_stores_have_answered(fake_time: FakeTime) -> None:
    world = World(fake_time)
    assert not world.lease.holds()
    world.renew("a")
    assert (world.lease.holds(), world.lease.left) == (False, 0)
    world.renew("b")
    assert (world.lease.holds(), world.lease.left) == (True, SECONDS)
    assert world.changes == 1


def test_it_counts_from_when_the_oldest_of_enough_answers_was_asked_for(
    fake_time: FakeTime,
) -> None:
    world = World(fake_time)
    fake_time.advance(SECONDS)
    sent = fake_time.monotonic()
    world.lease.renew("a", sent - 10)
    world.lease.renew("b", sent - 5)
    assert world.lease.left == SECONDS - 10
    world.lease.renew("c", sent - 1)
    assert world.lease.left == SECONDS - 5
    # An answer that was late changes nothing.
    world.lease.renew("a", sent - 20)
    assert world.lease.left == SECONDS - 5


def test_nothing_begins_once_it_has_lapsed_even_if_no_timer_came(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pillion.stores")
    timers = FakeTime()
    world = World(fake_time, timers=timers)
    world.renew("a", "b")
    # The process was stopped.
    fake_time.advance(SECONDS)
    assert not world.lease.holds()
    timers.advance(SECONDS)
    timers.advance(SECONDS)
    world.renew("a", "c")
    events = [record.event for record in caplog.records]  # type: ignore[attr-defined]
    assert events == ["lease-held", "lease-lapsed", "lease-held"]
    assert world.changes == 2


def test_it_goes_on_while_it_is_renewed(fake_time: FakeTime) -> None:
    world = World(fake_time)
    for _ in range(10):
        world.renew("a", "b")
        fake_time.advance(SECONDS / 2)
        assert world.lease.holds()
    assert world.changes == 1
    assert world.beats > 10 * BEATS / 2


def test_the_lease_of_a_writer_before_is_waited_for(fake_time: FakeTime) -> None:
    world = World(fake_time, delay=SECONDS)
    fake_time.advance(1)
    world.renew("a", "b", "c")
    assert not world.lease.holds()
    fake_time.advance(SECONDS - 2)
    world.renew("a", "b", "c")
    assert (world.lease.holds(), world.changes) == (False, 0)
    fake_time.advance(1)
    assert (world.lease.holds(), world.changes) == (True, 1)


def test_the_groups_that_make_something_stable_renew_it(fake_time: FakeTime) -> None:
    groups = (StoreGroup(name="g", members=("a", "b", "c")), StoreGroup(name="h", members=("d",)))
    world = World(fake_time, groups=groups, between=Between.ALL)
    world.renew("a", "b")
    assert not world.lease.holds()
    world.renew("d")
    assert world.lease.holds()


def test_no_timer_outlives_it(fake_time: FakeTime) -> None:
    world = World(fake_time)
    world.renew("a", "b")
    world.lease.close()
    assert fake_time.next_due() is None


def test_an_idle_writer_renews_it_and_one_that_is_claimed_does_not() -> None:
    time = FakeTime()
    lease = Lease(MEMBERSHIP, seconds=SECONDS, delay=0, clock=time, timers=time)
    writer = Writer(time=time, lease=lease)
    writer.shipper.start()
    writer.begin(1)
    writer.stores.run()
    for _ in range(8):
        time.advance(SECONDS / 4)
        writer.stores.run()
        assert lease.holds()
    assert isinstance(writer.stores.sent["a"][-1], ClaimRequest)
    claimed_at = time.monotonic()
    for name in ("a", "b"):
        writer.stores.stores[name].claim(SESSION, Epoch(9, "other"))
    while lease.holds():
        time.advance(1)
        writer.stores.run("c")
    assert time.monotonic() <= claimed_at + SECONDS


def test_what_was_asked_before_a_claim_and_answered_after_it_is_no_longer_than_that() -> None:
    time = FakeTime()
    lease = Lease(MEMBERSHIP, seconds=SECONDS, delay=0, clock=time, timers=time)
    writer = Writer(time=time, lease=lease)
    writer.shipper.start()
    writer.begin(1)
    sent_at = time.monotonic()
    time.advance(5)
    writer.stores.answer("a")
    writer.stores.answer("b")
    assert lease.left == sent_at + SECONDS - time.monotonic()
