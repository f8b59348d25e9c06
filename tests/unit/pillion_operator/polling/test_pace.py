import math

import pytest

from pillion_operator.polling.pace import (
    CALM,
    HURRY_FIRST,
    HURRY_FOR,
    HURRY_MOST,
    JITTER,
    LOST_FIRST,
    LOST_MOST,
    Pace,
    calm,
    fair_share,
    jittered,
)


def test_the_calm_interval_stretches_with_the_number_of_pods() -> None:
    assert calm(0, share=math.inf) == calm(10, share=math.inf) == CALM
    alone = fair_share([5000], rate=100)
    assert calm(5000, share=alone) == 100.0
    # Half of the rate is left for those that are not calm.
    assert 5000 / calm(5000, share=alone) == 50.0


def test_there_is_enough_for_a_few() -> None:
    assert fair_share([]) == math.inf
    assert fair_share([500], rate=100, least=10.0) == math.inf
    assert fair_share([250, 250], rate=100, least=10.0) == math.inf


def test_many_pods_stretch_the_interval_of_their_own_namespace_alone() -> None:
    counts = [10_000, 10, 200]
    share = fair_share(counts, rate=100, least=10.0)

    # What the small ones do not take of their parts is the large one's.
    assert share == 50.0 - 1.0 - 20.0
    assert [calm(count, share=share) for count in counts] == [10_000 / 29.0, CALM, CALM]


def test_large_namespaces_have_equal_parts_of_what_the_small_ones_leave() -> None:
    counts = [4000, 10, 2000, 3000]
    share = fair_share(counts, rate=100, least=10.0)

    assert share == pytest.approx(49.0 / 3)
    taken = sum(count / calm(count, share=share) for count in counts)
    assert taken == pytest.approx(50.0)


def test_who_is_behind_is_asked_often_and_then_less_so() -> None:
    pace = Pace(0.0)
    pace.hurry(100.0)

    waits = [pace.after_report(behind=True, now=101.0, calm=CALM) for _ in range(5)]

    assert waits == [HURRY_FIRST, 0.5, HURRY_MOST, HURRY_MOST, HURRY_MOST]


def test_who_stays_behind_is_asked_calmly_in_the_end() -> None:
    pace = Pace(0.0)
    pace.hurry(100.0)

    assert pace.after_report(behind=True, now=100.0 + HURRY_FOR, calm=CALM) == CALM


def test_who_has_caught_up_is_calm_and_begins_anew_next_time() -> None:
    pace = Pace(1000.0)
    for _ in range(4):
        pace.after_report(behind=True, now=1.0, calm=CALM)

    assert pace.after_report(behind=False, now=2.0, calm=CALM) == CALM
    assert pace.after_report(behind=True, now=3.0, calm=CALM) == HURRY_FIRST


def test_who_is_silent_is_asked_more_and_more_rarely() -> None:
    pace = Pace(0.0)

    waits = [pace.after_silence(calm=CALM) for _ in range(9)]

    assert waits == [LOST_FIRST, 2.0, 4.0, 8.0, 16.0, 32.0, LOST_MOST, LOST_MOST, LOST_MOST]
    assert pace.after_report(behind=False, now=0.0, calm=CALM) == CALM
    assert pace.after_silence(calm=CALM) == LOST_FIRST


def test_who_is_silent_among_very_many_is_not_asked_more_often_than_the_others() -> None:
    pace = Pace(0.0)

    assert [pace.after_silence(calm=300.0) for _ in range(12)][-1] == 300.0


def test_waits_are_shortened_at_random() -> None:
    assert jittered(10.0, lambda: 0.0) == 10.0
    assert jittered(10.0, lambda: 0.5) == 10.0 * (1 - JITTER / 2)
