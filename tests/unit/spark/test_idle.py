"""When the input of a stream counts as idle, from looks at a key."""

from collections.abc import Sequence

import pytest

from pyspark_pillion.idle import Look, idle_until, look

SILENT = 12


def seen(looks: Sequence[tuple[int, int]]) -> list[int | None]:
    """What each of some looks, watermark and clock, says."""
    found: list[int | None] = []
    last: Look | None = None
    for watermark, clock in looks:
        now = look(last, watermark=watermark, clock=clock, silent=SILENT)
        found.append(idle_until(last, now, silent=SILENT))
        last = now
    return found


def test_the_clock_is_that_of_the_look_before_once_the_watermark_stood_still_for_silent() -> None:
    looks = [(5, clock) for clock in range(100, 117, 2)]
    assert seen(looks) == [None] * 6 + [110, 112, 114]


def test_a_backlog_whose_watermark_moves_is_not_idle() -> None:
    assert seen([(clock // 10, clock) for clock in range(100, 300, 2)]) == [None] * 100


@pytest.mark.parametrize("gap", [4, 40, 4_000])
def test_a_job_that_stood_still_or_was_down_has_to_look_again(gap: int) -> None:
    """A gap counts for a quarter, and nothing is said of what came within the last one."""
    looks = [(5, 100 + place * gap) for place in range(6)]
    assert seen(looks) == [None] * 4 + [100 + place * gap for place in (3, 4)]


def test_after_a_restart_the_first_look_says_what_was_read_before_it() -> None:
    looks = [*((5, clock) for clock in range(100, 117, 2)), (5, 4_000), (9, 4_002)]
    assert seen(looks)[-2:] == [116, None]


def test_a_second_look_within_a_micro_batch_and_a_clock_put_back_say_nothing() -> None:
    looks = [(5, clock) for clock in range(100, 117, 2)]
    assert seen([*looks, (5, 116), (5, 50), (5, 52)])[-3:] == [None, None, 50]
