"""A copy is a beginning of its writer's log, or is told where it is not."""

import pytest

from pillion_sidecar.journal.segments import position_of
from pillion_sidecar.stores.copies import (
    ConflictError,
    Copy,
    Epoch,
    Extent,
    FencedError,
    GapError,
    Piece,
    Removal,
    UnclaimedError,
    append,
    claim,
    common_end,
    cut,
    cut_extents,
    end_of,
    next_change,
    next_piece,
    remove,
)

LOG = (Extent(1, 1.0, 100), Extent(2, 2.0, 50), Extent(4, 3.0, 70))
ONE, TWO = Epoch(1, "x"), Epoch(2, "x")


def begun(*extents: Extent, epoch: Epoch = ONE, written: Epoch = ONE) -> Copy:
    return Copy(promised=epoch, written=written, extents=extents)


@pytest.mark.parametrize("at", [0, position_of(1, 30), position_of(1, 100), position_of(4, 70)])
def test_what_is_cut_is_a_beginning_and_pieces_lead_back_to_the_whole(at: int) -> None:
    copy = begun(*cut_extents(LOG, at))
    assert copy.end == common_end(copy.extents, LOG) == at
    while (piece := next_piece(LOG, copy.end)) is not None:
        assert piece.after == copy.end
        copy = append(copy, ONE, piece, base=0)
    assert copy.extents == LOG


@pytest.mark.parametrize(
    ("extents", "end"),
    [
        ((), 0),
        ((Extent(1, 9.0, 100),), 0),
        ((LOG[0], Extent(2, 9.0, 50)), end_of(LOG[:1])),
        # Cut off in the log, and gone on there with another segment.
        ((LOG[0], Extent(2, 2.0, 80), Extent(3, 9.0, 10)), end_of(LOG[:2])),
        ((*LOG, Extent(5, 9.0, 10)), end_of(LOG)),
        # A part is missing in the middle.
        ((LOG[0], Extent(2, 2.0, 40), LOG[2]), position_of(2, 40)),
        # It has removed the first, or the log has.
        (LOG[1:], end_of(LOG)),
        ((Extent(0, 1.0, 30), *LOG[:2]), end_of(LOG[:2])),
        ((Extent(0, 1.0, 30),), end_of((Extent(0, 1.0, 30),))),
        ((Extent(0, 1.0, 30), Extent(1, 9.0, 100)), end_of((Extent(0, 1.0, 30),))),
    ],
)
def test_another_writers_segments_are_not_in_the_log(extents: tuple[Extent, ...], end: int) -> None:
    assert common_end(extents, LOG) == end


def test_a_lower_epoch_is_refused_by_name() -> None:
    copy = claim(begun(*LOG), TWO)
    piece = Piece(copy.end, copy.end, 3.0, 5)
    with pytest.raises(FencedError, match="x has claimed the session under epoch 2"):
        append(copy, ONE, piece, base=0)
    with pytest.raises(FencedError):
        claim(copy, ONE)
    assert claim(copy, TWO) == copy


def test_of_two_claims_with_one_number_one_is_refused() -> None:
    copy = claim(Copy(), Epoch(1, "y"))
    with pytest.raises(FencedError, match="y has claimed"):
        claim(copy, Epoch(1, "x"))


def test_an_epoch_that_was_not_claimed_here_is_refused() -> None:
    with pytest.raises(UnclaimedError, match="epoch 2 of x"):
        append(begun(), TWO, Piece(0, position_of(1, 0), 1.0, 5), base=0)


@pytest.mark.parametrize(
    ("piece", "error"),
    [
        (Piece(position_of(4, 80), position_of(4, 80), 3.0, 5), GapError),
        (Piece(position_of(5, 9), position_of(6, 0), 9.0, 5), GapError),
        # Beyond the end, and not wholly there.
        (Piece(position_of(4, 60), position_of(4, 60), 3.0, 20), ConflictError),
        (Piece(position_of(4, 70), position_of(4, 70), 9.0, 5), ConflictError),
        (Piece(position_of(4, 70), position_of(2, 0), 9.0, 5), ConflictError),
        (Piece(position_of(1, 100), position_of(2, 0), 9.0, 50), ConflictError),
    ],
)
def test_what_does_not_follow_is_refused(piece: Piece, error: type[Exception]) -> None:
    with pytest.raises(error):
        append(begun(*LOG), ONE, piece, base=0)


def test_a_repeat_changes_nothing() -> None:
    copy = begun(*LOG)
    assert append(copy, ONE, Piece(position_of(4, 60), position_of(4, 60), 3.0, 10), base=0) == copy


