from dataclasses import replace
from typing import Any

import pytest

from pillion_operator.polling.reports import (
    Answer,
    Change,
    DelivererReport,
    DeliveryResult,
    QueueReport,
    ReplayReport,
    Unreachable,
    change,
)
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.wire.queues import SubscriptionEnd

QUEUE = QueueReport(
    name="pager",
    depth=1,
    capacity=100,
    high_water=1,
    last_result=DeliveryResult.SUCCESS,
    last_attempt_time=10.0,
)
REPORT = DelivererReport(pod="pod", revision="one", queues={"pager": QUEUE}, at=0.0)
SILENCE = Unreachable(pod="pod", reason="timed out", since=1.0)


def changed(**fields: Any) -> DelivererReport:
    return replace(REPORT, queues={"pager": replace(QUEUE, **fields)})


def test_another_poll_alone_is_no_change() -> None:
    assert change(REPORT, replace(REPORT, at=99.0)) is Change.NONE
    assert change(SILENCE, replace(SILENCE, reason="connection refused")) is Change.NONE
    assert change(REPORT, changed(last_attempt_time=20.0)) is Change.NONE


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, REPORT),
        (None, SILENCE),
        (REPORT, SILENCE),
        (SILENCE, REPORT),
        (REPORT, replace(REPORT, revision="two")),
        (REPORT, replace(REPORT, durability=Durability.MEMORY)),
        (REPORT, replace(REPORT, queues={})),
        (REPORT, replace(REPORT, ended=(SubscriptionEnd(name="a", reason="FatalError"),))),
        (REPORT, changed(last_result=DeliveryResult.ERROR)),
        (REPORT, changed(last_result=None)),
        (REPORT, changed(suspended=True)),
        (REPORT, changed(draining=True)),
        (REPORT, changed(slow_since=5.0)),
        (REPORT, changed(depth=80)),
        (changed(depth=60), changed(depth=59)),
    ],
    ids=range(15),
)
def test_what_a_condition_may_depend_on_is_a_change_of_state(
    before: Answer | None, after: Answer
) -> None:
    assert change(before, after) is Change.STATE


@pytest.mark.parametrize(
    "after",
    [
        changed(depth=2),
        changed(high_water=3),
        changed(oldest_indication_time=4.0),
        changed(next_attempt_time=5.0),
        changed(last_cause="timeout"),
        changed(failing_since=6.0),
    ],
    ids=range(6),
)
def test_numbers_are_a_change_of_numbers(after: DelivererReport) -> None:
    assert change(REPORT, after) is Change.NUMBERS


def test_each_attempt_that_fails_is_change() -> None:
    failing = changed(last_result=DeliveryResult.ERROR)
    again = changed(last_result=DeliveryResult.ERROR, last_attempt_time=40.0)

    assert change(failing, again) is Change.NUMBERS


def replaying(**fields: Any) -> DelivererReport:
    one = ReplayReport(name="r", **{"uid": "u", "state": "Running", **fields})
    return replace(REPORT, replays={"r": one})


def test_the_state_of_a_replay_is_a_state_and_its_counts_are_numbers() -> None:
    assert change(REPORT, replaying()) is Change.STATE
    assert change(replaying(), replaying(state="Complete")) is Change.STATE
    assert change(replaying(), replaying(uid="v")) is Change.STATE
    assert change(replaying(), replaying(selected=1)) is Change.NUMBERS
    assert change(replaying(), replaying(detail="waits")) is Change.NUMBERS
    assert change(replaying(), replaying()) is Change.NONE
    assert change(replace(replaying(), queues={}), replace(replaying(), queues={})) is Change.NONE
