"""What is found after a restart, against the books kept while it was written."""

from random import Random

import pytest

from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.records import (
    DELIVERED,
    FRAME,
    REASON_CODES,
    THROUGH,
)
from pillion_sidecar.journal.recovery import examine
from pillion_sidecar.journal.scan import FindingKind
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    damaged_name,
    segment_name,
)
from support.journal_checks import Identities, check, columns, open_again
from support.journal_files import (
    JOURNAL_ID,
    Hand,
    MemoryFiles,
    Written,
    books_of,
)

PURGED = REASON_CODES[DiscardReason.PURGED]


def random_history(random: Random, *, steps: int = 60) -> tuple[MemoryFiles, Hand]:
    """Write a journal over several segments, with copies, releases and everything else."""
    files = MemoryFiles()
    hand = Hand(files)
    for step in range(steps):
        if step % 4 == 0:
            hand.commit()
        books = books_of(hand.written)
        _random_step(random, hand, books.columns, sorted(books.held))
        if random.random() < 0.1:
            hand.roll()
        if hand.number - hand.written[0].segment > 2:
            oldest = hand.copy_forward()
            # A crash may come before the segment is removed.
            if random.random() < 0.8 or step < steps - 5:
                hand.remove(oldest)
    return files, hand


def _random_step(
    random: Random,
    hand: Hand,
    pending: dict[int, list[tuple[int, int, int, int]]],
    held: list[int],
) -> None:
    digest = random.randbytes(16) if random.random() < 0.7 else None
    places = [
        hand.place(random.randrange(4), random.randrange(4)) for _ in range(random.randrange(4))
    ]
    match random.choice("aaaatttidhhre"):
        case "t" if pending:
            destination = random.choice(sorted(pending))
            hand.settle((destination, THROUGH, random.choice(pending[destination][:3])[0]))
        case "i" | "d" as how if pending:
            destination = random.choice(sorted(pending))
            ending = DELIVERED if how == "i" else PURGED
            hand.settle((destination, ending, random.choice(pending[destination])[0]))
        case "h":
            hand.hold(places, digest=digest)
        case "r" if held:
            old = random.choice(held)
            digest = next(one.digest for one in hand.written if one.id == old)
            hand.indication(places, digest=digest, origin=old)
        case "e" if held:
            hand.end_hold(random.choice(held), PURGED)
        case _:
            hand.indication(places, digest=digest)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_pending_held_and_remembered_is_found_again(seed: int) -> None:
    files, hand = random_history(Random(seed))
    before = files.copy()
    recovery = check(files, hand.written)
    assert recovery.findings == ()
    assert not recovery.recovered.damaged
    assert files.contents == before.contents


def test_entries_are_ordered_by_their_numbers_after_copies() -> None:
    files = MemoryFiles()
    hand = Hand(files)
    hand.commit()
    first = hand.indication([hand.place(1)])
    hand.roll()
    hand.commit()
    second = hand.indication([hand.place(1)])
    oldest = hand.copy_forward()
    hand.remove(oldest)
    recovery = check(files, hand.written)
    queue = recovery.recovered.queues[1]
    assert list(queue.ids) == [first.id, second.id]
    assert queue.positions[0] > queue.positions[1]


def test_a_copy_stands_for_the_record_that_is_still_there() -> None:
    files = MemoryFiles()
    hand = Hand(files)
    hand.commit()
    hand.indication([hand.place(1), hand.place(2)], digest=b"d" * 16)
    hand.settle((2, PURGED, 0))
    hand.roll()
    hand.copy_forward()
    sink = Identities()
    recovery = open_again(files, sink)
    assert list(recovery.recovered.queues[1].positions) == [hand.written[-1].position]
    assert [segment.live > 0 for segment in recovery.segments] == [False, True]
    # Of both, only the first knows of the place that was discarded.
    assert sink.found == {b"d" * 16: (False, DiscardReason.PURGED)}
    assert sink.times[b"d" * 16][2] == "destination-2"


