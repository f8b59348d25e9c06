"""A destination queue that is relayed: what spends an attempt, what keeps order, what changes."""

import random
from typing import Any

import pytest

from pillion_sidecar.config.durability import effective_lifetime
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.common import QueueFullPolicy, RemovalAction
from pillion_sidecar.config.schema.destination import (
    Backoff,
    Ordering,
    RetryPolicy,
    SequenceIdentifiers,
)
from pillion_sidecar.config.schema.service import Durability, IndicationService
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.delivery.relay import (
    IN_FLIGHT,
    as_delivered,
    as_handed_over,
    as_relayed,
    missing_gateway,
)
from pillion_sidecar.indication import DiscardReason
from support.delivery import ERROR, SUCCESS, destination, subscription
from support.fake_journal import FakeJournal
from support.relaying import Refuse, RelayingDeliverer, relayed


def deliverer(**changes: Any) -> RelayingDeliverer:
    made = RelayingDeliverer()
    made.apply([relayed("siem", **changes)])
    return made


def publish(made: RelayingDeliverer, *numbers: int) -> None:
    for number in numbers:
        assert made.publish(str(number)) is None
    made.run()


# ---------------------------------------------------------------------- parameters


def test_a_relay_queue_waits_its_own_way_and_as_long_as_the_destination_says() -> None:
    own = relayed(
        "siem",
        retry=RetryPolicy(attempts=5, interval_seconds=120.0),
        timeout_seconds=7,
        ordering=Ordering.GROUP,
        max_in_flight=4,
        sequence_identifiers=SequenceIdentifiers.OMIT,
    )
    made = as_relayed(own, Durability.MEMORY)
    assert made.retry == RetryPolicy(
        attempts=5,
        interval_seconds=1.0,
        backoff=Backoff.EXPONENTIAL,
        maximum_interval_seconds=30.0,
    )
    assert made.indication_lifetime_seconds == effective_lifetime(own, Durability.MEMORY) == 6000
    assert made.max_in_flight == IN_FLIGHT
    assert made.ordering is Ordering.DESTINATION
    assert made.sequence_identifiers is SequenceIdentifiers.SEND


@pytest.mark.parametrize(
    ("own", "first", "greatest"),
    [(0.0, 1.0, 1.0), (0.25, 0.25, 0.25), (5.0, 1.0, 5.0), (3600.0, 1.0, 30.0)],
)
def test_the_retry_interval_is_the_destinations_own_where_that_is_less(
    own: float, first: float, greatest: float
) -> None:
    destination = relayed("siem", retry=RetryPolicy(interval_seconds=own))
    retry = as_relayed(destination, Durability.MEMORY).retry
    assert (retry.interval_seconds, retry.maximum_interval_seconds) == (first, greatest)


def test_on_disk_a_relay_without_retry_settings_waits_a_day_without_a_limit_of_attempts() -> None:
    made = as_relayed(relayed("siem", retry=None), Durability.DISK)
    assert made.indication_lifetime_seconds == 86_400.0
    assert made.retry is not None
    assert made.retry.attempts is None


def test_a_small_queue_is_not_outdone_by_what_is_in_flight() -> None:
    assert as_relayed(relayed("siem", queue_size=10), Durability.DISK).max_in_flight == 10


def test_what_is_not_relayed_is_not_touched() -> None:
    configuration = Configuration(revision="1", destinations={"a": destination("a")})
    assert as_delivered(configuration, Durability.DISK) is configuration


def test_what_is_handed_over_is_not_suspended_on_the_way() -> None:
    made = as_handed_over(
        destination("a", suspended=True), durability=Durability.DISK, gateway="shared", timeout=3.0
    )
    assert (made.suspended, made.relay_to, made.timeout_seconds) == (False, "shared", 3.0)


def test_a_deliverer_without_a_way_to_its_gateway_says_what_waits() -> None:
    service = IndicationService(gateway="shared", hand_over_to="other")
    first, second = missing_gateway(
        Configuration(
            revision="1",
            service=service,
            destinations={"b": relayed("b"), "a": relayed("a"), "c": destination("c")},
        )
    )
    assert "for a, b waits" in first
    assert "gateway shared" in first
    assert "other" in second


# ---------------------------------------------------------------------- attempts and order


def test_a_gateway_that_is_away_spends_no_attempt_and_order_holds() -> None:
    made = deliverer(retry=RetryPolicy(attempts=1, interval_seconds=30.0))
    publish(made, *range(10))
    for wait in (1, 2, 4, 8, 16, 30, 30):
        made.gateway.refuse_connection()
        made.run()
        assert not made.gateway.waiting
        made.advance(wait - 0.01)
        assert not made.gateway.waiting
        made.advance(0.01)
        # One is sent ahead: the gateway may still be away.
        assert [line["relay"]["number"] for line in made.gateway.waiting[0].lines] == [0]
        assert made.queue("siem").in_flight_count == 1
    made.answer_all()
    assert made.gateway.identifiers == [str(number) for number in range(10)]
    assert made.queue("siem").depth == 0
    assert not any(made.queue("siem").statistics.discarded.values())
    assert {attempt.attempt for attempt in made.queue("siem").statistics.recent} == {1}


