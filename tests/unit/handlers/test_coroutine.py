"""A handler that awaits: one outcome, in time, and nothing after the end."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from pillion_sidecar.clock import Slices
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult, FailureCause
from pillion_sidecar.handlers.coroutine import MOST_OVERDUE, CoroutineHandler, Deliver, Progress
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery

SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Library:
    """Awaits until it is told to go on."""

    def __init__(self, *, doing: str = "dialing", is_handed_over: bool = False) -> None:
        self.begun = 0
        self.cancelled = 0
        self.goes_on = asyncio.Event()
        self._doing = doing
        self._is_handed_over = is_handed_over

    async def deliver(self, _: Delivery, progress: Progress) -> DeliveryOutcome:
        self.begun += 1
        progress.doing = self._doing
        progress.is_handed_over = self._is_handed_over
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return SUCCESS


class Stubborn(Library):
    """Does not end when it is cancelled."""

    async def deliver(self, _: Delivery, progress: Progress) -> DeliveryOutcome:
        while not self.goes_on.is_set():
            try:
                await self.goes_on.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        return SUCCESS


def handler(deliver: Deliver, time: FakeTime) -> CoroutineHandler:
    return CoroutineHandler(deliver, name="desk", timers=time, timeout=30.0)


async def test_the_outcome_of_the_coroutine_is_told_once(fake_time: FakeTime) -> None:
    library, told = Library(), list[DeliveryOutcome]()
    handler(library.deliver, fake_time).deliver(delivery(), told.append)
    await turns()
    assert told == []
    library.goes_on.set()
    await turns()
    fake_time.advance(100)
    await turns()
    assert told == [SUCCESS]


@pytest.mark.parametrize(
    ("is_handed_over", "result"),
    [(False, DeliveryResult.ERROR), (True, DeliveryResult.POST_DELIVERY_ERROR)],
)
async def test_at_the_time_out_the_coroutine_ends(
    fake_time: FakeTime, is_handed_over: bool, result: DeliveryResult
) -> None:
    library, told = Library(is_handed_over=is_handed_over), list[DeliveryOutcome]()
    handler(library.deliver, fake_time).deliver(delivery(), told.append)
    await turns()
    fake_time.advance(29.9)
    assert told == []
    fake_time.advance(0.2)
    assert told == [
        DeliveryOutcome(result, "timed out after 30 s while dialing", cause=FailureCause.TIMEOUT)
    ]
    await turns()
    assert library.cancelled == 1
    assert len(told) == 1


async def test_an_outcome_at_the_moment_of_the_time_out_counts(fake_time: FakeTime) -> None:
    told = list[DeliveryOutcome]()

    async def deliver(_: Delivery, __: Progress) -> DeliveryOutcome:
        # The task is done, and its callback waits for the next turn.
        asyncio.get_running_loop().call_soon(fake_time.advance, 31.0)
        return SUCCESS

    handler(deliver, fake_time).deliver(delivery(), told.append)
    await turns()
    assert told == [SUCCESS]


async def test_after_close_nothing_is_told_and_tasks_end(fake_time: FakeTime) -> None:
    library, told = Library(), list[DeliveryOutcome]()
    closed = handler(library.deliver, fake_time)
    closed.deliver(delivery(), told.append)
    await turns()
    closed.close()
    await turns()
    fake_time.advance(100)
    assert (library.cancelled, told) == (1, [])


@pytest.mark.parametrize("close_first", [False, True])
async def test_an_exception_is_an_error_that_names_its_type_alone(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture, close_first: bool
) -> None:
    told, goes_on = list[DeliveryOutcome](), asyncio.Event()

    async def deliver(_: Delivery, progress: Progress) -> DeliveryOutcome:
        progress.doing = "dialing"
        try:
            await goes_on.wait()
        finally:
            raise LookupError("planted-secret")

    made = handler(deliver, fake_time)
    made.deliver(delivery(), told.append)
    await turns()
    with caplog.at_level(logging.ERROR):
        if close_first:
            made.close()
        goes_on.set()
        await turns()
    outcome = DeliveryOutcome(
        DeliveryResult.ERROR, "failed with LookupError while dialing", cause=FailureCause.DELIVERER
    )
    assert told == ([] if close_first else [outcome])
    (record,) = caplog.records
    assert (record.event, record.destination) == ("attempt-failed", "desk")  # type: ignore[attr-defined]
    assert "LookupError, raised in deliver" in caplog.text
    assert "planted-secret" not in caplog.text


async def test_a_coroutine_that_is_cancelled_from_inside_is_an_error(fake_time: FakeTime) -> None:
    told = list[DeliveryOutcome]()

    async def deliver(_: Delivery, __: Progress) -> DeliveryOutcome:
        raise asyncio.CancelledError

    handler(deliver, fake_time).deliver(delivery(), told.append)
    await turns()
    assert told == [
        DeliveryOutcome(
            DeliveryResult.ERROR, "was cancelled while delivering", cause=FailureCause.DELIVERER
        )
    ]


async def test_coroutines_that_do_not_end_are_bounded(fake_time: FakeTime) -> None:
    library = Stubborn()
    made = handler(library.deliver, fake_time)
    told: list[DeliveryOutcome] = []
    tell: Callable[[DeliveryOutcome], None] = told.append
    for _ in range(MOST_OVERDUE):
        made.deliver(delivery(), tell)
        await turns()
        fake_time.advance(31)
    made.deliver(delivery(), tell)
    assert len(told) == MOST_OVERDUE
    await turns()
    assert told[-1].detail == f"{MOST_OVERDUE} earlier attempts timed out and have not ended"
    library.goes_on.set()
    await turns()
    assert len(told) == MOST_OVERDUE + 1
    made.deliver(delivery(), tell)
    await turns()
    assert told[-1] == SUCCESS


class Sliced:
    """A handler whose first attempt has timed out, and slices of which none is left for now."""

    def __init__(self, time: FakeTime, library: Library) -> None:
        self.time, self.slices = time, Slices(clock=time, timers=time)
        self.told: list[DeliveryOutcome] = []
        self.handler = CoroutineHandler(
            library.deliver, name="desk", timers=time, timeout=30.0, slices=self.slices
        )

    async def deliver(self) -> None:
        self.handler.deliver(delivery(), self.told.append)
        await turns()

    def exhaust(self) -> None:
        """Fill what is left of this moment."""
        self.time.call_later(29.9995, self._fill)

    def _fill(self) -> None:
        for _ in range(100):
            self.slices.add(_nothing)


def _nothing() -> None: ...


async def test_time_outs_of_a_failing_destination_have_their_turn(fake_time: FakeTime) -> None:
    library = Library()
    sliced = Sliced(fake_time, library)
    sliced.exhaust()
    await sliced.deliver()
    fake_time.advance(30.0)
    # Only the first is told at once: until then it was not failing.
    assert len(sliced.told) == 1
    fake_time.advance(1.0)
    sliced.exhaust()
    await sliced.deliver()
    fake_time.advance(30.0)
    assert len(sliced.told) == 1
    fake_time.advance(1.0)
    assert [told.cause for told in sliced.told] == [FailureCause.TIMEOUT] * 2


async def test_what_ends_before_its_turn_has_its_outcome(fake_time: FakeTime) -> None:
    library = Library()
    sliced = Sliced(fake_time, library)
    await sliced.deliver()
    fake_time.advance(31.0)
    sliced.exhaust()
    await sliced.deliver()
    fake_time.advance(30.0)
    library.goes_on.set()
    await turns()
    fake_time.advance(1.0)
    assert sliced.told[1:] == [SUCCESS]
