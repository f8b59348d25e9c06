"""The folders of a store's sessions."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pillion_sidecar.journal.files import Files, SystemFiles


class Folders(Protocol):
    """The folders of the sessions. Every call blocks and may raise OSError."""

    def names(self) -> list[str]: ...

    def create(self, name: str) -> None:
        """Create a folder, unless it is there; on disk when this returns."""

    def open(self, name: str) -> Files: ...

    def remove(self, name: str) -> None:
        """Remove a folder with all in it; on disk when this returns."""

    def changed_at(self, name: str) -> float:
        """Return when a folder was last written to, in seconds since the epoch."""

    def own_files(self) -> Files:
        """Return the files beside the folders."""


class SystemFolders:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        with os.scandir(self._folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def create(self, name: str) -> None:
        (self._folder / name).mkdir(mode=0o700, exist_ok=True)
        SystemFiles(self._folder).sync_folder()

    def open(self, name: str) -> Files:
        return SystemFiles(self._folder / name)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            # It is gone, and the disk has refused to say so.
            shutil.rmtree(self._folder / name)
        SystemFiles(self._folder).sync_folder()

    def changed_at(self, name: str) -> float:
        folder = self._folder / name
        with os.scandir(folder) as entries:
            files = [entry.stat().st_mtime for entry in entries]
        return max(files, default=folder.stat().st_mtime)

    def own_files(self) -> Files:
        return SystemFiles(self._folder)
