"""What ``pillion queues`` makes of a queue, and in which order it shows them."""

import pytest

from pillion_cli.queue_states import ORDERS, Judged, State, judged, summary, time_of
from pillion_sidecar.wire.queues import (
    HoldStatus,
    Moment,
    OutcomeStatus,
    QueueStatus,
    RateLimitStatus,
)
from support.queue_answers import NOW, failing, slow, told, waiting

HOLD = HoldStatus(cause="invalid-certificates", message="no key", since=Moment(NOW - 30))
LIMIT = RateLimitStatus(per_second=0.5, burst=1, limiting=True)
FATAL = OutcomeStatus(result="fatal-error", detail="no such host")
TRIED = {"in_flight": 1, "last_attempt_time": Moment(NOW - 18)}


def found(queue: QueueStatus) -> Judged:
    return judged(queue, now=NOW)


@pytest.mark.parametrize(
    ("queue", "state", "why"),
    [
        (told(), State.OK, ""),
        (told(**waiting(9)), State.OK, ""),
        (failing(), State.FAILING, "HTTP 503"),
        (failing(last_result=FATAL), State.FAILING, "fatal-error: no such host"),
        (failing(cause="status"), State.FAILING, "status: HTTP 503"),
        (failing(cause="timeout", detail=""), State.FAILING, "timeout"),
        (
            failing(last_result=None),
            State.FAILING,
            "its attempts fail; the next one shows the cause",
        ),
        (
            failing(**TRIED),
            State.FAILING,
            "HTTP 503; tried again 18 s ago, without an answer so far",
        ),
        (failing(hold=HOLD), State.HELD, "invalid-certificates: no key"),
        (failing(pause=HOLD), State.PAUSED, "invalid-certificates: no key"),
        (failing(suspended=True), State.SUSPENDED, "its resource has suspended: true"),
        (told(**TRIED), State.UNANSWERED, "no answer for 18 s"),
        (told(in_flight=0, last_attempt_time=Moment(NOW - 18)), State.OK, ""),
        (told(in_flight=1, last_attempt_time=Moment(NOW - 4)), State.OK, ""),
        (slow(), State.SLOW, "512 a second arrive, 9.7 are delivered"),
        (slow(**TRIED), State.SLOW, "512 a second arrive, 9.7 are delivered; no answer for 18 s"),
        (
            slow(rate_limit=LIMIT),
            State.SLOW,
            "rate limit of 0.5 a second; 512 a second arrive, 9.7 are delivered",
        ),
        (failing(slow_since=Moment(NOW - 60)), State.FAILING, "HTTP 503"),
        (
            told(**waiting(10, accepted_per_second=0.0, delivered_per_second=20.04)),
            State.BEHIND,
            "0 a second arrive, 20 are delivered",
        ),
        # An older deliverer does not tell.
        (told(**waiting(10)), State.BEHIND, "answers, and is behind"),
        (told(**waiting(99, rate_limit=LIMIT)), State.LIMITED, "rate limit of 0.5 a second"),
        (told(draining=True), State.DRAINING, "its destination is no longer configured"),
        (told(held=7), State.OK, "7 held by message groups"),
        (failing(depth=0), State.FAILING, "HTTP 503; nothing waits, so nothing is tried"),
        (failing(relay_to="hub"), State.FAILING, "HTTP 503; relay to hub"),
        (
            told(last_discard_time=Moment(NOW - 3), discarded={"purged": 2, "queue-full": 1}),
            State.OK,
            "3 discarded, the last 3 s ago",
        ),
        (told(last_discard_time=Moment(NOW - 700), discarded={"purged": 2}), State.OK, ""),
    ],
)
def test_the_state_of_a_queue_and_why(queue: QueueStatus, state: State, why: str) -> None:
    one = found(queue)
    assert (one.state, one.why_and_lost) == (state, why)


def test_times_are_by_the_deliverers_clock() -> None:
    date = {"date": "Fri, 15 Jan 2027 08:00:00 GMT"}
    assert time_of([told(), told(**waiting(7))], date, now=lambda: 1.0) == NOW
    assert time_of([told()], date, now=lambda: 1.0) == NOW
    for headers in ({}, {"date": "yesterday"}, {"date": "Fri, 32 Jan 2027 08:00:00 GMT"}):
        assert time_of([], headers, now=lambda: 1.0) == 1.0


def test_times_are_told_from_now() -> None:
    one = found(failing(next_attempt_time=Moment(NOW + 12.5), first_loss_due_time=Moment(NOW + 40)))
    assert (one.since, one.next_attempt, one.loss) == (60.0, "in 12 s", 40.0)
    one = found(slow(full_time=Moment(NOW + 90)))
    assert (one.since, one.loss, one.full) == (15.0, None, 90.0)
    assert found(slow(full_time=Moment(NOW - 1))).full == 0.0
    late = found(failing(next_attempt_time=Moment(NOW - 1), first_loss_due_time=Moment(NOW - 1)))
    assert (late.next_attempt, late.loss) == ("now", 0.0)
    assert found(failing(in_flight=1)).next_attempt == "under way"
    assert found(failing(hold=HOLD, next_attempt_time=Moment(NOW + 9))).next_attempt == ""


