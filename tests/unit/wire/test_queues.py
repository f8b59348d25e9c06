"""The JSON of the queues is read as it was written."""

import json
from typing import Any

import pytest

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.wire.queues import (
    AnswerError,
    AttemptStatus,
    HoldStatus,
    KeptFilter,
    Moment,
    OutcomeStatus,
    QueueDetails,
    QueuePage,
    QueueStatus,
    RetryStatus,
    SubscriptionEnd,
    converted,
    read_page,
    written,
)

QUEUE: dict[str, Any] = {
    "name": "pager",
    "depth": 3,
    "capacity": 10,
    "high_water": 5,
    "hold": HoldStatus(cause="refused-address", message="10.0.0.1", since=Moment(1.5)),
    "last_result": OutcomeStatus(result="error", detail="HTTP 503", status=503),
    "last_attempt_time": Moment(1_700_000_000.123),
    "discarded": {"queue-full": 2},
}
PAGE = QueuePage(
    revision="abc",
    durability=Durability.DISK,
    schema_level=2,
    queues=[QueueStatus(**QUEUE)],
    ended_subscriptions=[
        SubscriptionEnd(name="alerts", uid="u-1", state="Expired", reason="Expired")
    ],
    ended_subscriptions_count=1,
    kept_filters=[KeptFilter(name="all", problem="a wrong query")],
)


def test_a_page_is_read_as_it_was_written() -> None:
    assert read_page(json.dumps(written(PAGE)).encode()) == PAGE
    assert converted(written(PAGE), QueuePage) == PAGE


def test_times_are_in_milliseconds_and_names_in_camel_case() -> None:
    (queue,) = written(PAGE)["queues"]
    assert queue["lastAttemptTime"] == "2023-11-14T22:13:20.123Z"
    assert queue["hold"]["since"] == "1970-01-01T00:00:01.500Z"
    assert (queue["highWater"], queue["relayTo"]) == (5, None)


def test_what_is_on_the_first_page_only_is_left_out_of_the_others() -> None:
    document = written(QueuePage(queues=[]))
    assert list(document) == ["revision", "durability", "schemaLevel", "queues", "next"]


def test_the_details_of_a_queue_are_read_as_they_were_written() -> None:
    details = QueueDetails(
        **QUEUE,
        indication_lifetime_seconds=60.0,
        retry=RetryStatus(
            attempts=None,
            interval_seconds=30.0,
            backoff="Constant",
            maximum_interval_seconds=300.0,
            jitter_percent=20,
        ),
        attempts=[
            AttemptStatus(
                time=Moment(2.0),
                identifier=None,
                sequence_number=1,
                attempt=1,
                result="success",
                detail="",
                status=200,
                seconds=0.25,
            )
        ],
    )
    assert converted(written(details), QueueDetails) == details


def test_an_invalid_answer_names_the_field_and_repeats_no_value() -> None:
    document = written(PAGE)
    document["durability"] = "Stone - at `$.secret`"
    with pytest.raises(AnswerError, match=r"^durability is not what it should be$"):
        converted(document, QueuePage)
    with pytest.raises(AnswerError, match=r"^the answer is not what it should be$"):
        converted({}, QueuePage)
