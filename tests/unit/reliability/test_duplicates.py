"""The memory of identities (S1.2, S1.3, S1.8)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.reliability.duplicates import DuplicateMemory, Original
from pillion_sidecar.reliability.identity import identity_digest, sequence_digest
from pillion_sidecar.testing import FakeTime
from support.journal_owner import restore_each


def digest(identifier: str, source: str = "s") -> bytes:
    found = identity_digest(source, identifier)
    assert found is not None
    return found


def remember(
    memory: DuplicateMemory,
    time: FakeTime,
    identifier: str,
    *,
    expires_in: float | None = None,
    pending: bool = True,
) -> None:
    expires_at = None if expires_in is None else time.monotonic() + expires_in
    memory.add(digest(identifier), time.monotonic(), expires_at=expires_at, pending=pending)


def make(time: FakeTime, *, window: float = 3600, capacity: int = 100) -> DuplicateMemory:
    return DuplicateMemory(clock=time, window_seconds=window, capacity=capacity)


def test_source_and_identifier_are_kept_apart() -> None:
    assert digest("bc", "a") != digest("c", "ab")
    assert sequence_digest("a", "1", 2) != sequence_digest("a", "", 12)
    assert sequence_digest(None, "c", 1) != sequence_digest("c", "c", 1)


@pytest.mark.parametrize(("source", "identifier"), [(None, "a"), ("s", None), (None, None)])
def test_without_source_or_identifier_there_is_no_identity(
    source: str | None, identifier: str | None
) -> None:
    assert identity_digest(source, identifier) is None


def test_an_identity_is_known_just_inside_the_window_and_not_just_beyond(
    fake_time: FakeTime,
) -> None:
    memory = make(fake_time, window=86_400)
    remember(memory, fake_time, "a")
    fake_time.advance(86_399.9)
    assert memory.find(digest("a")) is not None
    fake_time.advance(0.3)
    assert memory.find(digest("a")) is None


def test_without_a_window_only_an_identity_with_expires_is_remembered(fake_time: FakeTime) -> None:
    memory = make(fake_time, window=0)
    remember(memory, fake_time, "a")
    remember(memory, fake_time, "b", expires_in=10)
    assert memory.find(digest("a")) is None
    assert memory.find(digest("b")) is not None


@pytest.mark.parametrize("seconds", [10, 100_000])
def test_expires_counts_instead_of_the_window(fake_time: FakeTime, seconds: float) -> None:
    memory = make(fake_time, window=3600)
    remember(memory, fake_time, "a", expires_in=seconds)
    fake_time.advance(seconds - 1)
    assert memory.find(digest("a")) is not None
    fake_time.advance(2)
    assert memory.find(digest("a")) is None


def test_what_was_forgotten_can_be_remembered_anew(fake_time: FakeTime) -> None:
    memory = make(fake_time, window=10)
    remember(memory, fake_time, "a")
    fake_time.advance(11)
    assert memory.find(digest("a")) is None
    remember(memory, fake_time, "a", pending=False)
    assert memory.find(digest("a")) == Original(pending=False)
    memory.forget(digest("a"))
    assert memory.find(digest("a")) is None


def test_a_full_memory_forgets_the_oldest_and_counts_it(fake_time: FakeTime) -> None:
    memory = make(fake_time, capacity=3)
    for identifier in "abcd":
        remember(memory, fake_time, identifier)
    assert memory.find(digest("a")) is None
    assert all(memory.find(digest(identifier)) is not None for identifier in "bcd")
    assert (memory.entries, memory.evictions) == (3, 1)


def test_what_expired_gives_way_uncounted(fake_time: FakeTime) -> None:
    memory = make(fake_time, window=10, capacity=3)
    for identifier in "abc":
        remember(memory, fake_time, identifier)
    fake_time.advance(11)
    remember(memory, fake_time, "d")
    assert (memory.entries, memory.evictions) == (1, 0)


def test_a_large_memory_holds_its_capacity_and_stays_bounded(fake_time: FakeTime) -> None:
    memory = make(fake_time, capacity=2_000)
    for number in range(20_000):
        remember(memory, fake_time, str(number))
    known = sum(memory.find(digest(str(n))) is not None for n in range(18_000, 20_000))
    assert known >= 1_990
    assert 2_000 <= memory.entries <= 4_000
    assert memory.entries + memory.evictions == 20_000


def test_another_capacity_forgets_nothing_that_was_remembered(fake_time: FakeTime) -> None:
    memory = make(fake_time, window=100, capacity=100)
    remember(memory, fake_time, "a")
    memory.configure(window_seconds=10, capacity=100_000)
    remember(memory, fake_time, "b")
    fake_time.advance(50)
    assert memory.find(digest("a")) is not None
    assert memory.find(digest("b")) is None
    fake_time.advance(51)
    assert memory.find(digest("a")) is None
    assert memory.entries == 1


class Told:
    """A waiter that notes what it is told."""

    def __init__(self) -> None:
        self.originals: list[Original] = []

    def original_settled(self, digest: bytes, original: Original) -> None:
        self.originals.append(original)


def indication(identifier: str, *, unsettled: int) -> Indication:
    found = Indication(body=b"{}", class_name="C", accepted_at=0.0, digest=digest(identifier))
    found.unsettled = unsettled
    return found


def test_an_original_is_pending_until_its_last_target_is_settled(fake_time: FakeTime) -> None:
    memory, told = make(fake_time), Told()
    remember(memory, fake_time, "a")
    memory.wait_for(digest("a"), told)
    memory.settled(indication("a", unsettled=1), "siem", None)
    assert memory.find(digest("a")) == Original(pending=True)
    assert told.originals == []
    memory.settled(indication("a", unsettled=0), "noc", None)
    assert memory.find(digest("a")) == Original(pending=False)
    assert told.originals == [Original(pending=False)]


def test_a_discard_stays_whatever_becomes_of_others(fake_time: FakeTime) -> None:
    memory, told = make(fake_time), Told()
    remember(memory, fake_time, "a")
    memory.wait_for(digest("a"), told)
    memory.settled(indication("a", unsettled=1), "siem", DiscardReason.QUEUE_FULL)
    memory.settled(indication("a", unsettled=0), "noc", None)
    discarded = Original(pending=False, destination="siem", reason=DiscardReason.QUEUE_FULL)
    assert memory.find(digest("a")) == discarded
    assert told.originals == [discarded]


@pytest.mark.parametrize("delivered", [True, False])
def test_an_original_that_one_target_discarded_is_pending_for_the_others(
    fake_time: FakeTime, delivered: bool
) -> None:
    memory, told = make(fake_time), Told()
    remember(memory, fake_time, "a")
    memory.wait_for(digest("a"), told)
    if delivered:
        memory.settled(indication("a", unsettled=2), "siem", None)
    memory.settled(indication("a", unsettled=1), "noc", DiscardReason.PURGED)
    found = memory.find(digest("a"))
    assert found == Original(pending=True, destination="noc", reason=DiscardReason.PURGED)
    assert told.originals == []
    memory.settled(indication("a", unsettled=0), "ops", DiscardReason.QUEUE_FULL)
    ended = Original(False, "noc", DiscardReason.PURGED, is_gone=not delivered)
    assert memory.find(digest("a")) == ended
    assert told.originals == [ended]


def test_who_stops_waiting_is_told_nothing(fake_time: FakeTime) -> None:
    memory, first, second = make(fake_time), Told(), Told()
    remember(memory, fake_time, "a")
    memory.wait_for(digest("a"), first)
    memory.wait_for(digest("a"), second)
    memory.stop_waiting(digest("a"), first)
    memory.settled(indication("a", unsettled=0), "siem", None)
    assert (len(first.originals), len(second.originals)) == (0, 1)


# ---------------------------------------------------------------------- offered again


GONE = Original(pending=False, destination="siem", reason=DiscardReason.QUEUE_FULL, is_gone=True)


def lost(memory: DuplicateMemory, time: FakeTime, identifier: str) -> None:
    remember(memory, time, identifier)
    memory.settled(indication(identifier, unsettled=0), "siem", DiscardReason.QUEUE_FULL)


def again(memory: DuplicateMemory, identifier: str) -> Indication:
    one = indication(identifier, unsettled=1)
    one.digest = None
    memory.follow(one, digest(identifier))
    return one


def test_what_is_offered_again_is_pending_and_then_no_longer_gone(fake_time: FakeTime) -> None:
    memory, told = make(fake_time), Told()
    lost(memory, fake_time, "a")
    assert memory.find(digest("a")) == GONE
    one = again(memory, "a")
    assert (one.digest, one.trackers) == (digest("a"), (memory,))
    assert memory.find(digest("a")) == replace(GONE, pending=True, is_gone=False)
    memory.wait_for(digest("a"), told)
    one.unsettled = 0
    memory.settled(one, "siem", None)
    assert memory.find(digest("a")) == replace(GONE, is_gone=False)
    assert told.originals == [replace(GONE, is_gone=False)]


def test_what_is_offered_again_in_vain_is_gone_as_before(fake_time: FakeTime) -> None:
    memory = make(fake_time)
    lost(memory, fake_time, "a")
    one = again(memory, "a")
    memory.settled(one, "siem", DiscardReason.PURGED)
    assert memory.find(digest("a")) == GONE


def test_of_several_targets_the_last_one_settles_what_is_offered_again(
    fake_time: FakeTime,
) -> None:
    memory = make(fake_time)
    lost(memory, fake_time, "a")
    one, other = again(memory, "a"), again(memory, "a")
    memory.settled(one, "siem", DiscardReason.PURGED)
    assert memory.find(digest("a")) == replace(GONE, pending=True, is_gone=False)
    memory.settled(other, "noc", None)
    assert memory.find(digest("a")) == replace(GONE, is_gone=False)


@pytest.mark.parametrize("state", ["unknown", "pending", "delivered"])
def test_another_result_of_an_identity_stays(fake_time: FakeTime, state: str) -> None:
    memory = make(fake_time)
    if state != "unknown":
        remember(memory, fake_time, "a", pending=state == "pending")
    before = memory.find(digest("a"))
    one = again(memory, "a")
    assert (one.digest, one.trackers) == (None, ())
    assert memory.find(digest("a")) == before


# ---------------------------------------------------------------------- over restarts


def restored(memory: DuplicateMemory, identifier: str, **more: Any) -> None:
    known: dict[str, Any] = {
        "accepted_at": -500.0,
        "expires": None,
        "pending": False,
        "reason": None,
        "destination": "",
    }
    memory.restore(digest(identifier), **(known | more))


def test_the_window_of_a_restored_identity_counts_from_its_acceptance(
    fake_time: FakeTime,
) -> None:
    memory = make(fake_time, window=3600)
    restored(memory, "long ago", accepted_at=fake_time.monotonic() - 3601)
    restored(memory, "a", accepted_at=fake_time.monotonic() - 3000)
    assert (memory.find(digest("long ago")), memory.entries) == (None, 1)
    fake_time.advance(599)
    assert memory.find(digest("a")) == Original(pending=False)
    fake_time.advance(2)
    assert memory.find(digest("a")) is None


def test_expires_of_a_restored_identity_counts_instead_of_the_window(fake_time: FakeTime) -> None:
    memory = make(fake_time, window=10)
    fake_time.advance(5)
    restored(memory, "over", expires=fake_time.time() - 6)
    restored(memory, "a", expires=fake_time.time() + 100)
    assert memory.find(digest("over")) is None
    fake_time.advance(99)
    assert memory.find(digest("a")) is not None
    fake_time.advance(2)
    assert memory.find(digest("a")) is None


def test_what_became_of_a_restored_identity_is_known_and_goes_on(fake_time: FakeTime) -> None:
    memory, told = make(fake_time), Told()
    at = fake_time.monotonic() - 1
    restored(memory, "pending", accepted_at=at, pending=True)
    restored(memory, "bad", accepted_at=at, reason=DiscardReason.QUEUE_FULL, destination="siem")
    assert memory.find(digest("pending")) == Original(pending=True)
    bad = Original(pending=False, destination="siem", reason=DiscardReason.QUEUE_FULL, is_gone=True)
    assert memory.find(digest("bad")) == bad
    memory.wait_for(digest("pending"), told)
    memory.settled(indication("pending", unsettled=0), "noc", None)
    assert told.originals == [Original(pending=False)]


def test_what_is_restored_last_of_an_identity_counts(fake_time: FakeTime) -> None:
    memory = make(fake_time)
    at = fake_time.monotonic() - 1
    restored(memory, "a", accepted_at=at, pending=True)
    restored(memory, "a", accepted_at=at, reason=DiscardReason.OUT_OF_ORDER, destination="siem")
    assert memory.entries == 1
    found = memory.find(digest("a"))
    assert found is not None
    assert found.reason is DiscardReason.OUT_OF_ORDER


def test_a_full_memory_keeps_what_was_restored_last(fake_time: FakeTime) -> None:
    memory = make(fake_time, capacity=3)
    for identifier in "abcd":
        restored(memory, identifier, accepted_at=fake_time.monotonic() - 1)
    assert memory.find(digest("a")) is None
    assert (memory.entries, memory.evictions) == (3, 1)
    remember(memory, fake_time, "e")
    assert memory.find(digest("d")) is not None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 12),
            st.floats(0.0, 120.0),
            st.one_of(st.just(0.0), st.floats(1.0, 120.0)),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_identities_restored_together_are_as_if_one_by_one(
    given_ones: list[tuple[int, float, float, bool]],
) -> None:
    time = FakeTime(now=100.0, epoch=100.0)
    together, one_by_one = make(time, window=60, capacity=4), make(time, window=60, capacity=4)
    offset = -5.0
    found = [(digest(str(name)), at, until, pending) for name, at, until, pending in given_ones]
    together.restore_all(found, offset=offset)
    restore_each(one_by_one.restore, found, offset=offset)
    assert (together.entries, together.evictions) == (one_by_one.entries, one_by_one.evictions)
    for seconds in (0, 15, 30, 60):
        time.advance(seconds)
        for name in range(13):
            assert together.find(digest(str(name))) == one_by_one.find(digest(str(name)))


def test_how_an_identity_ended_is_told_to_the_journal(fake_time: FakeTime) -> None:
    memory = make(fake_time, window=10)
    for identifier in ("good", "bad", "pending"):
        remember(memory, fake_time, identifier)
    memory.settled(indication("good", unsettled=0), "siem", None)
    memory.settled(indication("bad", unsettled=1), "noc", DiscardReason.PURGED)
    memory.settled(indication("bad", unsettled=0), "siem", None)
    digests = [digest(one) for one in ("good", "bad", "pending", "never seen")]
    purged = (DiscardReason.PURGED, "noc")
    assert memory.ended(digests) == [(None, ""), purged, (None, ""), None]
    # A table of another size is asked too.
    memory.configure(window_seconds=10, capacity=10_000)
    assert memory.ended(digests) == [(None, ""), purged, (None, ""), None]
    fake_time.advance(11)
    assert memory.ended(digests) == [None] * 4


def test_an_identity_that_expires_while_it_is_asked_for_still_counts(fake_time: FakeTime) -> None:
    memory = make(fake_time, window=10)
    remember(memory, fake_time, "a")
    fake_time.advance(5)
    ready = fake_time.monotonic()
    fake_time.advance(100)
    assert memory.find(digest("a"), ready) is not None
    assert memory.find(digest("a")) is None


# ---------------------------------------------------------------------- what may come again

PURGED, FULL = DiscardReason.PURGED, DiscardReason.QUEUE_FULL


@pytest.mark.parametrize(
    ("ends", "gone"),
    [
        ([PURGED], True),
        ([PURGED, FULL], True),
        ([PURGED, None], False),
        ([None, PURGED], False),
        ([None, PURGED, FULL], False),
        ([PURGED, None, FULL], False),
        ([PURGED, FULL, None], False),
    ],
)
def test_an_identity_is_gone_once_every_target_has_discarded_it(
    fake_time: FakeTime, ends: list[DiscardReason | None], gone: bool
) -> None:
    memory = make(fake_time)
    remember(memory, fake_time, "a")
    for number, reason in enumerate(ends):
        found = memory.find(digest("a"))
        assert found is not None
        assert not found.is_gone
        memory.settled(indication("a", unsettled=len(ends) - number - 1), f"to-{number}", reason)
    found = memory.find(digest("a"))
    assert found is not None
    assert found.is_gone is gone
    # It is told of the first one that did not get it.
    first = next(number for number, reason in enumerate(ends) if reason is not None)
    assert (found.reason, found.destination) == (ends[first], f"to-{first}")
    # And the journal need not remember what may come again.
    assert (memory.ended([digest("a")]) == [None]) is gone


@pytest.mark.parametrize(
    ("pending", "delivered", "gone"),
    [(False, False, True), (False, True, False), (True, False, False), (True, True, False)],
)
def test_an_identity_of_a_run_before_is_gone_where_no_target_has_it(
    fake_time: FakeTime, pending: bool, delivered: bool, gone: bool
) -> None:
    memory = make(fake_time)
    at = fake_time.monotonic() - 1
    known: dict[str, Any] = {"reason": PURGED, "pending": pending, "delivered": delivered}
    restored(memory, "a", accepted_at=at, destination="siem", **known)
    found = memory.find(digest("a"))
    assert found is not None
    assert found.is_gone is gone
    memory.settled(indication("a", unsettled=0), "noc", FULL)
    found = memory.find(digest("a"))
    assert found is not None
    assert found.is_gone is not delivered


LOST = Original(pending=False, destination="siem", reason=DiscardReason.QUEUE_FULL)


def test_what_is_offered_again_is_pending_until_it_is_concluded(fake_time: FakeTime) -> None:
    memory, told = make(fake_time), Told()
    lost = {"reason": LOST.reason, "destination": "siem", "delivered": True}
    restored(memory, "a", accepted_at=fake_time.monotonic(), **lost)
    # The identity outlives a change of the capacity.
    memory.configure(window_seconds=3600, capacity=10_000)
    memory.reopen(digest("a"))
    assert memory.find(digest("a")) == replace(LOST, pending=True)
    memory.wait_for(digest("a"), told)
    again = replace(LOST, destination="noc")
    memory.conclude(digest("a"), again)
    assert memory.find(digest("a")) == again
    memory.reopen(digest("a"))
    memory.conclude(digest("a"), Original(pending=False))
    assert memory.find(digest("a")) == Original(pending=False)
    assert told.originals == [again]


def test_a_conclusion_changes_no_later_indication_of_the_identity(fake_time: FakeTime) -> None:
    memory, told = make(fake_time), Told()
    lost = {"reason": LOST.reason, "destination": "siem", "delivered": True}
    restored(memory, "a", accepted_at=fake_time.monotonic(), **lost)
    memory.reopen(digest("a"))
    fake_time.advance(3601)
    assert memory.find(digest("a")) is None
    remember(memory, fake_time, "a")
    memory.wait_for(digest("a"), told)
    memory.conclude(digest("a"), LOST)
    assert memory.find(digest("a")) == Original(pending=True)
    assert told.originals == []


@pytest.mark.parametrize(
    ("result", "left"),
    [
        ({"pending": True}, {"pending": True, "is_gone": False}),
        ({}, {"is_gone": False}),
        ({"reason": DiscardReason.PURGED, "destination": "noc"}, {}),
    ],
)
def test_a_restored_repeat_continues_the_result_of_its_original(
    fake_time: FakeTime, result: dict[str, Any], left: dict[str, Any]
) -> None:
    memory, at = make(fake_time), fake_time.monotonic() - 1
    reason = DiscardReason.QUEUE_FULL
    restored(memory, "a", accepted_at=at, reason=reason, destination="siem")
    restored(memory, "a", accepted_at=at, repeat=True, **result)
    assert memory.find(digest("a")) == replace(GONE, **left)


def test_a_restored_repeat_does_not_change_what_was_accepted_anew(fake_time: FakeTime) -> None:
    memory, at = make(fake_time), fake_time.monotonic() - 1
    restored(memory, "a", accepted_at=at)
    restored(memory, "a", accepted_at=at, repeat=True, reason=DiscardReason.PURGED)
    assert memory.find(digest("a")) == Original(pending=False)
