"""Events tell of transitions, each once, and of nothing else."""

from typing import Any

import pytest

from pillion_operator.controllers.status_writer import Transition, transitions
from pillion_operator.status.conditions import OUR_TYPES

#: Of each condition that is told: what is bad, and the reasons of the Events of its beginning and
#: its end; None where the end is not told.
TOLD = {
    "Accepted": ("False", "NotAccepted", "Accepted"),
    "ListenerUnreachable": ("True", "ListenerUnreachable", "NotListenerUnreachable"),
    "Backlogged": ("True", "Backlogged", "NotBacklogged"),
    "InjectionComplete": ("False", "NotInjectionComplete", "InjectionComplete"),
    "SelectorsOverlap": ("True", "SelectorsOverlap", None),
    "Failed": ("True", "Failed", None),
    "Draining": ("True", "Draining", "NotDraining"),
    "RelayFailing": ("True", "RelayFailing", "NotRelayFailing"),
    "SequenceIdentifiersShared": ("True", "SequenceIdentifiersShared", None),
    "GatewayReady": ("False", "NotGatewayReady", "GatewayReady"),
    "RetryTooShort": ("True", "RetryTooShort", None),
    "ClassUnknown": ("True", "ClassUnknown", None),
    "SharedPortAndPath": ("True", "SharedPortAndPath", None),
    "RelayAbandoned": ("True", "RelayAbandoned", None),
    "AnotherInstallation": ("True", "AnotherInstallation", None),
}
GOOD = {"True": "False", "False": "True"}


def status(kind: str, value: str | None, *, note: str = "a note") -> dict[str, Any]:
    if value is None:
        return {}
    condition = {"type": kind, "status": value, "reason": "Word", "message": note}
    return {"conditions": [condition]}


def told(before: dict[str, Any], after: dict[str, Any]) -> list[Transition]:
    return list(transitions(before, after))


@pytest.mark.parametrize("kind", TOLD)
@pytest.mark.parametrize("before", ["good", "Unknown", None])
def test_bad_news_is_a_warning_with_the_reason_of_the_condition(
    kind: str, before: str | None
) -> None:
    bad, reason, _ = TOLD[kind]
    old = GOOD[bad] if before == "good" else before
    assert told(status(kind, old), status(kind, bad)) == [
        Transition("Warning", reason, "Word: a note")
    ]


@pytest.mark.parametrize("kind", TOLD)
def test_the_end_of_bad_news_is_told_where_somebody_waits_for_it(kind: str) -> None:
    bad, _, reason = TOLD[kind]
    expected = [] if reason is None else [Transition("Normal", reason, "a note")]
    assert told(status(kind, bad), status(kind, GOOD[bad])) == expected


@pytest.mark.parametrize("kind", TOLD)
def test_what_is_no_longer_known_is_not_told(kind: str) -> None:
    bad = TOLD[kind][0]
    for after in ("Unknown", None):
        assert told(status(kind, bad), status(kind, after)) == []


@pytest.mark.parametrize("kind", TOLD)
def test_what_stays_is_not_told_again_though_its_words_change(kind: str) -> None:
    bad = TOLD[kind][0]
    for value in (bad, GOOD[bad], "Unknown"):
        assert told(status(kind, value), status(kind, value, note="another")) == []
    for before in (None, "Unknown"):
        assert told(status(kind, before), status(kind, GOOD[bad])) == []


@pytest.mark.parametrize("kind", sorted(OUR_TYPES - set(TOLD) - {"Ready"}))
def test_what_comes_and_goes_by_itself_is_not_told(kind: str) -> None:
    for before, after in (("True", "False"), ("False", "True"), (None, "False")):
        assert told(status(kind, before), status(kind, after)) == []


def test_several_transitions_are_told_together() -> None:
    before = status("Accepted", "True")["conditions"] + status("Backlogged", "True")["conditions"]
    after = status("Accepted", "False")["conditions"] + status("Backlogged", "False")["conditions"]
    found = told({"conditions": before}, {"conditions": after})
    assert [one.reason for one in found] == ["NotAccepted", "NotBacklogged"]


# ---------------------------------------------------------------- the state of a subscription


def subscribed(state: str | None, *, note: str | None = "a note") -> dict[str, Any]:
    said = {} if note is None else status("Ready", "False", note=note)
    return said if state is None else {**said, "subscriptionState": state}


def test_a_subscription_that_ends_is_a_warning_that_says_why() -> None:
    assert told(subscribed("Enabled", note="all is well"), subscribed("Disabled")) == [
        Transition("Warning", "SubscriptionDisabled", "a note")
    ]


def test_a_subscription_that_goes_on_is_no_warning() -> None:
    assert told(subscribed("Disabled"), subscribed("Enabled")) == [
        Transition("Normal", "SubscriptionEnabled", "a note")
    ]


def test_without_a_condition_there_is_no_note() -> None:
    assert told(subscribed("Enabled"), subscribed("Removed", note=None)) == [
        Transition("Warning", "SubscriptionRemoved", "")
    ]


def test_a_first_state_a_last_one_and_the_same_are_not_told() -> None:
    for before, after in (
        (None, "Enabled"),
        (None, "Disabled"),
        ("Enabled", None),
        ("Disabled", "Disabled"),
    ):
        assert told(subscribed(before), subscribed(after, note="another")) == []


# ---------------------------------------------------------------- Ready


def ready(value: str, reason: str = "InForce", **more: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": value, "reason": reason, "message": "a note"}
    return {"conditions": [condition], **more}


def test_a_change_of_ready_is_told_both_ways() -> None:
    assert told(ready("True"), ready("False", "NotOurs")) == [
        Transition("Warning", "NotReady", "NotOurs: a note")
    ]
    assert told({}, ready("False", "NotWritten")) == [
        Transition("Warning", "NotReady", "NotWritten: a note")
    ]
    assert told(ready("False", "NotOurs"), ready("True")) == [
        Transition("Normal", "Ready", "InForce: a note")
    ]


def test_another_reason_why_it_is_not_ready_is_told() -> None:
    assert told(ready("False", "RollingOut"), ready("False", "NotOurs")) == [
        Transition("Warning", "NotReady", "NotOurs: a note")
    ]
    assert told(ready("False", "NotOurs"), ready("False", "NotOurs")) == []


def test_a_rollout_is_no_warning_and_a_first_ready_no_news() -> None:
    assert [one.type for one in told(ready("True"), ready("False", "RollingOut"))] == ["Normal"]
    assert told({}, ready("True")) == []


def test_what_another_event_says_is_not_told_twice() -> None:
    refused = {
        "conditions": [
            *ready("False", "NotAccepted")["conditions"],
            *status("Accepted", "False")["conditions"],
        ]
    }
    whole = {
        "conditions": [*ready("True")["conditions"], *status("Accepted", "True")["conditions"]]
    }
    assert [one.reason for one in told(whole, refused)] == ["NotAccepted"]
    assert [one.reason for one in told(refused, whole)] == ["Accepted"]
    ended = ready("False", "Disabled", subscriptionState="Disabled")
    going = ready("True", subscriptionState="Enabled")
    assert [one.reason for one in told(going, ended)] == ["SubscriptionDisabled"]
