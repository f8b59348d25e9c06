"""Entries as columns, against a list; and who follows them."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.delivery.backlog import CompactEntries, CompactEntry, TrackerTable
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
        assert columns.subscriptions() == {one.subscription for one in expected}
        for one in expected:
            assert columns.index(one.number) is not None
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


def test_what_was_taken_from_a_long_row_is_given_back() -> None:
    columns = packed(*(entry(number) for number in range(20_000)))
    for number in range(20_000):
        assert columns.popleft().number == number
        assert columns.index(number) is None
        if number % 1000 == 999:
            # Columns move up when half of them is taken, but not for a few.
            assert len(columns._numbers) - len(columns) <= max(len(columns), 4096)
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
