"""A writer's log reaches its stores: one request to each, from where it is, and what is stable is
told."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pillion_sidecar.journal.identities import identities_name
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    position_of,
    segment_name,
    segment_numbers,
)
from pillion_sidecar.stores.copies import Epoch
from pillion_sidecar.stores.doubts import Doubts
from pillion_sidecar.stores.members import LOST
from pillion_sidecar.stores.messages import (
    AppendRequest,
    ClaimRequest,
    CutRequest,
    KeepRequest,
    RemoveRequest,
)
from pillion_sidecar.stores.quorum import Between, Consensus, Membership, StoreGroup
from pillion_sidecar.stores.shipping import (
    MOST_RETRY_SECONDS,
    PROBE_SECONDS,
    RETRY_SECONDS,
    ShippingLimits,
)
from pillion_sidecar.stores.stability import Stability
from pillion_sidecar.stores.store import StoreLimits
from pillion_sidecar.stores.tail import Tail, whole_records
from pillion_sidecar.testing import FakeTime
from support.stores import (
    MEMBERSHIP,
    NAMES,
    SESSION,
    RecordingFolders,
    ScriptedStores,
    ShippedLog,
    Writer,
    answers_of,
)

ONE, TWO = Epoch(1, "x"), Epoch(2, "x")


@pytest.fixture
def writer() -> Writer:
    writer = Writer()
    writer.begin(1)
    writer.stores.run()
    return writer


def test_a_barrier_is_told_once_a_quorum_has_all_before_it(writer: Writer) -> None:
    writer.write(100)
    first = writer.barrier()
    writer.stores.answer("a")
    assert writer.stable == []
    writer.write(50)
    second = writer.barrier()
    writer.stores.answer("b")
    assert writer.stable == [first]
    writer.stores.run("b")
    assert writer.stable == [first]
    writer.stores.run("a")
    assert writer.stable == [first, second] == [first, writer.shipper.stable]
    third = writer.barrier()
    assert writer.stable[-1] == third


def test_what_comes_meanwhile_goes_with_the_next_request(writer: Writer) -> None:
    for size in (100, 20, 30, 40):
        writer.write(size)
    assert [len(writer.stores.sent[name]) for name in NAMES] == [2, 2, 2]
    segment = writer.log.segments[1]
    writer.stores.answer("a")
    begin = HEADER_SIZE + len(writer.last_data("b"))
    assert writer.last_data("a") == segment[begin:]
    # The slow ones delay nobody, and get more at once.
    writer.write(10)
    writer.stores.run("a")
    writer.stores.run("b")
    assert writer.last_data("b") == segment[begin:] + writer.log.segments[1][len(segment) :]
    writer.stores.run()
    assert {writer.stores.content(name) for name in NAMES} == {writer.log.content()}


def test_requests_are_bounded_and_have_whole_records() -> None:
    writer = Writer(limits=ShippingLimits(request_bytes=400))
    writer.begin(1)
    for size in (100, 100, 100, 100, 900, 100):
        writer.write(size)
    writer.begin(2)
    writer.write(10)
    writer.stores.run()
    sizes = [len(one.data) for one in writer.stores.sent["a"] if isinstance(one, AppendRequest)]
    # One record is longer than a request.
    assert [size for size in sizes if size > 400] == [924]
    assert writer.stores.content("a") == writer.log.content()


def test_a_part_that_is_too_large_is_sent_in_several_requests() -> None:
    writer = Writer(limits=ShippingLimits(request_bytes=400))
    for size in (150, 150, 150, 150):
        if not writer.log.segments:
            writer.log.begin(1, created=1.0)
        writer.log.write(size)
    writer.shipper.begin(1, 1.0, writer.log.segments[1])
    writer.stores.run()
    assert len(writer.stores.sent["a"]) == 3
    assert writer.stores.content("a") == writer.log.content()


def test_a_store_that_was_away_goes_on_from_what_it_has(writer: Writer) -> None:
    writer.write(100)
    writer.stores.fail("c")
    writer.stores.run()
    assert writer.shipper.problems == {"c": "c is away"}
    writer.write(50)
    writer.stores.run()
    assert not writer.stores.waiting
    for wait in (RETRY_SECONDS, 2 * RETRY_SECONDS, 4 * RETRY_SECONDS):
        writer.time.advance(wait - 0.01)
        assert not writer.stores.waiting
        writer.time.advance(0.01)
        assert isinstance(writer.stores.sent["c"][-1], ClaimRequest)
        writer.stores.fail("c")
    for _ in range(10):
        writer.time.advance(MOST_RETRY_SECONDS)
        writer.stores.fail("c")
    writer.time.advance(MOST_RETRY_SECONDS)
    writer.stores.run()
    assert writer.shipper.problems == {}
    assert writer.stores.content("c") == writer.log.content()


def test_a_store_is_left_alone_as_long_as_it_says(writer: Writer) -> None:
    writer.write(100)
    writer.stores.fail("c", retry_after=20.0)
    writer.stores.run()
    writer.time.advance(19.9)
    assert not writer.stores.waiting
    writer.time.advance(0.1)
    assert [one.store for one in writer.stores.waiting] == ["c"]


def test_a_request_that_was_done_though_nobody_heard_is_not_sent_again(writer: Writer) -> None:
    writer.write(100)
    writer.stores.perform(writer.stores.fail("c"))
    writer.write(50)
    writer.stores.run()
    writer.time.advance(RETRY_SECONDS)
    writer.stores.run()
    data = [one.data for one in writer.stores.sent["c"] if isinstance(one, AppendRequest)]
    assert b"".join(data) == writer.log.content()


def test_what_has_left_the_memory_is_read_from_the_disk() -> None:
    writer = Writer(limits=ShippingLimits(tail_bytes=300, request_bytes=500))
    writer.begin(1)
    writer.stores.fail("c")
    for size in (200,) * 9:
        writer.write(size)
        writer.stores.run()
        writer.shipper.on_disk(writer.shipper.end)
    writer.begin(2)
    writer.write(20)
    writer.stores.run()
    writer.time.advance(RETRY_SECONDS)
    reads = 0
    for size in (5, 5, 5, 5, 0, 0, 0, 0):
        writer.stores.run()
        reads += len(writer.reader.waiting)
        if size:
            # What comes meanwhile is not in the way.
            writer.write(size)
        writer.reader.run()
    assert reads > 2
    assert writer.stores.content("c") == writer.log.content()


def test_a_disk_that_refuses_is_told_and_tried_again() -> None:
    writer = Writer(limits=ShippingLimits(tail_bytes=0))
    writer.begin(1)
    writer.shipper.on_disk(writer.shipper.end)
    writer.stores.fail("c")
    writer.stores.run()
    writer.write(10)
    writer.shipper.on_disk(writer.shipper.end)
    writer.time.advance(RETRY_SECONDS)
    writer.stores.run()
    writer.reader.refuses = True
    writer.reader.run()
    assert "disk" in writer.shipper.problems["c"]
    writer.reader.refuses = False
    writer.time.advance(2 * RETRY_SECONDS)
    for _ in range(2):
        writer.stores.run()
        writer.reader.run()
    assert writer.shipper.problems == {}
    assert writer.stores.content("c") == writer.log.content()


def test_a_segment_goes_at_the_stores_once_its_removal_is_stable(writer: Writer) -> None:
    writer.write(100)
    writer.begin(2)
    writer.stores.run()
    writer.write(10)
    writer.stores.fail("b")
    writer.stores.fail("c")
    writer.remove()
    writer.stores.run()
    assert not any(isinstance(one, RemoveRequest) for one in writer.stores.sent["a"])
    assert segments_at(writer, "a") == [1, 2]
    writer.time.advance(RETRY_SECONDS)
    writer.stores.run()
    assert [segments_at(writer, name) for name in NAMES] == [[2]] * 3
    assert {writer.stores.content(name) for name in NAMES} == {writer.log.content()}


def test_identities_are_at_the_stores_before_their_segment_goes(writer: Writer) -> None:
    writer.begin(2)
    writer.stores.run()
    writer.remove(remembers=True)
    writer.reader.run()
    assert {type(one.request) for one in writer.stores.waiting} == {KeepRequest}
    writer.stores.run()
    for name in NAMES:
        files = writer.stores.folders[name].files[SESSION].image()
        assert segment_numbers([*files]) == [2]
        assert files[identities_name(1)] == writer.log.identities[1]


def test_identities_that_are_gone_are_left_out(writer: Writer) -> None:
    writer.begin(2)
    writer.stores.run()
    writer.remove(remembers=True)
    writer.reader.refuses = True
    writer.reader.run()
    writer.stores.run()
    assert writer.shipper.problems == {}
    assert [segments_at(writer, name) for name in NAMES] == [[2]] * 3


def test_identities_that_are_read_after_the_shipper_is_closed_go_nowhere(writer: Writer) -> None:
    writer.begin(2)
    writer.stores.run()
    writer.remove(remembers=True)
    writer.shipper.close()
    writer.reader.run()
    assert writer.stores.waiting == []


def test_a_store_behind_a_removed_segment_goes_on_from_the_oldest_that_is_left(
    writer: Writer,
) -> None:
    writer.write(100)
    writer.stores.run()
    end = writer.shipper.end
    for number in (2, 3, 4):
        writer.write(100)
        for one in list(writer.stores.waiting):
            writer.stores.fail(one.store)
        writer.begin(number)
    while len(writer.log.segments) > 1:
        writer.remove()
    writer.time.advance(RETRY_SECONDS)
    writer.stores.run()
    assert writer.shipper.stable == writer.shipper.end > end
    assert [segments_at(writer, name) for name in NAMES] == [[4]] * 3
    assert {writer.stores.content(name) for name in NAMES} == {writer.log.content()}


def test_a_copy_answers_for_what_it_had_until_what_replaces_it_is_whole() -> None:
    writer = Writer(limits=ShippingLimits(request_bytes=200))
    writer.begin(1)
    writer.write(100)
    writer.stores.run()
    before = writer.stores.stores["a"].claim(SESSION, ONE)
    lose_all(writer)
    writer.begin(2)
    for _ in range(4):
        writer.write(100)
    writer.remove()
    writer.time.advance(RETRY_SECONDS)
    for _ in range(3):
        writer.stores.answer("a")
    part = writer.stores.stores["a"].claim(SESSION, ONE)
    assert part.renewed is not None
    assert (part.extents, part.written) == (before.extents, ONE)
    writer.stores.run("a")
    whole = writer.stores.stores["a"].claim(SESSION, ONE)
    # The other is there until a quorum is as far.
    assert (whole.extents, whole.end) == (writer.log.extents, writer.log.end)
    assert [run.extents for run in whole.replaced] == [before.extents]
    writer.stores.restart("a")
    assert writer.stores.stores["a"].claim(SESSION, ONE) == whole
    writer.stores.run("b")
    assert writer.shipper.stable == writer.log.end
    writer.stores.run("a")
    assert segments_at(writer, "a") == segments_at(writer, "b") == [2]


def test_another_writer_goes_on_from_what_a_copy_had_before() -> None:
    writer = Writer()
    writer.begin(1)
    writer.write(100)
    writer.stores.run()
    base = ShippedLog(segments={1: writer.log.segments[1]})
    lose_all(writer)
    writer.begin(2)
    writer.remove()
    writer.time.advance(RETRY_SECONDS)
    writer.stores.run("a")
    assert segments_at(writer, "a") == [1, 2]
    stores = ScriptedStores(*NAMES)
    stores.folders = writer.stores.folders
    for name in NAMES:
        stores.restart(name)
    later = Writer(stores=stores, epoch=TWO, log=base, answers=answers_of(stores, TWO, "b", "c"))
    later.begin(2)
    later.write(30)
    stores.run()
    assert any(isinstance(one, CutRequest) for one in stores.sent["a"])
    assert {stores.content(name) for name in NAMES} == {later.log.content()}


def test_a_store_is_not_given_more_than_it_could_remove_while_others_are_away() -> None:
    writer = Writer(limits=ShippingLimits(ahead_bytes=500))
    writer.begin(1)
    writer.stores.run()
    for _ in range(20):
        writer.write(100)
        for name in ("b", "c"):
            if any(one.store == name for one in writer.stores.waiting):
                writer.stores.fail(name)
        writer.stores.run("a")
    writer.begin(2)
    writer.remove()
    writer.stores.run("a")
    assert len(writer.stores.content("a")) < 500 + 200
    writer.time.advance(MOST_RETRY_SECONDS)
    writer.stores.run()
    assert writer.shipper.stable == writer.log.end
    assert {writer.stores.content(name) for name in NAMES} == {writer.log.content()}


def lose_all(writer: Writer) -> None:
    """Lose what is under way, and one request to each store that has none."""
    for name in NAMES:
        if all(one.store != name for one in writer.stores.waiting):
            writer.write(10)
    for name in NAMES:
        writer.stores.fail(name)


def segments_at(writer: Writer, store: str) -> list[int]:
    return segment_numbers(writer.stores.folders[store].files[SESSION].names())


def test_a_store_that_has_less_than_it_said_is_given_it_again(writer: Writer) -> None:
    writer.write(100)
    writer.stores.run()
    image = writer.stores.folders["b"].files[SESSION].image()
    name = segment_name(1)
    writer.stores.restart("b", {**image, name: image[name][:-7]})
    writer.write(50)
    writer.stores.run()
    assert "go on from there" in writer.shipper.problems["b"]
    writer.time.advance(RETRY_SECONDS)
    writer.stores.run()
    assert writer.stores.content("b") == writer.log.content()


def test_a_store_that_lost_its_disk_is_found_out_and_given_all_although_nothing_is_new(
    writer: Writer,
) -> None:
    writer.shipper.start()
    writer.write(100)
    writer.stores.run()
    writer.time.advance(PROBE_SECONDS)
    assert writer.stores.waiting == []
    del writer.stores.folders["b"].files[SESSION]
    writer.stores.restart("b")
    writer.time.advance(PROBE_SECONDS)
    assert {one.store for one in writer.stores.waiting} == set(NAMES)
    writer.stores.answer("b")
    behind = {one.store: one.behind for one in writer.shipper.statuses()}
    assert behind == {"a": 0, "b": len(writer.log.content()), "c": 0}
    writer.stores.run()
    assert writer.stores.content("b") == writer.log.content()


def lose(writer: Writer, store: str) -> None:
    """The store's volume is lost, with what it has promised."""
    writer.stores.folders[store] = RecordingFolders()
    writer.stores.restart(store)


