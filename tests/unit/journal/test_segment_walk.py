"""The walk over a segment before its removal, against a reading of the whole of it."""

from collections.abc import Mapping
from random import Random

import pytest

from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.ports import NO_NUMBER, Place
from pillion_sidecar.journal.records import (
    FRAME,
    Flag,
    Frame,
    Kind,
    Settlement,
    decode_indication,
    encode_commit,
    encode_indication,
    encode_settlements,
)
from pillion_sidecar.journal.segment_walk import IDENTITY_HEAD, SegmentWalk
from pillion_sidecar.journal.segments import HEADER_SIZE, Header, encode_header, scan
from support.journal_files import JOURNAL_ID, MemoryFiles

NAME = "segment"
#: By destination: what is settled. Nobody knows of destination 3.
LOWEST = {0: 40, 1: 0, 2: 1000}
PIECES = [1, 300, 1000, 4096, 1 << 20]


def some_record(draw: Random, number: int) -> bytes:
    if draw.random() < 0.1:
        return encode_commit(number, float(number))
    if draw.random() < 0.1:
        return encode_settlements([Settlement(0, 0, number)])
    is_held = draw.random() < 0.1
    destinations = draw.choice(([0], [0], [1], [2], [3], [0, 2], [0, 1], []))
    given = NO_NUMBER if is_held else number
    indication = Indication(
        body=draw.randbytes(draw.choice((0, 20, 900, 3000))),
        class_name="C",
        accepted_at=0.0,
        digest=draw.randbytes(16) if draw.random() < 0.8 else None,
        expires=draw.choice((None, 50.0)),
        id=number,
    )
    return encode_indication(
        indication,
        [Place(destination, 7, given) for destination in destinations],
        accepted_at=float(number),
        flags=int(Flag.HELD) if is_held else 0,
    )


def segment(draw: Random, count: int = 100) -> bytearray:
    records = [some_record(draw, number) for number in range(1, count)]
    return bytearray(encode_header(Header(1, JOURNAL_ID, 1.0)) + b"".join(records))


def expected(data: bytes) -> tuple[list[bytes], list[tuple[int, tuple[Place, ...]]]]:
    """The identities that are settled; offset and places of what may be pending."""
    identities, found = [], []
    for at, frame in scan(data):
        if not isinstance(frame, Frame) or frame.kind != Kind.INDICATION:
            continue
        record = decode_indication(data, at, frame)
        is_settled = all(one.number < LOWEST.get(one.destination, 0) for one in record.places)
        if not is_settled or frame.flags & Flag.HELD:
            found.append((at, record.places))
        elif record.digest is not None:
            identities.append(IDENTITY_HEAD.pack(record.accepted_at, record.expires, record.digest))
    return identities, found


def walked(
    data: bytes,
    *,
    size: int | None = None,
    piece_bytes: int = 1 << 20,
    most: int = 1 << 20,
    lowest: Mapping[int, int] = LOWEST,
) -> tuple[list[bytes], list[tuple[int, tuple[Place, ...]]]]:
    files = MemoryFiles({NAME: data})
    walk = SegmentWalk(
        files.open(NAME), len(data) if size is None else size, piece_bytes=piece_bytes
    )
    identities, found = [], []
    while (piece := walk.next(lowest, most)) is not None:
        assert len(piece.found) <= most
        identities += piece.identities
        for one in piece.found:
            frame = Frame(*FRAME.unpack_from(data, one.offset)[2:])
            assert one.record == data[one.offset : one.offset + frame.size]
            assert (one.id, one.flags) == (frame.id, frame.flags)
            assert (one.identity is not None) == bool(frame.flags & Flag.IDENTITY)
            found.append((one.offset, one.places))
    return identities, found


@pytest.mark.parametrize("piece_bytes", PIECES)
@pytest.mark.parametrize("most", [1, 7, 1 << 20])
def test_every_indication_is_settled_or_found_whatever_the_pieces(
    piece_bytes: int, most: int
) -> None:
    for seed in range(20):
        data = bytes(segment(Random(seed)))
        assert walked(data, piece_bytes=piece_bytes, most=most) == expected(data)


def test_without_a_lowest_number_all_is_found() -> None:
    data = bytes(segment(Random(5)))
    settled, found = expected(data)
    identities, everything = walked(data, lowest={}, piece_bytes=1000)
    # What has no places is settled.
    assert set(identities) < set(settled)
    assert {at for at, _ in found} < {at for at, _ in everything}


@pytest.mark.parametrize("piece_bytes", PIECES)
def test_damage_costs_nothing_but_what_is_damaged(piece_bytes: int) -> None:
    for seed in range(60):
        draw = Random(seed)
        data = segment(draw)
        for _ in range(draw.choice((1, 1, 4))):
            at = draw.randrange(HEADER_SIZE, len(data))
            size = draw.choice((1, 1, 2, 30, 400))
            data[at : at + size] = draw.randbytes(len(data[at : at + size]))
        identities, found = walked(bytes(data), piece_bytes=piece_bytes)
        sound, pending = expected(bytes(data))
        assert found == pending
        # The body of a settled one is not looked at.
        assert set(identities) >= set(sound)


@pytest.mark.parametrize("piece_bytes", PIECES)
def test_a_damaged_length_hides_no_record(piece_bytes: int) -> None:
    draw = Random(1)
    whole = bytes(segment(draw))
    for at, frame in scan(whole):
        assert isinstance(frame, Frame)
        data = bytearray(whole)
        data[at + 8] ^= 1 << draw.randrange(8)
        data[at + 9] ^= 1 << draw.randrange(8)
        assert walked(bytes(data), piece_bytes=piece_bytes)[1] == expected(bytes(data))[1]


@pytest.mark.parametrize("piece_bytes", PIECES)
def test_a_file_that_was_cut_ends_the_walk(piece_bytes: int) -> None:
    whole = bytes(segment(Random(2)))
    for left in (0, HEADER_SIZE, HEADER_SIZE + 10, len(whole) // 2, len(whole) - 1):
        data = whole[:left]
        identities, found = walked(data, size=len(whole), piece_bytes=piece_bytes)
        assert found == expected(data)[1]
        assert set(identities) >= set(expected(data)[0])
