from typing import Any

import msgspec
import pytest

from pillion_operator.status.conditions import rfc3339
from pillion_operator.status.subscription import (
    RemovalRule,
    State,
    SubscriptionVerdict,
    begins_anew,
    judge_subscription,
)
from pillion_sidecar.wire.queues import SubscriptionEnd

CREATED = 1_700_000_000.0
NOW = CREATED + 1000.0
FATAL = SubscriptionEnd(name="alerts", reason="FatalError")


def subscription(
    *, status: dict[str, Any] | None = None, generation: int = 1, **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "alerts",
            "uid": "u-1",
            "generation": generation,
            "creationTimestamp": rfc3339(CREATED),
        },
        "spec": {"subscriptionState": "Enabled", "onFatalErrorPolicy": "Ignore", **spec},
        "status": status or {},
    }


def judged(
    resource: dict[str, Any],
    *ended: SubscriptionEnd,
    removal: RemovalRule | None = None,
    now: float = NOW,
) -> SubscriptionVerdict:
    return judge_subscription(resource, removal=removal or RemovalRule(), ended=ended, now=now)


def written(verdict: SubscriptionVerdict, *, generation: int = 1) -> dict[str, Any]:
    """The status that comes of a verdict."""
    return {
        "subscriptionState": verdict.state.value,
        "conditions": [
            {"type": "Accepted", "status": "True", "observedGeneration": generation, "reason": "A"},
            {
                "type": "Ready",
                "status": "False",
                "observedGeneration": generation,
                "reason": verdict.reason,
                "message": verdict.message,
            },
        ],
    }


def test_a_subscription_is_enabled_as_it_is_asked_for() -> None:
    verdict = judged(subscription())

    assert (verdict.state, verdict.reason, verdict.due_again) == (State.ENABLED, "Enabled", None)


def test_a_user_may_disable_it_and_enable_it_again() -> None:
    disabled = judged(subscription(subscriptionState="Disabled"))
    again = judged(subscription(generation=2, status=written(disabled)))

    assert (disabled.state, disabled.reason) == (State.DISABLED, "Disabled")
    assert again.state is State.ENABLED


def test_it_expires_after_its_duration() -> None:
    resource = subscription(subscriptionDurationSeconds=1500)

    assert judged(resource).due_again == 500.0
    assert judged(resource).state is State.ENABLED
    assert judged(resource, now=CREATED + 1499).state is State.ENABLED
    expired = judged(resource, now=CREATED + 1500)
    assert (expired.state, expired.reason) == (State.EXPIRED, "Expired")
    assert "1500" in expired.message


def test_a_longer_duration_has_it_go_on() -> None:
    expired = judged(subscription(subscriptionDurationSeconds=10))
    longer = subscription(subscriptionDurationSeconds=5000, generation=2, status=written(expired))

    assert expired.state is State.EXPIRED
    assert judged(longer).state is State.ENABLED


def test_one_that_is_being_deleted_is_removed() -> None:
    resource = subscription()
    resource["metadata"]["deletionTimestamp"] = rfc3339(NOW)

    assert (judged(resource).state, judged(resource).reason) == (State.REMOVED, "Deleted")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Ignore", State.ENABLED), ("Disable", State.DISABLED), ("Remove", State.REMOVED)],
)
@pytest.mark.parametrize("uid", [None, ""])
def test_a_fatal_error_meets_its_policy(policy: str, expected: State, uid: str | None) -> None:
    ended = msgspec.structs.replace(FATAL, uid=uid)
    verdict = judged(subscription(onFatalErrorPolicy=policy), ended)

    assert verdict.state is expected
    assert (verdict.reason == "FatalError") is (expected is not State.ENABLED)


@pytest.mark.parametrize(
    "other",
    [
        SubscriptionEnd(name="another", reason="FatalError"),
        SubscriptionEnd(name="alerts", reason="FatalError", uid="of the one before"),
        SubscriptionEnd(name="alerts", reason="Expired"),
        SubscriptionEnd(name="alerts", reason="RemovalAction"),
    ],
    ids=["name", "uid", "expired", "removal-action"],
)
def test_what_ended_otherwise_is_no_fatal_error(other: SubscriptionEnd) -> None:
    assert judged(subscription(onFatalErrorPolicy="Disable"), other).state is State.ENABLED