LOSS = {"first_loss_due_time": Moment(NOW + 40)}
QUEUES = (
    told("a-ok", depth=900, **LOSS),
    slow("b-slow", **waiting(20)),
    told("c-suspended", suspended=True),
    told("d-unanswered", **TRIED),
    failing("e-paused", pause=HOLD),
    failing("f-held", hold=HOLD),
    failing("g-failing", depth=3, first_loss_due_time=Moment(NOW + 30)),
    failing("h-failing", depth=4),
    failing("i-failing", depth=3),
)


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("trouble", "ghifedcba"),
        ("name", "abcdefghi"),
        ("depth", "abhgifedc"),
        ("loss", "gahifedcb"),
    ],
)
def test_the_order_is_the_one_that_is_asked_for(order: str, names: str) -> None:
    ordered = sorted(map(found, QUEUES), key=ORDERS[order])
    assert "".join(one.queue.name[0] for one in ordered) == names


FULL = {"depth": 10, "capacity": 10}
LOST = {"last_discard_time": Moment(NOW - 1), "discarded": {"queue-full": 440}}
#: As with queueFullPolicy: Adaptive.
LOSES = told("loses", suspended=True, first_loss_due_time=Moment(NOW), **FULL, **LOST)
#: As with queueFullPolicy: Reject.
REFUSES = told("refuses", suspended=True, **FULL)


def test_of_those_in_trouble_what_loses_now_or_first_is_the_worst() -> None:
    queues = (
        told("a-ok", first_loss_due_time=Moment(NOW + 1)),
        failing("b-loses-tomorrow", depth=900, first_loss_due_time=Moment(NOW + 80_000)),
        failing("c-loses-nothing", depth=999),
        told("d-suspended", suspended=True, first_loss_due_time=Moment(NOW + 27)),
        REFUSES,
        LOSES,
        told("e-limited", rate_limit=LIMIT, first_loss_due_time=Moment(NOW), **FULL, **LOST),
    )
    ordered = sorted(map(found, queues), key=ORDERS["trouble"])
    assert [one.queue.name for one in ordered] == [
        *("loses", "e-limited", "refuses", "d-suspended"),
        *("b-loses-tomorrow", "c-loses-nothing", "a-ok"),
    ]
    assert [one.is_trouble for one in ordered] == [True] * 6 + [False]


@pytest.mark.parametrize(
    ("queue", "refuses"),
    [
        (REFUSES, True),
        (LOSES, False),
        (failing(depth=10, capacity=10), True),
        # It discards nothing until the next attempt has failed.
        (failing(first_loss_due_time=Moment(NOW + 9), **FULL), True),
        (failing(first_loss_due_time=Moment(NOW), **FULL), False),
        (told(rate_limit=LIMIT, **FULL), True),
        (told(suspended=True, depth=9, capacity=10), False),
        (told(**FULL), False),
        (told(draining=True, **FULL), False),
    ],
)
def test_a_full_queue_that_discards_nothing_refuses_publishers(
    queue: QueueStatus, refuses: bool
) -> None:
    one = found(queue)
    assert one.refuses is refuses
    assert one.why.startswith("full; publishers are refused") is refuses


def test_the_oldest_first() -> None:
    ordered = sorted(map(found, QUEUES), key=ORDERS["oldest"])
    assert ordered[0].queue.name == "b-slow"


def test_a_start_that_waits_is_told_instead_of_queues() -> None:
    assert summary([], starting="it waits for b\n") == (
        "nothing is delivered yet: it waits for b\\u000a"
    )


@pytest.mark.parametrize(
    ("queues", "text"),
    [
        ([], "no destinations are configured"),
        ([told()], "1 destination without trouble"),
        (
            [told("a"), told("b", first_loss_due_time=Moment(NOW))],
            "2 destinations without trouble; the first loss is due now, at b",
        ),
        ([failing(), told("b")], "1 of 2 destinations has trouble"),
        (QUEUES, "8 of 9 destinations have trouble; the first loss is due in 30 s, at g-failing"),
        (
            [failing("a", first_loss_due_time=Moment(NOW)), LOSES],
            "2 of 2 destinations have trouble; loses loses indications now",
        ),
        (
            [failing(first_loss_due_time=Moment(NOW + 40)), REFUSES],
            "2 of 2 destinations have trouble; refuses is full, so publishers are refused; the"
            " first loss is due in 40 s, at siem",
        ),
        (
            [REFUSES, LOSES],
            "2 of 2 destinations have trouble; refuses is full, so publishers are refused; loses"
            " loses indications now",
        ),
    ],
)
def test_the_summary_counts_the_trouble_and_names_the_first_loss(
    queues: list[QueueStatus], text: str
) -> None:
    assert summary(list(map(found, queues))) == text
