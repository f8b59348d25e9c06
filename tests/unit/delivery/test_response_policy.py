"""What follows a failed attempt: the defaults, rules of a destination, pauses, the circuit breaker
(S0.6, S0.8)."""

import logging
from typing import Any

import pytest

from pillion_sidecar.config.schema.destination import (
    Ordering,
    QueueFullPolicy,
    RemovalPolicy,
    RetryPolicy,
)
from pillion_sidecar.config.schema.response_policy import (
    DEFAULTS,
    Action,
    CircuitBreaker,
    ResponseRule,
    default_of,
)
from pillion_sidecar.delivery.handler import (
    GONE_SECONDS,
    HOLD_RETRY_SECONDS,
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
    HoldCause,
    NoAnswer,
)
from pillion_sidecar.delivery.health import QUIET_SECONDS
from pillion_sidecar.delivery.response_policy import Reaction, reaction_to
from pillion_sidecar.delivery.retry import first_loss_due
from pillion_sidecar.indication import DiscardReason
from support.delivery import ERROR, HELD, SUCCESS, Deliverer, destination
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk

UNAUTHORIZED = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 401", 401, hold=HoldCause.REFUSED)
UNAVAILABLE = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 503", 503)
UNPROCESSABLE = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 422", 422, refuses_indication=True)
UNREACHABLE = DeliveryOutcome(DeliveryResult.ERROR, "connection refused", cause=FailureCause.RESET)
LONG = RetryPolicy(attempts=1, interval_seconds=30.0, maximum_interval_seconds=600.0)
BREAKER = CircuitBreaker(failures=3, probe_interval_seconds=120.0)
HOUR = 3600.0


@pytest.fixture
def deliverer() -> Deliverer:
    return Deliverer()


def begin(deliverer: Deliverer, answer: DeliveryOutcome, *identifiers: str, **given: Any) -> None:
    deliverer.answer = answer
    usual = {"retry": LONG, "indication_lifetime_seconds": 24 * HOUR}
    deliverer.apply([destination("ops", **{**usual, **given})])
    for identifier in identifiers:
        assert deliverer.publish(identifier) is None
    deliverer.run()


def rule(*answers: str, action: Action, attempts: int = 1) -> tuple[ResponseRule, ...]:
    return (ResponseRule(answers=answers, action=action, attempts=attempts),)


def cause(deliverer: Deliverer) -> HoldCause | None:
    hold = deliverer.queue("ops").health.hold
    return None if hold is None else hold.cause


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[Any]:
    return [one for one in caplog.records if getattr(one, "event", None) == name]


# ------------------------------------------------------------------ which rule decides


@pytest.mark.parametrize(
    ("answer", "outcome", "otherwise"),
    [
        ("503", UNAVAILABLE, Reaction()),
        ("5xx", UNAVAILABLE, Reaction()),
        ("connection", UNREACHABLE, Reaction()),
        (
            "timeout",
            DeliveryOutcome(DeliveryResult.ERROR, "late", cause=FailureCause.TIMEOUT),
            Reaction(),
        ),
        ("401", UNAUTHORIZED, Reaction(HoldCause.REFUSED)),
        ("credentials", UNAUTHORIZED, Reaction(HoldCause.REFUSED)),
        ("indication", UNPROCESSABLE, Reaction(discard_after=3)),
        ("4xx", UNPROCESSABLE, Reaction(discard_after=3)),
        (
            "410",
            DeliveryOutcome(DeliveryResult.FATAL_ERROR, "gone", 410, hold=HoldCause.DESTINATION),
            Reaction(HoldCause.DESTINATION),
        ),
    ],
)
def test_a_rule_decides_by_a_word_of_the_answer_and_else_the_default(answer, outcome, otherwise):
    assert reaction_to(outcome, ()) == otherwise
    assert reaction_to(outcome, rule("404", "tls", action=Action.DISABLE)) == otherwise
    disabled = Reaction(HoldCause.DISABLED, by_rule=True)
    assert reaction_to(outcome, rule("404", answer, action=Action.DISABLE)) == disabled
    assert reaction_to(outcome, rule(answer, action=Action.RETRY)) == Reaction(by_rule=True)
    discarded = Reaction(discard_after=7, by_rule=True)
    assert reaction_to(outcome, rule(answer, action=Action.DISCARD, attempts=7)) == discarded


