"""Follows a folder of resources: each settled change comes out as a configuration, or as why not.

The folder is looked at, not listened to (``docs/decisions/0004-watching-the-resource-folder.md``).
What was good before stays good: a broken revision is reported, and it is for whoever consumes
the changes to go on with the last good one.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from pillion_sidecar.config.loader import is_followed_file
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.filewatch import SHORTAGES, Look, Timers, look_at, pause

#: Seconds between two looks at the folder.
LOOK_INTERVAL = 0.25
#: Looks after which a folder that never comes to rest is loaded all the same.
MOST_UNSETTLED_LOOKS = 40
#: Looks after which a folder that could not be read is read again, though nothing in it changed.
LOOKS_BETWEEN_READS = 20

#: The name of each resource file, and a look at it.
Snapshot = tuple[tuple[str, Look], ...]


def snapshot(path: Path) -> Snapshot:
    """What tells one content of the folder from another, without reading it.

    A folder or file that is not there, or not to be seen, is left out.

    Raises OSError where the system is short of descriptors or memory: that says nothing of the
    folder, and an empty snapshot would.
    """
    seen = []
    # os.scandir rather than pathlib: a look at 1,000 files is four times as cheap.
    try:
        with os.scandir(path) as entries:
            files = [entry for entry in entries if is_followed_file(entry.name)]
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return ()
    for entry in files:
        try:
            seen.append((entry.name, look_at(entry.path)))
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            continue
    return tuple(sorted(seen))


class FolderWatcher:
    """Watches one folder.

    ``load`` reads it anew (it is called in a thread) and raises ConfigurationError where it cannot.
    """

    def __init__(
        self,
        path: Path,
        *,
        load: Callable[[], Configuration],
        timers: Timers,
        interval: float = LOOK_INTERVAL,
    ) -> None:
        self._path = path
        self._load = load
        self._timers = timers
        self._interval = interval

    async def changes(self) -> AsyncIterator[Configuration | ConfigurationError]:
        """Yield what the folder holds now, then each change, for ever.

        A change is loaded once two looks in a row have seen the same, so half-written folders are
        not. Touching files without changing what they say yields nothing.
        """
        seen = await self._look(())
        last: Configuration | ConfigurationError | None = None
        while True:
            outcome = await self._loaded()
            # A swap while it was being read may have mixed two contents: look before believing.
            after = await self._look(seen)
            if after != seen:
                seen = await self._settled(after)
                continue
            if not _same(outcome, last):
                yield outcome
                last = outcome
            seen = await self._settled(await self._changed(seen, outcome))

    async def _loaded(self) -> Configuration | ConfigurationError:
        try:
            return await asyncio.to_thread(self._load)
        except ConfigurationError as error:
            return error
        except OSError as error:
            # Nothing is known of what the folder says, so what it said before stays in force.
            message = f"could not be read: {error.strerror or type(error).__name__}"
            remedy = "It is read again soon."
            return ConfigurationError(
                [Problem(reason="Unreadable", message=message, remedy=remedy, may_pass=True)]
            )

    async def _look(self, seen: Snapshot) -> Snapshot:
        """Look at the folder; ``seen``, the look before, stands for one that cannot be had."""
        try:
            return await asyncio.to_thread(snapshot, self._path)
        except OSError:
            return seen

    async def _changed(
        self, seen: Snapshot, outcome: Configuration | ConfigurationError
    ) -> Snapshot:
        """Wait for a change; or for some looks, where what was read may be read otherwise now."""
        may_pass = isinstance(outcome, ConfigurationError) and outcome.may_pass
        looks = 0
        while True:
            await pause(self._timers, self._interval)
            now = await self._look(seen)
            looks += 1
            if now != seen or (may_pass and looks >= LOOKS_BETWEEN_READS):
                return now

    async def _settled(self, seen: Snapshot) -> Snapshot:
        for _ in range(MOST_UNSETTLED_LOOKS):
            await pause(self._timers, self._interval)
            now = await self._look(seen)
            if now == seen:
                break
            seen = now
        return seen


def _same(
    outcome: Configuration | ConfigurationError, last: Configuration | ConfigurationError | None
) -> bool:
    match outcome, last:
        case Configuration(), Configuration():
            said = outcome.revision, outcome.kept_filters
            return said == (last.revision, last.kept_filters)
        case ConfigurationError(), ConfigurationError():
            return outcome.problems == last.problems
        case _:
            return False
