import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_operator.polling.reports import (
    LONGEST_DETAIL,
    DelivererReport,
    DeliveryResult,
    QueueReport,
    report_of,
)
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.wire import queues as wire
from pillion_sidecar.wire.queues import LARGEST_COUNT, MOST_ENTRIES, AnswerError, read_page

#: What a deliverer of the first version says of a queue, to the letter.
OLD_QUEUE: dict[str, Any] = {
    "name": "pager",
    "protocol": "CIM-XML",
    "suspended": False,
    "depth": 2,
    "capacity": 100,
    "highWater": 7,
    "inFlight": 1,
    "oldestIndicationAgeSeconds": 3.5,
    "creationTime": "2026-01-01T00:00:00.000Z",
    "delivered": 9,
    "attemptsByResult": {"success": 9, "error": 1},
    "discarded": {},
    "lastAttemptTime": "1970-01-01T00:01:40.000Z",
    "lastSuccessTime": "1970-01-01T00:01:30.000Z",
    "lastResult": {"result": "error", "detail": "HTTP 503", "status": 503},
    "nextAttemptTime": "1970-01-01T00:02:10.000Z",
    "sequenceContext": None,
    "nextSequenceNumber": 3,
}


def page(*queues: Any, **more: Any) -> bytes:
    return json.dumps(
        {"revision": "0123456789abcdef", "queues": list(queues), "next": None, **more}
    ).encode()


def report(body: bytes) -> DelivererReport:
    return report_of("pod", [read_page(body)], at=0.0)


def queue_in(body: bytes) -> QueueReport:
    (queue,) = report(body).queues.values()
    return queue