def test_the_first_rule_that_names_the_answer_decides():
    rules = rule("503", action=Action.PAUSE) + rule("5xx", action=Action.DISABLE)
    assert reaction_to(UNAVAILABLE, rules).hold is HoldCause.RESPONSE_POLICY


def test_no_rule_is_about_a_fault_of_the_destination_itself():
    everything = rule("2xx", "3xx", "4xx", "5xx", *NoAnswer, "credentials", action=Action.DISCARD)
    assert reaction_to(HELD, everything) == Reaction(HELD.hold)
    refused = DeliveryOutcome(
        DeliveryResult.ERROR,
        "10.0.0.1 is a private address",
        hold=HoldCause.ADDRESS,
        cause=FailureCause.RESET,
    )
    assert reaction_to(refused, everything) == Reaction(HoldCause.ADDRESS)


def test_each_status_has_one_default():
    by_status = {
        status: [line for line in DEFAULTS if str(status) in line.answers]
        for status in range(300, 600)
    }
    assert all(len(lines) <= 1 for lines in by_status.values())
    assert default_of(503).heeds_retry_after
    assert not default_of(500).heeds_retry_after
    assert [default_of(status).action for status in (418, 401, 422, 302)] == [
        Action.RETRY,
        Action.PAUSE,
        Action.DISCARD,
        Action.RETRY,
    ]


# ------------------------------------------------------------------ pauses


def test_refused_credentials_cost_no_attempt_and_only_the_oldest_is_tried(deliverer, caplog):
    caplog.set_level(logging.INFO)
    begin(deliverer, UNAUTHORIZED, "a", "b", "c")
    deliverer.advance(3 * 600.0 - 1)
    handler, queue = deliverer.handlers["ops"], deliverer.queue("ops")
    assert handler.identifiers == ["a", "a", "a"]
    assert handler.times == [1000.0, 1600.0, 2200.0]
    assert (cause(deliverer), queue.health.is_held, queue.depth) == (HoldCause.REFUSED, False, 3)
    (paused,) = events(caplog, "destination-paused")
    assert (paused.cause, paused.detail, paused.depth) == ("refused-credentials", "HTTP 401", 3)
    handler.answer = SUCCESS
    deliverer.advance(1)
    assert deliverer.settlements.delivered == ["a", "b", "c"]
    assert [one.attempt for one in handler.attempts[3:]] == [1, 1, 1]
    (resumed,) = events(caplog, "destination-resumed")
    assert (resumed.cause, resumed.seconds) == ("refused-credentials", 1800.0)
    assert cause(deliverer) is None


def test_the_lifetime_goes_on_in_a_pause(deliverer):
    begin(deliverer, UNAUTHORIZED, "a", indication_lifetime_seconds=700.0)
    assert first_loss_due(deliverer.queue("ops"), 1000.0) == 1700.0
    deliverer.advance(699)
    assert deliverer.queue("ops").depth == 1
    deliverer.advance(1)
    assert deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED) == ["a"]


def test_a_short_lifetime_has_several_probes(deliverer):
    begin(deliverer, UNAUTHORIZED, "a", indication_lifetime_seconds=400.0)
    deliverer.advance(HOUR)
    assert deliverer.handlers["ops"].times == [1000.0, 1100.0, 1200.0, 1300.0]


def test_any_failure_of_a_probe_keeps_the_pause_and_spends_nothing(deliverer):
    begin(deliverer, UNAUTHORIZED, "a")
    for answer in (UNREACHABLE, UNAVAILABLE, ERROR):
        deliverer.handlers["ops"].answer = answer
        deliverer.advance(600)
        assert cause(deliverer) is HoldCause.REFUSED
    hold = deliverer.queue("ops").health.hold
    assert hold is not None
    assert (hold.message, hold.since) == ("HTTP 401", 1000.0)
    assert deliverer.handlers["ops"].attempts[-1].attempt == 1


def test_a_probe_that_is_refused_for_its_content_ends_the_pause(deliverer):
    begin(deliverer, UNAUTHORIZED, "poison", "good")
    deliverer.handlers["ops"].answer = UNPROCESSABLE
    deliverer.advance(600)
    assert cause(deliverer) is None
    deliverer.advance(30)
    assert deliverer.settlements.discarded(DiscardReason.FATAL_ERROR) == ["poison"]


