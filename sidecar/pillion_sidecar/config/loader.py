"""Reads a folder of resource files. The I/O is here; everything else is pure."""

import stat
from collections.abc import Iterator
from pathlib import Path

from pillion_cim.schema import load_schema
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.parsing import Document, parse_documents
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.queries import CheckQuery, query_checker
from pillion_sidecar.config.resolving import resolve
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.yamlstream import StreamError, read_documents

#: File names that are read; others are left alone, as are hidden ones.
SUFFIXES = (".yaml", ".yml", ".json")
#: The most files in a folder.
MOST_FILES = 10_000
#: The most bytes in one file, and in all files of a folder.
MOST_BYTES = 16 * 1024 * 1024
MOST_BYTES_IN_ALL = 64 * 1024 * 1024

#: A standalone deliverer may deliver to its own machine.
STANDALONE_ADDRESSES = AddressPolicy(allow_loopback=True)


def load_folder(
    path: Path,
    *,
    service: str | None = None,
    addresses: AddressPolicy = STANDALONE_ADDRESSES,
    check_query: CheckQuery | None = None,
) -> Configuration:
    """Load the resource files of a folder as the configuration of one deliverer.

    ``service`` names the IndicationService to run as; None takes the only one there is.
    ``check_query`` looks at filters; None compiles them against the built-in CIM schema.

    Raises:
        ConfigurationError: with everything that is wrong in all files.
    """
    problems: list[Problem] = []
    documents = [document for file in _files(path, problems) for document in _read(file, problems)]
    resources = parse_documents(documents)
    resources.problems.extend(problems)
    return resolve(
        resources,
        service=service,
        addresses=addresses,
        check_query=check_query or query_checker(load_schema()),
    )


def resource_files(path: Path) -> list[Path]:
    """The resource files of a folder, by name. Subfolders and hidden files are left alone.

    Raises:
        OSError: the folder cannot be read.
    """
    return sorted(
        entry for entry in path.iterdir() if is_resource_file(entry.name) and not entry.is_dir()
    )


def is_resource_file(name: str) -> bool:
    """Whether a file of this name is read."""
    return name.endswith(SUFFIXES) and not name.startswith(".")


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    try:
        files = resource_files(path)
    except OSError as error:
        problems.append(
            _unreadable(path, error.strerror or "cannot be read", "Name a folder that can be read.")
        )
        return []
    if not files:
        problems.append(
            _unreadable(path, "holds no resource files", "Put *.yaml, *.yml or *.json files there.")
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
            message = error.strerror or "cannot be read"
            problems.append(_unreadable(file, message, "Make it readable, or remove it."))
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


def _read(file: Path, problems: list[Problem]) -> Iterator[Document]:
    content = b""
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            message = f"is larger than {MOST_BYTES // 1024**2} MiB"
            problems.append(_unreadable(file, message, "Spread it over several files."))
            return
        for document in read_documents(content.decode("utf-8-sig")):
            yield Document(file.name, document.value, document.lines)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        problems.append(_unreadable(file, "is not UTF-8", "Save it as UTF-8.", line=line))
    except StreamError as error:
        problems.append(_unreadable(file, error.message, error.remedy, line=error.line))
    except OSError as error:
        message = error.strerror or "cannot be read"
        problems.append(_unreadable(file, message, "Make it readable, or remove it."))


def _unreadable(path: Path, message: str, remedy: str, *, line: int = 0) -> Problem:
    return Problem(reason="Unreadable", message=message, remedy=remedy, file=path.name, line=line)


__all__ = ["STANDALONE_ADDRESSES", "ConfigurationError", "load_folder", "resource_files"]
