"""Reads and watches a folder of resource files, or of the files of a rendered configuration.

The package's I/O is here; the rest is pure. The watcher polls the folder (decision 4). It reports a
broken revision; its consumer keeps the last good one.
"""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pillion_cim.schema import Schema, load_schema
from pillion_sidecar.config import rendered
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.parsing import Document, Resources, parse_documents
from pillion_sidecar.config.problems import (
    EMPTY,
    INCOMPLETE,
    ConfigurationError,
    Problem,
    escape_controls,
)
from pillion_sidecar.config.queries import Queries
from pillion_sidecar.config.resolving import resolve
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.yamlstream import StreamError, read_documents
from pillion_sidecar.filewatch import SHORTAGES, Look, Timers, look_at, pause

#: Suffixes of files that are read. Hidden files are not.
SUFFIXES = (".yaml", ".yml", ".json", ".mof")
#: The suffix of class declarations for the service that the folder is read for.
MOF_SUFFIX = ".mof"
#: Other files that the operator puts into the folder.
BESIDE = frozenset({"token-keys.json"})
#: Names of files that a warning lists.
MOST_NAMED = 3
#: The most files in a folder.
MOST_FILES = 10_000
#: The most bytes in one file, and in all files of a folder.
MOST_BYTES = 16 * 1024 * 1024
MOST_BYTES_IN_ALL = 64 * 1024 * 1024

#: The kind whose resources can be replaced.
FILTER = "IndicationFilter"
#: Maximum bytes in one part of a rendered configuration: the size of a Secret.
MOST_PART_BYTES = 1024 * 1024

#: A standalone deliverer may deliver to its own machine.
STANDALONE_ADDRESSES = AddressPolicy(allow_loopback=True)


def load_folder(
    path: Path,
    *,
    service: str | None = None,
    addresses: AddressPolicy = STANDALONE_ADDRESSES,
    schema: Schema | None = None,
    in_place_of: Mapping[str, Any] | None = None,
    may_be_held: Collection[str] | None = (),
) -> Configuration:
    """Load the resource files of a folder as the configuration of one deliverer.

    A folder that holds parts of a rendered configuration is read as that, and as nothing else; its
    revision is then the rendered one.

    ``service`` names the IndicationService to run as; None takes the only one there is.
    Filters are compiled against ``schema`` and the declared classes; by default it is the built-in
    CIM schema. ``in_place_of`` has documents of IndicationFilters, by name, that stand for what the
    folder says of these. ``may_be_held``: see :func:`pillion_sidecar.config.resolving.resolve`.

    Raises:
        ConfigurationError: with everything that is wrong in all files.
    """
    queries = Queries(schema or load_schema())
    parts = _parts(path)
    if parts:
        text, warnings = _unpacked(path, parts)
        resources = parse_documents(_rendered_documents(text))
        resources.warnings.extend(warnings)
        _put_in_place(resources, in_place_of or {})
        return resolve(
            resources,
            service=service,
            addresses=addresses,
            queries=queries,
            revision=text.revision,
            may_be_held=may_be_held,
        )
    problems: list[Problem] = []
    files = _files(path, problems)
    documents = [document for file in files for document in _read(file, problems)]
    resources = parse_documents(documents)
    resources.mof = {_shown(file): _text(file, problems) for file in files if _is_mof(file)}
    resources.problems.extend(problems)
    resources.warnings.extend(_unread(path))
    _put_in_place(resources, in_place_of or {})
    return resolve(
        resources,
        service=service,
        addresses=addresses,
        queries=queries,
        may_be_held=may_be_held,
    )


def _put_in_place(resources: Resources, documents: Mapping[str, Any]) -> None:
    found = parse_documents([Document("", one) for one in documents.values()])
    known = resources.by_kind[FILTER]
    for name, resource in found.by_kind[FILTER].items():
        if name in known:
            known[name] = replace(resource, uid=known[name].uid, namespace=known[name].namespace)
    told = {f"{FILTER}/{name}" for name in documents}
    resources.problems[:] = [one for one in resources.problems if one.resource not in told]


def resource_files(path: Path) -> list[Path]:
    """The entries of a folder that are named like resource files, by name; hidden ones are left
    alone.

    Raises:
        OSError: the folder cannot be read.
    """
    return sorted(entry for entry in path.iterdir() if is_resource_file(entry.name))


