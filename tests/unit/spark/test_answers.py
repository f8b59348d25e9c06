"""Answers are read strictly: each line is accounted for exactly once, or nothing is concluded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pillion.deliverer import Reply, read_accepted, read_flushed, shortened
from pyspark_pillion.errors import ProtocolError


def reply(document: Any, *, status: int = 200, **headers: str) -> Reply:
    return Reply(status, headers, json.dumps(document).encode())


def test_counts_and_refusals_are_read() -> None:
    refused = [
        {"line": 1, "status": 429, "reason": "full", "destination": "d"},
        {"line": 2, "status": 400, "reason": "wrong", "field": "AlertType"},
    ]
    answer = read_accepted(reply({"accepted": 2, "duplicate": 1, "refused": refused}), sent=5)

    assert (answer.accepted, answer.duplicate, answer.unread_from) == (2, 1, 5)
    assert [(r.line, r.for_now, r.field, r.destination) for r in answer.refused] == [
        (1, True, "", "d"),
        (2, False, "AlertType", ""),
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"accepted": 2, "duplicate": 0, "refused": []},
        {"accepted": 4, "duplicate": 0, "refused": []},
        {"accepted": 2, "refused": [{"line": 3, "status": 400}]},
        {"accepted": 1, "refused": [{"line": 0, "status": 400}, {"line": 0, "status": 400}]},
        {"accepted": 3, "refused": [], "unreadFrom": 2},
        {"accepted": 4, "refused": [], "unreadFrom": 4},
        {"accepted": -1},
        {"accepted": True},
        {"accepted": 3, "refused": ["line 1"]},
        [],
        "text",
    ],
)
def test_an_answer_that_does_not_account_for_each_line_is_no_answer(document: Any) -> None:
    with pytest.raises(ProtocolError):
        read_accepted(reply(document), sent=3)


def test_what_reaches_no_listener_is_read_by_reason() -> None:
    document = {"accepted": 3, "unrouted": 2, "suppressed": 1}
    assert read_accepted(reply(document), sent=3).unreached == {"unrouted": 2, "suppressed": 1}


def test_lines_beyond_unread_from_were_not_judged() -> None:
    assert read_accepted(reply({"accepted": 2, "unreadFrom": 2}), sent=3).unread_from == 2


def test_an_answer_that_is_no_json_is_quoted() -> None:
    with pytest.raises(ProtocolError, match="HTTP 200 without a JSON object: <html>"):
        Reply(200, {}, b"<html>\nhello</html>").document()


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("Wed, 21 Oct 2015", 0.0)]
)
def test_retry_after_is_seconds_or_nothing(text: str, seconds: float) -> None:
    assert Reply(503, {"retry-after": text}, b"").retry_after() == seconds


def test_a_flush_is_summed_over_destinations() -> None:
    flushed = read_flushed(
        reply(
            {
                "complete": False,
                "accepted": 9,
                "unrouted": 2,
                "destinations": {
                    "a": {"delivered": 3, "discarded": {"queue-full": 1, "purged": 0}},
                    "b": {"delivered": 4, "pending": 2},
                },
            }
        )
    )

    assert (flushed.complete, flushed.delivered) == (False, 7)
    assert flushed.discarded == {("a", "queue-full"): 1}
    assert flushed.waiting == {"b": 2}
    assert (flushed.accepted, flushed.unreached) == (9, {"unrouted": 2})
    assert read_flushed(reply({"complete": True})).accepted is None


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(
                    ["complete", "destinations", "discarded", "accepted", "refused", "line"]
                ),
                x,
            )
        ),
    )
)
def test_no_document_is_an_unexpected_error(document: Any) -> None:
    for read in (read_flushed, lambda answer: read_accepted(answer, sent=1)):
        try:
            read(reply(document))
        except ProtocolError:
            continue


def test_quotations_are_one_line_and_short() -> None:
    assert shortened("a\n  b", most=10) == "a b"
    assert shortened("x" * 20, most=10) == "x" * 9 + "…"
