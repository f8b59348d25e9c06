"""A folder that changes: what comes out of it, and when."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pillion_cim.schema import load_schema
from pillion_sidecar.clock import Timer
from pillion_sidecar.config.loader import (
    LOOK_INTERVAL,
    LOOKS_BETWEEN_READS,
    MOST_UNSETTLED_LOOKS,
    FolderWatcher,
    load_folder,
    snapshot,
)
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.testing import FakeTime
from support.resources import destination, write
from support.strange_files import STRANGE, strange_file

#: Read once, as a deliverer does.
SCHEMA = load_schema()

Outcome = Configuration | ConfigurationError


class Looks:
    """Timers that let a test act while the watcher waits for its next look."""

    def __init__(self) -> None:
        self._time = FakeTime()
        self._waiting = asyncio.Event()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        timer = self._time.call_later(delay, callback)
        self._waiting.set()
        return timer

    async def waiting(self) -> None:
        """Until the watcher waits for its next look."""
        await self._waiting.wait()

    async def next(self, looks: int = 1) -> None:
        """Let the watcher look, and wait until it waits again."""
        for _ in range(looks):
            await self._waiting.wait()
            self._waiting.clear()
            self._time.advance(LOOK_INTERVAL)
        await self._waiting.wait()


class Watched:
    """A watcher at work, and what has come out of it."""

    def __init__(self, folder: Path) -> None:
        self.looks = Looks()
        self.loads = 0
        self.after_load: Callable[[], object] = lambda: None
        self.outcomes: list[Outcome] = []
        self._folder = folder

    def load(self) -> Configuration:
        self.loads += 1
        try:
            return load_folder(self._folder, schema=SCHEMA)
        finally:
            self.after_load()

    async def run(self) -> None:
        watcher = FolderWatcher(self._folder, load=self.load, timers=self.looks)
        async for outcome in watcher.changes():
            self.outcomes.append(outcome)


@asynccontextmanager
async def watch(folder: Path) -> AsyncIterator[Watched]:
    watched = Watched(folder)
    task = asyncio.create_task(watched.run())
    try:
        await watched.looks.waiting()
        yield watched
    finally:
        task.cancel()
        await asyncio.wait([task])


def timeouts(outcomes: list[Outcome]) -> list[float | None]:
    """The time-out of the one destination in each outcome; None for an error."""
    return [
        outcome.destinations["ops"].timeout_seconds if isinstance(outcome, Configuration) else None
        for outcome in outcomes
    ]


def put(folder: Path, timeout: int) -> None:
    """Write one destination the way an editor does: a new file that takes the old one's name."""
    write(folder, destination(timeoutSeconds=timeout), file=".new")
    os.replace(folder / ".new", folder / "resources.yaml")


async def test_what_the_folder_holds_comes_first(tmp_path: Path) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:
        assert timeouts(watched.outcomes) == [1.0]


async def test_nothing_comes_while_nothing_changes(tmp_path: Path) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:
        await watched.looks.next(20)
        assert (len(watched.outcomes), watched.loads) == (1, 1)


async def test_a_change_comes_once_the_folder_rests(tmp_path: Path) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:
        put(tmp_path, 2)
        await watched.looks.next()
        assert timeouts(watched.outcomes) == [1.0]
        put(tmp_path, 33)
        await watched.looks.next()
        assert timeouts(watched.outcomes) == [1.0]
        await watched.looks.next()
        assert timeouts(watched.outcomes) == [1.0, 33.0]


async def test_a_folder_that_never_rests_is_loaded_all_the_same(tmp_path: Path) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:
        for number in range(2, MOST_UNSETTLED_LOOKS + 3):
            put(tmp_path, number)
            await watched.looks.next()
        assert watched.loads == 2


async def test_a_broken_revision_is_reported_once_and_a_mended_one_follows(tmp_path: Path) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:
        put(tmp_path, 0)
        await watched.looks.next(2)
        os.utime(tmp_path / "resources.yaml", (1, 1))
        await watched.looks.next(2)
        assert timeouts(watched.outcomes) == [1.0, None]
        put(tmp_path, 1)
        await watched.looks.next(2)
        assert timeouts(watched.outcomes) == [1.0, None, 1.0]


async def test_a_touched_file_that_says_the_same_is_no_change(tmp_path: Path) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:
        os.utime(tmp_path / "resources.yaml", (1, 1))
        await watched.looks.next(2)
        assert (len(watched.outcomes), watched.loads) == (1, 2)