@pytest.mark.parametrize("rest", [b"", bytes(50), b"\xff" * 50], ids=["cut", "zeros", "garbage"])
def test_a_torn_tail_is_cut_wherever_it_begins(rest: bytes) -> None:
    files, hand = random_history(Random(3), steps=14)
    newest = [one for one in hand.written if one.segment == hand.number]
    name = segment_name(hand.number)
    whole = bytes(files.contents[name])
    older = [one for one in hand.written if one.segment != hand.number]
    for cut in range(len(whole) + 1):
        torn = files.copy()
        torn.contents[name] = bytearray(whole[:cut] + rest)
        # The rest may be what was torn off: many a record ends in zeros.
        as_before = _common(whole, torn.contents[name])
        kept = [one for one in newest if one.end <= as_before]
        end = max((one.end for one in kept), default=HEADER_SIZE)
        end = end if as_before >= HEADER_SIZE else 0
        was_torn = any(torn.contents[name][end:])
        recovery = check(torn, older + kept)
        # What is cut off may have been acknowledged: no number is given again.
        assert recovery.recovered.damaged == was_torn
        assert [finding.kind for finding in recovery.findings] == [FindingKind.TORN] * was_torn
        if not was_torn and not end:
            assert name not in torn.contents
            assert recovery.next_segment == hand.number
        else:
            assert torn.contents[name][:end] == whole[:end]
            assert len(torn.contents[name]) == (end or HEADER_SIZE) + FRAME.size * was_torn
            assert recovery.next_segment == hand.number + 1
        again = open_again(torn)
        assert again.findings == ()
        # Told until a segment is begun that says so.
        assert again.recovered.damaged == was_torn


def _common(one: bytes, other: bytearray) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def test_what_lies_behind_a_hole_in_the_last_commit_is_cut() -> None:
    files = MemoryFiles()
    hand = Hand(files)
    hand.commit()
    hand.indication([hand.place(1)])
    hand.commit()
    hole = hand.indication([hand.place(1)])
    hand.indication([hand.place(1)])
    files.contents[segment_name(1)][hole.begin + 30] ^= 1
    recovery = check(files, [one for one in hand.written if one.begin < hole.begin])
    assert [finding.kind for finding in recovery.findings] == [FindingKind.TORN]
    assert files.size(segment_name(1)) == hole.begin + FRAME.size
    assert recovery.recovered.damaged


@pytest.mark.parametrize("seed", range(2))
def test_a_flipped_byte_costs_what_its_record_says_and_no_more(seed: int) -> None:
    files, hand = random_history(Random(seed), steps=16)
    for number in sorted({one.segment for one in hand.written}):
        for at in range(files.size(segment_name(number))):
            damaged = files.copy()
            damaged.contents[segment_name(number)][at] ^= 1 << (at % 8)
            _check_flipped(damaged, hand, number, at, newest=number == hand.number)


def _check_flipped(files: MemoryFiles, hand: Hand, number: int, at: int, *, newest: bool) -> None:
    mine = [one for one in hand.written if one.segment == number]
    last_commit = max((one.begin for one in mine if one.kind == "commit"), default=-1)
    hit = next((one for one in mine if one.begin <= at < one.end), None)
    seen = examine(files)
    if hit is None:
        kept = hand.written if last_commit >= 0 or not newest else _outside(hand, number)
    elif newest and hit.begin >= last_commit:
        kept = _outside(hand, number) + [one for one in mine if one.begin < hit.begin]
    else:
        kept = [one for one in hand.written if one is not hit]
    before = files.copy()
    recovery = check(files, kept)
    assert list(recovery.findings) == seen.findings
    was_cut = newest and (last_commit < 0 if hit is None else hit.begin >= last_commit)
    lost = hit is not None and hit in hand.written and not was_cut
    assert recovery.recovered.damaged == (lost or was_cut)
    assert recovery.journal_id == JOURNAL_ID or len(files.contents) == 1
    if lost and hit is not None:
        aside = damaged_name(number, hit.begin)
        assert files.contents[aside] == before.contents[segment_name(number)][hit.begin : hit.end]
    # A second start finds the same, and nothing to complain of; damage is over only once a
    # segment was begun that says so.
    again = open_again(files)
    assert again.findings == ()
    assert columns(again) == columns(recovery)
    assert again.recovered.damaged == (lost or was_cut)


def _outside(hand: Hand, number: int) -> list[Written]:
    return [one for one in hand.written if one.segment != number]
