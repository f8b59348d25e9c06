from dataclasses import replace
from typing import Any

import pytest

from pillion_operator.polling.aggregate import DestinationDelivery
from pillion_operator.polling.reports import DeliveryResult
from pillion_operator.status.conditions import Condition, set_conditions
from pillion_operator.status.delivery import (
    DeliveryVerdict,
    DestinationFacts,
    failing_since,
    judge_delivery,
)

NOW = 1_700_000_000.0
FACTS = DestinationFacts(suspended=False, retry_interval=30.0)
WELL = DestinationDelivery(
    deliverers=3,
    depth=1,
    high_water=5,
    fullest=0.01,
    oldest_indication_time=NOW - 1,
    last_result=DeliveryResult.SUCCESS,
    delivering=2,
)
FAILING = replace(
    WELL,
    delivering=0,
    failing=2,
    last_result=DeliveryResult.ERROR,
    next_attempt_time=NOW + 20,
    details=(("connection refused", 1), ("HTTP 503", 1)),
)
MIXED = replace(FAILING, delivering=1, failing=1, details=(("timed out", 1),))
IDLE = DestinationDelivery(deliverers=2)


def judged(
    delivery: DestinationDelivery,
    facts: DestinationFacts = FACTS,
    *,
    live: list[dict[str, Any]] | None = None,
) -> DeliveryVerdict:
    return judge_delivery(delivery, facts, live_conditions=live, now=NOW)


def said(verdict: DeliveryVerdict, kind: str) -> tuple[str, str]:
    (condition,) = [one for one in verdict.conditions if one.type == kind]
    return condition.status, condition.reason


def message(verdict: DeliveryVerdict, kind: str) -> str:
    return next(one.message for one in verdict.conditions if one.type == kind)


SUSPENDED = replace(FACTS, suspended=True)
HELD = replace(FAILING, failing=0, held=2, holds=(("invalid-certificates: no key", 2),), details=())
PARTLY_HELD = replace(HELD, held=1, delivering=1)
PAUSED = replace(FAILING, paused=2, pauses=(("refused-credentials: HTTP 401", 2),))
PARTLY_PAUSED = replace(MIXED, paused=1, pauses=(("circuit-breaker: HTTP 503", 1),))
NOTHING = DestinationDelivery()
SILENT = replace(NOTHING, unreachable=3)


@pytest.mark.parametrize(
    ("delivery", "facts", "delivering", "unreachable"),
    [
        (WELL, FACTS, ("True", "ListenerAnswers"), ("False", "ListenerAnswers")),
        (FAILING, FACTS, ("False", "ListenerFailing"), ("True", "AttemptsFail")),
        (MIXED, FACTS, ("False", "ListenerFailing"), ("False", "ListenerAnswers")),
        (HELD, FACTS, ("False", "Held"), ("Unknown", "Held")),
        (PARTLY_HELD, FACTS, ("False", "Held"), ("False", "ListenerAnswers")),
        (PAUSED, FACTS, ("False", "Paused"), ("True", "AttemptsFail")),
        (PARTLY_PAUSED, FACTS, ("False", "Paused"), ("False", "ListenerAnswers")),
        (IDLE, FACTS, ("Unknown", "NothingSent"), ("Unknown", "NothingSent")),
        (NOTHING, FACTS, ("Unknown", "NoDeliverers"), ("Unknown", "NoDeliverers")),
        (
            SILENT,
            FACTS,
            ("Unknown", "DeliverersUnreachable"),
            ("Unknown", "DeliverersUnreachable"),
        ),
        (FAILING, SUSPENDED, ("False", "Suspended"), ("Unknown", "Suspended")),
        (WELL, SUSPENDED, ("False", "Suspended"), ("Unknown", "Suspended")),
    ],
    ids=[
        "well",
        "failing",
        "mixed",
        "held",
        "partly-held",
        "paused",
        "partly-paused",
        "idle",
        "nobody",
        "silent",
        "suspended",
        "suspended-well",
    ],
)
def test_whether_the_listener_gets_what_is_meant_for_it(
    delivery: DestinationDelivery,
    facts: DestinationFacts,
    delivering: tuple[str, str],
    unreachable: tuple[str, str],
) -> None:
    verdict = judged(delivery, facts)

    assert said(verdict, "Delivering") == delivering
    assert said(verdict, "ListenerUnreachable") == unreachable