def test_retry_after_lengthens_the_wait() -> None:
    made = deliverer()
    publish(made, 0)
    made.gateway.tell(
        made.gateway.waiting.popleft(), 503, {"reason": "no keys"}, (b"Retry-After", b"12")
    )
    made.advance(11.9)
    assert not made.gateway.waiting
    made.advance(0.1)
    assert made.gateway.waiting


def test_what_is_refused_for_good_is_discarded_and_nothing_else() -> None:
    made = deliverer()
    publish(made, *range(6))
    made.gateway.answer(lambda number, line: Refuse(400, "not an instance"))
    made.run()
    made.gateway.answer(lambda number, line: Refuse(400) if number == 2 else None)
    made.answer_all()
    assert made.gateway.identifiers == ["1", "2", "4", "5"]
    assert made.settlements.discarded(DiscardReason.FATAL_ERROR) == ["0", "3"]


def test_what_a_gateway_refuses_for_good_ends_no_subscription() -> None:
    made = RelayingDeliverer()
    ends = subscription("ends", "siem", on_fatal_error_policy=RemovalAction.DISABLE)
    made.apply([relayed("siem")], [ends])
    publish(made, 0)
    made.gateway.answer(lambda number, line: Refuse(400))
    made.run()
    publish(made, 1)
    made.answer_all()
    assert made.gateway.identifiers == ["1"]


@pytest.mark.parametrize("policy", [QueueFullPolicy.REJECT, QueueFullPolicy.ADAPTIVE])
@pytest.mark.parametrize("is_relayed", [True, False])
def test_what_comes_back_before_the_newest_is_on_disk_costs_nothing_for_want_of_room(
    policy: QueueFullPolicy, is_relayed: bool
) -> None:
    journal = FakeJournal()
    made = RelayingDeliverer(journal=journal)
    made.answer = None
    given = {"queue_size": 2, "queue_full_policy": policy}
    made.apply([relayed("siem", **given) if is_relayed else destination("siem", **given)])
    for number in range(2):
        publish(made, number)
        journal.commit()
        made.run()
        if not number and is_relayed:
            made.gateway.answer()
        elif not number:
            made.answer_held("siem", SUCCESS)
    # One is in flight; for these two there is room.
    publish(made, 2, 3)
    assert made.publish("4") is not None
    if is_relayed:
        made.gateway.refuse_connection()
    else:
        made.answer_held("siem", ERROR)
    made.run()
    journal.commit()
    made.run()
    assert not made.settlements.discarded(DiscardReason.QUEUE_FULL)
    assert made.queue("siem").depth == 3


def test_what_comes_back_finds_its_place_in_a_queue_that_has_filled_meanwhile() -> None:
    made = deliverer(queue_size=4, queue_full_policy=QueueFullPolicy.DISCARD_OLDEST)
    publish(made, *range(4))
    assert made.queue("siem").in_flight_count == 4
    publish(made, *range(4, 8))
    made.gateway.refuse_connection()
    made.run()
    assert not made.settlements.seen
    made.advance(1)
    made.answer_all()
    assert made.gateway.identifiers == [str(number) for number in range(8)]


def test_the_absence_of_a_gateway_ends_no_subscription() -> None:
    made = RelayingDeliverer()
    made.apply(
        [relayed("siem", indication_lifetime_seconds=0.0)],
        subscription_removal_action=RemovalAction.DISABLE,
        subscription_removal_time_interval_seconds=60.0,
    )
    publish(made, 0)
    for _ in range(20):
        made.gateway.refuse_connection()
        made.advance(30)
    assert not made.service.ended_subscriptions()


def test_what_waits_longer_than_its_lifetime_is_discarded_though_no_attempt_is_spent() -> None:
    made = deliverer(retry=RetryPolicy(attempts=1, interval_seconds=2.0))
    publish(made, 0)
    while made.queue("siem").depth:
        if made.gateway.waiting:
            made.gateway.refuse_connection()
        made.advance(1)
    assert made.settlements.discarded(DiscardReason.LIFETIME_EXPIRED) == ["0"]
    assert made.time.monotonic() >= 20


def test_a_suspended_destination_pauses_here() -> None:
    made = deliverer(suspended=True)
    publish(made, 0, 1)
    made.advance(3600)
    assert not made.gateway.waiting
    made.apply([relayed("siem")])
    made.answer_all()
    assert made.gateway.identifiers == ["0", "1"]


# ---------------------------------------------------------------------- changes


