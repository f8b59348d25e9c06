"""The spells in which a destination was suspended."""

from pillion_sidecar.delivery.health import REMEMBERED_PAUSES, Pauses


def test_what_is_remembered_is_bounded_and_only_ever_lengthens_a_lifetime():
    pauses = Pauses()
    for number in range(3 * REMEMBERED_PAUSES):
        pauses.begin(10.0 * number)
        pauses.finish(10.0 * number + 1.0)
    assert len(pauses.spells) == REMEMBERED_PAUSES
    assert pauses.since(0.0) >= 3 * REMEMBERED_PAUSES
    # The latest are still exact.
    assert pauses.since(10.0 * (3 * REMEMBERED_PAUSES - 2)) == 2.0


def test_a_pause_counts_from_the_moment_that_is_asked_for():
    pauses = Pauses()
    pauses.begin(10.0)
    pauses.finish(20.0)
    assert (pauses.since(0.0), pauses.since(15.0), pauses.since(20.0)) == (10.0, 5.0, 0.0)