@pytest.mark.parametrize("part", ["{}", "[]", "1"])
def test_an_answer_that_would_take_long_to_read_is_not_read(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    monkeypatch.setattr(wire, "_PAGES", SimpleNamespace(decode=read.append))
    body = f'{{"queues":[],"padding":[{",".join([part] * 300_000)}]}}'.encode()

    with pytest.raises(AnswerError, match="made of too many parts"):
        read_page(body)
    assert read == []


def test_the_first_loss_that_is_due_is_read() -> None:
    told = {**OLD_QUEUE, "firstLossDueTime": "1970-01-01T00:05:00.000Z"}
    queue = queue_in(page(told))
    assert (queue.first_loss_due_time, queue.first_loss_reason) == (300.0, None)
    queue = queue_in(page({**told, "firstLossReason": "queue-full"}))
    assert queue.first_loss_reason == "queue-full"


def test_what_was_discarded_is_read_as_one_number_and_a_time() -> None:
    told = {
        **OLD_QUEUE,
        "discarded": {"queue-full": 2, "attempts-exceeded": 3},
        "lastDiscardTime": "1970-01-01T00:05:00.000Z",
    }
    queue = queue_in(page(told))
    assert (queue.discarded, queue.last_discard_time) == (5, 300.0)
    older = {name: value for name, value in OLD_QUEUE.items() if name != "discarded"}
    queue = queue_in(page(older))
    assert (queue.discarded, queue.last_discard_time) == (0, None)


@pytest.mark.parametrize("wrong", [[], "3", {"queue-full": -1}, {"queue-full": "2"}])
def test_discards_that_are_no_numbers_are_refused(wrong: object) -> None:
    with pytest.raises(AnswerError):
        read_page(page({**OLD_QUEUE, "discarded": wrong}))


def test_as_many_queues_as_there_may_be_are_not_too_many_parts() -> None:
    many = [{**OLD_QUEUE, "name": f"q{number}"} for number in range(MOST_ENTRIES)]
    ended = [{"name": f"s{number}", "reason": "FatalError"} for number in range(MOST_ENTRIES)]

    assert len(read_page(page(*many, endedSubscriptions=ended)).queues) == MOST_ENTRIES


def test_an_older_deliverer_is_understood() -> None:
    assert read_page(page(OLD_QUEUE)).next is None
    read = report(page(OLD_QUEUE))

    assert (read.revision, read.ended) == ("0123456789abcdef", ())
    assert read.durability is None
    (queue,) = read.queues.values()
    assert (queue.name, queue.depth, queue.capacity, queue.high_water) == ("pager", 2, 100, 7)
    assert (queue.last_result, queue.last_detail) == (DeliveryResult.ERROR, "HTTP 503")
    assert queue.last_attempt_time == 100.0
    assert queue.next_attempt_time == 130.0
    # The first version does not tell.
    assert queue.first_loss_due_time is None
    assert queue.oldest_indication_time is None
    assert (queue.suspended, queue.draining) == (False, False)
    assert queue.relay_to is None


def test_what_newer_deliverers_say_is_read() -> None:
    newer = {
        **OLD_QUEUE,
        "draining": True,
        "relayTo": "hub",
        "oldestIndicationTime": "1970-01-01T00:00:20Z",
        "failingSince": "1970-01-01T00:00:50+00:00",
        "somethingOfTheFuture": [{}],
    }
    ended = [{"name": "alerts", "state": "Disabled", "reason": "FatalError", "uid": "u-1"}]

    body = page(newer, endedSubscriptions=ended, next="pager")
    read = report(body)

    (queue,) = read.queues.values()
    assert (queue.draining, queue.oldest_indication_time) == (True, 20.0)
    assert queue.relay_to == "hub"
    assert [(one.name, one.reason, one.uid) for one in read.ended] == [
        ("alerts", "FatalError", "u-1")
    ]
    assert read_page(body).next == "pager"


def test_what_a_destination_is_held_for_is_no_failure_of_its_listener() -> None:
    hold = {"cause": "refused-address", "message": "10.0.0.1\n is", "since": "1970-01-01T00:00:50Z"}

    queue = queue_in(page({**OLD_QUEUE, "hold": hold}))

    assert (queue.hold, queue.hold_detail) == ("refused-address", "10.0.0.1  is")
    assert not queue.failing


def test_a_pause_is_a_failure_of_its_listener() -> None:
    pause = {"cause": "refused-credentials", "message": "HTTP\n401", "since": None}
    failed = {"result": "error", "detail": "HTTP 401", "status": 401}

    queue = queue_in(page({**OLD_QUEUE, "lastResult": failed, "pause": pause}))

    assert (queue.pause, queue.pause_detail, queue.hold) == (
        "refused-credentials",
        "HTTP 401",
        None,
    )
    assert queue.failing


def test_the_cause_and_since_when_are_read_from_their_fields() -> None:
    failed = {"result": "error", "cause": "timeout", "detail": "it was refused", "status": None}
    since = {"failingSince": "1970-01-01T00:00:50Z"}
    stop = {"cause": "circuit-breaker", "message": "", "since": "1970-01-01T00:00:40Z"}

    for stopped, at in (({}, 50.0), ({"hold": stop}, 40.0), ({"pause": stop}, 40.0)):
        queue = queue_in(page({**OLD_QUEUE, **since, **stopped, "lastResult": failed}))
        assert (queue.last_cause, queue.failing_since) == ("timeout", at)
    slow = queue_in(page({**OLD_QUEUE, "slowSince": "1970-01-01T00:00:30Z"}))
    assert (slow.slow_since, slow.failing_since) == (30.0, None)
    older = queue_in(page({**OLD_QUEUE, **since}))
    assert older.slow_since is None
    assert (older.last_cause, older.last_detail) == ("", "HTTP 503")


def test_a_success_has_neither_detail_nor_failure() -> None:
    success = {"result": "success", "detail": "was answered oddly", "status": 200}

    queue = queue_in(
        page({**OLD_QUEUE, "lastResult": success, "failingSince": "1970-01-01T00:00:50Z"})
    )

    assert (queue.last_result, queue.last_detail) == (DeliveryResult.SUCCESS, "")
    assert queue.last_cause == ""
    assert not queue.failing


def test_a_detail_is_one_bounded_line() -> None:
    long = {"result": "error", "detail": "no\x1b[31m\nway" + "x" * 5000}

    queue = queue_in(page({**OLD_QUEUE, "lastResult": long}))

    assert queue.last_detail.startswith("no [31m way")
    assert queue.last_detail.isprintable()
    assert len(queue.last_detail) <= LONGEST_DETAIL


@pytest.mark.parametrize(
    "change",
    [
        {"name": None},
        {"name": "../../etc"},
        {"name": "a" * 254},
        {"name": 7},
        {"depth": -1},
        {"depth": True},
        {"depth": 1.5},
        {"depth": "1"},
        {"depth": LARGEST_COUNT + 1},
        {"capacity": None},
        {"highWater": 10**40},
        {"suspended": "no"},
        {"hold": "no"},
        {"hold": {"cause": "refused-address", "message": 7}},
        {"draining": 0},
        {"relayTo": True},
        {"relayTo": "Not A Name"},
        {"lastResult": "error"},
        {"lastResult": {"result": "perhaps"}},
        {"lastResult": {"result": ["error"]}},
        {"lastResult": {"result": "error", "detail": 3}},
        {"lastResult": {"result": "error", "cause": "<script>"}},
        {"failingSince": "yesterday"},
        {"slowSince": 7},
        {"acceptedPerSecond": "many"},
        {"lastAttemptTime": 100},
        {"lastAttemptTime": "yesterday"},
        {"lastAttemptTime": "1970-01-01T00:01:40"},
        {"lastAttemptTime": "0001-01-01T00:00:00+23:59"},
        {"lastAttemptTime": "0001-01-01T00:00:00"},
        {"lastAttemptTime": "9999-12-31T23:59:59-23:59"},
        {"lastAttemptTime": ""},
        {"nextAttemptTime": "1" * 1000},
        {"firstLossDueTime": 130},
    ],
    ids=str,
)
def test_a_queue_that_is_not_one_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(AnswerError) as refusal:
        read_page(page({**OLD_QUEUE, **change}))

    assert next(iter(change)) in str(refusal.value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"queues": null}',
        b'{"queues": {}}',
        b'{"queues": [1]}',
        b'{"queues": [], "revision": 7}',
        b'{"queues": [], "revision": "a b"}',
        b'{"queues": [], "next": "B"}',
        b'{"queues": [], "revision": "a", "durability": "Stone"}',
        b'{"queues": [], "revision": "a", "durability": 1}',
        b'{"queues": [], "endedSubscriptions": [{"name": "a"}]}',
        b'{"queues": [], "endedSubscriptions": [{"name": "a", "reason": "x y"}]}',
        b'{"queues": [], "x": NaN}',
        b'{"queues": [], "schemaLevel": ' + b"9" * 10_000 + b"}",
    ],
    ids=range(17),
)
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(AnswerError):
        read_page(body)


