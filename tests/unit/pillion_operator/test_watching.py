"""How kopf is told to watch."""

from itertools import islice

from pillion_operator.watching import FIRST_RETRIES, LATER_RETRIES, watch_settings


def test_a_watch_is_never_given_up_and_soon_tried_again_however_long_the_outage() -> None:
    backoffs = watch_settings().networking.error_backoffs
    assert not isinstance(backoffs, float | int)
    for _ in range(2):
        # Each request begins anew.
        waits = list(islice(backoffs, 1_000))
        assert waits[: len(FIRST_RETRIES)] == list(FIRST_RETRIES)
        assert max(waits) == waits[-1] == LATER_RETRIES
        assert len(waits) == 1_000