def test_a_fault_of_the_destination_replaces_a_pause_and_the_other_way_round(deliverer):
    begin(deliverer, UNAUTHORIZED, "a", indication_lifetime_seconds=HOUR)
    deliverer.handlers["ops"].answer = HELD
    deliverer.advance(600)
    queue = deliverer.queue("ops")
    assert (queue.health.is_held, queue.expiry()) == (True, None)
    deliverer.handlers["ops"].answer = UNAUTHORIZED
    deliverer.advance(HOLD_RETRY_SECONDS)
    assert (queue.health.is_paused, queue.expiry()) == (True, 1000.0 + HOUR + HOLD_RETRY_SECONDS)


def test_a_changed_credential_is_tried_at_once_with_one_indication(deliverer):
    begin(deliverer, UNAUTHORIZED, "a", "b")
    deliverer.advance(10)
    deliverer.apply([destination("ops", retry=LONG, timeout_seconds=5.0)])
    assert deliverer.handlers["ops"].identifiers == ["a"]
    assert cause(deliverer) is HoldCause.REFUSED
    deliverer.answer = SUCCESS
    deliverer.apply([destination("ops", retry=LONG, timeout_seconds=6.0)])
    assert deliverer.settlements.delivered == ["a", "b"]


def test_a_credential_that_changes_during_the_attempt_is_tried_at_once(deliverer):
    begin(deliverer, UNAUTHORIZED)
    deliverer.handlers["ops"].answer = None
    deliverer.publish("a")
    deliverer.run()
    before, deliverer.answer = deliverer.handlers["ops"], SUCCESS
    deliverer.apply([destination("ops", retry=LONG, timeout_seconds=5.0)])
    before.held.popleft()(UNAUTHORIZED)
    deliverer.run()
    assert (deliverer.settlements.delivered, cause(deliverer)) == (["a"], None)


def test_one_attempt_probes_also_without_order(deliverer):
    begin(deliverer, UNAUTHORIZED, *"abcdef", ordering=Ordering.NONE, max_in_flight=3)
    handler = deliverer.handlers["ops"]
    made, handler.answer = len(handler.attempts), None
    deliverer.advance(600)
    assert len(handler.attempts) == made + 1


@pytest.mark.parametrize("policy", [QueueFullPolicy.ADAPTIVE, QueueFullPolicy.REJECT])
def test_a_full_queue_of_a_paused_destination_gives_way_by_its_policy(deliverer, policy):
    begin(deliverer, UNAUTHORIZED, "a", queue_size=1, queue_full_policy=policy)
    refusal = deliverer.publish("b")
    deliverer.run()
    discarded = deliverer.settlements.discarded(DiscardReason.QUEUE_FULL)
    assert (refusal is None, discarded) == (
        (True, ["a"]) if policy is QueueFullPolicy.ADAPTIVE else (False, [])
    )


def test_a_removed_destination_drains_by_its_retries(deliverer):
    begin(deliverer, UNAUTHORIZED, "a", removal_policy=RemovalPolicy.DRAIN)
    deliverer.apply([])
    handler = deliverer.handlers["ops"]
    assert len(handler.attempts) == 2
    deliverer.advance(30)
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a"]


def test_skip_tries_the_next_one_at_once(deliverer):
    begin(deliverer, UNAUTHORIZED, "a", "b")
    assert deliverer.service.skip("ops")
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["a", "b"]
    assert cause(deliverer) is HoldCause.REFUSED


def test_a_pause_outlasts_a_crash_and_one_indication_is_tried_then():
    made = OnDisk(MemoryFiles())
    made.answer = UNAUTHORIZED
    ops = destination("ops", retry=LONG, indication_lifetime_seconds=HOUR)
    made.apply([ops])
    for identifier in "abc":
        assert made.give(identifier) is None
    made.rest()
    again = made.restart()
    again.answer = UNAUTHORIZED
    again.apply([ops])
    again.run()
    hold = again.queue("ops").health.hold
    assert hold is not None
    assert (hold.cause, hold.message, hold.since) == (HoldCause.REFUSED, "HTTP 401", 1000.0)
    assert again.handlers["ops"].identifiers == ["a"]
    again.handlers["ops"].answer = SUCCESS
    again.advance(600)
    assert again.settlements.delivered == ["a", "b", "c"]


