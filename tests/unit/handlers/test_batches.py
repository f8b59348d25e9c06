"""Batches: what goes together, when, and what comes back."""

import asyncio

import pytest

from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.handlers.batches import MOST_BYTES, Batches, Waiting

SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)


class Told:
    """What a collector sent, and what it reported."""

    def __init__(self, *, most: int = 3, gathers: bool = False) -> None:
        self.sent: list[list[Waiting]] = []
        self.outcomes: list[tuple[bytes, DeliveryOutcome]] = []
        self.batches = Batches(self.sent.append, most=most, gathers=gathers)

    def add(self, *bodies: bytes) -> None:
        for body in bodies:
            self.batches.add(body, lambda outcome, body=body: self.outcomes.append((body, outcome)))

    def conclude(self, outcome: DeliveryOutcome = SUCCESS) -> None:
        batch = self.sent[-1]
        self.batches.conclude(batch, [outcome] * len(batch))

    @property
    def bodies(self) -> list[list[bytes]]:
        return [[waiting.body for waiting in batch] for batch in self.sent]


def test_what_arrives_during_a_request_goes_with_the_next() -> None:
    told = Told()
    told.add(b"0", b"1", b"2", b"3", b"4")
    assert told.bodies == [[b"0"]]
    told.conclude()
    assert told.bodies[1:] == [[b"1", b"2", b"3"]]
    told.conclude()
    assert told.bodies[2:] == [[b"4"]]
    told.conclude()
    assert [body for body, _ in told.outcomes] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_gathered_batch_is_sent_when_the_turn_ends() -> None:
    told = Told(gathers=True)
    told.add(b"0", b"1")
    assert told.sent == []
    await asyncio.sleep(0)
    assert told.bodies == [[b"0", b"1"]]
    told.add(b"2")
    told.conclude()
    assert told.bodies[1:] == [[b"2"]]


async def test_a_gathered_batch_is_not_sent_after_the_close() -> None:
    told = Told(gathers=True)
    told.add(b"0")
    told.batches.close()
    await asyncio.sleep(0)
    assert told.sent == []


def test_a_batch_is_bounded_by_bytes_and_a_long_body_goes_alone() -> None:
    told = Told()
    told.add(b"0", b"x" * MOST_BYTES, b"y" * MOST_BYTES, b"1", b"2")
    for _ in range(3):
        told.conclude()
    assert [[len(body) for body in batch] for batch in told.bodies] == [
        [1],
        [MOST_BYTES],
        [MOST_BYTES],
        [1, 1],
    ]


@pytest.mark.parametrize("result", [DeliveryResult.ERROR, DeliveryResult.POST_DELIVERY_ERROR])
def test_what_waits_behind_a_failed_batch_comes_back_unsent(result: DeliveryResult) -> None:
    told = Told(most=2)
    told.add(b"0", b"1", b"2")
    told.conclude(DeliveryOutcome(result, "HTTP 503", 503))
    assert [body for body, _ in told.outcomes] == [b"0", b"1", b"2"]
    assert [outcome.result for _, outcome in told.outcomes] == [
        result,
        DeliveryResult.ERROR,
        DeliveryResult.ERROR,
    ]
    assert [outcome.spends_attempt for _, outcome in told.outcomes] == [True, False, False]
    assert len(told.sent) == 1


def test_what_can_never_be_delivered_costs_the_others_nothing() -> None:
    told = Told()
    told.add(b"0", b"1")
    told.conclude(DeliveryOutcome(DeliveryResult.FATAL_ERROR, "no"))
    assert told.bodies == [[b"0"], [b"1"]]


def test_nothing_is_sent_or_reported_after_the_close() -> None:
    told = Told()
    told.add(b"0", b"1", b"2", b"3")
    told.batches.close()
    told.conclude()
    assert told.outcomes == []
    assert len(told.sent) == 1