def test_a_pause_says_why_and_that_lifetimes_go_on() -> None:
    told = message(judged(PAUSED), "Delivering")
    assert told.startswith("Every deliverer has paused it: refused-credentials: HTTP 401")
    assert told.endswith("Lifetimes go on.")
    told = message(judged(PARTLY_PAUSED), "Delivering")
    assert told.startswith("Some deliverers have paused it: circuit-breaker: HTTP 503")


def test_a_listener_that_fails_says_how_and_at_how_many() -> None:
    told = message(judged(FAILING), "ListenerUnreachable")

    assert "connection refused (1 deliverer), HTTP 503 (1 deliverer)" in told
    assert "every deliverer" in message(judged(FAILING), "Delivering")
    assert "some deliverers" in message(judged(MIXED), "Delivering")
    assert "failed: cause unknown" in message(judged(replace(FAILING, details=())), "Delivering")


@pytest.mark.parametrize("delivery", [WELL, FAILING, MIXED], ids=["well", "failing", "mixed"])
@pytest.mark.parametrize("kind", ["Delivering", "ListenerUnreachable"])
def test_a_verdict_by_some_deliverers_says_that_it_is_not_by_all(
    delivery: DestinationDelivery, kind: str
) -> None:
    told = {
        number: message(judged(replace(delivery, unreachable=number)), kind) for number in (0, 1, 9)
    }

    assert told[1] == f"{told[0]} The operator cannot reach some deliverers."
    # No count: it would be written with every pod that comes or goes.
    assert told[9] == told[1]


def test_a_message_names_a_few_ways_of_failing() -> None:
    many = replace(FAILING, details=tuple((f"HTTP {500 + n}", 2) for n in range(9)))

    told = message(judged(many), "ListenerUnreachable")

    assert "HTTP 502 (2 deliverers), and other causes" in told
    assert "HTTP 503" not in told


def test_messages_do_not_change_with_every_indication() -> None:
    later = replace(
        FAILING,
        depth=2,
        high_water=9,
        oldest_indication_time=NOW - 2,
        next_attempt_time=NOW + 50,
    )

    assert judged(later).conditions == judged(FAILING).conditions


@pytest.mark.parametrize(
    ("age", "interval", "held", "expected"),
    [
        (59, 30.0, False, "False"),
        (60, 30.0, False, "True"),
        (60, 60.0, False, "False"),
        (120, 60.0, False, "True"),
        (30, 30.0, True, "True"),
        (29, 30.0, True, "False"),
    ],
)
def test_an_old_indication_is_a_backlog_until_it_is_much_younger(
    age: float, interval: float, held: bool, expected: str
) -> None:
    facts = replace(FACTS, retry_interval=interval)
    live = _live("Backlogged", "True", "OldIndications") if held else None

    verdict = judged(replace(WELL, oldest_indication_time=NOW - age), facts, live=live)

    reason = "OldIndications" if expected == "True" else "KeepingUp"
    assert said(verdict, "Backlogged") == (expected, reason)


@pytest.mark.parametrize(
    ("fullest", "held", "expected"),
    [(0.79, False, "False"), (0.8, False, "True"), (0.6, True, "True"), (0.59, True, "False")],
)
def test_a_queue_that_is_nearly_full_is_a_backlog_until_there_is_room(
    fullest: float, held: bool, expected: str
) -> None:
    live = _live("Backlogged", "True", "QueueNearlyFull") if held else None

    verdict = judged(replace(WELL, fullest=fullest), live=live)

    reason = "QueueNearlyFull" if expected == "True" else "KeepingUp"
    assert said(verdict, "Backlogged") == (expected, reason)


def test_a_backlog_of_age_is_not_held_by_a_half_full_queue() -> None:
    live = _live("Backlogged", "True", "OldIndications")

    assert said(judged(replace(WELL, fullest=0.7), live=live), "Backlogged")[0] == "False"


def test_a_listener_that_falls_behind_is_a_backlog_before_anything_is_old() -> None:
    slow = replace(WELL, slow_since=NOW - 60)
    for live in (None, _live("Backlogged", "True", "FallingBehind")):
        verdict = judged(slow, live=live)
        assert said(verdict, "Backlogged") == ("True", "FallingBehind")
        assert verdict.due_again is None
    assert "late since 2023-11-14T22:12:20Z" in message(verdict, "Backlogged")
    assert said(judged(replace(slow, fullest=0.9)), "Backlogged")[1] == "QueueNearlyFull"
    live = _live("Backlogged", "True", "FallingBehind")
    assert said(judged(WELL, live=live), "Backlogged") == ("False", "KeepingUp")


