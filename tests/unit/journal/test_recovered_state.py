"""What a restart finds beside the entries: names, queues, groups, times, and what is lost."""

import pytest

from pillion_sidecar.indication import DiscardReason, GroupMember, Relayed
from pillion_sidecar.journal.identities import (
    StoredIdentity,
    pack_identities,
    write_identities,
)
from pillion_sidecar.journal.ports import RecoveredSubscription
from pillion_sidecar.journal.records import DELIVERED, LOST, REASON_CODES, THROUGH, Flag, Names
from pillion_sidecar.journal.scan import FindingKind
from pillion_sidecar.journal.segments import Header, segment_name
from pillion_sidecar.testing import FakeTime
from support.journal_checks import Identities, columns, open_again
from support.journal_files import JOURNAL_ID, Hand, MemoryFiles, queue_state

PURGED = REASON_CODES[DiscardReason.PURGED]


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def hand(files: MemoryFiles) -> Hand:
    return Hand(files)


def test_an_empty_folder_is_a_new_journal(files: MemoryFiles) -> None:
    recovery = open_again(files)
    assert recovery.journal_id == b"n" * 16
    assert (recovery.next_id, recovery.next_segment, recovery.next_commit) == (1, 1, 1)
    assert (recovery.next_destination, recovery.next_subscription) == (0, 0)
    assert not recovery.recovered.damaged
    assert files.changes == 0


