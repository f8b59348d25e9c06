"""CloudEvents in batches: one request and one answer for several indications."""

import json
from typing import Any

import pytest

from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.handlers.authorization import StaticAuthorizer
from pillion_sidecar.handlers.batches import FULL_BEFORE_GROWTH
from pillion_sidecar.handlers.cloudevents import CloudEventsBatchHandler
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.protocols import BatchOptions
from pillion_sidecar.testing import FakeTime
from support.handlers import FakeSender, delivery, indication


class Batched:
    """A handler with a sender that sends nothing."""

    def __init__(self, fake_time: FakeTime) -> None:
        self.sender = FakeSender()
        self.outcomes: list[tuple[str, DeliveryOutcome]] = []
        self.handler = CloudEventsBatchHandler(
            sender=self.sender,
            target=parse_target("http://events.example/in"),
            authorizer=StaticAuthorizer(b"Authorization: Bearer t\r\n"),
            clock=fake_time,
            service_name="default",
            options=BatchOptions(max_batch=4),
        )

    def deliver(self, *identifiers: str, **given: Any) -> None:
        for identifier in identifiers:
            self.handler.deliver(
                delivery(indication(identifier=identifier, **given)),
                lambda outcome, of=identifier: self.outcomes.append((of, outcome)),
            )

    def answer(self, status: int) -> None:
        self.sender.sent[-1][1].answered(status, [], b"")

    @property
    def batches(self) -> list[list[str]]:
        return [[event["id"] for event in json.loads(body)] for body in self.sender.bodies]


@pytest.fixture
def batched(fake_time: FakeTime) -> Batched:
    return Batched(fake_time)


def test_a_batch_is_an_array_with_one_answer_for_all(batched: Batched) -> None:
    batched.deliver("a", "b", "c")
    batched.answer(202)
    batched.answer(204)
    assert batched.batches == [["a"], ["b", "c"]]
    head = batched.sender.heads[1]
    assert "Content-Type: application/cloudevents-batch+json; charset=utf-8" in head
    assert "Authorization: Bearer t" in head
    assert [(of, outcome.result) for of, outcome in batched.outcomes] == [
        (of, DeliveryResult.SUCCESS) for of in "abc"
    ]


def test_a_refused_batch_is_halved_until_one_event_is_refused(batched: Batched) -> None:
    batched.deliver("a", "b", "c", "d", "e")
    batched.answer(200)
    batched.answer(400)
    first = batched.outcomes[1:]
    assert [of for of, _ in first] == ["b", "c", "d", "e"]
    assert all(one.preempted and not one.spends_attempt for _, one in first)
    # As delivery does: in order, and at once.
    batched.deliver("b", "c", "d", "e")
    batched.answer(200)
    batched.answer(413)
    assert batched.batches[2:] == [["b"], ["c", "d"]]
    batched.deliver("c", "d", "e")
    batched.answer(400)
    assert batched.batches[4:] == [["c"]]
    told = [(of, one.refuses_indication, one.spends_attempt) for of, one in batched.outcomes[-3:]]
    assert told == [("c", True, True), ("d", False, False), ("e", False, False)]


def test_batches_grow_again_after_many_successes(batched: Batched) -> None:
    batched.deliver("a", "b", "c")
    batched.answer(200)
    batched.answer(400)
    more = [str(number) for number in range(FULL_BEFORE_GROWTH + 2)]
    batched.deliver(*more)
    while len(batched.outcomes) < 3 + len(more):
        batched.answer(200)
    sizes = [len(batch) for batch in batched.batches[2:]]
    assert sizes == [1] * FULL_BEFORE_GROWTH + [2]


def test_a_failed_batch_fails_all_and_what_waits_spends_no_attempt(batched: Batched) -> None:
    batched.deliver("a", "b", "c", "d", "e", "f")
    batched.answer(200)
    batched.sender.sent[-1][1].failed(Failure(DeliveryResult.POST_DELIVERY_ERROR, "reset"))
    told = [(of, one.result, one.spends_attempt) for of, one in batched.outcomes[1:]]
    assert told == [
        *((of, DeliveryResult.POST_DELIVERY_ERROR, True) for of in "bcde"),
        ("f", DeliveryResult.ERROR, False),
    ]


async def test_what_is_no_instance_is_refused_alone(batched: Batched) -> None:
    batched.deliver("a", body=b"5")
    batched.deliver("b")
    assert batched.batches == [["b"]]


def test_a_closed_handler_sends_and_tells_nothing(batched: Batched) -> None:
    batched.deliver("a", "b")
    batched.handler.close()
    batched.answer(200)
    assert (batched.outcomes, len(batched.sender.sent)) == ([], 1)
    assert batched.sender.closed
