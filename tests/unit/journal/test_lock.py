"""The lock of a journal's folder, and what is said where it cannot be opened."""

import errno
import os
import re
from pathlib import Path

import pytest

from pillion_sidecar.journal.files import (
    LOCK_NAME,
    FolderError,
    LockedError,
    folder_error,
    open_folder,
    unreadable_error,
)


def test_a_missing_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    lock = open_folder(tmp_path / "journal")
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "journal" / LOCK_NAME).read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_second_one_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    lock = open_folder(tmp_path)
    with pytest.raises(LockedError, match=f"{re.escape(str(tmp_path))}.*process {os.getpid()};"):
        open_folder(tmp_path)
    lock.release()
    lock.release()
    open_folder(tmp_path).release()


def test_what_an_earlier_process_left_does_not_lock(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_text("99999999999999999999\n")
    open_folder(tmp_path).release()
    assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_a_folder_that_is_made_is_on_disk_in_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    open_folder(tmp_path / "journal").release()
    assert synced == [tmp_path]
    open_folder(tmp_path / "journal").release()
    assert synced == [tmp_path]


def test_a_full_disk_locks_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_folder(tmp_path).release()

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    monkeypatch.setattr(os, "ftruncate", refuse)
    lock = open_folder(tmp_path)
    with pytest.raises(LockedError):
        open_folder(tmp_path)
    lock.release()


def test_a_missing_parent_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"No such file.*make its parent folder first"):
        open_folder(tmp_path / "no" / "journal")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("")
    with pytest.raises(FolderError, match="Not a directory; name a folder"):
        open_folder(tmp_path / "journal")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied; let the user"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system; it is on a read"),
    ],
)
def test_a_folder_that_must_not_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, message: str
) -> None:
    def refuse(*_: object) -> int:
        raise error

    # Nothing is forbidden to root, as whom tests may run.
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(FolderError, match=f"{re.escape(str(tmp_path))}.: {message}"):
        open_folder(tmp_path)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EROFS, "Read-only file system; it is on a read-only file system"),
        (errno.EACCES, "Permission denied; let the user that the deliverer runs as"),
        (errno.ENOSPC, "No space left on device; the disk is full; make room"),
        (errno.EIO, "Input/output error; see to the disk"),
    ],
)
def test_each_error_names_the_folder_and_a_remedy(code: int, remedy: str) -> None:
    error = OSError(code, os.strerror(code))
    assert re.search(f"'/j': {remedy}", str(folder_error("/j", error)))
    assert str(unreadable_error("x.segment", error)).startswith("journal file 'x.segment': ")
