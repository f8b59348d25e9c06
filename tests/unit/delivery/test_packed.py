"""Entries as columns, against a list; and who follows them."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.delivery import compact_entries
from pillion_sidecar.delivery.backlog import TrackerTable
from pillion_sidecar.delivery.compact_entries import (
    _LOW,
    LOOSE_ENTRIES,
    CompactEntries,
    CompactEntry,
)
from support.columns import column_bytes
from support.delivery import Settlements


def entry(number: int, *, subscription: int = 0, trackers: int = 0) -> CompactEntry:
    return CompactEntry(number * 3, number << 32, number, subscription, trackers)


def packed(*entries: CompactEntry) -> CompactEntries:
    made = CompactEntries()
    for one in entries:
        made.append(one)
    return made


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 5), st.integers(0, 3)),
            st.tuples(st.just("popleft"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("move"), st.integers(0, 40), st.integers(0, 99)),
            st.tuples(st.just("remove"), st.integers(0, 3), st.just(0)),
            st.tuples(st.just("surrender"), st.just(0), st.just(0)),
        ),
        max_size=60,
    )
)
def test_they_are_what_a_list_would_be(steps: list[tuple[str, int, int]]) -> None:
    check(steps)
    with pytest.MonkeyPatch.context() as patch:
        # As a long backlog.
        patch.setattr(compact_entries, "BLOCK_ENTRIES", 3)
        patch.setattr(compact_entries, "LOOSE_ENTRIES", 5)
        check(steps)


def check(steps: list[tuple[str, int, int]]) -> None:
    columns, expected, number = CompactEntries(), list[CompactEntry](), 0
    for step, first, second in steps:
        match step:
            case "append":
                number += first
                expected.append(entry(number, subscription=second, trackers=first))
                columns.append(expected[-1])
            case "popleft":
                for _ in range(min(first, len(expected))):
                    assert columns.popleft() == expected.pop(0)
            case "move":
                found = [index for index, one in enumerate(expected) if one.number == first]
                assert columns.move(first, second) == bool(found)
                for index in found:
                    expected[index] = expected[index]._replace(position=second)
            case "remove":
                removed = [one for one in expected if one.subscription == first]
                assert list(columns.remove_subscription(first)) == removed
                expected = [one for one in expected if one.subscription != first]
            case _:
                assert list(columns.surrender()) == expected
                expected = []
        assert list(columns) == expected
        assert len(columns) == len(expected)
        assert columns.first(3) == expected[:3]
        later = [one for one in expected if one.number > 9]
        assert columns.behind(9, 2) == later[:2]
        assert columns.count_behind(9) == len(later)
        assert not columns.contains(number + 1)
        assert columns.subscriptions() == {one.subscription for one in expected}
        for one in expected:
            assert columns.contains(one.number)
        if expected:
            assert columns.first_number == expected[0].number


def test_columns_that_were_recovered_are_taken_over_with_no_tracker() -> None:
    columns = CompactEntries(
        ids=array("Q", [5, 6]),
        positions=array("Q", [50, 60]),
        numbers=array("Q", [7, 9]),
        subscriptions=array("I", [1, 2]),
    )
    columns.append(entry(10, trackers=3))
    assert list(columns) == [
        CompactEntry(5, 50, 7, 1, 0),
        CompactEntry(6, 60, 9, 2, 0),
        entry(10, trackers=3),
    ]


def test_recovered_columns_are_narrowed() -> None:
    columns = CompactEntries(
        ids=array("Q", range(7, 50_007)),
        positions=array("Q", (5 << 32 | 700 * number for number in range(50_000))),
        numbers=array("Q", range(50_000)),
        subscriptions=array("I", [3] * 50_000),
    )
    assert column_bytes(columns) < 7.1 * 50_000 + 32 * LOOSE_ENTRIES
    assert columns.popleft() == CompactEntry(7, 5 << 32, 0, 3, 0)
    assert columns.behind(49_998, 2) == [CompactEntry(50_006, 5 << 32 | 700 * 49_999, 49_999, 3, 0)]


def test_what_is_moved_far_away_is_where_it_is_now() -> None:
    columns = packed(*(CompactEntry(one, 1 << 32 | one, one, 0, 0) for one in range(5000)))
    for number, position in ((7, 1 << 32 | 5), (8, 1 << 32 | _LOW), (9, (_LOW - 1) << 32), (7, 2)):
        assert columns.move(number, position)
        moved = next(one for one in columns if one.number == number)
        assert moved == CompactEntry(number, position, number, 0, 0)
    assert [one.number for one in columns] == list(range(5000))
    others = [one.position for one in columns if one.number not in (7, 8, 9)]
    assert others == [1 << 32 | one for one in range(5000) if one not in (7, 8, 9)]


def test_a_subscription_of_a_long_row_is_removed() -> None:
    entries = [entry(one, subscription=one > 4000 or one % 3) for one in range(6000)]
    columns = packed(*entries)
    for _ in range(5):
        columns.popleft()
    removed = columns.remove_subscription(1)
    assert list(removed) == [one for one in entries[5:] if one.subscription == 1]
    assert list(columns) == [one for one in entries[5:] if one.subscription != 1]
    assert (len(removed), len(columns)) == (len(list(removed)), len(list(columns)))
    columns.append(entry(6000))
    assert columns.count_behind(3000) == len([one for one in columns if one.number > 3000])


def test_what_was_taken_from_a_long_row_is_given_back() -> None:
    columns = packed(*(entry(number) for number in range(20_000)))
    for number in range(20_000):
        assert columns.popleft().number == number
        assert not columns.contains(number)
        if number % 1000 == 999:
            assert column_bytes(columns) <= 13 * len(columns) + 32 * 2 * LOOSE_ENTRIES
    assert len(columns) == 0


def test_a_tuple_of_trackers_has_one_number_while_an_entry_has_it() -> None:
    table = TrackerTable()
    mine, yours = (Settlements(),), (Settlements(),)
    first = table.number(mine)
    assert table.number(mine) == first
    other = table.number(yours)
    assert len({0, first, other}) == 3
    assert table.release(first) is mine
    assert table.release(other) is yours
    # One more entry has it.
    assert len(table) == 1
    assert table.release(first) is mine
    assert len(table) == 0
    assert table.number(mine) not in (0, first, other)


def test_those_who_follow_everything_are_not_counted() -> None:
    table = TrackerTable()
    assert table.number(()) == 0
    everybody = (Settlements(), Settlements())
    table.follow_all(everybody)
    # Another tuple of the same trackers is the same to those who are told.
    assert table.number((*everybody,)) == 0
    assert len(table) == 0
    assert table.release(0) is everybody
    assert table.release(0) is everybody
    assert table.number(()) != 0