def test_a_store_that_says_that_its_copy_is_gone_counts_no_more(writer: Writer) -> None:
    writer.write(100)
    writer.stores.answer("a")
    writer.barrier()
    lose(writer, "a")
    writer.write(10)
    writer.stores.answer("a")
    writer.stores.answer("b")
    assert writer.stable == []
    behind = {one.store: one.behind for one in writer.shipper.statuses()}
    assert behind["a"] == len(writer.log.content())
    writer.stores.run("c")
    assert writer.stable
    writer.time.advance(RETRY_SECONDS)
    writer.stores.run()
    assert writer.stores.content("a") == writer.log.content()


def test_a_store_that_lost_what_it_promised_makes_no_fenced_writer_stable(writer: Writer) -> None:
    writer.write(100)
    writer.stores.run()
    for store in "ab":
        writer.stores.stores[store].claim(SESSION, TWO)
    lose(writer, "a")
    writer.write(10)
    writer.barrier()
    for _ in range(5):
        writer.stores.run("a", "c")
        writer.time.advance(MOST_RETRY_SECONDS)
    assert (writer.stable, writer.fenced) == ([], [])
    assert writer.shipper.problems["a"] == LOST
    writer.stores.run("b")
    assert (writer.stable, len(writer.fenced)) == ([], 1)


