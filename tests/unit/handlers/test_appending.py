"""Lines in files: whole lines only, bounded, and never outside the folder."""

import errno
import fcntl
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.handlers.appending import AppendError, Line, append
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.transport.target import check_forms
from pillion_sidecar.protocols.file import PROTOCOL

NAME = "alerts.ndjson"


def line(number: int, *, size: int = 30, max_bytes: int = 1 << 20, max_files: int = 5) -> Line:
    text = b'{"class":"%d"' % number
    return Line(text + b" " * (size - len(text) - 2) + b"}\n", max_bytes, max_files)


def numbers(file: Path) -> list[int]:
    return [int(one) for one in re.findall(r'"class":"([0-9]+)"', file.read_text())]


def failing(monkeypatch: pytest.MonkeyPatch, name: str, code: int, *, after: int = 0) -> None:
    """Let a call of ``os`` fail once ``after`` calls have succeeded."""
    real, calls = getattr(os, name), [0]

    def call(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] > after:
            raise OSError(code, os.strerror(code))
        return real(*given, **named)

    monkeypatch.setattr(os, name, call)


def test_lines_are_appended_in_order(tmp_path: Path) -> None:
    assert append(tmp_path, NAME, [line(1), line(2)]) == (2, None)
    assert append(tmp_path, NAME, [line(3)]) == (1, None)
    assert numbers(tmp_path / NAME) == [1, 2, 3]


def test_a_file_is_for_its_owner_and_group(tmp_path: Path) -> None:
    append(tmp_path, NAME, [line(1)])
    assert (tmp_path / NAME).stat().st_mode & 0o777 & ~0o640 == 0


def test_they_are_synced_before_they_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "fdatasync", errno.EIO)
    done, error = append(tmp_path, NAME, [line(1)])
    assert done == 0
    assert str(error) == os.strerror(errno.EIO)
    assert (tmp_path / NAME).read_bytes() == b""


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    append(tmp_path, NAME, [line(1)])
    failing(monkeypatch, "write", code, after=1)
    done, error = append(tmp_path, NAME, [line(2), line(3)])
    assert (done, str(error)) == (0, os.strerror(code))
    assert error is not None
    assert not error.may_have
    assert numbers(tmp_path / NAME) == [1]


def test_what_cannot_be_removed_may_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "fdatasync", errno.EIO)
    failing(monkeypatch, "ftruncate", errno.EROFS)
    _, error = append(tmp_path, NAME, [line(1)])
    assert error is not None
    assert error.may_have
    assert "could not be removed" in str(error)


@pytest.mark.parametrize("left", [b'{"cl', b'{"class":"7"', b"\0\0\0\0\0\0\0"])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_the_rest_of_a_crash_is_cut_off(tmp_path: Path, left: bytes, before: int) -> None:
    whole = b"".join(line(number).text for number in range(before))
    (tmp_path / NAME).write_bytes(whole + left)
    assert append(tmp_path, NAME, [line(9)]) == (1, None)
    assert (tmp_path / NAME).read_bytes() == whole + line(9).text


def test_a_last_line_without_its_line_feed_gets_one(tmp_path: Path) -> None:
    first, second = line(1).text, line(2).text
    (tmp_path / NAME).write_bytes(first + second.removesuffix(b"\n"))
    assert append(tmp_path, NAME, [line(3)]) == (1, None)
    assert (tmp_path / NAME).read_bytes() == first + second + line(3).text


def test_a_last_line_of_something_else_is_left_alone(tmp_path: Path) -> None:
    left = line(1).text + b"operator note without end"
    (tmp_path / NAME).write_bytes(left)
    done, error = append(tmp_path, NAME, [line(2)])
    assert (done, str(error)) == (0, "its last line is something else; name another one")
    assert (tmp_path / NAME).read_bytes() == left


def test_a_long_rest_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(line(1).text + b'{"class":' + 300_000 * b" ")
    append(tmp_path, NAME, [line(2)])
    assert numbers(tmp_path / NAME) == [1, 2]


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("kind: Secret\n")
    done, error = append(tmp_path, NAME, [line(1)])
    assert (done, str(error)) == (0, "it holds something else; name another one")
    assert (tmp_path / NAME).read_text() == "kind: Secret\n"


def test_a_full_file_is_rolled_and_old_ones_are_deleted(tmp_path: Path) -> None:
    given = [line(number, max_bytes=60, max_files=2) for number in range(9)]
    assert append(tmp_path, NAME, given) == (9, None)
    found = {one.name: numbers(one) for one in tmp_path.iterdir()}
    assert found == {NAME: [8], f"{NAME}.1": [6, 7], f"{NAME}.2": [4, 5]}


