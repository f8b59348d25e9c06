"""Finds damaged places of a history's files."""

from typing import NamedTuple
from zlib import crc32

from pillion_sidecar.history import blocks
from pillion_sidecar.history.files import LEFT_OUT, Segment


class Damage(NamedTuple):
    """Bytes of a file that cannot be read, and what is lost with them."""

    file: str
    begin: int
    size: int
    #: The number behind the last outcome that is lost; that of the next block, if it is not known.
    following: int
    #: Discards that are lost; at most so many, where their header is damaged.
    discards: int


def damage_in(segment: Segment, *, is_newest: bool) -> list[Damage]:
    """Return the damaged places of a segment. ``is_newest``: it may grow meanwhile, and what is
    behind its last block is not judged. Blocks; raises OSError."""
    found: list[Damage] = []
    (following, path), end = segment, 0
    with path.open("rb") as file:
        for offset, header in blocks.read_headers(file):
            if offset > end:
                lost = (header.first - following) % LEFT_OUT
                found.append(Damage(path.name, end, offset - end, header.first, lost))
            data = blocks.read_data(file, offset, header)
            if crc32(data) != header.checksum:
                place = path.name, offset, blocks.HEADER_BYTES + header.size
                found.append(Damage(*place, header.following, header.discards))
            end, following = offset + blocks.HEADER_BYTES + header.size, header.following
        size = file.seek(0, 2)
    if size > end and not is_newest:
        found.append(Damage(path.name, end, size - end, following, 0))
    return found