def test_where_all_stores_have_lost_it_their_own_word_is_enough(writer: Writer) -> None:
    writer.shipper.start()
    writer.write(100)
    writer.stores.run()
    for store in NAMES:
        lose(writer, store)
    end = writer.barrier()
    writer.write(10)
    later = writer.barrier()
    for _ in range(3):
        writer.stores.run()
        writer.time.advance(RETRY_SECONDS)
    writer.stores.run()
    assert writer.stable == [end, later]
    assert all(writer.stores.content(one) == writer.log.content() for one in NAMES)


def test_an_answer_to_what_was_sent_before_the_loss_ends_no_doubt() -> None:
    doubts = Doubts(MEMBERSHIP)
    doubts.add("a", asked="b")
    assert [doubts.take_answer(one) for one in "acb"] == [False, False, False]
    assert "a" in doubts
    assert doubts.take_answer("b")
    assert "a" not in doubts
    doubts.add("a", asked="b")
    doubts.drop_answer("b")
    assert [doubts.take_answer(one) for one in "bc"] == [False, True]


def test_a_writer_with_nothing_to_ship_finds_out_that_another_has_claimed(writer: Writer) -> None:
    writer.shipper.start()
    writer.time.advance(PROBE_SECONDS)
    for name in NAMES:
        writer.stores.stores[name].claim(SESSION, TWO)
    writer.time.advance(PROBE_SECONDS)
    writer.stores.run()
    assert len(writer.fenced) == 1
    writer.time.advance(10 * PROBE_SECONDS)
    assert writer.stores.waiting == []


