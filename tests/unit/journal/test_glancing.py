"""Records that are read on the event loop, from real files: all of what was written, or nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillion_sidecar.indication import GroupMember, Indication
from pillion_sidecar.journal.files import File, SystemFiles
from pillion_sidecar.journal.marks import MarksFile
from pillion_sidecar.journal.ports import NO_NUMBER, Place
from pillion_sidecar.journal.read_back import PageCacheReader
from pillion_sidecar.journal.records import Flag, encode_commit, encode_indication
from pillion_sidecar.journal.segment_reader import SegmentReader
from pillion_sidecar.journal.segments import HEADER_SIZE, position_of, segment_name, segment_of
from support.page_cache import tells_what_it_holds

#: Journal time, less that of the clock of this run.
OFFSET = 1000.0
DIGEST = bytes(range(16))
PLACES = [Place(0, 0, 5)]
#: Twice and more what a glance reads at first.
LONG = b"{" + b"x" * 20_000 + b"}"


class Folder(SystemFiles):
    """Knows which of its files are open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder
        self._ends: dict[int, int] = {}

    def write(self, record: bytes, *, segment: int = 1) -> int:
        """Write a record behind those of a segment; return its position."""
        path = self.path / segment_name(segment)
        offset = self._ends.get(segment, HEADER_SIZE)
        if not path.exists():
            path.write_bytes(bytes(HEADER_SIZE))
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(record)
        self._ends[segment] = offset + len(record)
        return position_of(segment, offset)

    def spoil(self, position: int, *, byte: int) -> None:
        """Turn a bit of a record over."""
        segment, offset = segment_of(position)
        with (self.path / segment_name(segment)).open("r+b") as file:
            file.seek(offset + byte)
            (before,) = file.read(1)
            file.seek(offset + byte)
            file.write(bytes([before ^ 1]))

    def descriptors(self) -> list[str]:
        """The names of the files here that this process has open."""
        found = []
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                target = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            except FileNotFoundError:
                # The folder that is being listed.
                continue
            if target.parent == self.path:
                found.append(target.name)
        return sorted(found)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    if not tells_what_it_holds(tmp_path):
        pytest.skip("this file system does not tell what its page cache holds")
    return Folder(tmp_path)


@pytest.fixture
def page_cache(folder: Folder) -> Iterator[PageCacheReader]:
    made = PageCacheReader(folder, offset=OFFSET)
    yield made
    made.close()


def indication(
    number: int = 1,
    *,
    body: bytes = b"{}",
    digest: bytes | None = None,
    expires: float | None = 5000.0,
) -> Indication:
    return Indication(
        body=body,
        class_name="CIM_AlertIndication",
        accepted_at=0.0,
        source="source",
        identifier=f"identifier-{number}",
        group="group",
        member=GroupMember(number, ordered=True),
        expires=expires,
        languages=("de", "en"),
        digest=digest,
        id=number,
    )


def encoded(one: Indication, places: list[Place] = PLACES, *, flags: int = 0) -> bytes:
    return encode_indication(one, places, accepted_at=1234.5, flags=flags)


def fields(one: Indication | None) -> dict[str, object]:
    assert one is not None
    return {name: getattr(one, name) for name in one.__struct_fields__}


@pytest.mark.parametrize("digest", [None, DIGEST], ids=["no identity", "identity"])
@pytest.mark.parametrize(
    ("body", "places", "flags"),
    [
        pytest.param(b"{}", PLACES, 0, id="short"),
        pytest.param(LONG, PLACES, 0, id="long"),
        pytest.param(b"", PLACES, int(Flag.BODILESS), id="bodiless"),
        pytest.param(b"{}", PLACES, int(Flag.COPY), id="copied forward"),
        pytest.param(b"{}", [Place(0, 0, NO_NUMBER)], int(Flag.HELD), id="held"),
        pytest.param(b"{}", [Place(n, 0, 1) for n in range(2000)], 0, id="many places"),
    ],
)
def test_a_glance_finds_what_the_thread_that_reads_finds(
    folder: Folder,
    page_cache: PageCacheReader,
    body: bytes,
    places: list[Place],
    flags: int,
    digest: bytes | None,
) -> None:
    folder.write(encode_commit(1, 1.0))
    position = folder.write(encoded(indication(7, body=body, digest=digest), places, flags=flags))
    folder.write(encoded(indication(8)))
    found = page_cache.load([position])
    assert found is not None
    (by_reader,) = SegmentReader(folder, MarksFile(folder, journal_id=bytes(16), oldest=1)).load(
        [position], OFFSET
    )
    assert fields(found[0]) == fields(by_reader)
    assert found[0].body == body
    assert found[0].accepted_at == 234.5
    assert found[0].unsettled == len(places)


