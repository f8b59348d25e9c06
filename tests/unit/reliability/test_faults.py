"""The faults that publishers poll for (S1.4, S1.9)."""

from pillion_sidecar.indication import DiscardReason, GroupMember, Indication
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.publishers import Publishers
from pillion_sidecar.reliability.receipts import Fault, FaultLog, Faults
from pillion_sidecar.testing import FakeTime
from support.intake import target


def fault(name: str) -> Fault:
    return Fault(destination=name, reason=DiscardReason.PURGED)


def names(log: FaultLog, *, after: int = 0, limit: int = 100) -> list[tuple[int, str]]:
    return [(number, one.destination) for number, one in log.after(after, limit=limit)]


def test_a_fault_says_whose_it_is() -> None:
    indication = Indication(
        body=b"{}",
        class_name="C",
        accepted_at=0.0,
        source="s" * 5000,
        identifier="i",
        group="g",
        member=GroupMember(sequence=7, ordered=True),
    )
    made = Fault.of(indication, "siem", DiscardReason.OUT_OF_ORDER)
    assert (made.identifier, made.group, made.sequence) == ("i", "g", 7)
    assert (made.destination, made.reason) == ("siem", DiscardReason.OUT_OF_ORDER)
    assert made.source == "s" * 1024


def test_faults_are_told_from_a_number_on() -> None:
    log = FaultLog(Faults(), 1)
    for name in "abc":
        log.add(fault(name))
    assert names(log) == [(1, "a"), (2, "b"), (3, "c")]
    assert names(log, after=1, limit=1) == [(2, "b")]
    assert names(log, after=3) == names(log, after=99) == []
    assert names(log, limit=0) == []
    assert log.dropped_after(0) == 0


def test_the_oldest_of_one_publisher_give_way_and_are_counted() -> None:
    faults = Faults(maximum=2)
    noisy, quiet = FaultLog(faults, 1), FaultLog(faults, 2)
    quiet.add(fault("q"))
    for name in "abcd":
        noisy.add(fault(name))
    assert names(noisy) == [(3, "c"), (4, "d")]
    assert [noisy.dropped_after(number) for number in range(5)] == [2, 1, 0, 0, 0]
    assert names(quiet) == [(1, "q")]
    assert len(faults) == 3


def test_the_oldest_of_all_give_way_and_are_counted() -> None:
    faults = Faults(maximum_of_all=3)
    first, second = FaultLog(faults, 1), FaultLog(faults, 2)
    first.add(fault("a"))
    second.add(fault("b"))
    first.add(fault("c"))
    second.add(fault("d"))
    assert names(first) == [(2, "c")]
    assert first.dropped_after(0) == 1
    assert names(second) == [(1, "b"), (2, "d")]
    for name in "xyz":
        second.add(fault(name))
    assert names(first) == []
    assert len(faults) == len(second) == 3


def test_what_a_forgotten_publisher_had_takes_no_room() -> None:
    faults = Faults()
    log = FaultLog(faults, 1)
    log.add(fault("a"))
    log.add(fault("b"))
    log.close()
    assert len(faults) == len(log) == 0


def test_a_publisher_that_gives_way_takes_its_faults_along(fake_time: FakeTime) -> None:
    memory = DuplicateMemory(clock=fake_time, window_seconds=100, capacity=100)
    publishers = Publishers(memory=memory, timers=fake_time, clock=fake_time, maximum=1)
    publisher = publishers.meet("one")
    indication = Indication(body=b"{}", class_name="C", accepted_at=0.0, id=1)
    publisher.offering(indication, (target("a"),), 0)
    publisher.settled(indication, "a", DiscardReason.PURGED)
    assert names(publisher.faults) == [(1, "a")]
    publishers.meet("two")
    assert len(publisher.faults) == 0