async def test_a_swap_while_it_is_read_is_read_again_before_it_is_believed(tmp_path: Path) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:

        def swap() -> None:
            watched.after_load = lambda: None
            put(tmp_path, 3)

        watched.after_load = swap
        put(tmp_path, 2)
        await watched.looks.next(3)
        assert timeouts(watched.outcomes) == [1.0, 3.0]


async def test_the_swap_of_a_volume_of_kubernetes_is_a_change(tmp_path: Path) -> None:
    for version, timeout in (("..1", 1), ("..2", 2)):
        (tmp_path / version).mkdir()
        put(tmp_path / version, timeout)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "resources.yaml").symlink_to("..data/resources.yaml")
    async with watch(tmp_path) as watched:
        (tmp_path / "..data_tmp").symlink_to("..2")
        os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
        await watched.looks.next(2)
        assert timeouts(watched.outcomes) == [1.0, 2.0]


async def test_a_folder_that_goes_and_comes_back_is_followed(tmp_path: Path) -> None:
    folder, away = tmp_path / "here", tmp_path / "away"
    folder.mkdir()
    put(folder, 1)
    async with watch(folder) as watched:
        folder.rename(away)
        await watched.looks.next(2)
        away.rename(folder)
        await watched.looks.next(2)
        assert timeouts(watched.outcomes) == [1.0, None, 1.0]


def short_of(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the system refuse whatever opens a folder."""

    def refuse(_path: object) -> object:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "scandir", refuse)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_shortage_of_descriptors_is_no_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:
        with monkeypatch.context() as short:
            short_of(number, short)
            await watched.looks.next(30)
            assert (len(watched.outcomes), watched.loads) == (1, 1)
        put(tmp_path, 2)
        await watched.looks.next(2)
        assert timeouts(watched.outcomes) == [1.0, 2.0]


async def test_what_a_shortage_hid_is_read_again_though_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:
        put(tmp_path, 2)
        with monkeypatch.context() as short:

            def refuse(*_: object) -> object:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

            short.setattr(Path, "open", refuse)
            await watched.looks.next(2)
            assert timeouts(watched.outcomes) == [1.0, None]
            assert "reads it again soon" in str(watched.outcomes[1])
        await watched.looks.next(LOOKS_BETWEEN_READS + 1)
        assert timeouts(watched.outcomes) == [1.0, None, 2.0]


async def test_an_error_of_the_system_while_loading_ends_nothing(tmp_path: Path) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:

        def fail() -> None:
            watched.after_load = lambda: None
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        watched.after_load = fail
        put(tmp_path, 2)
        await watched.looks.next(2)
        assert timeouts(watched.outcomes) == [1.0, None]
        await watched.looks.next(LOOKS_BETWEEN_READS + 1)
        assert timeouts(watched.outcomes) == [1.0, None, 2.0]


@pytest.mark.parametrize("what", STRANGE)
async def test_whatever_lies_in_the_folder_the_watcher_goes_on(tmp_path: Path, what: str) -> None:
    put(tmp_path, 1)
    async with watch(tmp_path) as watched:
        for name in ("x.yaml", "0123456789abcdef.part-01-of-01"):
            with strange_file(tmp_path, name, what):
                await watched.looks.next(2)
            await watched.looks.next(2)
        put(tmp_path, 2)
        await watched.looks.next(2)
        taken = [found for found in timeouts(watched.outcomes) if found is not None]
        assert (taken[0], taken[-1]) == (1.0, 2.0)


@pytest.mark.parametrize("change", ["add", "remove", "grow", "replace"])
def test_a_snapshot_tells_every_change_of_a_file(tmp_path: Path, change: str) -> None:
    put(tmp_path, 1)
    before = snapshot(tmp_path)
    match change:
        case "add":
            write(tmp_path, destination(), file="b.yml")
        case "remove":
            (tmp_path / "resources.yaml").unlink()
        case "grow":
            with (tmp_path / "resources.yaml").open("a") as file:
                file.write("\n")
        case "replace":
            put(tmp_path, 1)
    assert snapshot(tmp_path) != before


def test_a_snapshot_leaves_out_what_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, 1)
    before = snapshot(tmp_path)
    (tmp_path / ".resources.yaml.swp").write_text("x")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    assert snapshot(tmp_path) == before