def _unread(path: Path) -> list[str]:
    """A warning of the files whose names are not those of resource files; of none of the hidden
    ones, and of no text about the folder."""
    try:
        with os.scandir(path) as entries:
            names = sorted(
                entry.name for entry in entries if _may_be_meant(entry.name) and entry.is_file()
            )
    except OSError:
        # The reading of the folder says so.
        return []
    if not names:
        return []
    shown = ", ".join(_shown_text(name) for name in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    ends = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
    return [f"{shown}{more}: not read, since the name of a resource file ends in {ends}"]


def _may_be_meant(name: str) -> bool:
    return not (name.endswith((*SUFFIXES, ".md")) or name.startswith(".") or name in BESIDE)


def is_resource_file(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".") and name not in BESIDE


def is_followed_file(name: str) -> bool:
    """Whether a change of a file of this name changes what the folder says."""
    return is_resource_file(name) or rendered.is_part(name)


def _parts(path: Path) -> dict[str, int]:
    """The parts of rendered configurations with their times of change (ns), latest first."""
    try:
        with os.scandir(path) as entries:
            found = [
                (entry.name, entry.stat().st_mtime_ns)
                for entry in entries
                if rendered.is_part(entry.name) and entry.is_file()
            ]
    except OSError:
        # It is gone, changes just now, or cannot be opened: the other way of reading says which.
        return {}
    return dict(sorted(found, key=lambda one: (-one[1], one[0])))


def _unpacked(path: Path, parts: Mapping[str, int]) -> tuple[rendered.Unpacked, list[str]]:
    """The text of the newest complete revision, and warnings about the others."""
    revisions = rendered.complete_revisions(parts)
    if not revisions:
        raise ConfigurationError([_incomplete(path, parts)])
    # A revision is as new as its newest file.
    newest = max(revisions, key=lambda one: (max(parts[name] for name in revisions[one]), one))
    warnings = []
    if len(revisions) > 1:
        others = ", ".join(sorted(revisions.keys() - {newest})[:3])
        warnings.append(
            f"{path.name} holds {len(revisions)} complete revisions: {newest} is taken, the newest "
            f"by the time of its files, and not {others}"
        )
    try:
        if beside := sorted(entry.name for entry in path.iterdir() if is_resource_file(entry.name)):
            warnings.append(
                f"{_shown(Path(beside[0]))} is ignored: revision {newest} stands beside it"
            )
        files = {name: _part(path / name) for name in revisions[newest]}
        text = rendered.unpack(files)
    except OSError as error:
        raise ConfigurationError([_unseen(path, error, "Make its files readable.")]) from None
    except rendered.CorruptRevisionError as error:
        raise ConfigurationError([_corrupt(path, str(error))]) from None
    assert text is not None
    return text, warnings


def _part(file: Path) -> bytes:
    with file.open("rb") as stream:
        content = stream.read(MOST_PART_BYTES + 1)
    if len(content) > MOST_PART_BYTES:
        raise rendered.CorruptRevisionError(f"{file.name} is larger than a Secret can be")
    return content


def _rendered_documents(text: rendered.Unpacked) -> Iterator[Document]:
    name = f"revision {text.revision}"
    try:
        for item in rendered.items(text.text):
            yield Document(name, item)
    except ValueError as error:
        raise ConfigurationError([_corrupt(Path(name), str(error))]) from None


def _incomplete(path: Path, parts: Mapping[str, int]) -> Problem:
    names = ", ".join([*parts][:3])
    return Problem(
        reason=INCOMPLETE,
        message=f"holds no complete revision, only parts such as {names}",
        remedy="The other parts have not arrived yet, or could not be mounted.",
        file=_shown(path),
    )


def _corrupt(path: Path, message: str) -> Problem:
    return Problem(
        reason="Corrupt",
        message=message,
        remedy="Delete the Secrets that hold it; the operator renders them again.",
        file=_shown(path),
    )


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    try:
        files = resource_files(path)
    except OSError as error:
        problems.append(_unlisted(path, error))
        return []
    if not files:
        problems.append(
            Problem(
                reason=EMPTY,
                message="holds no resource files",
                remedy="Put *.yaml, *.yml or *.json files there.",
                file=_shown(path),
            )
        )
    if len(files) > MOST_FILES:
        message = f"holds more than {MOST_FILES:,} files"
        problems.append(_unreadable(path, message, "Put several resources into one file."))
        return []
    return _within_bounds(path, files, problems)


def _within_bounds(path: Path, files: list[Path], problems: list[Problem]) -> list[Path]:
    total = 0
    readable = []
    for file in files:
        try:
            status = file.stat()
        except OSError as error:
            problems.append(_unseen(file, error, "Make it readable, or remove it."))
            continue
        # Opening a named pipe would wait for its writer for ever.
        if not stat.S_ISREG(status.st_mode):
            problems.append(_unreadable(file, "is not a regular file", "Remove it."))
            continue
        total += status.st_size
        readable.append(file)
    if total > MOST_BYTES_IN_ALL:
        message = f"holds more than {MOST_BYTES_IN_ALL // 1024**2} MiB of resources"
        problems.append(_unreadable(path, message, "Spread them over several services."))
        return []
    return readable


def _is_mof(file: Path) -> bool:
    return file.name.endswith(MOF_SUFFIX)


def _read(file: Path, problems: list[Problem]) -> Iterator[Document]:
    if _is_mof(file):
        return
    before = len(problems)
    text = _text(file, problems)
    found = False
    try:
        for document in read_documents(text):
            found = found or document.value is not None
            yield Document(_shown(file), document.value, document.lines)
    except StreamError as error:
        problems.append(_unreadable(file, error.message, error.remedy, line=error.line))
    if not found and len(problems) == before:
        # A file that is being rewritten is empty for a moment: its resources are not removed.
        remedy = "Write one, or remove the file: that removes its resources."
        problems.append(_unreadable(file, "holds no resource", remedy))


def _text(file: Path, problems: list[Problem]) -> str:
    """The text of a file; empty, with a problem, if it cannot be read."""
    content = b""
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) <= MOST_BYTES:
            return content.decode("utf-8-sig")
        message = f"is larger than {MOST_BYTES // 1024**2} MiB"
        problems.append(_unreadable(file, message, "Spread it over several files."))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        problems.append(_unreadable(file, "is not UTF-8", "Save it as UTF-8.", line=line))
    except OSError as error:
        problems.append(_unseen(file, error, "Make it readable, or remove it."))
    return ""


