import itertools
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pillion_operator.polling.aggregate import (
    DestinationDelivery,
    deliveries,
    delivery_of,
)
from pillion_operator.polling.reports import (
    Answer,
    DelivererReport,
    DeliveryResult,
    QueueReport,
    Unreachable,
)

_PODS = itertools.count()


def report(*queues: QueueReport) -> DelivererReport:
    return DelivererReport(
        pod=f"pod-{next(_PODS)}", revision="r", queues={one.name: one for one in queues}, at=0.0
    )


SENT = QueueReport(
    name="pager",
    depth=1,
    capacity=10,
    high_water=4,
    oldest_indication_time=50.0,
    last_result=DeliveryResult.SUCCESS,
    last_attempt_time=100.0,
)
FAILED = QueueReport(
    name="pager",
    depth=8,
    capacity=10,
    high_water=9,
    oldest_indication_time=20.0,
    last_result=DeliveryResult.ERROR,
    last_cause="refused",
    last_detail="connection refused",
    failing_since=60.0,
    last_attempt_time=90.0,
    next_attempt_time=120.0,
    first_loss_due_time=500.0,
)
IDLE = QueueReport(name="pager", depth=0, capacity=10, high_water=0)


def test_deliverers_are_summed_up() -> None:
    silent = Unreachable(pod="hidden", reason="timed out", since=0.0)
    draining = QueueReport(name="pager", depth=3, capacity=5, high_water=3, draining=True)

    delivery = delivery_of(
        "pager", [report(SENT), report(FAILED), report(IDLE), report(draining), report(), silent]
    )

    assert delivery == DestinationDelivery(
        deliverers=4,
        unreachable=1,
        depth=12,
        high_water=9,
        fullest=0.8,
        oldest_indication_time=20.0,
        last_result=DeliveryResult.SUCCESS,
        next_attempt_time=120.0,
        first_loss_due_time=500.0,
        failing=1,
        delivering=1,
        details=(("refused: connection refused", 1),),
        cause="refused",
        failing_since=60.0,
    )


def test_the_cause_is_the_one_of_most_deliverers_since_the_first_of_them() -> None:
    late = replace(FAILED, last_cause="timeout", failing_since=70.0)
    held = replace(late, hold="refused-address", last_cause="address", failing_since=40.0)
    unknown = replace(FAILED, last_cause="", failing_since=None)
    relays = replace(late, relay_to="hub", last_cause="dns", failing_since=1.0)

    for queues, told in (
        ((FAILED, late, late), ("timeout", 60.0)),
        ((late, FAILED), ("refused", 60.0)),
        ((held, late), ("address", 40.0)),
        ((unknown, SENT, relays), ("", None)),
    ):
        delivery = delivery_of("pager", [report(queue) for queue in queues])
        assert (delivery.cause, delivery.failing_since) == told
    slow = [replace(SENT, slow_since=at, relay_to=to) for at, to in ((9.0, None), (8.0, "hub"))]
    assert delivery_of("pager", [report(queue) for queue in (SENT, *slow)]).slow_since == 8.0
    assert delivery_of("pager", [report(unknown)]).details == (("connection refused", 1),)


def test_a_destination_that_nobody_has_is_nothing() -> None:
    assert delivery_of("pager", [report()]) == DestinationDelivery()
    assert delivery_of("pager", []) == DestinationDelivery()


def test_every_destination_that_is_reported_is_summed_up() -> None:
    other = QueueReport(name="archive", depth=0, capacity=0, high_water=0)

    known = deliveries([report(SENT, other), report(FAILED)])

    assert {name: one.deliverers for name, one in known.items()} == {"archive": 1, "pager": 2}
    assert known["archive"].fullest == 0.0


_MOMENT = st.none() | st.integers(0, 5).map(float)
_QUEUES = st.builds(
    QueueReport,
    name=st.just("pager"),
    depth=st.integers(0, 20),
    capacity=st.integers(0, 20),
    high_water=st.integers(0, 20),
    oldest_indication_time=_MOMENT,
    last_result=st.none() | st.sampled_from(DeliveryResult),
    last_detail=st.sampled_from(["", "HTTP 503", "timed out"]),
    last_cause=st.sampled_from(["", "status", "timeout"]),
    failing_since=_MOMENT,
    last_attempt_time=_MOMENT,
    next_attempt_time=_MOMENT,
    first_loss_due_time=_MOMENT,
    suspended=st.booleans(),
    draining=st.booleans(),
)
_REPORTS = st.lists(
    st.builds(report, _QUEUES)
    | st.builds(report)
    | st.just(Unreachable(pod="hidden", reason="timed out", since=0.0)),
    max_size=6,
)


@given(_REPORTS, st.randoms(use_true_random=False))
def test_the_order_of_the_answers_makes_no_difference(
    reports: list[Answer], random: Random
) -> None:
    whole = delivery_of("pager", reports)

    shuffled = list(reports)
    random.shuffle(shuffled)

    assert delivery_of("pager", shuffled) == whole
    assert deliveries(shuffled).get("pager", whole) == whole
    assert whole.failing + whole.delivering <= whole.deliverers