def test_one_store_that_is_claimed_by_another_is_left_out(writer: Writer) -> None:
    writer.stores.stores["a"].claim(SESSION, TWO)
    writer.write(100)
    end = writer.barrier()
    writer.stores.run()
    assert (writer.stable, writer.fenced) == ([end], [])
    assert "epoch 2" in writer.shipper.problems["a"]
    writer.write(50)
    writer.time.advance(1000)
    assert [one.store for one in writer.stores.waiting] == ["b", "c"]
    assert writer.shipper.missed == ()


def test_a_writer_whose_quorum_is_claimed_is_told_once_and_ships_nothing_more(
    writer: Writer,
) -> None:
    for name in NAMES:
        writer.stores.stores[name].claim(SESSION, TWO)
    writer.write(100)
    writer.barrier()
    writer.stores.answer("c")
    writer.stores.answer("a")
    assert len(writer.fenced) == 1
    writer.stores.answer("b")
    writer.write(50)
    writer.time.advance(1000)
    assert (writer.stable, len(writer.fenced), writer.stores.waiting) == ([], 1, [])


def test_copies_are_cut_and_brought_to_the_base_before_they_count() -> None:
    old = Writer()
    old.begin(1)
    old.write(100)
    old.stores.run()
    old.write(70)
    # One store has gone on alone, one has stayed behind; nobody else has that end.
    old.stores.answer("a")
    base = ShippedLog(segments={1: old.stores.content("b")})
    stores = ScriptedStores(*NAMES)
    stores.folders = old.stores.folders
    for name in NAMES:
        stores.restart(name)
    writer = Writer(stores=stores, epoch=TWO, log=base, answers=answers_of(stores, TWO, "b", "c"))
    writer.begin(2)
    writer.write(30)
    writer.barrier()
    stores.run("c")
    assert writer.stable == []
    stores.run("a")
    assert any(isinstance(one, CutRequest) for one in stores.sent["a"])
    assert writer.stable == [writer.shipper.end]
    stores.run()
    assert {stores.content(name) for name in NAMES} == {writer.log.content()}


