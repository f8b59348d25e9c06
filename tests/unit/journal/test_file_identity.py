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
    identity = file.identity()
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", forbidden)
        patched.setattr(os, "fstat", forbidden)
        assert files.identity(NAME) == identity
        file.write_through(0, b"data")
        assert files.identity(NAME) == identity
    file.close()
    assert files.identity(NAME) == identity


def forbidden(*_: Any, **__: Any) -> Any:
    raise AssertionError("its next write would cost more")


@pytest.mark.parametrize("harm", [delete, replace, rename, move_folder, replace_folder])
def test_a_file_that_was_deleted_moved_or_replaced_is_told(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    files = SystemFiles(folder)
    file = files.create(NAME)
    identity = file.identity()
    assert files.identity(NAME) == identity
    harm(folder)
    try:
        assert files.identity(NAME) != identity
    except FileNotFoundError:
        assert not (folder / NAME).exists()
    file.close()


def test_the_file_of_another_name_has_another_identity(tmp_path: Path) -> None:
    files = SystemFiles(tmp_path)
    one, other = files.create(NAME), files.create("other")
    identity = one.identity()
    assert files.identity("other") == other.identity() != identity
    assert files.identity(NAME) == identity
    one.close()
    other.close()


def test_a_system_that_does_not_say_where_a_file_is_has_it_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "readlink", unknown)
    files = SystemFiles(tmp_path)
    file = files.create(NAME)
    identity = file.identity()
    assert files.identity(NAME) == identity
    replace(tmp_path)
    assert files.identity(NAME) != identity
    file.close()


def unknown(*_: Any, **__: Any) -> Any:
    raise FileNotFoundError
