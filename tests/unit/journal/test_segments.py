"""The names and headers of segments, and the walk over what lies in them."""

import pytest

from pillion_sidecar.journal.records import Frame, Kind, encode_commit, encode_settlements
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    Header,
    Stretch,
    damaged_name,
    encode_header,
    header_version,
    numbered,
    position_of,
    read_header,
    scan,
    segment_name,
    segment_numbers,
    segment_of,
)

HEADER = Header(0x1F, bytes(range(16)), 12.5)


def test_names_sort_as_their_numbers_do() -> None:
    names = [segment_name(number) for number in (1, 10, 255, 2**32 - 1)]
    assert names == sorted(names)
    others = ["lock", damaged_name(1, 2), segment_name(2**32)]
    assert segment_numbers([*reversed(names), *others]) == [1, 10, 255, 2**32 - 1]


@pytest.mark.parametrize(
    "name",
    [
        "1.segment",
        "000000000000000G.segment",
        "000000000000001F.segment",
        "+00000000000001f.segment",
        "000000000000001f.segment.tmp",
        "000000000000001f",
        ".segment",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert numbered(name, ".segment") is None
    assert numbered("000000000000001f.segment", ".segment") == 0x1F


def test_a_position_is_a_segment_and_an_offset() -> None:
    assert segment_of(position_of(7, 0xFFFFFFFF)) == (7, 0xFFFFFFFF)
    assert position_of(7, 0xFFFFFFFF) < position_of(8, 0)


def test_a_header_is_read_back() -> None:
    data = encode_header(HEADER)
    assert len(data) == HEADER_SIZE
    assert read_header(data + b"records") == HEADER
    assert header_version(data) == 1


def test_no_header_with_a_flipped_bit_is_sound() -> None:
    data = encode_header(HEADER)
    for bit in range(8 * HEADER_SIZE):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert read_header(bytes(flipped)) is None
        assert header_version(bytes(flipped)) is None


def test_no_beginning_of_a_header_is_one() -> None:
    data = encode_header(HEADER)
    for size in range(HEADER_SIZE):
        assert read_header(data[:size]) is None


def test_records_and_stretches_cover_all() -> None:
    commit = encode_commit(3, 4.0)
    settled = encode_settlements([])
    data = bytes(HEADER_SIZE) + commit + b"?" * 40 + settled + bytes(7)
    assert list(scan(data)) == [
        (HEADER_SIZE, Frame(Kind.COMMIT, 0, len(commit), 0, 0)),
        (HEADER_SIZE + len(commit), Stretch(40, zeros=False)),
        (HEADER_SIZE + len(commit) + 40, Frame(Kind.SETTLED, 0, len(settled), 0, 0)),
        (len(data) - 7, Stretch(7, zeros=True)),
    ]
    assert list(
        scan(data, begin=HEADER_SIZE + len(commit), end=HEADER_SIZE + len(commit) + 40)
    ) == [(HEADER_SIZE + len(commit), Stretch(40, zeros=False))]


def test_a_sound_record_is_found_behind_one_whose_length_is_wrong() -> None:
    commit = encode_commit(3, 4.0)
    for wrong in (0, 1, 23, 24, 41, 2**31, 2**32 - 1):
        hit = bytearray(commit)
        hit[8:12] = wrong.to_bytes(4, "little")
        data = bytes(HEADER_SIZE) + bytes(hit) + commit
        steps = list(scan(data))
        assert [at for at, _ in steps] == [HEADER_SIZE, HEADER_SIZE + len(commit)]
        assert isinstance(steps[1][1], Frame)


def test_zeros_are_told_from_what_was_written() -> None:
    for at in (0, 65535, 65536, 199_999):
        data = bytearray(HEADER_SIZE + 200_000)
        assert list(scan(bytes(data))) == [(HEADER_SIZE, Stretch(200_000, zeros=True))]
        data[HEADER_SIZE + at] = 1
        assert list(scan(bytes(data))) == [(HEADER_SIZE, Stretch(200_000, zeros=False))]