def test_a_writer_with_nothing_to_add_makes_what_it_found_stable() -> None:
    old = Writer()
    old.begin(1)
    old.write(100)
    old.stores.run()
    writer = Writer(stores=old.stores, epoch=TWO, log=old.log)
    assert writer.shipper.stable == 0
    writer.shipper.start()
    writer.stores.run()
    assert writer.shipper.stable == old.log.end


def test_the_stores_that_are_missed_are_named(writer: Writer) -> None:
    writer.write(100)
    writer.stores.fail("a")
    assert writer.shipper.missed == ()
    writer.stores.fail("b")
    assert writer.shipper.missed == ("a", "b")
    writer.stores.run()
    writer.time.advance(RETRY_SECONDS)
    writer.stores.run("b")
    assert writer.shipper.missed == ()


def test_what_may_be_in_too_few_stores_is_bounded_and_they_are_named() -> None:
    old = Writer()
    old.begin(1)
    old.write(5000)
    # A folder that no store has a copy of yet is not counted.
    writer = Writer(epoch=TWO, log=old.log, answers={}, flight_size=400)
    writer.shipper.start()
    assert (writer.shipper.unstable, writer.shipper.refusal()) == (0, None)
    writer.begin(2)
    writer.write(100)
    writer.begin(3)
    writer.write(100)
    before = writer.shipper.unstable
    assert before == sum(len(writer.log.segments[number]) for number in (2, 3))
    assert writer.shipper.refusal() is None
    writer.write(100)
    writer.stores.fail("a")
    writer.stores.fail("c")
    writer.stores.answer("b")
    refusal = writer.shipper.refusal()
    assert refusal is not None
    assert refusal.startswith(f"{writer.shipper.unstable} bytes of the journal are in too few")
    assert refusal.endswith("400 may be: waiting for a (a is away); c (c is away)")
    writer.time.advance(RETRY_SECONDS)
    writer.stores.run()
    while writer.reader.waiting:
        writer.reader.run()
        writer.stores.run()
    assert (writer.shipper.unstable, writer.shipper.refusal()) == (0, None)
    # Nobody is missing: all are slow.
    writer.write(500)
    refusal = writer.shipper.refusal()
    assert refusal is not None
    assert refusal.endswith("waiting for a; b; c")


