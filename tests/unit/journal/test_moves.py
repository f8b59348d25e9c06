"""What is remembered of records that are copied while others are read."""

from pillion_sidecar.journal.read_back import Relocations


def test_nothing_is_remembered_while_nothing_is_read() -> None:
    moves = Relocations()
    moves.note(1, 2, 10)
    assert moves.find(1) is None
    load = moves.begin()
    moves.note(1, 2, 10)
    assert moves.find(1) == (2, 10)
    moves.end(load)
    assert moves.find(1) is None


def test_every_load_finds_what_was_moved_since_it_began() -> None:
    moves = Relocations()
    first = moves.begin()
    moves.note(1, 11, 10)
    second = moves.begin()
    moves.end(first)
    third = moves.begin()
    moves.note(2, 12, 10)
    moves.end(second)
    assert moves.find(2) == (12, 10)
    moves.note(12, 22, 9)
    assert moves.find(12) == (22, 9)
    moves.end(third)
    assert not len(moves)


def test_what_is_remembered_is_bounded_though_there_is_always_a_load() -> None:
    moves = Relocations()
    load = moves.begin()
    for number in range(10_000):
        following = moves.begin()
        moves.note(number, number + 1_000_000, 10)
        moves.end(load)
        assert moves.find(number) == (number + 1_000_000, 10)
        load = following
        assert len(moves) < 10
