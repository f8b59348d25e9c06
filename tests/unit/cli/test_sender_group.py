"""A message group at its sender (S1.10)."""

from dataclasses import dataclass

import pytest

from pillion_cli.group_publisher import Moment, SenderGroup, Termination
from pillion_sidecar.testing import FakeTime


@dataclass
class Clocks:
    time: FakeTime

    @property
    def now(self) -> Moment:
        return Moment(self.time.monotonic(), self.time.time())

    def group(
        self, *, ordered: bool = True, expires: float | None = None, max_idle: float | None = None
    ) -> SenderGroup:
        return SenderGroup(
            "g",
            ordered=ordered,
            expires=None if expires is None else self.time.time() + expires,
            max_idle_seconds=max_idle,
        )


@pytest.fixture
def clocks(fake_time: FakeTime) -> Clocks:
    return Clocks(fake_time)


def test_members_are_numbered_in_the_order_in_which_they_are_sent(clocks: Clocks) -> None:
    group = clocks.group(max_idle=10)
    assert list(group.send(3, last=False, now=clocks.now)) == [0, 1, 2]
    assert list(group.send(2, last=True, now=clocks.now)) == [3, 4]
    assert group.last == 4
    assert group.missing == {0, 1, 2, 3, 4}
    reason = group.refusal(clocks.now)
    assert reason is not None
    assert "last message" in reason


@pytest.mark.parametrize(
    ("timed", "termination"),
    [
        ({"expires": 100}, Termination.COMPLETE),
        ({"max_idle": 100}, Termination.COMPLETE),
        ({}, Termination.COMPLETE_UNTIMED),
    ],
)
@pytest.mark.parametrize("ordered", [True, False])
def test_t3_1_and_t4_a_group_ends_with_the_last_acknowledgement_and_not_with_the_last_message(
    clocks: Clocks, ordered: bool, timed: dict[str, float], termination: Termination
) -> None:
    group = clocks.group(ordered=ordered, **timed)
    numbers = group.send(2, last=True, now=clocks.now)
    group.acknowledge(numbers[1:], clocks.now)
    assert group.terminated is None
    group.acknowledge(numbers[:1], clocks.now)
    assert group.terminated is termination


def test_t1_a_group_ends_when_it_expires(clocks: Clocks) -> None:
    group = clocks.group(expires=100)
    group.acknowledge(group.send(1, last=False, now=clocks.now), clocks.now)
    clocks.time.advance(99)
    assert group.refusal(clocks.now) is None
    clocks.time.advance(1)
    reason = group.refusal(clocks.now)
    assert reason is not None
    assert "expired" in reason
    assert group.terminated is Termination.EXPIRED
    assert group.send_again(clocks.now) is not None


def test_t2_the_idle_time_counts_between_two_sent_messages(clocks: Clocks) -> None:
    group = clocks.group(max_idle=10)
    for _ in range(3):
        group.acknowledge(group.send(1, last=False, now=clocks.now), clocks.now)
        clocks.time.advance(10)
        assert group.refusal(clocks.now) is None
    group.send(1, last=False, now=clocks.now)
    clocks.time.advance(6)
    assert group.send_again(clocks.now) is None
    clocks.time.advance(6)
    assert group.refusal(clocks.now) is None
    clocks.time.advance(5)
    reason = group.refusal(clocks.now)
    assert reason is not None
    assert "10 s" in reason
    assert group.terminated is Termination.IDLE
    assert "t2" in str(group.send_again(clocks.now))


def test_where_it_has_both_the_group_expires_and_may_be_idle(clocks: Clocks) -> None:
    group = clocks.group(expires=100, max_idle=10)
    group.send(1, last=False, now=clocks.now)
    clocks.time.advance(50)
    assert group.refusal(clocks.now) is None
    clocks.time.advance(50)
    assert group.advance(clocks.now) is Termination.EXPIRED