def test_a_group_that_fails_is_not_waited_for_where_all_active_count() -> None:
    groups = (StoreGroup(name="g", members=("a",)), StoreGroup(name="h", members=("b",)))
    writer = Writer(
        stores=ScriptedStores("a", "b"),
        membership=Membership(groups=groups, between=Between.ALL_ACTIVE),
        answers={},
    )
    writer.begin(1)
    writer.barrier()
    writer.stores.run("a")
    assert writer.stable == [writer.shipper.end]
    writer.stores.run("b")
    writer.write(10)
    end = writer.barrier()
    writer.stores.run("a")
    assert writer.stable[-1] < end
    writer.stores.fail("b")
    assert writer.stable[-1] == end == writer.shipper.stable
    # What was stable stays so, though the group that responds again lacks it.
    writer.time.advance(RETRY_SECONDS)
    writer.stores.answer("b")
    assert writer.shipper.stable == end


def test_a_store_over_its_quota_is_named_and_asked_again() -> None:
    limits = StoreLimits(maximum_bytes=200, maximum_sessions=1)
    writer = Writer(stores=ScriptedStores(*NAMES, limits=limits))
    writer.begin(1)
    writer.write(300)
    writer.stores.run()
    assert all("would exceed 200" in problem for problem in writer.shipper.problems.values())
    assert writer.shipper.missed == NAMES


def test_a_closed_shipper_asks_and_tells_nothing(writer: Writer) -> None:
    writer.write(100)
    writer.barrier()
    writer.stores.fail("a")
    writer.shipper.close()
    assert writer.time.next_due() is None
    writer.stores.run()
    assert (writer.stable, writer.stores.waiting) == ([], [])


def test_a_read_that_ends_after_the_shipper_tells_nobody() -> None:
    writer = Writer(limits=ShippingLimits(tail_bytes=0))
    writer.begin(1)
    writer.stores.fail("c")
    writer.shipper.on_disk(writer.shipper.end)
    writer.time.advance(RETRY_SECONDS)
    writer.stores.run()
    assert len(writer.reader.waiting) == 1
    writer.shipper.close()
    writer.reader.run()
    assert (writer.stores.waiting, writer.time.next_due()) == ([], None)


# ---------------------------------------------------------------------- the end in memory


def test_the_tail_keeps_what_is_not_on_disk_however_much_it_is() -> None:
    tail, log = Tail(maximum=10), ShippedLog()
    log.begin(1, created=1.0)
    begin = position_of(1, 0)
    tail.add(begin, log.content())
    assert tail.take(begin, 1000) == log.content()
    tail.on_disk(begin + HEADER_SIZE)
    assert tail.take(begin, 1000) is None


def test_the_tail_is_taken_within_a_segment_and_a_size() -> None:
    tail, log = Tail(maximum=1 << 20), ShippedLog()
    for number in (1, 2):
        log.begin(number, created=1.0)
        tail.add(position_of(number, 0), log.segments[number])
        for _ in range(3):
            before = len(log.segments[number])
            log.write(100)
            tail.add(position_of(number, before), log.segments[number][before:])
    record = (len(log.segments[1]) - HEADER_SIZE) // 3
    begin = position_of(1, 0)
    assert tail.take(begin, 1 << 20) == log.segments[1]
    assert tail.take(begin, HEADER_SIZE + 2 * record + 1) == log.segments[1][:-record]
    behind = position_of(1, HEADER_SIZE + record)
    assert tail.take(behind, 1 << 20) == log.segments[1][HEADER_SIZE + record :]
    assert tail.take(position_of(1, len(log.segments[1])), 10) is None