def test_a_line_that_is_too_long_has_a_file_of_its_own(tmp_path: Path) -> None:
    given = [line(1, max_bytes=60), line(2, size=100, max_bytes=60), line(3, max_bytes=60)]
    assert append(tmp_path, NAME, given) == (3, None)
    found = {one.name: numbers(one) for one in tmp_path.iterdir()}
    assert found == {NAME: [3], f"{NAME}.1": [2], f"{NAME}.2": [1]}


def test_a_folder_in_the_place_of_a_rolled_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.1").mkdir()
    assert append(tmp_path, NAME, [line(1, max_bytes=30)]) == (1, None)
    done, error = append(tmp_path, NAME, [line(2, max_bytes=30)])
    assert done == 0
    assert str(error) == f"it is full, and {NAME}.1 is a folder: remove that"
    assert sorted(one.name for one in tmp_path.iterdir()) == [NAME, f"{NAME}.1"]


def test_fewer_files_are_kept_once_the_option_says_so(tmp_path: Path) -> None:
    append(tmp_path, NAME, [line(number, max_bytes=30) for number in range(5)])
    (tmp_path / f"{NAME}.old").write_text("kept")
    append(tmp_path, NAME, [line(5, max_bytes=30, max_files=1)])
    assert sorted(one.name for one in tmp_path.iterdir()) == [NAME, f"{NAME}.1", f"{NAME}.old"]


def test_what_was_rolled_before_a_failure_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "fdatasync", errno.ENOSPC, after=1)
    done, error = append(tmp_path, NAME, [line(n, max_bytes=60) for n in range(4)])
    assert done == 2
    assert error is not None
    assert numbers(tmp_path / f"{NAME}.1") == [0, 1]
    assert numbers(tmp_path / NAME) == []


def test_no_symbolic_link_is_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.write_bytes(line(1).text)
    (folder / NAME).symlink_to(outside)
    done, error = append(folder, NAME, [line(2)])
    assert (done, str(error)) == (0, "it is a symbolic link, which is not followed")
    assert numbers(outside) == [1]


def test_a_link_that_leads_nowhere_makes_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / NAME).symlink_to(tmp_path / "outside")
    append(folder, NAME, [line(2)])
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_only_a_regular_file_is_written(tmp_path: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(tmp_path / NAME)
    else:
        (tmp_path / NAME).mkdir()
    done, error = append(tmp_path, NAME, [line(1)])
    assert (done, str(error)) == (0, "it is not a regular file; name another one")


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    done, error = append(tmp_path / "none", NAME, [line(1)])
    assert (done, str(error)) == (0, f"--delivery-folder: {os.strerror(errno.ENOENT)}")


def test_a_file_that_was_renamed_while_its_lock_was_awaited_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock(_file: int, _how: int) -> None:
        if not (tmp_path / f"{NAME}.1").exists():
            (tmp_path / NAME).rename(tmp_path / f"{NAME}.1")

    monkeypatch.setattr(fcntl, "flock", lock)
    append(tmp_path, NAME, [line(1)])
    assert numbers(tmp_path / NAME) == [1]
    assert numbers(tmp_path / f"{NAME}.1") == []


def test_a_lock_that_another_holds_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / NAME).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(other, fcntl.LOCK_UN))
        assert append(tmp_path, NAME, [line(1)]) == (1, None)


def test_a_lock_that_is_never_free_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with (tmp_path / NAME).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done, error = append(tmp_path, NAME, [line(1)])
    assert done == 0
    assert str(error) == "another process holds its lock"
    assert sum(waits) == pytest.approx(2)
    assert (tmp_path / NAME).read_text() == ""


def test_a_file_that_is_always_renamed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: (tmp_path / NAME).unlink())
    done, error = append(tmp_path, NAME, [line(1)])
    assert done == 0
    assert isinstance(error, AppendError)
    assert "renames it" in str(error)


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    append(tmp_path, NAME, [line(n, max_bytes=30) for n in range(3)])
    (tmp_path / "other").mkdir()
    append(tmp_path, "other", [line(1)])
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "url",
    [
        "file:///a",
        "FILE:///alerts.ndjson",
        "file:///a.1b",
        "file:///_a-b.c.d",
        "file:///1",
        "file:///" + 200 * "a",
    ],
)
def test_a_name_is_taken(url: str) -> None:
    check_forms(url, PROTOCOL)


@pytest.mark.parametrize(
    "url",
    [
        "file:///",
        "file:///..",
        "file:///../a",
        "file:///a/b",
        "file:////etc/passwd",
        "file:///.a",
        "file:///-a",
        "file:///a.1",
        "file:///a.1.",
        "file:///a.ndjson.12",
        "file:///a%2Fb",
        "file:///a?b",
        "file:///a\n",
        "file://host/a",
        "file:a",
        "file:///" + 201 * "a",
        "/a",
        "",
        None,
    ],
)
def test_a_name_is_refused(url: object) -> None:
    with pytest.raises(InvalidDestinationError):
        check_forms(url, PROTOCOL)
