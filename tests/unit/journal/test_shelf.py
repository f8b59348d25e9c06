"""The segments as the thread that reads has them, where the disk does not do as it is asked."""

import errno
import os

import pytest

from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.files import File
from pillion_sidecar.journal.identities import StoredIdentity, pack_identities, read_identities
from pillion_sidecar.journal.marks import MarksFile
from pillion_sidecar.journal.records import DELIVERED
from pillion_sidecar.journal.segment_reader import SegmentReader
from pillion_sidecar.journal.segments import Header, segment_name
from support.journal_files import JOURNAL_ID, Hand, MemoryFile, MemoryFiles, Written

IDENTITY = StoredIdentity(b"d" * 16, 1.0, 0.0, DELIVERED, "")
IDENTITIES = pack_identities([IDENTITY])


class Reading(MemoryFile):
    """A file that cannot be read where its folder says so."""

    def __init__(self, folder: "Folder", name: str) -> None:
        super().__init__(
            folder.contents, folder.contents[name], writable=False, changed=lambda: None
        )
        self._folder = folder
        self._name = name

    def read(self, offset: int, size: int) -> bytes:
        if self._folder.unreadable is not None:
            raise OSError(self._folder.unreadable, os.strerror(self._folder.unreadable))
        return super().read(offset, size)

    def close(self) -> None:
        self._folder.open_names.remove(self._name)


class Folder(MemoryFiles):
    """Knows which files are open, and fails as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.open_names: list[str] = []
        self.unreadable: int | None = None
        self.uncreatable: int | None = None
        self.is_creatable_after_removal = False

    def open(self, name: str, *, writable: bool = False) -> File:
        if writable:
            return super().open(name, writable=True)
        self._of(name)
        self.open_names.append(name)
        return Reading(self, name)

    def create(self, name: str) -> File:
        if self.uncreatable is not None:
            raise OSError(self.uncreatable, os.strerror(self.uncreatable))
        return super().create(name)

    def remove(self, name: str) -> None:
        super().remove(name)
        if self.is_creatable_after_removal:
            self.uncreatable = None


@pytest.fixture
def folder() -> Folder:
    return Folder()


def written(folder: Folder, *, segments: int = 1) -> list[Written]:
    """One indication for each segment."""
    hand = Hand(folder)
    found = []
    for number in range(segments):
        if number:
            hand.roll()
        hand.commit()
        found.append(hand.indication([hand.place(1)]))
    return found


def loaded(segment_reader: SegmentReader, *positions: int) -> list[Indication | None]:
    return segment_reader.load(positions, 0.0)


def test_a_sector_that_cannot_be_read_is_damage(folder: Folder) -> None:
    (record,) = written(folder)
    segment_reader = SegmentReader(folder, MarksFile(folder, journal_id=JOURNAL_ID, oldest=1))
    folder.unreadable = errno.EIO
    assert loaded(segment_reader, record.position) == [None]
    folder.unreadable = None
    (found,) = loaded(segment_reader, record.position)
    assert found is not None
    assert found.body == b"body of 1"


def test_a_disk_that_fails_otherwise_is_told_of(folder: Folder) -> None:
    (record,) = written(folder)
    folder.unreadable = errno.EACCES
    with pytest.raises(PermissionError):
        loaded(
            SegmentReader(folder, MarksFile(folder, journal_id=JOURNAL_ID, oldest=1)),
            record.position,
        )


def test_few_segments_are_held_open_and_none_that_is_removed(folder: Folder) -> None:
    records = written(folder, segments=40)
    segment_reader = SegmentReader(folder, MarksFile(folder, journal_id=JOURNAL_ID, oldest=1))
    found = loaded(segment_reader, *(record.position for record in records))
    assert [one.id for one in found if one is not None] == [record.id for record in records]
    assert len(folder.open_names) == 32
    assert segment_reader.remove(40, Header(40, JOURNAL_ID, 1.0), pack_identities([])) is None
    assert segment_name(40) not in folder.open_names
    assert segment_name(40) not in folder.contents
    segment_reader.close()
    assert folder.open_names == []


def test_a_full_disk_forgets_identities_and_gives_the_room_of_their_segment(
    folder: Folder,
) -> None:
    written(folder, segments=2)
    folder.uncreatable = errno.ENOSPC
    assert (
        SegmentReader(folder, MarksFile(folder, journal_id=JOURNAL_ID, oldest=1)).remove(
            1, Header(1, JOURNAL_ID, 1.0), IDENTITIES
        )
        is None
    )
    assert folder.names() == [segment_name(2)]


def test_a_full_disk_takes_the_identities_of_a_segment_once_it_is_removed(folder: Folder) -> None:
    written(folder, segments=2)
    folder.uncreatable = errno.ENOSPC
    folder.is_creatable_after_removal = True
    kept = SegmentReader(folder, MarksFile(folder, journal_id=JOURNAL_ID, oldest=1)).remove(
        1, Header(1, JOURNAL_ID, 1.0), IDENTITIES
    )
    assert kept is not None
    assert read_identities(bytes(folder.contents[kept.name])) == ([IDENTITY], [])


def test_what_cannot_be_kept_of_a_segment_for_another_reason_keeps_it(folder: Folder) -> None:
    written(folder, segments=2)
    folder.uncreatable = errno.EACCES
    with pytest.raises(PermissionError):
        SegmentReader(folder, MarksFile(folder, journal_id=JOURNAL_ID, oldest=1)).remove(
            1, Header(1, JOURNAL_ID, 1.0), IDENTITIES
        )
    assert folder.names() == [segment_name(1), segment_name(2)]


def test_identities_stand_in_a_file_of_their_own_before_their_segment_goes(folder: Folder) -> None:
    written(folder, segments=2)
    segment_reader = SegmentReader(folder, MarksFile(folder, journal_id=JOURNAL_ID, oldest=1))
    kept = segment_reader.remove(1, Header(1, JOURNAL_ID, 1.0), IDENTITIES)
    assert kept is not None
    assert folder.names() == sorted([kept.name, segment_name(2)])
    segment_reader.remove_files([kept.name])
    assert folder.names() == [segment_name(2)]
