"""What tells the journal that its open file is still the file of its name."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.journal.files import SystemFiles

NAME = "segment"


def delete(folder: Path) -> None:
    (folder / NAME).unlink()


def replace(folder: Path) -> None:
    delete(folder)
    (folder / NAME).write_bytes(b"data")


def rename(folder: Path) -> None:
    (folder / NAME).rename(folder / "moved")


def move_folder(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def replace_folder(folder: Path) -> None:
    move_folder(folder)
    shutil.copytree(folder.with_name("moved"), folder)


def test_a_file_that_stays_is_found_without_a_stat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SystemFiles(tmp_path)
    file = files.create("spare")
    files.rename("spare", NAME)
    assert file.is_named(NAME)
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", forbidden)
        patched.setattr(os, "fstat", forbidden)
        assert file.is_named(NAME)
        file.write_through(0, b"data")
        assert file.is_named(NAME)
    file.close()


def forbidden(*_: Any, **__: Any) -> Any:
    raise AssertionError("its next write would cost more")


@pytest.mark.parametrize("harm", [delete, replace, rename, move_folder, replace_folder])
def test_a_file_that_was_deleted_moved_or_replaced_is_told(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    file = SystemFiles(folder).create(NAME)
    assert file.is_named(NAME)
    harm(folder)
    assert not file.is_named(NAME)
    assert not file.is_named(NAME)
    file.close()


def test_the_file_of_another_name_is_another_one(tmp_path: Path) -> None:
    files = SystemFiles(tmp_path)
    one, other = files.create(NAME), files.create("other")
    for _ in range(2):
        assert one.is_named(NAME)
        assert other.is_named("other")
        assert not one.is_named("other")
        assert not other.is_named(NAME)
    one.close()
    other.close()


def test_a_system_that_does_not_say_where_a_file_is_has_it_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "readlink", unknown)
    file = SystemFiles(tmp_path).create(NAME)
    assert file.is_named(NAME)
    replace(tmp_path)
    assert not file.is_named(NAME)
    file.close()


def unknown(*_: Any, **__: Any) -> Any:
    raise FileNotFoundError
