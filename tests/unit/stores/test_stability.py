"""What the journal keeps for its stores, for how long, and what is forced (S3.3)."""

import logging

import pytest

from pillion_sidecar.stores.stability import MOST_MARKS, ForcedBy, Stability
from pillion_sidecar.testing import FakeTime


class World:
    def __init__(self, time: FakeTime, *, continues: bool = False) -> None:
        self.released = 0
        self.stability = Stability(
            clock=time,
            timers=time,
            lifetime=60,
            flight_size=1000,
            continues=continues,
            base=100,
            last_id=7,
            released=self._release,
        )

    def _release(self) -> None:
        self.released += 1

    def write(self, position: int, last_id: int, *, unstable: int = 0) -> None:
        self.stability.written(position, last_id, unstable=unstable)


@pytest.fixture
def world(fake_time: FakeTime) -> World:
    return World(fake_time)


def forced(world: World, *ids: int) -> list[bool]:
    return [world.stability.forces(one, "purged") for one in ids]


def test_a_discard_is_forced_unless_enough_stores_have_its_record(world: World) -> None:
    assert forced(world, 7) == [True], "nothing is known of the stores yet"
    world.write(200, 9)
    world.write(300, 12)
    world.stability.advance(299, unstable=0)
    assert forced(world, 7, 9, 10, 13) == [False, False, True, True]
    world.stability.advance(300, unstable=0)
    assert forced(world, 12, 13) == [False, True]
    assert world.stability.discards == {"purged": 4}


def test_the_age_is_that_of_the_oldest_write_that_is_not_stable(
    world: World, fake_time: FakeTime
) -> None:
    world.stability.advance(100, unstable=0)
    assert world.stability.age == 0
    world.write(200, 9)
    fake_time.advance(3)
    world.write(300, 9)
    fake_time.advance(4)
    assert world.stability.age == 7
    world.stability.advance(200, unstable=0)
    assert world.stability.age == 4


def test_an_outage_of_any_length_takes_a_bounded_number_of_marks(
    world: World, fake_time: FakeTime
) -> None:
    for number in range(1, 20 * MOST_MARKS):
        world.write(100 + number, 7 + number)
        fake_time.advance(0.001)
    world.stability.advance(100 + 10 * MOST_MARKS, unstable=0)
    # Of what was taken together the last counts, so nothing is called stable that is not.
    assert forced(world, 7 + 10 * MOST_MARKS + 1) == [True]
    assert forced(world, 7 + 5 * MOST_MARKS) == [False]
    assert world.stability.age < 0.001 * 20 * MOST_MARKS


def test_a_segment_waits_until_it_is_stable(world: World) -> None:
    assert world.stability.keeps(unstable=1000, is_crowded=False)
    assert world.released == 0
    world.stability.advance(100, unstable=0)
    world.stability.advance(100, unstable=0)
    assert world.released == 1


def test_a_segment_waits_no_longer_than_the_lifetime(
    world: World, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    fake_time.advance(20)
    assert world.stability.keeps(unstable=10, is_crowded=False)
    fake_time.advance(39)
    assert world.released == 0
    fake_time.advance(1)
    assert world.released == 1
    assert not world.stability.keeps(unstable=10, is_crowded=False)
    world.stability.removed(0xA, unstable=10)
    assert world.stability.segments == {ForcedBy.LIFETIME: 1}
    (record,) = caplog.records
    assert (record.event, record.segment, record.cause) == (  # type: ignore[attr-defined]
        "segment-forced",
        "a",
        "lifetime",
    )


@pytest.mark.parametrize(
    ("unstable", "is_crowded", "cause"),
    [(1001, False, ForcedBy.FLIGHT_SIZE), (10, True, ForcedBy.VOLUME)],
)
def test_a_segment_waits_within_bounds_of_space(
    world: World, unstable: int, is_crowded: bool, cause: ForcedBy
) -> None:
    assert not world.stability.keeps(unstable=unstable, is_crowded=is_crowded)
    world.stability.removed(1, unstable=unstable)
    assert world.stability.segments == {cause: 1}


def test_what_is_accepted_beyond_the_flight_size_is_counted_and_told_of(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pillion.stores")
    world = World(fake_time, continues=True)
    world.write(200, 10, unstable=1000)
    world.write(300, 15, unstable=1001)
    world.write(400, 17, unstable=2000)
    assert world.stability.unprotected == 7
    world.stability.advance(400, unstable=0)
    world.write(500, 18, unstable=0)
    assert world.stability.unprotected == 7
    events = [record.event for record in caplog.records]  # type: ignore[attr-defined]
    assert events == ["flight-exceeded", "flight-back"]


def test_no_timer_outlives_it(world: World, fake_time: FakeTime) -> None:
    world.stability.keeps(unstable=0, is_crowded=False)
    world.stability.close()
    assert fake_time.next_due() is None
