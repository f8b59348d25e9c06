"""Pauses double up to a bound, and patience ends when nothing gets better."""

import pytest

from pyspark_pillion.errors import DelivererUnavailableError
from pyspark_pillion.sending import LONGEST_PAUSE, Patience
from support.publisher import FakePace


def test_pauses_double_up_to_the_longest(pace: FakePace) -> None:
    patience = Patience(seconds=1000, pace=pace)
    for _ in range(10):
        patience.pause("refused")

    assert pace.slept[:4] == [0.1, 0.2, 0.4, 0.8]
    assert pace.slept[-1] == LONGEST_PAUSE
    assert patience.pauses == 10


def test_a_pause_is_as_long_as_the_deliverer_asked_for(pace: FakePace) -> None:
    Patience(seconds=100, pace=pace).pause("busy", at_least=7.0)

    assert pace.slept == [7.0]


def test_patience_ends_naming_the_trouble(pace: FakePace) -> None:
    patience = Patience(seconds=1.0, pace=pace)

    def be_patient() -> None:
        for _ in range(100):
            patience.pause("refused")

    with pytest.raises(DelivererUnavailableError, match=r"for 1 of 1 s .*retrySeconds.*: refused"):
        be_patient()
    assert sum(pace.slept) == pytest.approx(1.0)


def test_patience_does_not_wait_for_what_it_will_not_see(pace: FakePace) -> None:
    with pytest.raises(DelivererUnavailableError):
        Patience(seconds=5, pace=pace).pause("closed", at_least=6)

    assert pace.slept == []


def test_progress_renews_patience(pace: FakePace) -> None:
    patience = Patience(seconds=1.0, pace=pace)
    for _ in range(50):
        patience.pause("busy", at_least=0.9)
        patience.progress()

    assert len(pace.slept) == 50
