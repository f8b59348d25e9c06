"""Repairs a journal's folder before use: quarantines damaged bytes, and cuts off an interrupted
write.

A crash in or after any step loses nothing more: damaged bytes are on disk in a file of their own
before their place is filled.
"""

from collections.abc import Iterator, Sequence

from pillion_sidecar.journal.files import Buffer, Files
from pillion_sidecar.journal.ports import is_full
from pillion_sidecar.journal.records import FRAME, MAXIMUM_RECORD, Kind, seal
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    PARTIAL_SUFFIX,
    Header,
    damaged_name,
    encode_header,
    segment_name,
)


def write_whole(files: Files, name: str, data: Buffer) -> None:
    """Write a file atomically."""
    partial = name + PARTIAL_SUFFIX
    if partial in files.names():
        files.remove(partial)
    file = files.create(partial)
    try:
        file.write(0, data)
        file.sync()
    finally:
        file.close()
    files.rename(partial, name)
    files.sync_folder()


def remove_partial(files: Files) -> None:
    partial = [name for name in files.names() if name.endswith(PARTIAL_SUFFIX)]
    for name in partial:
        files.remove(name)
    if partial:
        files.sync_folder()


def quarantine(
    files: Files,
    number: int,
    data: bytes,
    stretches: Sequence[tuple[int, int]],
    *,
    next_segment: int,
) -> None:
    """Quarantine damaged stretches (offset, size) of a segment, and fill their places.

    ``data`` exceeds the file if its end was cut off. The fillers name the next segment: until that
    exists, the damage is not recorded elsewhere.
    """
    name = segment_name(number)
    for begin, size in stretches:
        keep_damaged(files, number, data, begin, begin + size)
    file = files.open(name, writable=True)
    try:
        if len(data) > files.size(name):
            # The cut-off end takes no space on the disk.
            file.truncate(len(data))
        for begin, size in stretches:
            if size < FRAME.size:
                # Too short for a record: only the end of a file can be.
                file.truncate(begin)
                continue
            try:
                for offset, filler in _fillers(data, begin, begin + size, next_segment):
                    file.write(offset, filler)
            except OSError as error:
                # Only a cut-off end needs space.
                if not is_full(error):
                    raise
                file.truncate(begin)
        file.sync()
    finally:
        file.close()


def mend_header(files: Files, header: Header, data: bytes) -> None:
    keep_damaged(files, header.number, data, 0, HEADER_SIZE)
    file = files.open(segment_name(header.number), writable=True)
    try:
        file.write(0, encode_header(header))
        file.sync()
    finally:
        file.close()


def stand_in(files: Files, header: Header, *, missing: int, next_segment: int) -> int:
    """Create a substitute for ``missing`` segments up to this one, or for a lost one.

    Return its length; 0 if the disk is full, and the next start reports it again.
    """
    filler = seal(Kind.FILLER, b"", count=missing, record_id=next_segment)
    data = encode_header(header) + filler
    try:
        write_whole(files, segment_name(header.number), data)
    except OSError as error:
        if not is_full(error):
            raise
        remove_partial(files)
        return 0
    return len(data)


def cut(files: Files, number: int, end: int, *, next_segment: int) -> int:
    """End the newest segment at ``end``, or remove it if nothing is left; return its length.

    ``next_segment``: 0 unless the cut-off part may have been acknowledged. A filler then records
    that until that segment is begun.
    """
    name = segment_name(number)
    if end < HEADER_SIZE:
        files.remove(name)
        files.sync_folder()
        return end
    file = files.open(name, writable=True)
    try:
        if next_segment:
            filler = seal(Kind.FILLER, b"", record_id=next_segment)
            try:
                file.write(end, filler)
                end += len(filler)
            except OSError as error:
                # Without the filler, only a crash of this start would forget it.
                if not is_full(error):
                    raise
        file.truncate(end)
        file.sync()
    finally:
        file.close()
    return end


def keep_damaged(files: Files, number: int, data: bytes, begin: int, end: int) -> None:
    """Keep damaged bytes in a file of their own."""
    name = damaged_name(number, begin)
    # An earlier start got this far, and may have filled a part of the place.
    if name not in files.names():
        try:
            write_whole(files, name, memoryview(data)[begin:end])
        except OSError as error:
            # Information only: left out on a full disk.
            if not is_full(error):
                raise
            remove_partial(files)


def _fillers(data: bytes, begin: int, end: int, next_segment: int) -> Iterator[tuple[int, bytes]]:
    """Yield frames that make records of a stretch, whose other bytes stay."""
    while begin < end:
        size = min(end - begin, MAXIMUM_RECORD)
        if 0 < end - begin - size < FRAME.size:
            size -= FRAME.size
        rest = data[begin + FRAME.size : begin + size]
        yield begin, seal(Kind.FILLER, rest, record_id=next_segment)[: FRAME.size]
        begin += size
