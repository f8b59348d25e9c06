from dataclasses import replace
from typing import Any

import pytest

from pillion_operator.polling.news import News, news
from pillion_operator.polling.reports import (
    DelivererReport,
    DeliveryResult,
    EndedSubscription,
    QueueReport,
    Unreachable,
)
from pillion_sidecar.config.schema.service import Durability

QUEUE = QueueReport(
    name="pager",
    depth=1,
    capacity=100,
    high_water=1,
    last_result=DeliveryResult.SUCCESS,
    last_attempt_time=10.0,
    last_success_time=10.0,
)
REPORT = DelivererReport(pod="pod", revision="one", queues={"pager": QUEUE}, at=0.0)
SILENCE = Unreachable(pod="pod", reason="timed out", since=1.0)


def changed(**fields: Any) -> DelivererReport:
    return replace(REPORT, queues={"pager": replace(QUEUE, **fields)})


def test_another_asking_alone_is_no_news() -> None:
    assert news(REPORT, replace(REPORT, at=99.0)) is News.NONE
    assert news(SILENCE, replace(SILENCE, reason="connection refused")) is News.NONE
    assert news(REPORT, changed(last_attempt_time=20.0, last_success_time=20.0)) is News.NONE


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
        (REPORT, replace(REPORT, ended=(EndedSubscription(name="a", reason="FatalError"),))),
        (REPORT, changed(last_result=DeliveryResult.ERROR)),
        (REPORT, changed(last_result=None)),
        (REPORT, changed(suspended=True)),
        (REPORT, changed(draining=True)),
        (REPORT, changed(depth=80)),
        (changed(depth=60), changed(depth=59)),
    ],
    ids=range(14),
)
def test_what_a_condition_may_turn_on_is_urgent(
    before: DelivererReport | Unreachable | None, after: DelivererReport | Unreachable
) -> None:
    assert news(before, after) is News.TURNED


@pytest.mark.parametrize(
    "after",
    [
        changed(depth=2),
        changed(high_water=3),
        changed(oldest_indication_time=4.0),
        changed(next_attempt_time=5.0),
    ],
    ids=range(4),
)
def test_numbers_that_move_can_wait(after: DelivererReport) -> None:
    assert news(REPORT, after) is News.MOVED


def test_each_attempt_that_fails_is_news() -> None:
    failing = changed(last_result=DeliveryResult.ERROR)
    again = changed(last_result=DeliveryResult.ERROR, last_attempt_time=40.0)

    assert news(failing, again) is News.MOVED
