"""The last good version of each filter, in force while an edit is wrong. In memory and in a file
beside the journal, for a restart."""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema import API_VERSION
from pillion_sidecar.config.schema.filter import IndicationFilter

logger = logging.getLogger("pillion.deliverer")

FILE_NAME = "filters.json"
KIND = "IndicationFilter"
#: Maximum bytes read, as of a folder of resources.
_MOST_BYTES = 64 * 1024 * 1024


class LastGoodFilters:
    """By name, as resource documents. Blocks."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, Any] | None = None
        #: Why edits of filters were rejected, by name.
        self.kept: Mapping[str, str] = {}

    def for_all_of(self, error: ConfigurationError) -> dict[str, Any] | None:
        """Return the last good versions of the wrong filters, by name; None if anything else is
        wrong, or one was never good."""
        names = [_filter_of(problem) for problem in error.problems]
        known = self._read()
        if not names or not all(name in known for name in names):
            return None
        return {name: known[name] for name in names}

    def note(self, error: ConfigurationError | None) -> None:
        """Log which filters keep their version, after a change. ``error``: None if all were
        accepted."""
        problems = () if error is None else error.problems
        kept = {_filter_of(problem): str(problem) for problem in problems}
        for name in sorted(name for name in kept if kept[name] != self.kept.get(name)):
            logger.error(
                "the edit of filter %s is not taken over, its last good version stays in force: %s",
                name,
                kept[name],
                extra={"event": "filter-kept", "filter": name, "problem": kept[name]},
            )
        self.kept = kept

    def _read(self) -> dict[str, Any]:
        if self._known is None:
            self._known = {}
            if self._folder is not None:
                # A missing or damaged file counts as none: the start reports the errors.
                with suppress(OSError, ValueError):
                    with (self._folder / FILE_NAME).open("rb") as file:
                        found = json.loads(file.read(_MOST_BYTES))
                    if isinstance(found, dict):
                        self._known = found
        return self._known

    def keep(self, configuration: Configuration, *, on_disk: bool) -> None:
        now = {name: document(one) for name, one in configuration.filters.items()}
        if now == self._read():
            return
        self._known = now
        if not on_disk or self._folder is None:
            return
        try:
            write_whole(self._folder, json.dumps(now).encode())
        except OSError as error:
            logger.warning(
                "the filters in force cannot be kept for a restart: %s",
                error.strerror or error,
                extra={"event": "configuration-warning"},
            )


def _filter_of(problem: Problem) -> str:
    kind, _, name = problem.resource.partition("/")
    return name if kind == KIND else ""


def document(one: IndicationFilter) -> dict[str, Any]:
    spec: dict[str, Any] = {"query": one.query, "queryLanguage": one.query_language.value}
    if one.source_namespaces:
        spec["sourceNamespaces"] = list(one.source_namespaces)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": one.name},
        "spec": spec,
    }


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write_whole(folder: Path, content: bytes) -> None:
    partial = folder / f"{FILE_NAME}.tmp"
    try:
        with open(partial, "wb", opener=_for_us_alone) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / FILE_NAME)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