def test_t3_2_an_incomplete_group_ends_by_its_criterion(clocks: Clocks) -> None:
    for timed, termination in (
        ({"expires": 10.0}, Termination.EXPIRED),
        ({"max_idle": 9.0}, Termination.IDLE),
    ):
        group = clocks.group(**timed)
        group.acknowledge(list(group.send(2, last=True, now=clocks.now))[1:], clocks.now)
        group.end()
        assert group.terminated is None
        clocks.time.advance(10)
        assert group.advance(clocks.now) is termination


def test_t4_2_an_incomplete_group_without_criterion_ends_with_the_last_try(clocks: Clocks) -> None:
    group = clocks.group(ordered=False)
    group.acknowledge(list(group.send(2, last=True, now=clocks.now))[1:], clocks.now)
    assert group.terminated is None
    group.end()
    assert group.terminated is Termination.CUT_SHORT


def test_d3_without_a_criterion_an_ordered_group_waits_for_each_acknowledgement(
    clocks: Clocks,
) -> None:
    group = clocks.group()
    numbers = group.send(1, last=False, now=clocks.now)
    reason = group.refusal(clocks.now)
    assert reason is not None
    assert "acknowledgement" in reason
    group.acknowledge(numbers, clocks.now)
    assert group.refusal(clocks.now) is None
    for other in (
        clocks.group(ordered=False),
        clocks.group(expires=10),
        clocks.group(max_idle=10),
    ):
        other.send(1, last=False, now=clocks.now)
        assert other.refusal(clocks.now) is None


def test_d1_the_fault_is_asked_for_when_the_group_has_expired_and_acknowledgements_are_missing(
    clocks: Clocks,
) -> None:
    group = clocks.group(expires=100)
    numbers = group.send(2, last=False, now=clocks.now)
    clocks.time.advance(30)
    assert group.poll_in(clocks.now) == 70
    group.acknowledge(numbers[:1], clocks.now)
    clocks.time.advance(80)
    assert group.poll_in(clocks.now) == 0
    group.acknowledge(numbers[1:], clocks.now)
    assert group.poll_in(clocks.now) is None


def test_d2_the_fault_is_asked_for_after_the_idle_time_from_the_last_acknowledgement(
    clocks: Clocks,
) -> None:
    group = clocks.group(max_idle=10)
    numbers = group.send(2, last=False, now=clocks.now)
    assert group.poll_in(clocks.now) == 10
    clocks.time.advance(4)
    group.acknowledge(numbers[:1], clocks.now)
    clocks.time.advance(3)
    group.send(1, last=False, now=clocks.now)
    assert group.poll_in(clocks.now) == 7
    clocks.time.advance(8)
    assert group.poll_in(clocks.now) == 0


def test_nothing_is_asked_for_where_no_order_is_kept_or_nothing_can_be_known(
    clocks: Clocks,
) -> None:
    for group in (clocks.group(ordered=False, max_idle=10), clocks.group()):
        group.send(1, last=False, now=clocks.now)
        assert group.poll_in(clocks.now) is None
    assert clocks.group(max_idle=10).poll_in(clocks.now) is None


def test_a_sequence_is_broken_where_a_message_was_acknowledged_behind_one_that_was_not(
    clocks: Clocks,
) -> None:
    group = clocks.group(max_idle=10)
    numbers = group.send(3, last=False, now=clocks.now)
    assert not group.is_broken
    group.acknowledge(numbers[:1], clocks.now)
    assert not group.is_broken
    group.acknowledge(numbers[2:], clocks.now)
    assert group.is_broken
    group.acknowledge((), clocks.now)
    group.acknowledge(numbers[1:2], clocks.now)
    assert not group.is_broken


def test_after_a_fault_no_message_of_the_group_is_sent_and_the_first_reason_stays(
    clocks: Clocks,
) -> None:
    group = clocks.group(max_idle=10)
    group.send(1, last=False, now=clocks.now)
    group.fail("line 1 was discarded")
    group.fail("line 2 was discarded")
    assert group.refusal(clocks.now) == group.send_again(clocks.now) == "line 1 was discarded"
    group.end()
    assert group.advance(clocks.now) is Termination.FAILED
