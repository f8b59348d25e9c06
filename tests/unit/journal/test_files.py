"""Files of the operating system, on a disk and in memory, and where a call of theirs fails."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pillion_sidecar.journal.files import File, SystemFiles
from support.page_cache import tells_what_it_holds

#: A file system in memory, which knows fewer calls than that of a disk does.
MEMORY = Path("/dev/shm")


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SystemFiles]:
    if request.param == "disk":
        yield SystemFiles(tmp_path)
        return
    if not MEMORY.is_dir():
        pytest.skip("there is no file system in memory")
    with TemporaryDirectory(dir=MEMORY) as folder:
        yield SystemFiles(Path(folder))


class Calls:
    """Stands in for one of ``os``'s calls; fails, or does less than it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.count = 0
        self.fails: int | None = None
        self.size: int | None = None
        self._call = getattr(os, name)
        monkeypatch.setattr(os, name, self._stand_in)

    def _stand_in(self, descriptor: int, *arguments: object) -> object:
        self.count += 1
        if self.fails is not None:
            raise OSError(self.fails, os.strerror(self.fails))
        if self.size is None:
            return self._call(descriptor, *arguments)
        size, self.size = self.size, None
        what, *others = arguments
        if isinstance(what, int):
            return self._call(descriptor, min(what, size), *others)
        shorter = [what[0][:size]] if isinstance(what, list) else what[:size]  # type: ignore[index]
        return self._call(descriptor, shorter, *others)


@pytest.fixture
def file(files: SystemFiles) -> Iterator[File]:
    made = files.create("one")
    yield made
    made.close()


def test_a_folder_has_the_files_that_were_made_in_it(files: SystemFiles) -> None:
    first, second = files.create("b"), files.create("a")
    with pytest.raises(FileExistsError):
        files.create("a")
    with pytest.raises(FileNotFoundError):
        files.open("c")
    second.write(0, b"second")
    assert files.names() == ["a", "b"]
    files.rename("a", "b")
    files.sync_folder()
    assert files.names() == ["b"]
    assert files.size("b") == 6
    # Opened before, it is the file that the name stood for.
    assert first.read(0, 10) == b""
    files.remove("b")
    assert files.names() == []
    assert second.read(0, 10) == b"second"
    first.close()
    second.close()


def test_only_what_was_opened_for_it_can_be_written(files: SystemFiles, file: File) -> None:
    for_reading = files.open("one")
    with pytest.raises(OSError, match="Bad file descriptor"):
        for_reading.write(0, b"a")
    for_reading.close()
    for_writing = files.open("one", writable=True)
    for_writing.write(0, b"a")
    for_writing.close()
    assert file.read(0, 2) == b"a"


def test_room_that_was_reserved_is_zeros_and_a_file_can_be_cut(
    files: SystemFiles, file: File
) -> None:
    file.allocate(0, 100)
    file.write(2, b"ab")
    file.sync()
    assert file.read(0, 200) == b"\0\0ab" + bytes(96)
    file.truncate(3)
    assert files.size("one") == 3


@pytest.mark.parametrize("data", [b"abcd", bytearray(b"abcd"), memoryview(b"abcd")])
def test_what_is_written_through_stands_where_it_was_put(
    file: File, data: bytes | bytearray | memoryview
) -> None:
    file.write_through(3, data)
    assert file.read(0, 10) == b"\0\0\0abcd"


def test_what_is_written_through_is_synced_by_the_call_that_writes_it(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, syncs = Calls(monkeypatch, "pwritev"), Calls(monkeypatch, "fdatasync")
    file.write_through(0, b"abcd")
    assert (calls.count, syncs.count) == (1, 0)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_where_no_call_writes_and_syncs_it_is_written_and_then_synced(
    file: File, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    calls, syncs = Calls(monkeypatch, "pwritev"), Calls(monkeypatch, "fdatasync")
    calls.fails = number
    file.write_through(3, b"abcd")
    assert file.read(0, 10) == b"\0\0\0abcd"
    assert syncs.count == 1


def test_the_rest_of_what_was_written_in_part_is_written_and_synced(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, syncs = Calls(monkeypatch, "pwritev"), Calls(monkeypatch, "fdatasync")
    calls.size = 3
    file.write_through(1, b"abcdefgh")
    assert file.read(0, 10) == b"\0abcdefgh"
    assert syncs.count == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_fails_is_told_of_and_not_tried_again(
    file: File, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    calls, syncs = Calls(monkeypatch, "pwritev"), Calls(monkeypatch, "fdatasync")
    calls.fails = number
    with pytest.raises(OSError, match=os.strerror(number)) as failed:
        file.write_through(0, b"abcd")
    assert failed.value.errno == number
    assert (calls.count, syncs.count) == (1, 0)


def test_a_sync_that_fails_behind_a_write_in_part_is_told_of(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, syncs = Calls(monkeypatch, "pwritev"), Calls(monkeypatch, "fdatasync")
    calls.size, syncs.fails = 1, errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.write_through(0, b"abcd")


@pytest.mark.parametrize(("name", "size"), [("pwrite", 3), ("pread", 3)])
def test_a_call_that_a_signal_cut_short_goes_on(
    file: File, monkeypatch: pytest.MonkeyPatch, name: str, size: int
) -> None:
    calls = Calls(monkeypatch, name)
    calls.size = size
    file.write(1, b"abcdefgh")
    assert file.read(1, 8) == b"abcdefgh"
    assert calls.count == 2


def test_what_was_just_written_is_read_without_the_disk_where_the_file_system_can_tell(
    file: File,
) -> None:
    file.write_through(0, b"abcdefgh")
    buffer = bytearray(4)
    size = file.read_cached(2, buffer)
    assert buffer[:size] == b"cdef"[:size]
    # At the end of the file there is nothing, whoever is asked.
    assert file.read_cached(100, buffer) == 0


def test_a_disk_has_what_was_just_written_in_its_page_cache(tmp_path: Path) -> None:
    if not tells_what_it_holds(tmp_path):
        pytest.skip("this file system does not tell what its page cache holds")
    file = SystemFiles(tmp_path).create("one")
    file.write_through(0, b"abcdefgh")
    buffer = bytearray(100)
    try:
        assert file.read_cached(0, buffer) == 8
    finally:
        file.close()
    assert buffer[:8] == b"abcdefgh"


@pytest.mark.parametrize(
    "number", [errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS], ids=os.strerror
)
def test_what_cannot_be_had_without_the_disk_is_nothing(
    file: File, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file.write(0, b"abcd")
    Calls(monkeypatch, "preadv").fails = number
    assert file.read_cached(0, bytearray(4)) == 0


def test_a_disk_that_cannot_be_read_is_told_of(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    Calls(monkeypatch, "preadv").fails = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.read_cached(0, bytearray(4))


def test_the_boot_id_stays_while_the_machine_runs(tmp_path: Path) -> None:
    boot_id = SystemFiles(tmp_path).boot_id()
    assert len(boot_id) == 16
    assert SystemFiles(tmp_path).boot_id() == boot_id