def test_what_continues_an_earlier_one_has_its_age_and_its_end() -> None:
    resource = subscription(onFatalErrorPolicy="Disable", subscriptionDurationSeconds=2000)
    earlier = {"uid": "u-0", "creationTimestamp": rfc3339(CREATED - 500)}
    resource["metadata"]["continues"] = earlier

    assert judged(resource).due_again == 500
    assert judged(resource, msgspec.structs.replace(FATAL, uid="u-0")).state is State.DISABLED
    assert judged(resource, msgspec.structs.replace(FATAL, uid="u-1")).state is State.ENABLED


@pytest.mark.parametrize(
    ("action", "expected"),
    [("Ignore", State.ENABLED), ("Disable", State.DISABLED), ("Remove", State.REMOVED)],
)
def test_a_listener_that_fails_for_long_meets_the_removal_action(
    action: str, expected: State
) -> None:
    rule = RemovalRule(action=action, interval=600.0, failing_since=NOW - 600)

    assert judged(subscription(), removal=rule).state is expected


def test_before_its_time_the_removal_action_is_only_due() -> None:
    rule = RemovalRule(action="Disable", interval=600.0, failing_since=NOW - 100)
    waiting = judged(subscription(), removal=rule)
    lasting = judged(subscription(subscriptionDurationSeconds=1100), removal=rule)

    assert (waiting.state, waiting.due_again) == (State.ENABLED, 500.0)
    assert lasting.due_again == 100.0


def test_a_listener_that_does_not_fail_meets_nothing() -> None:
    rule = RemovalRule(action="Remove", interval=0.0, failing_since=None)

    assert judged(subscription(), removal=rule).state is State.ENABLED


def test_an_end_stays_until_the_spec_is_changed() -> None:
    spec: dict[str, Any] = {"onFatalErrorPolicy": "Disable"}
    ended = judged(subscription(**spec), FATAL)

    # Its deliverers no longer have it, and so no longer report it.
    kept = judged(subscription(status=written(ended), **spec))
    changed = judged(subscription(status=written(ended), generation=2, **spec))

    assert (kept.state, kept.reason, kept.message) == (ended.state, ended.reason, ended.message)
    assert changed.state is State.ENABLED


def test_an_end_by_the_removal_action_stays_when_the_listener_is_well_again() -> None:
    rule = RemovalRule(action="Remove", interval=1.0, failing_since=CREATED)
    ended = judged(subscription(), removal=rule)

    kept = judged(subscription(status=written(ended)))

    assert (kept.state, kept.reason) == (State.REMOVED, "ListenerFailing")


def test_a_listener_that_still_fails_has_its_whole_interval_again_once_the_spec_is_changed() -> (
    None
):
    rule = RemovalRule(action="Remove", interval=600.0, failing_since=CREATED, begun_anew=NOW - 100)

    again = judged(subscription(generation=2), removal=rule)

    assert (again.state, again.due_again) == (State.ENABLED, 500.0)
    assert judged(subscription(), removal=rule, now=NOW + 500).state is State.REMOVED


def test_it_begins_anew_when_the_spec_is_changed_after_an_end() -> None:
    status = written(judged(subscription(onFatalErrorPolicy="Remove"), FATAL))

    assert begins_anew(subscription(status=status, generation=2))
    assert not begins_anew(subscription(status=status))
    assert not begins_anew(subscription(generation=2))


def test_an_end_whose_reason_is_not_told_stays_too() -> None:
    status = written(judged(subscription(onFatalErrorPolicy="Remove"), FATAL))
    status["conditions"].pop()

    kept = judged(subscription(status=status))

    assert (kept.state, kept.reason) == (State.REMOVED, "EndedEarlier")


def test_a_state_of_which_no_generation_is_known_does_not_stay() -> None:
    status = {"subscriptionState": "Disabled", "conditions": []}

    assert judged(subscription(status=status)).state is State.ENABLED


def test_one_that_was_ended_expires_all_the_same() -> None:
    spec: dict[str, Any] = {"onFatalErrorPolicy": "Disable", "subscriptionDurationSeconds": 1100}
    ended = judged(subscription(**spec), FATAL)
    later = subscription(status=written(ended), **spec)

    assert ended.due_again == 100.0
    assert judged(later, now=NOW + 100).state is State.EXPIRED
