"""The files that crash: what was synced is there, and what was not may be anything that a disk
can make of it. The kill points stand on this, so it is held apart from them."""

import errno
from random import Random

import pytest

from support.crashing_files import SECTOR, Disk, Kind, Operation, RecordingFiles

DRAWS = 200


def told(files: RecordingFiles, upto: int | None = None) -> Disk:
    disk = Disk()
    for operation in files.operations[:upto]:
        disk.tell(operation)
    return disk


def cuts(disk: Disk, begun: Operation | None = None) -> list[dict[str, bytes]]:
    return [disk.after_power_cut(begun, Random(seed)) for seed in range(DRAWS)]


def test_they_behave_as_a_folder_does() -> None:
    files = RecordingFiles({"old": b"content"})
    with pytest.raises(FileExistsError):
        files.create("old")
    with pytest.raises(FileNotFoundError):
        files.open("none")
    made = files.create("new")
    made.allocate(0, 8)
    made.write(2, b"ab")
    assert made.read(0, 100) == b"\0\0ab\0\0\0\0"
    made.truncate(3)
    assert files.size("new") == 3
    files.rename("new", "old")
    assert files.names() == ["old"]
    # A file that is open stays what it is, whatever becomes of its name.
    files.remove("old")
    assert made.read(0, 100) == b"\0\0a"
    assert files.image() == {}


def test_what_was_synced_survives_and_what_was_not_may_be_gone() -> None:
    files = RecordingFiles()
    file = files.create("log")
    file.write(0, b"a" * 4)
    file.sync()
    files.sync_folder()
    file.write(4, b"b" * 4)
    found = {image["log"] for image in cuts(told(files))}
    assert all(content.startswith(b"aaaa") for content in found)
    assert {b"aaaa", b"aaaabbbb"} <= found
    assert any(4 < len(content) < 8 for content in found)


def test_unsynced_sectors_come_in_any_order_and_leave_holes_of_zeros() -> None:
    files = RecordingFiles()
    file = files.create("log")
    files.sync_folder()
    # Begins within a sector, so that it is cut where the disk's sectors end.
    file.write(100, b"x" * 3 * SECTOR)
    found = {image["log"] for image in cuts(told(files))}
    behind = bytes(SECTOR) + b"x" * SECTOR
    assert any(behind in content for content in found)
    for content in found:
        if len(content) > 2 * SECTOR and content[SECTOR] == 0:
            assert content[SECTOR : 2 * SECTOR] == bytes(SECTOR)


def test_names_are_kept_in_order_up_to_any_of_them() -> None:
    files = RecordingFiles()
    for name in ("one", "two"):
        file = files.create(name)
        file.write(0, name.encode())
        file.sync()
    files.rename("two", "three")
    found = {tuple(sorted(image)) for image in cuts(told(files))}
    assert found == {(), ("one",), ("one", "two"), ("one", "three")}
    files.sync_folder()
    assert {tuple(sorted(image)) for image in cuts(told(files))} == {("one", "three")}


def test_a_kill_loses_nothing_that_was_written() -> None:
    files = RecordingFiles()
    file = files.create("log")
    file.write(0, b"a" * 4)
    disk = told(files)
    begun = Operation(kind=Kind.WRITE, file=0, name="log", offset=4, data=b"b" * 4)
    found = {disk.after_kill(begun, Random(seed))["log"] for seed in range(DRAWS)}
    assert found == {b"aaaa" + b"b" * count for count in range(5)}


def test_an_operation_that_fails_has_not_been_done() -> None:
    files = RecordingFiles()
    file = files.create("log")
    full = OSError(errno.ENOSPC, "No space left on device")
    files.failing = lambda operation: full if operation.kind is Kind.WRITE else None
    with pytest.raises(OSError, match="No space"):
        file.write(0, b"a")
    files.failing = None
    file.write(0, b"b")
    assert files.image() == {"log": b"b"}
    assert [operation.kind for operation in files.operations] == [Kind.CREATE, Kind.WRITE]
