"""Calling publishers back (S1.9): tries, bounds, and what is given up."""

import logging

import pytest

from pillion_sidecar.reliability.callbacks import MAXIMUM_IN_FLIGHT, WAITS, Callbacks
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.receipts import Receipt
from pillion_sidecar.testing import FakeTime
from support.intake import Counted, FakePoster

URL = "http://hooks.example/secret?token=x"


class World:
    def __init__(self, time: FakeTime, **bounds: int) -> None:
        self.time = time
        self.memory = DuplicateMemory(clock=time, window_seconds=100, capacity=100)
        self.poster = FakePoster()
        self.observer = Counted()
        self.callbacks = Callbacks(
            poster=self.poster,
            timers=time,
            observer=self.observer,
            **bounds,
        )

    def expect(self, url: str = URL, *, size: int = 0) -> Receipt:
        receipt = Receipt(memory=self.memory, timers=self.time)
        body = b'{"x":"' + b"x" * size + b'"}'
        self.callbacks.expect(receipt, url=url, seconds=60, render=lambda _: body)
        return receipt

    def settled(self, url: str = URL, *, size: int = 0) -> Receipt:
        receipt = self.expect(url, size=size)
        receipt.completed()
        self.time.advance(0)
        return receipt


def test_a_failed_callback_is_tried_again_after_growing_waits_and_then_given_up(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(fake_time)
    receipt = world.settled()
    for tries, wait in enumerate(WAITS, start=1):
        assert len(world.poster.posted) == tries
        world.poster.answer("HTTP 500")
        fake_time.advance(wait - 0.5)
        assert len(world.poster.posted) == tries
        fake_time.advance(0.5)
    with caplog.at_level(logging.WARNING, logger="pillion.reliability"):
        world.poster.answer("HTTP 500")
    fake_time.advance(3600)
    assert len(world.poster.posted) == len(WAITS) + 1
    assert world.observer.callbacks == {False: 1}
    (record,) = caplog.records
    assert record.__dict__["event"] == "callback-dropped"
    assert record.__dict__["receipt"] == receipt.id
    assert record.__dict__["url"] == "http://hooks.example"
    assert "token" not in record.getMessage()


def test_a_later_try_that_succeeds_ends_it(fake_time: FakeTime) -> None:
    world = World(fake_time)
    world.settled()
    world.poster.answer("no connection")
    fake_time.advance(WAITS[0])
    world.poster.answer()
    fake_time.advance(3600)
    assert world.observer.callbacks == {True: 1}
    assert len(world.poster.posted) == 2


def test_no_more_are_awaited_than_the_bound(fake_time: FakeTime) -> None:
    world = World(fake_time, maximum_awaited=2)
    first = world.expect()
    assert world.callbacks.refusal is None
    world.expect()
    assert world.callbacks.refusal is not None
    first.completed()
    fake_time.advance(0)
    assert world.callbacks.refusal is None


@pytest.mark.parametrize("bounds", [{"maximum_outgoing": 1}, {"maximum_outgoing_bytes": 150}])
def test_beyond_the_bounds_of_what_is_sent_a_callback_is_dropped_and_counted(
    fake_time: FakeTime, bounds: dict[str, int]
) -> None:
    world = World(fake_time, **bounds)
    world.settled(size=100)
    world.settled(size=100)
    assert len(world.poster.posted) == 1
    assert world.observer.callbacks == {False: 1}
    world.poster.answer()
    world.settled(size=100)
    assert len(world.poster.posted) == 2


def test_a_place_that_hangs_holds_up_nobody_else(fake_time: FakeTime) -> None:
    world = World(fake_time)
    for number in range(MAXIMUM_IN_FLIGHT + 2):
        world.settled(f"http://hangs.example/{number}")
    world.settled("http://works.example/")
    places = [url for url, _ in world.poster.posted]
    assert places == [f"http://hangs.example/{n}" for n in range(MAXIMUM_IN_FLIGHT)] + [
        "http://works.example/"
    ]
    world.poster.answer("time-out")
    assert world.poster.posted[-1][0] == f"http://hangs.example/{MAXIMUM_IN_FLIGHT}"
    world.poster.answer()
    world.poster.answer()
    assert len(world.poster.posted) == MAXIMUM_IN_FLIGHT + 3
    # Tried again, the first waits behind nobody: all that was before it is under way.
    for _ in range(4):
        world.poster.answer()
    fake_time.advance(WAITS[0])
    assert world.poster.posted[-1][0] == "http://hangs.example/0"
    world.poster.answer()
    assert world.observer.callbacks == {True: MAXIMUM_IN_FLIGHT + 3}


def test_what_is_settled_just_after_the_timeout_is_told_once(fake_time: FakeTime) -> None:
    world = World(fake_time)
    receipt = world.expect()
    fake_time.advance(60)
    receipt.completed()
    fake_time.advance(60)
    assert len(world.poster.posted) == 1


def test_at_the_end_what_is_left_is_counted_and_logged_once_and_nothing_is_sent_any_more(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(fake_time)
    awaited = world.expect()
    world.settled()
    world.settled()
    world.poster.answer("HTTP 500")
    with caplog.at_level(logging.WARNING, logger="pillion.reliability"):
        world.callbacks.close()
    (record,) = caplog.records
    assert record.__dict__["event"] == "callbacks-left-at-shutdown"
    assert record.__dict__["count"] == 3
    assert world.observer.callbacks == {False: 3}
    awaited.completed()
    world.poster.answer()
    fake_time.advance(3600)
    assert len(world.poster.posted) == 2
    assert world.observer.callbacks == {False: 3}


def test_an_end_with_nothing_left_says_nothing(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(fake_time)
    world.settled()
    world.poster.answer()
    world.callbacks.close()
    assert not caplog.records
    assert world.observer.callbacks == {True: 1}