def test_what_never_expires_does_not(folder: Folder, page_cache: PageCacheReader) -> None:
    position = folder.write(encoded(indication(expires=None)))
    found = page_cache.load([position])
    assert found is not None
    assert found[0].expires is None


def test_records_whose_length_is_about_that_of_a_glance_are_whole(
    folder: Folder, page_cache: PageCacheReader
) -> None:
    least = len(encoded(indication(body=b"")))
    bodies = [b"x" * (8192 - least + more) for more in (-1, 0, 1)]
    positions = [folder.write(encoded(indication(body=body))) for body in bodies]
    found = page_cache.load(positions)
    assert found is not None
    assert [one.body for one in found] == bodies
    assert [one.size for one in found] == [8191, 8192, 8193]


def test_several_segments_are_read_in_the_order_that_was_asked_for(
    folder: Folder, page_cache: PageCacheReader
) -> None:
    positions = [
        folder.write(encoded(indication(number)), segment=number % 3 + 1) for number in range(9)
    ]
    wanted = [positions[number] for number in (8, 0, 4, 4, 1)]
    found = page_cache.load(wanted)
    assert found is not None
    assert [one.id for one in found] == [8, 0, 4, 4, 1]
    assert [one.position for one in found] == wanted
    assert page_cache.load([]) == []


# Where a bit is turned over: checksum, magic, kind, length, envelope or body, last byte.
@pytest.mark.parametrize("byte", [0, 4, 6, 8, 100, -1])
@pytest.mark.parametrize("body", [b"x" * 200, LONG], ids=["short", "long"])
def test_what_is_not_sound_is_left_to_the_thread_that_reads(
    folder: Folder, page_cache: PageCacheReader, byte: int, body: bytes
) -> None:
    record = encoded(indication(body=body))
    sound = folder.write(encoded(indication()))
    position = folder.write(record)
    folder.write(encoded(indication()))
    folder.spoil(position, byte=byte % len(record))
    assert page_cache.load([sound, position]) is None
    assert page_cache.load([sound]) is not None


def test_a_length_that_is_damaged_takes_no_more_memory_than_a_record_can(
    folder: Folder, page_cache: PageCacheReader
) -> None:
    position = folder.write(encoded(indication(body=LONG)))
    # The highest byte but one of the length.
    folder.spoil(position, byte=11)
    assert page_cache.load([position]) is None


def test_another_record_and_one_that_ends_too_soon_are_none(
    folder: Folder, page_cache: PageCacheReader
) -> None:
    commit = folder.write(encode_commit(1, 1.0))
    whole = folder.write(encoded(indication()))
    long = folder.write(encoded(indication(body=LONG)))
    path = folder.path / segment_name(1)
    for size in (segment_of(long)[1] + 10_000, segment_of(long)[1] + 10, segment_of(long)[1]):
        os.truncate(path, size)
        assert page_cache.load([long]) is None
    assert page_cache.load([commit]) is None
    assert page_cache.load([whole]) is not None


def test_a_segment_that_is_not_there_is_left_to_the_thread_that_reads(
    page_cache: PageCacheReader,
) -> None:
    assert page_cache.load([position_of(9, HEADER_SIZE)]) is None


class Failing:
    """A file that the disk does not give."""

    def __init__(self, file: File) -> None:
        self._file = file

    def read_cached(self, offset: int, buffer: bytearray) -> int:
        raise OSError(5, "Input/output error")

    def close(self) -> None:
        self._file.close()


def test_a_disk_that_fails_is_left_to_the_thread_that_reads(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = folder.write(encoded(indication()))
    opened = folder.open
    monkeypatch.setattr(folder, "open", lambda name: Failing(opened(name)))
    page_cache = PageCacheReader(folder, offset=OFFSET)
    assert page_cache.load([position]) is None
    page_cache.close()


def test_a_segment_that_is_removed_is_held_open_no_longer(
    folder: Folder, page_cache: PageCacheReader
) -> None:
    positions = [folder.write(encoded(indication()), segment=number) for number in (1, 2)]
    assert page_cache.load(positions) is not None
    assert folder.descriptors() == [segment_name(1), segment_name(2)]
    folder.remove(segment_name(1))
    page_cache.forget(1)
    assert folder.descriptors() == [segment_name(2)]
    # It may be told of what it never read.
    page_cache.forget(1)
    assert page_cache.load(positions[:1]) is None
    page_cache.close()
    assert folder.descriptors() == []


def test_few_segments_are_held_open_however_many_are_read(
    folder: Folder, page_cache: PageCacheReader
) -> None:
    positions = [folder.write(encoded(indication()), segment=1 + number) for number in range(40)]
    for position in [*positions, positions[0]]:
        assert page_cache.load([position]) is not None
    assert len(folder.descriptors()) == 32
