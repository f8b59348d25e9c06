"""RetryTooShort: how long a listener may be down, by what its resources write."""

from typing import Any

import pytest

from pillion_operator.status.retry import retry_condition

FIRST_RELEASE = {"deliveryRetryAttempts": 3, "deliveryRetryIntervalSeconds": 30}
STORED = {"retry": {"backoff": "Fixed", "jitterPercent": 0, "respectRetryAfter": True}}


def said(destination: dict[str, Any], **services: dict[str, Any]) -> tuple[str, str] | None:
    condition = retry_condition(destination, services)
    assert condition is None or condition.type == "RetryTooShort"
    return None if condition is None else (condition.status, condition.reason)


@pytest.mark.parametrize("destination", [{}, {"retry": {}}])
def test_where_nothing_is_written_nothing_is_said(destination: dict[str, Any]) -> None:
    assert said(destination, default={}) is None
    assert said(destination) is None


@pytest.mark.parametrize(
    ("destination", "service"), [({}, FIRST_RELEASE), (STORED, {}), (STORED, FIRST_RELEASE)]
)
def test_what_the_first_release_stored_is_named_with_its_90_seconds(
    destination: dict[str, Any], service: dict[str, Any]
) -> None:
    assert said(destination, default=service) == ("True", "ShortRetryWritten")
    condition = retry_condition(destination, {"default": service})
    assert condition is not None
    assert "IndicationService default" in condition.message
    assert "loses its first indication 90 s after the first failure." in condition.message
    assert "remove them from both resources" in condition.message


@pytest.mark.parametrize(
    ("destination", "service"),
    [
        ({}, {"deliveryRetryIntervalSeconds": 5}),
        ({"retry": {"attempts": 0}}, {}),
        ({"indicationLifetimeSeconds": 74}, {}),
        ({"indicationLifetimeSeconds": 60}, {"deliveryRetryAttempts": 1000}),
    ],
)
def test_a_retry_that_is_shorter_than_the_alert_says_so(
    destination: dict[str, Any], service: dict[str, Any]
) -> None:
    assert said(destination, default=service) == ("True", "ShorterThanAlert")
    condition = retry_condition(destination, {"default": service})
    assert condition is not None
    assert "before a Prometheus alert can fire (75 s)" in condition.message


@pytest.mark.parametrize(
    ("destination", "service"),
    [
        ({"retry": {"attempts": 20}}, FIRST_RELEASE),
        ({"indicationLifetimeSeconds": 0}, {}),
        ({"indicationLifetimeSeconds": 600}, {}),
        ({"retry": {"attempts": 5, "backoff": "Exponential", "intervalSeconds": 60}}, {}),
    ],
)
def test_a_retry_that_leaves_time_to_act_is_not_too_short(
    destination: dict[str, Any], service: dict[str, Any]
) -> None:
    assert said(destination, default=service) == ("False", "TimeToAct")


def test_of_several_services_the_shortest_is_named() -> None:
    condition = retry_condition(
        {}, {"slow": {"deliveryRetryAttempts": 100}, "quick": FIRST_RELEASE, "plain": {}}
    )
    assert condition is not None
    assert (condition.status, "IndicationService quick" in condition.message) == ("True", True)