# ------------------------------------------------------------------ rules


def test_discard_gives_an_indication_up_after_its_attempts_and_the_next_follows_at_once(deliverer):
    rules = rule("503", action=Action.DISCARD, attempts=2)
    begin(deliverer, UNAVAILABLE, "a", "b", response_policy=rules, retry=RetryPolicy(attempts=None))
    deliverer.advance(30)
    assert deliverer.handlers["ops"].identifiers == ["a", "a", "b"]
    assert deliverer.settlements.discarded(DiscardReason.FATAL_ERROR) == ["a"]


def test_discard_at_once_does_not_slow_a_listener_that_answers(deliverer):
    begin(deliverer, UNAVAILABLE, "a", "b", "c", response_policy=rule("5xx", action=Action.DISCARD))
    assert deliverer.settlements.discarded(DiscardReason.FATAL_ERROR) == ["a", "b", "c"]


def test_discard_at_once_does_not_run_through_a_queue_when_nobody_answers(deliverer):
    rules = rule("connection", action=Action.DISCARD)
    begin(deliverer, UNREACHABLE, "a", "b", "c", response_policy=rules)
    assert deliverer.settlements.discarded(DiscardReason.FATAL_ERROR) == ["a"]


def test_retry_instead_of_a_pause_spends_attempts(deliverer):
    begin(deliverer, UNAUTHORIZED, "a", response_policy=rule("401", action=Action.RETRY))
    deliverer.advance(30)
    assert cause(deliverer) is None
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a"]


def test_a_disabled_destination_waits_for_a_change_of_its_resource(deliverer, caplog):
    rules = rule("410", action=Action.DISABLE)
    gone = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 410", 410)
    begin(deliverer, gone, "a", "b", response_policy=rules, indication_lifetime_seconds=60.0)
    deliverer.advance(30 * 24 * HOUR)
    queue, handler = deliverer.queue("ops"), deliverer.handlers["ops"]
    assert (len(handler.attempts), queue.depth, cause(deliverer)) == (1, 2, HoldCause.DISABLED)
    assert queue.health.next_attempt_due is None
    deliverer.service.hasten()
    deliverer.run()
    assert len(handler.attempts) == 1
    (held,) = events(caplog, "destination-held")
    assert held.detail.endswith("it is disabled until its spec changes")
    handler.answer = SUCCESS
    deliverer.apply([destination("ops", retry=LONG, response_policy=rules, queue_size=7)])
    assert deliverer.settlements.delivered == ["a", "b"]


def test_a_disabled_destination_is_tried_once_after_a_restart():
    rules = rule("503", action=Action.DISABLE)
    made = OnDisk(MemoryFiles())
    made.answer = UNAVAILABLE
    made.apply([destination("ops", retry=LONG, response_policy=rules)])
    assert made.give("a") is None
    made.rest()
    again = made.restart()
    again.answer = UNAVAILABLE
    again.apply([destination("ops", retry=LONG, response_policy=rules)])
    again.advance(24 * HOUR)
    assert len(again.handlers["ops"].attempts) == 1
    assert cause(again) is HoldCause.DISABLED


def test_a_changed_rule_ends_the_pause_that_the_former_one_made(deliverer):
    begin(deliverer, UNAVAILABLE, "a", response_policy=rule("503", action=Action.PAUSE))
    assert cause(deliverer) is HoldCause.RESPONSE_POLICY
    deliverer.apply([destination("ops", retry=LONG)])
    assert cause(deliverer) is None
    assert len(deliverer.handlers["ops"].attempts) == 2


