"""Reads and watches a folder of resource files or of a rendered configuration (polling: decision
4)."""

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

#: Hidden files are ignored.
SUFFIXES = (".yaml", ".yml", ".json", ".mof")
#: Class declarations for the loaded service.
MOF_SUFFIX = ".mof"
#: Other files that the operator puts into the folder.
BESIDE = frozenset({"token-keys.json"})
MOST_NAMED = 3
MOST_FILES = 10_000
MOST_BYTES = 16 * 1024 * 1024
MOST_BYTES_IN_ALL = 64 * 1024 * 1024

FILTER = "IndicationFilter"
#: The maximum size of a Secret.
MOST_PART_BYTES = 1024 * 1024

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
    """Load a folder as the configuration of one deliverer; parts of a rendered configuration take
    precedence over everything else in it.

    ``service`` None: the only one there is. ``schema`` defaults to the built-in CIM schema.
    ``in_place_of``: IndicationFilter documents by name that replace those of the folder.
    ``may_be_held``: see :func:`pillion_sidecar.config.resolving.resolve`.

    Raises:
        ConfigurationError: with all problems in all files.
    """
    revision = None
    if parts := _parts(path):
        text, warnings = _unpacked(path, parts)
        revision = text.revision
        resources = parse_documents(_rendered_documents(text))
    else:
        problems: list[Problem] = []
        files = _files(path, problems)
        documents = [document for file in files for document in _read(file, problems)]
        resources = parse_documents(documents)
        resources.mof = {_shown(file): _text(file, problems) for file in files if _is_mof(file)}
        resources.problems.extend(problems)
        warnings = _unread(path)
    resources.warnings.extend(warnings)
    _put_in_place(resources, in_place_of or {})
    return resolve(
        resources,
        service=service,
        addresses=addresses,
        queries=Queries(schema or load_schema()),
        revision=revision,
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
    return sorted(entry for entry in path.iterdir() if is_resource_file(entry.name))


def _unread(path: Path) -> list[str]:
    """Return a warning about files with other suffixes, except hidden ones."""
    try:
        with os.scandir(path) as entries:
            names = sorted(
                entry.name for entry in entries if _may_be_meant(entry.name) and entry.is_file()
            )
    except OSError:
        # Reading the folder reports this error.
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
    return is_resource_file(name) or rendered.is_part(name)


def _parts(path: Path) -> dict[str, int]:
    """Return parts of rendered configurations with their mtime (ns), latest first."""
    try:
        with os.scandir(path) as entries:
            found = [
                (entry.name, entry.stat().st_mtime_ns)
                for entry in entries
                if rendered.is_part(entry.name) and entry.is_file()
            ]
    except OSError:
        # Missing, changing or unreadable: reading the folder as resource files reports which.
        return {}
    return dict(sorted(found, key=lambda one: (-one[1], one[0])))


def _unpacked(path: Path, parts: Mapping[str, int]) -> tuple[rendered.Unpacked, list[str]]:
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
        # Opening a named pipe would wait for its writer.
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
        # A file that is being rewritten is briefly empty; its resources are not removed.
        remedy = "Write one, or remove the file: that removes its resources."
        problems.append(_unreadable(file, "holds no resource", remedy))


def _text(file: Path, problems: list[Problem]) -> str:
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
    if error.errno in SHORTAGES:
        remedy = "The deliverer is short of descriptors or memory, and reads it again soon."
    problem = _unreadable(path, error.strerror or "cannot be read", remedy)
    return replace(problem, may_pass=True)


def _unlisted(folder: Path, error: OSError) -> Problem:
    problem = _unseen(folder, error, "Name a folder that can be read.")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        message = "is not a folder" if error.errno == errno.ENOTDIR else "not found"
        remedy = "Name the folder that holds the resource files."
        problem = replace(problem, message=message, remedy=remedy)
    return replace(problem, file=_shown_text(folder))


def _shown(path: Path) -> str:
    """Return a file name with bytes that are not UTF-8 escaped."""
    return _shown_text(path.name or path)


def _shown_text(path: Path | str) -> str:
    return escape_controls(os.fsencode(path).decode(errors="backslashreplace"))


def _unreadable(path: Path, message: str, remedy: str, *, line: int = 0) -> Problem:
    return Problem(
        reason="Unreadable", message=message, remedy=remedy, file=_shown(path), line=line
    )


__all__ = ["STANDALONE_ADDRESSES", "ConfigurationError", "load_folder", "resource_files"]


#: Seconds.
LOOK_INTERVAL = 0.25
#: After so many changes in a row the folder is loaded anyway.
MOST_UNSETTLED_LOOKS = 40
#: After so many looks an unreadable folder is read again without a change.
LOOKS_BETWEEN_READS = 20

Snapshot = tuple[tuple[str, Look], ...]


def snapshot(path: Path) -> Snapshot:
    """Return a fingerprint of the folder without reading files; missing or unreadable ones are
    omitted. Raises OSError only if the process lacks descriptors or memory, which says nothing
    about the folder."""
    seen = []
    # os.scandir is four times as fast as pathlib for 1,000 files.
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
    """Watches a folder. ``load`` runs in a thread and may raise ConfigurationError."""

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
        """Yield the current content, then each change.

        A change is loaded after two equal looks, so that half-written folders are not. Touching a
        file yields nothing.
        """
        seen = await self._look(())
        last: Configuration | ConfigurationError | None = None
        while True:
            outcome = await self._loaded()
            # A change during the read may have mixed two contents: look again.
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
            message = f"could not be read: {error.strerror or type(error).__name__}"
            remedy = "It is read again soon."
            return ConfigurationError(
                [Problem(reason="Unreadable", message=message, remedy=remedy, may_pass=True)]
            )

    async def _look(self, seen: Snapshot) -> Snapshot:
        """Look at the folder; return ``seen`` if that fails."""
        try:
            return await asyncio.to_thread(snapshot, self._path)
        except OSError:
            return seen

    async def _changed(
        self, seen: Snapshot, outcome: Configuration | ConfigurationError
    ) -> Snapshot:
        """Wait for a change, or until a new read may succeed."""
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