@pytest.mark.parametrize("durability", list(Durability))
def test_a_deliverer_says_where_it_keeps_indications(durability: Durability) -> None:
    assert report(page(durability=durability.value)).durability is durability


def test_before_its_first_configuration_that_is_not_settled() -> None:
    assert report(page(revision=None, durability="Memory")).durability is None


def test_a_page_has_a_bounded_number_of_queues() -> None:
    assert len(read_page(page(*[OLD_QUEUE] * MOST_ENTRIES)).queues) == MOST_ENTRIES
    with pytest.raises(AnswerError, match="queues is not"):
        read_page(page(*[OLD_QUEUE] * (MOST_ENTRIES + 1)))


def test_a_refusal_repeats_nothing_of_the_answer() -> None:
    with pytest.raises(AnswerError) as refusal:
        read_page(page({**OLD_QUEUE, "name": "<script>"}))

    assert "script" not in str(refusal.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(OLD_QUEUE)), _JSON), st.binary(max_size=40))
def test_nothing_else_than_a_refusal_comes_of_any_answer(
    change: dict[str, Any], noise: bytes
) -> None:
    for body in (page({**OLD_QUEUE, **change}), noise):
        try:
            read = read_page(body)
        except AnswerError:
            continue
        assert report_of("pod", [read], at=0.0).queues.keys() == {one.name for one in read.queues}


def replayed(**more: Any) -> dict[str, Any]:
    return {"name": "afternoon", "uid": "u-1", "state": "Running", **more}


def test_replays_are_read_by_name_with_one_line_of_detail() -> None:
    told = replayed(selected=3, leftOut={"filtered": 1}, detail="a\nb" + "c" * 1000)
    (one,) = report(page(replays=[told])).replays.values()
    assert list(report(page(replays=[told])).replays) == ["afternoon"]
    assert (one.uid, one.selected, one.left_out) == ("u-1", 3, {"filtered": 1})
    assert len(one.detail) <= LONGEST_DETAIL
    assert "\n" not in one.detail
    assert report(page()).replays == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "Gone"},
        {"selected": -1},
        {"selected": LARGEST_COUNT + 1},
        {"uid": "x" * 254},
        {"leftOut": {"UPPER": 1}},
        {"name": "no name"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_wrong_replay_invalidates_the_answer(wrong: dict[str, Any]) -> None:
    with pytest.raises(AnswerError):
        read_page(page(replays=[replayed(**wrong)]))