def test_a_journal_goes_on_where_it_was(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    hand.indication([hand.place(1)])
    hand.commit()
    recovery = open_again(files)
    assert recovery.journal_id == JOURNAL_ID
    assert (recovery.next_id, recovery.next_segment, recovery.next_commit) == (2, 2, 3)
    assert (recovery.next_destination, recovery.next_subscription) == (4, 4)
    assert recovery.destinations[3] == ("uid-3", "destination-3")
    assert recovery.recovered.subscriptions[2] == RecoveredSubscription("sub-2", "s2", "f2")
    assert recovery.recovered.next_epoch == 7
    queue = recovery.recovered.queues[1]
    assert (queue.uid, queue.name, queue.index) == ("uid-1", "destination-1", 1)


def test_names_that_come_later_are_known(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    hand.names = Names(((9, "uid-9", "nine"),), ((8, "sub-8", "eight", "f"),))
    hand.name()
    recovery = open_again(files)
    assert recovery.destinations[9] == ("uid-9", "nine")
    assert (recovery.next_destination, recovery.next_subscription) == (10, 9)


def test_the_last_state_of_a_queue_counts(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    hand.state(queue_state(1, epoch=3, next_number=5))
    hand.state(queue_state(2, epoch=11))
    hand.roll()
    hand.commit()
    hand.state(queue_state(1, epoch=9, next_number=20))
    hand.remove(1)
    recovery = open_again(files)
    queues = recovery.recovered.queues
    assert queues[1].state == queue_state(1, epoch=9, next_number=20)
    assert queues[2].state == queue_state(2, epoch=11)
    assert queues[3].state is None
    assert [queues[index].next_number for index in (1, 2, 3)] == [20, 0, 0]
    assert recovery.recovered.next_epoch == 12


def test_a_number_whose_record_is_gone_is_never_given_again(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    hand.settle((1, THROUGH, 40), (2, DELIVERED, 50), (3, PURGED, 60))
    queues = open_again(files).recovered.queues
    assert {index: queue.next_number for index, queue in queues.items()} == {
        0: 0,
        1: 41,
        2: 51,
        3: 61,
    }


def test_an_index_whose_name_is_lost_is_never_given_again(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    hand.indication([hand.place(30, 40)])
    recovery = open_again(files)
    assert (recovery.next_destination, recovery.next_subscription) == (31, 41)
    assert recovery.recovered.queues[30].name == ""


def test_two_places_at_one_destination_are_two_entries(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    written = hand.indication([hand.place(1, 0), hand.place(1, 1)])
    assert open_again(files).shared == {written.id: 2}
    hand.settle((1, DELIVERED, 0))
    recovery = open_again(files)
    assert columns(recovery) == {1: [(1, written.id, written.position, 1)]}
    assert recovery.shared == {}


# ---------------------------------------------------------------------- time


def test_records_of_one_destination_are_found_among_those_of_several(
    files: MemoryFiles, hand: Hand
) -> None:
    hand.commit()
    settled, pair, single = hand.place(1), [hand.place(1), hand.place(2)], hand.place(1)
    hand.indication([settled], digest=b"a" * 16)
    hand.settle((1, DELIVERED, settled.number))
    first = hand.indication(pair, digest=b"b" * 16)
    second = hand.indication([single], digest=b"c" * 16)
    identities = Identities()
    recovery = open_again(files, identities)
    assert [number for number, *_ in columns(recovery)[1]] == [pair[0].number, single.number]
    assert [one for _, one, *_ in columns(recovery)[1]] == [first.id, second.id]
    pending = {digest[:1]: is_pending for digest, (is_pending, _) in identities.found.items()}
    assert pending == {b"a": False, b"b": True, b"c": True}


def test_journal_time_never_goes_back(files: MemoryFiles, hand: Hand) -> None:
    hand.time = 1_800_000_000.0
    hand.commit()
    clock = FakeTime(now=50.0, epoch=1_700_000_000.0)
    recovery = open_again(files, clock=clock)
    assert recovery.offset + clock.monotonic() == hand.time
    later = FakeTime(now=50.0, epoch=1_900_000_000.0)
    assert open_again(files, clock=later).offset + later.monotonic() == 1_900_000_000.0


def test_times_are_told_on_the_clock_of_this_run(files: MemoryFiles, hand: Hand) -> None:
    hand.time = 1_700_000_000.0 - 60
    hand.commit()
    member = GroupMember(sequence=4)
    hand.indication([hand.place(1)], digest=b"d" * 16, member=member)
    hand.hold([hand.place(1)])
    identities = Identities()
    recovery = open_again(files, identities, clock=FakeTime(now=10.0))
    assert identities.times[b"d" * 16] == (-49.0, None, "")
    assert [record.accepted_at for record in recovery.recovered.members] == [-49.0]
    assert [held.accepted_at for held, _ in recovery.recovered.held] == [-49.0]


def test_a_relayed_one_was_accepted_before_it_came(files: MemoryFiles, hand: Hand) -> None:
    hand.time = 1_700_000_000.0 - 60
    hand.commit()
    member, until = GroupMember(sequence=4), 1_800_000_000.0
    # The commit came a second later; this one 100 seconds after its acceptance.
    relayed = Relayed(100.0, until)
    hand.indication(
        [hand.place(1)], digest=b"d" * 16, member=member, relayed=relayed, expires=1_600_000_000.0
    )
    hand.indication([hand.place(1)], flags=Flag.HELD, kind="hold", relayed=relayed)
    identities = Identities()
    recovery = open_again(files, identities, clock=FakeTime(now=10.0))
    # Its identity is remembered from when it came, its lifetime and its group count from before.
    assert identities.times[b"d" * 16] == (51.0, until, "")
    (record,) = recovery.recovered.members
    assert (record.accepted_at, record.relayed_at) == (-49.0, 51.0)
    assert record.expires == 1_600_000_000.0
    ((held, _),) = recovery.recovered.held
    assert (held.accepted_at, held.expires) == (-49.0, None)
    assert held.relayed == Relayed(51.0, until)


# ---------------------------------------------------------------------- groups


def test_groups_are_given_back_with_the_members_since(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    hand.indication([hand.place(1)], member=GroupMember(sequence=0))
    hand.roll(groups=b"the groups")
    hand.commit()
    second = hand.indication([], member=GroupMember(sequence=1))
    third = hand.hold([hand.place(1)])
    fourth = hand.indication([hand.place(1)], member=GroupMember(sequence=3, last=True))
    hand.indication([hand.place(1)], member=GroupMember(sequence=3, last=True), origin=third.id)
    hand.copy_forward()
    recovered = open_again(files).recovered
    assert recovered.groups == b"the groups"
    assert [(one.id, one.group, one.member.sequence) for one in recovered.members] == [
        (second.id, "group", 1),
        (fourth.id, "group", 3),
    ]


def test_without_the_newest_snapshot_groups_come_from_the_one_before(
    files: MemoryFiles, hand: Hand
) -> None:
    hand.roll(groups=b"older")
    hand.commit()
    first = hand.indication([hand.place(1)], member=GroupMember(sequence=0))
    hand.roll(groups=b"newer")
    snapshot = hand.written[-1]
    hand.commit()
    second = hand.indication([hand.place(1)], member=GroupMember(sequence=1))
    files.contents[segment_name(snapshot.segment)][snapshot.begin + 40] ^= 1
    recovered = open_again(files).recovered
    assert recovered.groups == b"older"
    assert [one.id for one in recovered.members] == [first.id, second.id]
    assert recovered.damaged


# ---------------------------------------------------------------------- held


def test_a_held_indication_is_whole_again(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    written = hand.hold([hand.place(1, 2), hand.place(2, 3)], digest=b"d" * 16)
    ((held, places),) = open_again(files).recovered.held
    assert (held.id, held.body, held.unsettled) == (written.id, b"body of 1", 2)
    assert (held.position, held.size) == (written.position, written.end - written.begin)
    assert (held.source, held.identifier, held.digest) == ("source", "identifier-1", b"d" * 16)
    assert places == written.places


# ---------------------------------------------------------------------- without bodies


def test_what_had_no_body_is_lost_and_may_come_again(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    lost = hand.indication(
        [hand.place(1), hand.place(1), hand.place(2)], digest=b"l" * 16, flags=Flag.BODILESS
    )
    hand.indication([hand.place(3)], digest=b"s" * 16, flags=Flag.BODILESS)
    hand.settle((3, PURGED, 0))
    held = hand.hold([hand.place(2)], digest=b"h" * 16, flags=Flag.BODILESS)
    identities = Identities()
    recovery = open_again(files, identities)
    recovered = recovery.recovered
    assert recovered.lost == {"destination-1": 2, "destination-2": 2}
    assert recovered.damaged
    assert columns(recovery) == {}
    assert recovered.held == []
    assert identities.found == {b"s" * 16: (False, DiscardReason.PURGED)}
    assert recovery.lost_through == held.id > lost.id
    assert [segment.live for segment in recovery.segments] == [0]


def test_a_loss_that_was_written_down_is_told_once(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    hand.indication([hand.place(1)], digest=b"l" * 16, flags=Flag.BODILESS)
    hand.settle((0, LOST, open_again(files).lost_through))
    identities = Identities()
    recovery = open_again(files, identities)
    assert recovery.recovered.lost == {}
    assert not recovery.recovered.damaged
    assert recovery.lost_through == 0
    assert identities.found == {}
    again = hand.indication([hand.place(1)], digest=b"l" * 16, flags=Flag.BODILESS)
    recovery = open_again(files)
    assert recovery.recovered.lost == {"destination-1": 1}
    assert recovery.lost_through == again.id


def test_what_was_lost_is_not_delivered_by_what_comes_after(files: MemoryFiles, hand: Hand) -> None:
    hand.commit()
    hand.indication([hand.place(1)], digest=b"d" * 16, flags=Flag.BODILESS)
    hand.settle((1, THROUGH, 0))
    for digest in (b"l" * 16, b"m" * 16):
        lost = hand.indication([hand.place(1)], digest=digest, flags=Flag.BODILESS)
        hand.settle((0, LOST, lost.id))
        hand.indication([hand.place(1)], digest=digest[:8] + bytes(8), flags=Flag.BODILESS)
        hand.settle((1, THROUGH, hand.numbers[1] - 1))
    identities = Identities()
    recovery = open_again(files, identities)
    assert set(identities.found) == {b"d" * 16, b"l" * 8 + bytes(8), b"m" * 8 + bytes(8)}
    assert recovery.recovered.lost == {}


# ---------------------------------------------------------------------- identities in files


def test_identities_of_removed_segments_are_remembered(files: MemoryFiles, hand: Hand) -> None:
    stored = StoredIdentity(b"a" * 16, 1_700_000_000.0 - 5, 0.0, PURGED, "gone")
    write_identities(files, Header(1, JOURNAL_ID, 0.0), pack_identities([stored]))
    hand.roll()
    hand.remove(1)
    identities = Identities()
    recovery = open_again(files, identities, clock=FakeTime(now=10.0))
    assert identities.found == {b"a" * 16: (False, DiscardReason.PURGED)}
    assert identities.times == {b"a" * 16: (5.0, None, "gone")}
    assert [(file.segment, file.entries) for file in recovery.identities] == [(1, 1)]


def test_a_segment_that_is_still_there_says_its_identities_itself(
    files: MemoryFiles, hand: Hand
) -> None:
    hand.commit()
    hand.indication([], digest=b"a" * 16)
    stored = StoredIdentity(b"a" * 16, hand.time, 0.0, DELIVERED, "")
    write_identities(files, Header(1, JOURNAL_ID, 0.0), pack_identities([stored]))
    recovery = open_again(files)
    assert recovery.identities == ()


def test_a_damaged_file_of_identities_is_written_anew(files: MemoryFiles, hand: Hand) -> None:
    all_stored = [StoredIdentity(bytes([n]) * 16, 5.0, 0.0, DELIVERED, "") for n in range(3)]
    write_identities(files, Header(1, JOURNAL_ID, 0.0), pack_identities(all_stored))
    hand.roll()
    hand.remove(1)
    files.contents["0000000000000001.identities"][-1] ^= 1
    recovery = open_again(files)
    assert [finding.kind for finding in recovery.findings] == [FindingKind.IDENTITIES]
    assert not recovery.recovered.damaged
    assert [file.entries for file in recovery.identities] == [0]
    assert open_again(files).findings == ()