def test_what_is_gone_is_left_alone_for_an_hour(deliverer):
    gone = DeliveryOutcome(DeliveryResult.FATAL_ERROR, "gone", 410, hold=HoldCause.DESTINATION)
    begin(deliverer, gone, "a")
    deliverer.advance(GONE_SECONDS - 1)
    assert len(deliverer.handlers["ops"].attempts) == 1
    deliverer.advance(1)
    assert len(deliverer.handlers["ops"].attempts) == 2


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [
        ({"circuit_breaker": CircuitBreaker(failures=1)}, {}, UNAVAILABLE),
        ({"response_policy": rule("503", action=Action.PAUSE)}, {}, UNAVAILABLE),
        (
            {"response_policy": rule("503", action=Action.PAUSE)},
            {"response_policy": rule("5xx", action=Action.RETRY)},
            UNAVAILABLE,
        ),
        ({}, {"response_policy": rule("401", action=Action.RETRY)}, UNAUTHORIZED),
    ],
)
def test_no_pause_goes_on_that_the_configuration_has_lost_while_it_was_down(before, after, answer):
    usual = {"retry": LONG, "indication_lifetime_seconds": HOUR}
    made = OnDisk(MemoryFiles())
    made.answer = answer
    made.apply([destination("ops", **usual, **before)])
    assert made.give("a") is None
    made.rest()
    assert made.queue("ops").health.is_paused
    again = made.restart()
    again.answer = answer
    again.apply([destination("ops", **usual, **after)])
    again.run()
    assert len(again.handlers["ops"].attempts) == 1
    assert again.queue("ops").health.hold is None


# ------------------------------------------------------------------ the circuit breaker


def breaking(deliverer: Deliverer, *identifiers: str, **given: Any) -> None:
    retry = RetryPolicy(attempts=None, interval_seconds=10.0)
    begin(deliverer, UNAVAILABLE, *identifiers, retry=retry, circuit_breaker=BREAKER, **given)


def test_the_breaker_opens_after_its_failures_and_closes_on_a_success(deliverer, caplog):
    caplog.set_level(logging.INFO)
    breaking(deliverer, "a", "b")
    deliverer.advance(19)
    assert cause(deliverer) is None
    deliverer.advance(1)
    assert cause(deliverer) is HoldCause.CIRCUIT_BREAKER
    handler = deliverer.handlers["ops"]
    deliverer.advance(240)
    assert handler.times == [1000.0, 1010.0, 1020.0, 1140.0, 1260.0]
    # Three were spent before it opened, and none by a probe.
    assert handler.attempts[-1].attempt == 4
    (opened,) = events(caplog, "destination-paused")
    assert opened.detail == "3 attempts in a row have failed: HTTP 503"
    handler.answer = SUCCESS
    deliverer.advance(120)
    assert deliverer.settlements.delivered == ["a", "b"]
    (closed,) = events(caplog, "destination-resumed")
    assert (closed.cause, cause(deliverer)) == ("circuit-breaker", None)


def test_a_success_between_failures_keeps_the_breaker_closed(deliverer):
    breaking(deliverer)
    for number in range(4):
        deliverer.handlers["ops"].answer = UNAVAILABLE
        deliverer.publish(str(number))
        deliverer.advance(10)
        deliverer.handlers["ops"].answer = SUCCESS
        deliverer.advance(10)
    assert cause(deliverer) is None
    assert len(deliverer.settlements.delivered) == 4


def test_refused_indications_do_not_open_the_breaker(deliverer):
    breaking(deliverer)
    deliverer.handlers["ops"].answer = UNPROCESSABLE
    for number in range(5):
        deliverer.publish(str(number))
    deliverer.advance(HOUR)
    assert cause(deliverer) is None
    assert len(deliverer.settlements.discarded(DiscardReason.FATAL_ERROR)) == 5


def test_a_rule_that_discards_leaves_the_breaker_its_failures(deliverer):
    discards = rule("5xx", action=Action.DISCARD)
    breaking(deliverer, *"abcde", response_policy=discards)
    assert cause(deliverer) is HoldCause.CIRCUIT_BREAKER
    assert deliverer.settlements.discarded(DiscardReason.FATAL_ERROR) == ["a", "b", "c"]
    deliverer.advance(240)
    # The probes of the open breaker cost nothing.
    assert deliverer.handlers["ops"].identifiers == ["a", "b", "c", "d", "d"]
    assert deliverer.queue("ops").depth == 2


def test_an_open_breaker_heeds_retry_after(deliverer):
    breaking(deliverer, "a")
    busy = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 503", 503, 500.0)
    deliverer.advance(20)
    handler = deliverer.handlers["ops"]
    handler.answer = busy
    deliverer.advance(120)
    deliverer.advance(500)
    assert handler.times[-2:] == [1140.0, 1640.0]