def test_records_end_where_the_bytes_are_cut() -> None:
    log = ShippedLog()
    log.begin(1, created=1.0)
    ends = [HEADER_SIZE]
    for size in (10, 200, 30):
        log.write(size)
        ends.append(len(log.content()))
    data, begin = log.content(), position_of(1, 0)
    assert whole_records(begin, data[:HEADER_SIZE], 9999) == HEADER_SIZE
    assert whole_records(begin, data, 1) == ends[1]
    assert whole_records(begin, data, ends[2]) == ends[2]
    assert whole_records(begin, data, ends[2] - 1) == ends[1]
    assert whole_records(begin, data[: ends[3] - 1], 9999) == ends[2]
    behind = begin + ends[1]
    assert whole_records(behind, data[ends[1] : ends[2] - 1], 9999) == 0
    assert whole_records(behind, data[ends[1] :], 1) == ends[2] - ends[1]


def test_a_stall_lasts_until_something_becomes_stable(writer: Writer) -> None:
    writer.write(100)
    writer.stores.fail("c")
    assert writer.stalls == []
    writer.stores.answer("a")
    writer.stores.fail("b")
    assert writer.stalls == [{"b": "b is away", "c": "c is away"}]
    writer.time.advance(RETRY_SECONDS)
    # They answer a claim, and then refuse what follows, as a full store does.
    writer.stores.answer("b")
    assert writer.shipper.missed == ()
    writer.stores.fail("b")
    writer.stores.fail("c")
    assert len(writer.stalls) == 1
    writer.time.advance(2 * RETRY_SECONDS)
    writer.stores.run()
    assert writer.stalls[1:] == [{}]
    assert writer.shipper.stable == writer.shipper.end


def test_a_stall_with_nothing_to_ship_ends_when_a_store_answers(writer: Writer) -> None:
    writer.write(100)
    writer.stores.run("a", "b")
    writer.stores.fail("c")
    writer.write(100)
    writer.stores.run("a")
    sent = writer.stores.fail("b")
    assert [*writer.shipper.stalled] == ["b", "c"]
    # It was done, only the answer was lost.
    writer.stores.perform(sent)
    writer.time.advance(RETRY_SECONDS)
    writer.stores.answer("b")
    assert not writer.shipper.stalled


def test_each_store_tells_how_far_it_is(writer: Writer) -> None:
    writer.write(100)
    writer.stores.run("a")
    writer.stores.fail("b")
    told = {one.store: (one.is_up, one.problem) for one in writer.shipper.statuses()}
    assert told == {"a": (True, None), "b": (False, "b is away"), "c": (True, None)}
    behind = {one.store: one.behind for one in writer.shipper.statuses()}
    assert behind == {"a": 0, "b": writer.shipper.unstable, "c": writer.shipper.unstable}
    assert writer.shipper.requests["append", "ok"] == 4
    assert writer.shipper.requests["append", "unanswered"] == 1
    assert writer.shipper.requests["claim", "ok"] == 0


def test_a_store_without_room_is_left_alone_for_longer_each_time() -> None:
    stores = ScriptedStores(*NAMES, limits=StoreLimits(maximum_bytes=600, maximum_sessions=3))
    writer = Writer(stores=stores)
    writer.begin(1)
    writer.write(500)
    writer.stores.run()
    writer.write(500)
    writer.stores.run()
    for wait in (RETRY_SECONDS, 2 * RETRY_SECONDS, 4 * RETRY_SECONDS):
        assert "would exceed" in writer.shipper.problems["a"]
        writer.time.advance(wait * 0.99)
        assert writer.stores.waiting == []
        writer.time.advance(wait * 0.01)
        writer.stores.answer("a")
        # The claim is taken.
        assert "would exceed" in writer.shipper.problems["a"]
        writer.stores.run()


def gathering(**given: Any) -> Writer:
    """A writer whose stores have just answered."""
    writer = Writer(gathers=1.0, **given)
    writer.begin(1)
    writer.stores.run()
    return writer


def test_a_request_gathers_while_nobody_waits_for_stable() -> None:
    writer = gathering()
    for size in (100, 20, 30):
        writer.write(size)
    writer.time.advance(0.9)
    assert writer.stores.waiting == []
    writer.time.advance(0.1)
    assert [one.store for one in writer.stores.waiting] == [*NAMES]
    assert writer.last_data("a") == writer.log.segments[1][HEADER_SIZE:]
    # Later than a while after the last answer, nothing gathers.
    writer.stores.run()
    writer.time.advance(1.0)
    writer.write(10)
    assert [one.store for one in writer.stores.waiting] == [*NAMES]