def test_what_waits_goes_the_new_way_in_order_and_back() -> None:
    made = RelayingDeliverer()
    made.answer = None
    made.apply([destination("siem")])
    publish(made, *range(4))
    before = made.queue("siem").sequence.context
    made.apply([relayed("siem")])
    # What the listener has already begun with may come back, and is before all that waits.
    assert not made.gateway.waiting
    made.answer_held("siem", ERROR)
    made.advance(30)
    made.answer_all()
    assert made.gateway.identifiers == ["0", "1", "2", "3"]
    assert made.queue("siem").protocol == "Relay"
    publish(made, 4, 5, 6)
    made.apply([destination("siem")])
    assert len(made.handlers["siem"].attempts) == 0
    made.gateway.refuse_connection()
    made.advance(30)
    for _ in range(3):
        made.answer_held("siem", SUCCESS)
    assert made.handlers["siem"].identifiers == ["4", "5", "6"]
    assert made.handlers["siem"].attempts[0].sequence_number == 0
    assert made.queue("siem").sequence.context != before


def test_another_listener_behind_the_gateway_is_the_gateways_affair() -> None:
    made = deliverer()
    publish(made, 0, 1)
    made.apply([relayed("siem", destination="http://other.example/", timeout_seconds=3.0)])
    made.gateway.lose_answer(take=1)
    made.advance(1)
    made.answer_all()
    assert made.gateway.identifiers == ["0", "1"]
    contexts = {line["relay"]["context"] for line in made.gateway.lines}
    assert len(contexts) == 1


def test_another_gateway_gets_what_the_first_one_did_not_take() -> None:
    made = deliverer()
    publish(made, 0, 1)
    made.apply([relayed("siem", relay_to="other")])
    made.gateway.answer()
    made.run()
    made.gateway.refuse_connection()
    made.advance(1)
    other = made.gateways["other"]
    while other.waiting:
        other.answer()
        made.run()
    assert made.gateway.identifiers == ["0"]
    assert other.identifiers == ["1"]


# ---------------------------------------------------------------------- whatever a gateway does


class Whims:
    """A gateway, and publishers, that do anything."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.made = deliverer(queue_size=100_000)
        self.published = 0
        self.hopeless: set[str] = set()

    def publish(self) -> None:
        for _ in range(self.chance.choice([0, 0, 1, 1, 3, 3, 40, 40, 300])):
            if self.chance.random() < 0.02:
                self.hopeless.add(str(self.published))
            assert self.made.publish(str(self.published)) is None
            self.published += 1

    def refuse_hopeless(self, number: int, line: dict[str, Any]) -> Refuse | None:
        hopeless = line["properties"]["IndicationIdentifier"] in self.hopeless
        return Refuse(400) if hopeless else None

    def refuse_some(self, number: int, line: dict[str, Any]) -> Refuse | None:
        now = self.chance.random() < 0.05
        return self.refuse_hopeless(number, line) or (Refuse(429) if now else None)

    def act(self) -> None:
        gateway = self.made.gateway
        what = self.chance.randrange(6)
        if what == 0:
            gateway.refuse_connection()
        elif what == 1:
            gateway.lose_answer(take=self.chance.randrange(8))
        elif what == 2:
            status = self.chance.choice([401, 403, 429, 500, 503])
            gateway.tell(gateway.waiting.popleft(), status, {})
        else:
            gateway.answer(self.refuse_some)

    def go_on(self) -> None:
        self.publish()
        if self.chance.random() < 0.7:
            self.made.run()
        if self.made.gateway.waiting and self.chance.random() < 0.8:
            self.act()
        if self.chance.random() < 0.5:
            self.made.advance(self.chance.choice([0.0, 0.5, 3.0]))

    def finish(self) -> None:
        while self.made.queue("siem").depth:
            self.made.advance(30)
            while self.made.gateway.waiting:
                self.made.gateway.answer(self.refuse_hopeless)
                self.made.run()


@pytest.mark.parametrize("seed", range(24))
def test_whatever_a_gateway_answers_order_holds_and_nothing_is_lost(seed: int) -> None:
    whims = Whims(seed)
    for _ in range(60):
        whims.go_on()
    whims.finish()
    made, taken = whims.made, [int(one) for one in whims.made.gateway.identifiers]
    assert taken == sorted(set(taken))
    # What it took without saying so, and found hopeless when it came again, is both.
    fatal = made.settlements.discarded(DiscardReason.FATAL_ERROR)
    assert {*fatal} <= whims.hopeless
    assert len(made.settlements.seen) == whims.published
    assert {*made.settlements.delivered} | {*fatal} == {str(n) for n in range(whims.published)}
    assert {*made.settlements.delivered} <= {*made.gateway.identifiers}
    assert made.queue("siem").statistics.attempts[DeliveryResult.FATAL_ERROR] == len(fatal)
