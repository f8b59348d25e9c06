from copy import deepcopy
from typing import Any

import pytest

from pillion_operator.controllers.status_writer import SLOW_INTERVAL, SOON_INTERVAL, Later, changes


def condition(**fields: Any) -> dict[str, Any]:
    return {
        "type": "Delivering",
        "status": "True",
        "reason": "ListenerAnswers",
        "message": "all is well",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        **fields,
    }


LIVE: dict[str, Any] = {
    "observedGeneration": 1,
    "depth": 4,
    "oldestIndicationTime": "2026-01-01T00:00:00Z",
    "conditions": [condition()],
}


def wanted(**fields: Any) -> dict[str, Any]:
    return {**deepcopy(LIVE), **fields}


def test_what_is_equal_is_never_written() -> None:
    assert changes(LIVE, wanted(), last_written_at=None, now=0.0) is None
    assert changes(None, {}, last_written_at=None, now=0.0) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"observedGeneration": 2},
        {"subscriptionState": "Disabled"},
        {"conditions": [condition(status="False")]},
        {"conditions": [condition(reason="Other")]},
        {"conditions": [condition(observedGeneration=2)]},
        {"conditions": []},
        {"conditions": [condition(), condition(type="Ready")]},
    ],
    ids=str,
)
def test_what_somebody_may_wait_for_is_written_at_once(fields: dict[str, Any]) -> None:
    assert changes(LIVE, wanted(**fields), last_written_at=100.0, now=100.1) == {"status": fields}


@pytest.mark.parametrize("reason", ["GatewayNotRunning", "NotAccepted"])
def test_why_it_does_not_work_is_written_within_seconds_however_often_it_changes(
    reason: str,
) -> None:
    stopped = condition(type="Ready", status="False", reason=reason, message="Pending")
    told = {**stopped, "message": "ErrImagePull"}
    live, asked = wanted(conditions=[stopped]), wanted(conditions=[told])

    assert changes(live, asked, last_written_at=100.0, now=101.0) == Later(SOON_INTERVAL - 1)
    assert changes(live, asked, last_written_at=100.0, now=100.0 + SOON_INTERVAL) == {
        "status": {"conditions": [told]}
    }


@pytest.mark.parametrize(
    "fields", [{"depth": 5}, {"conditions": [condition(message="a little less")]}], ids=str
)
def test_what_merely_moves_waits_its_turn(fields: dict[str, Any]) -> None:
    asked = wanted(**fields)

    assert changes(LIVE, asked, last_written_at=100.0, now=110.0) == Later(SLOW_INTERVAL - 10)
    assert changes(LIVE, asked, last_written_at=100.0, now=130.0) == {"status": fields}
    assert changes(LIVE, asked, last_written_at=None, now=110.0) == {"status": fields}


def test_a_clock_that_was_set_back_holds_nothing_up_for_longer() -> None:
    held = changes(LIVE, wanted(depth=5), last_written_at=10_000.0, now=0.0)

    assert held == Later(SLOW_INTERVAL)


def test_what_moves_goes_with_what_cannot_wait() -> None:
    asked = wanted(depth=9, conditions=[condition(status="False")])

    patch = changes(LIVE, asked, last_written_at=100.0, now=100.1)

    assert patch == {"status": {"depth": 9, "conditions": asked["conditions"]}}


def test_a_field_that_is_gone_is_removed() -> None:
    asked = wanted()
    del asked["oldestIndicationTime"]

    assert changes(LIVE, asked, last_written_at=None, now=0.0) == {
        "status": {"oldestIndicationTime": None}
    }


def test_a_subscription_state_that_is_gone_is_removed_at_once() -> None:
    live = wanted(subscriptionState="Disabled")

    assert changes(live, wanted(), last_written_at=0.0, now=0.1) == {
        "status": {"subscriptionState": None}
    }


def test_objects_are_changed_inside_and_lists_as_a_whole() -> None:
    live = {"breaker": {"state": "Open", "since": "x", "seen": [1, 2]}}
    asked = {"breaker": {"state": "Closed", "seen": [1]}}

    assert changes(live, asked, last_written_at=None, now=0.0) == {
        "status": {"breaker": {"state": "Closed", "since": None, "seen": [1]}}
    }