def test_who_waits_for_stable_waits_for_no_gathering() -> None:
    writer = gathering()
    writer.write(100)
    assert writer.stores.waiting == []
    # Its position is not known yet.
    begin = writer.shipper.expect(lambda: writer.stable.append(0))
    assert [one.store for one in writer.stores.waiting] == [*NAMES]
    writer.stores.run()
    writer.write(50)
    assert [one.store for one in writer.stores.waiting] == [*NAMES]
    begin(writer.shipper.end)
    assert [one.store for one in writer.stores.waiting] == [*NAMES]
    writer.write(50)
    writer.stores.answer("a")
    writer.stores.answer("b")
    assert writer.stable == [0]
    # From the next answer on, nobody waits.
    writer.stores.run()
    writer.write(10)
    assert writer.stores.waiting == []
    # A barrier without a word before it hastens as well.
    writer.barrier()
    assert [one.store for one in writer.stores.waiting] == [*NAMES]


@pytest.mark.parametrize("given", [{}, {"flight_size": 2000}])
def test_what_is_worth_a_request_does_not_gather(given: dict[str, Any]) -> None:
    most = 500 if given else 700
    writer = gathering(limits=ShippingLimits(gather_bytes=700), **given)
    while writer.shipper.unstable < most:
        assert writer.stores.waiting == []
        writer.write(20)
    assert [one.store for one in writer.stores.waiting] == [*NAMES]


# ---------------------------------------------------------------------- what is told of them


def test_the_position_that_is_announced_follows_the_rule_of_consensus() -> None:
    for consensus, has in ((Consensus.LOWEST, 0), (Consensus.MAJORITY, 1), (Consensus.HIGHEST, 2)):
        writer = Writer(membership=replace(MEMBERSHIP, consensus=consensus))
        writer.begin(1)
        writer.stores.run()
        writer.write(10)
        for name in ("a", "b"):
            writer.stores.answer(name)
        writer.write(10)
        writer.stores.answer("a")
        # What a has, but not b, and what b has, but not c.
        ends = sorted(writer.stores.stores[name].copy(SESSION).end for name in NAMES)
        assert writer.shipper.unannounced == writer.shipper.end - ends[has]


def test_a_store_is_told_of_when_it_fails_and_when_it_takes_the_journal_again() -> None:
    writer = Writer()
    writer.begin(1)
    writer.stores.run()
    writer.write(10)
    writer.stores.fail("b")
    writer.time.advance(RETRY_SECONDS)
    assert writer.responses == [("b", False)]
    # It has claimed, and lacks something.
    writer.stores.answer("b")
    assert writer.responses == [("b", False)]
    writer.stores.run()
    assert writer.responses == [("b", False), ("b", True)]


def stability(time: FakeTime, released: Callable[[], None] = lambda: None) -> Stability:
    return Stability(
        clock=time,
        timers=time,
        lifetime=60,
        flight_size=1000,
        continues=False,
        base=0,
        last_id=0,
        released=released,
    )


def test_the_oldest_segment_is_kept_until_it_is_stable() -> None:
    time, released = FakeTime(), []
    writer = Writer(time=time, stability=stability(time, lambda: released.append(1)))
    writer.begin(1)
    writer.write(10)
    writer.begin(2)
    assert writer.shipper.keeps(1, is_crowded=False)
    assert not writer.shipper.keeps(1, is_crowded=True)
    writer.stores.run()
    assert released
    assert not writer.shipper.keeps(1, is_crowded=False)
    writer.remove()
    assert not writer.stability.segments  # type: ignore[union-attr]


def test_a_segment_that_goes_before_it_is_stable_is_counted() -> None:
    time = FakeTime()
    made = stability(time)
    writer = Writer(time=time, stability=made)
    writer.begin(1)
    writer.begin(2)
    writer.remove()
    assert made.segments == {"volume": 1}


def test_what_is_discarded_before_it_is_stable_is_forced() -> None:
    time = FakeTime()
    writer = Writer(time=time, stability=stability(time))
    writer.begin(1)
    writer.write(10)
    writer.shipper.on_disk(writer.shipper.end, 5)
    assert writer.shipper.forces(5, "purged")
    writer.stores.run()
    assert not writer.shipper.forces(5, "purged")
    assert writer.shipper.forces(6, "purged")