def test_it_is_looked_at_again_when_the_oldest_gets_old() -> None:
    assert judged(replace(WELL, oldest_indication_time=NOW - 20)).due_again == 40.0
    assert judged(replace(WELL, oldest_indication_time=None)).due_again is None
    assert judged(replace(WELL, oldest_indication_time=NOW - 90)).due_again is None
    # A deliverer whose clock is fast.
    assert judged(replace(WELL, oldest_indication_time=NOW + 10)).due_again == 70.0


def test_without_reports_a_backlog_is_not_known() -> None:
    assert said(judged(NOTHING), "Backlogged") == ("Unknown", "NoDeliverers")
    assert said(judged(SILENT), "Backlogged") == ("Unknown", "DeliverersUnreachable")


def test_the_first_loss_that_is_due_is_a_field() -> None:
    due = replace(FAILING, first_loss_due_time=NOW + 90)
    assert judged(due).fields["firstLossDueTime"] == "2023-11-14T22:14:50Z"


def test_the_cause_and_since_when_are_fields() -> None:
    told = judged(replace(FAILING, cause="refused", failing_since=NOW - 60)).fields
    assert (told["failureCause"], told["failingSince"]) == ("refused", "2023-11-14T22:12:20Z")


def test_the_fields_say_what_is_known() -> None:
    assert judged(FAILING).fields == {
        "deliverers": 3,
        "depth": 1,
        "highWater": 5,
        "oldestIndicationTime": "2023-11-14T22:13:19Z",
        "lastResult": "Error",
        "nextAttemptTime": "2023-11-14T22:13:40Z",
        "discarded": 0,
    }
    lost = replace(FAILING, discarded=7, last_discard_time=NOW - 10)
    assert judged(lost).fields["discarded"] == 7
    assert judged(lost).fields["lastDiscardTime"] == "2023-11-14T22:13:10Z"
    assert judged(IDLE).fields == {"deliverers": 2, "depth": 0, "highWater": 0, "discarded": 0}
    assert judged(NOTHING).fields == {"deliverers": 0}


DRAINING = replace(FACTS, draining=True)
GONE = replace(DRAINING, removed_everywhere=True)


def test_only_a_destination_that_drains_has_that_condition() -> None:
    assert "Draining" not in {one.type for one in judged(WELL).conditions}
    assert not judged(NOTHING, replace(FACTS, removed_everywhere=True)).drained


@pytest.mark.parametrize(
    ("delivery", "facts", "condition", "drained"),
    [
        (FAILING, DRAINING, ("True", "Draining"), False),
        (FAILING, GONE, ("True", "Draining"), False),
        (NOTHING, DRAINING, ("True", "RollingOut"), False),
        (NOTHING, GONE, ("False", "Drained"), True),
        (SILENT, GONE, ("False", "Drained"), True),
    ],
    ids=["told", "told-everywhere", "not-told", "gone", "gone-but-for-the-silent"],
)
def test_draining_says_how_much_is_left(
    delivery: DestinationDelivery,
    facts: DestinationFacts,
    condition: tuple[str, str],
    drained: bool,
) -> None:
    verdict = judged(delivery, facts)

    assert said(verdict, "Draining") == condition
    assert verdict.drained is drained


def test_draining_names_numbers_and_what_is_not_known() -> None:
    told = message(judged(replace(FAILING, depth=40, unreachable=1), GONE), "Draining")

    assert "40 indication(s) are left at 3 deliverer(s)" in told
    assert "Unreachable deliverers may hold more" in told


def test_since_when_a_listener_fails_is_read_from_the_live_condition() -> None:
    assert failing_since(_failing("True", "AttemptsFail")) == 1_767_225_600.0
    assert failing_since(_failing("False", "ListenerAnswers")) is None
    assert failing_since({}) is None
    assert failing_since(None) is None


def _failing(status: Any, reason: str) -> dict[str, Any]:
    return {"status": {"conditions": _live("ListenerUnreachable", status, reason)}}


def _live(kind: str, status: Any, reason: str) -> list[dict[str, Any]]:
    wanted = [Condition(kind, status, reason, "")]
    return set_conditions([], wanted, generation=1, now="2026-01-01T00:00:00Z")


def test_while_a_secret_is_missing_the_listener_is_not_to_blame() -> None:
    verdict = judged(FAILING, replace(FACTS, held="CredentialsMissing"))
    assert said(verdict, "Delivering") == ("False", "CredentialsMissing")
    # The time does not count towards subscriptionRemovalTimeIntervalSeconds.
    assert said(verdict, "ListenerUnreachable") == ("Unknown", "CredentialsMissing")