def test_a_copy_counts_once_it_has_the_base() -> None:
    base = position_of(2, 50)
    copy = claim(begun(LOG[0]), TWO)
    part = append(copy, TWO, Piece(copy.end, position_of(2, 0), 2.0, 30), base=base)
    assert part.written == ONE
    whole = append(part, TWO, Piece(part.end, part.end, 2.0, 20), base=base)
    assert whole.written == TWO


def renewed(*, written: Epoch = ONE) -> Copy:
    """Return a copy whose first segment was replaced."""
    copy = begun(LOG[0], written=written)
    piece = Piece(0, position_of(4, 0), 3.0, 70)
    return append(copy, ONE, piece, base=position_of(4, 60))


def test_what_replaces_a_copy_counts_once_it_is_whole() -> None:
    through = position_of(4, 60)
    part = append(begun(LOG[0]), ONE, Piece(0, position_of(4, 0), 3.0, 50), base=through)
    assert (part.extents, part.kept) == (LOG[:1], (LOG[0], Extent(4, 3.0, 50)))
    whole = append(part, ONE, Piece(position_of(4, 50), position_of(4, 50), 3.0, 20), base=0)
    assert (whole.extents, whole.kept, whole.through) == (LOG[2:], (LOG[0], LOG[2]), through)
    assert whole == renewed()


def test_what_is_not_whole_gets_no_label_and_is_forgotten_by_a_claim() -> None:
    copy = claim(begun(LOG[0]), TWO)
    part = append(copy, TWO, Piece(0, position_of(4, 0), 3.0, 50), base=position_of(4, 60))
    part = append(part, TWO, Piece(position_of(4, 50), position_of(4, 50), 3.0, 5), base=0)
    assert part.written == ONE
    assert claim(part, TWO) == part
    assert claim(part, Epoch(3, "x")) == claim(copy, Epoch(3, "x"))


def test_a_cut_to_before_a_copy_is_whole_goes_back_to_what_it_replaced() -> None:
    copy = claim(renewed(), TWO)
    assert cut(copy, TWO, position_of(4, 60)).extents == (Extent(4, 3.0, 60),)
    assert cut(copy, TWO, position_of(1, 100)).kept == LOG[:1]
    fresh = append(Copy(promised=ONE), ONE, Piece(0, position_of(4, 0), 3.0, 70), base=copy.through)
    # There was nothing.
    assert cut(claim(fresh, TWO), TWO, position_of(4, 59)).kept == ()


def test_what_was_replaced_goes_with_the_removal_that_is_stable() -> None:
    copy = renewed()
    assert next_change(copy, ONE, LOG[2:], stable=copy.through - 1) is None
    change = next_change(copy, ONE, LOG[2:], stable=copy.through)
    assert change == Removal(4, copy.through)
    assert remove(copy, ONE, change).kept == LOG[2:]
    # An earlier removal says nothing of it.
    assert remove(copy, ONE, Removal(2, 5)) == copy


def test_removed_are_the_oldest_segments_of_a_copy_that_counts() -> None:
    copy = begun(*LOG)
    assert remove(copy, ONE, Removal(2, end_of(LOG))).extents == LOG[1:]
    assert remove(copy, ONE, Removal(5, end_of(LOG))) == copy
    with pytest.raises(GapError):
        remove(copy, ONE, Removal(2, end_of(LOG) + 1))
    with pytest.raises(ConflictError, match="base of the epoch"):
        remove(claim(copy, TWO), TWO, Removal(2, end_of(LOG)))
    with pytest.raises(FencedError):
        remove(claim(copy, TWO), ONE, Removal(2, end_of(LOG)))


@pytest.mark.parametrize(
    "piece",
    [
        Piece(0, position_of(4, 0), 9.0, 70),
        Piece(0, position_of(2, 0), 9.0, 70),
        Piece(0, position_of(5, 9), 9.0, 70),
    ],
)
def test_a_run_begins_behind_the_copy_with_a_segment(piece: Piece) -> None:
    with pytest.raises(ConflictError):
        append(begun(*LOG), ONE, piece, base=0)


def test_a_copy_that_counts_is_never_cut() -> None:
    copy = begun(*LOG)
    with pytest.raises(ConflictError, match="never goes back"):
        cut(copy, ONE, position_of(1, 100))
    claimed = claim(copy, TWO)
    assert cut(claimed, TWO, position_of(1, 100)).extents == LOG[:1]
    with pytest.raises(GapError):
        cut(claimed, TWO, position_of(9, 1))