def _unseen(path: Path, error: OSError, remedy: str) -> Problem:
    """The problem with a file or folder that the system cannot read; it may pass."""
    if error.errno in SHORTAGES:
        remedy = "The deliverer is short of descriptors or memory, and reads it again soon."
    problem = _unreadable(path, error.strerror or "cannot be read", remedy)
    return replace(problem, may_pass=True)


def _unlisted(folder: Path, error: OSError) -> Problem:
    """Say why a folder cannot be read, with its whole path, which the command line has given."""
    problem = _unseen(folder, error, "Name a folder that can be read.")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        message = "is not a folder" if error.errno == errno.ENOTDIR else "not found"
        remedy = "Name the folder that holds the resource files."
        problem = replace(problem, message=message, remedy=remedy)
    return replace(problem, file=_shown_text(folder))


def _shown(path: Path) -> str:
    """The name of a file as it can be printed: bytes that are not UTF-8 are escaped."""
    return _shown_text(path.name or path)


def _shown_text(path: Path | str) -> str:
    return escape_controls(os.fsencode(path).decode(errors="backslashreplace"))


def _unreadable(path: Path, message: str, remedy: str, *, line: int = 0) -> Problem:
    return Problem(
        reason="Unreadable", message=message, remedy=remedy, file=_shown(path), line=line
    )


__all__ = ["STANDALONE_ADDRESSES", "ConfigurationError", "load_folder", "resource_files"]


#: Seconds between two looks at the folder.
LOOK_INTERVAL = 0.25
#: Looks after which a folder that keeps changing is loaded anyway.
MOST_UNSETTLED_LOOKS = 40
#: Looks after which an unreadable folder is read again without a change.
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
        """Yield the present content of the folder, then each change.

        A change is loaded after two equal looks, so that half-written folders are not. Touching
        files without changing their content yields nothing.
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
            # The content is unknown, so the previous configuration stays in force.
            message = f"could not be read: {error.strerror or type(error).__name__}"
            remedy = "It is read again soon."
            return ConfigurationError(
                [Problem(reason="Unreadable", message=message, remedy=remedy, may_pass=True)]
            )

    async def _look(self, seen: Snapshot) -> Snapshot:
        """Look at the folder; without a result return ``seen``, the previous look."""
        try:
            return await asyncio.to_thread(snapshot, self._path)
        except OSError:
            return seen

    async def _changed(
        self, seen: Snapshot, outcome: Configuration | ConfigurationError
    ) -> Snapshot:
        """Wait for a change, or for some looks if a new read may succeed."""
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