def test_a_breaker_that_flaps_does_not_flood_the_log(deliverer, caplog):
    caplog.set_level(logging.INFO)
    breaking(deliverer)
    handler, number = deliverer.handlers["ops"], 0
    begun = deliverer.time.monotonic()
    while deliverer.time.monotonic() < begun + 10 * QUIET_SECONDS:
        handler.answer, number = UNAVAILABLE, number + 1
        deliverer.publish(str(number))
        deliverer.advance(20)
        assert cause(deliverer) is HoldCause.CIRCUIT_BREAKER
        handler.answer = SUCCESS
        deliverer.advance(120)
        assert cause(deliverer) is None
    assert number > 40
    told = events(caplog, "destination-paused")
    assert 0 < len(told) <= 10
    assert len(events(caplog, "destination-resumed")) == len(told)


def test_a_pause_that_was_not_logged_is_logged_if_it_lasts(deliverer, caplog):
    caplog.set_level(logging.INFO)
    breaking(deliverer, "a")
    handler = deliverer.handlers["ops"]
    deliverer.advance(20)
    handler.answer = SUCCESS
    deliverer.advance(120)
    handler.answer = UNAVAILABLE
    deliverer.publish("b")
    deliverer.advance(30)
    assert cause(deliverer) is HoldCause.CIRCUIT_BREAKER
    assert len(events(caplog, "destination-paused")) == 1
    deliverer.advance(QUIET_SECONDS)
    assert len(events(caplog, "destination-paused")) == 2


def test_an_open_breaker_outlasts_a_crash():
    made = OnDisk(MemoryFiles())
    made.answer = UNAVAILABLE
    ops = destination(
        "ops", retry=RetryPolicy(attempts=None, interval_seconds=10.0), circuit_breaker=BREAKER
    )
    made.apply([ops])
    assert made.give("a") is None
    made.advance(30)
    again = made.restart()
    again.answer = UNAVAILABLE
    again.apply([ops])
    again.run()
    assert cause(again) is HoldCause.CIRCUIT_BREAKER
    again.advance(119)
    assert len(again.handlers["ops"].attempts) == 1
    again.advance(1)
    assert len(again.handlers["ops"].attempts) == 2


def test_a_breaker_that_is_removed_closes(deliverer):
    breaking(deliverer, "a")
    deliverer.advance(20)
    assert cause(deliverer) is HoldCause.CIRCUIT_BREAKER
    retry = RetryPolicy(attempts=None, interval_seconds=10.0)
    deliverer.apply([destination("ops", retry=retry)])
    assert cause(deliverer) is None
    deliverer.advance(10)
    assert cause(deliverer) is None


def test_a_rule_that_discards_one_indication_neither_opens_the_breaker_nor_stands_behind_it(
    deliverer,
):
    discards = (ResponseRule(answers=("403",), action=Action.DISCARD, attempts=3),)
    forbidden = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 403", 403, hold=HoldCause.REFUSED)
    deliverer.answer = None
    deliverer.apply(
        [
            destination(
                "ops",
                response_policy=discards,
                circuit_breaker=CircuitBreaker(failures=2),
                retry=RetryPolicy(attempts=None, interval_seconds=1.0),
            )
        ]
    )
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.run()
    handler = deliverer.handlers["ops"]
    for answer in (forbidden, forbidden, forbidden, SUCCESS, SUCCESS):
        handler.held.popleft()(answer)
        deliverer.advance(1.0)
    assert cause(deliverer) is None
    assert deliverer.settlements.discarded(DiscardReason.FATAL_ERROR) == ["a"]
    assert deliverer.settlements.delivered == ["b", "c"]


def test_a_rule_that_repeats_the_default_ends_no_pause(deliverer):
    retries = (ResponseRule(answers=("5xx",), action=Action.RETRY),)
    deliverer.answer = DeliveryOutcome(
        DeliveryResult.ERROR, "HTTP 401", 401, hold=HoldCause.REFUSED
    )
    deliverer.apply([destination("ops", response_policy=retries)])
    deliverer.publish("a")
    deliverer.run()
    assert cause(deliverer) is HoldCause.REFUSED
    deliverer.handlers["ops"].answer = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 500", 500)
    deliverer.advance(4000)
    assert cause(deliverer) is HoldCause.REFUSED
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == []
