"""Receivers that other projects made, for tests of handlers: built once for all checkouts of this
user. Debian has the others."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from pillion_testbed import kafka
from pillion_testbed.binaries import (
    COLLECTOR_SOURCE,
    SMALL,
    Binaries,
    BinariesUnavailable,
    link_flags,
    module_digest,
)

NATS_SERVER = "v2.15.2"
ALERTMANAGER = "v0.35.0"
_ALERTMANAGER_MODULE = f"github.com/prometheus/alertmanager@{ALERTMANAGER}"


class Receivers:
    def __init__(self, binaries: Binaries) -> None:
        self._binaries = binaries
        self._folder = binaries.cache.parent / "receivers"
        self._makers: Mapping[str, tuple[Path, str, Callable[[Path], None]]] = {
            "nats-server": (
                self._folder / NATS_SERVER / "nats-server",
                f"building nats-server {NATS_SERVER} once; some 2 minutes",
                self._build_nats_server,
            ),
            "alertmanager": (
                self._folder / ALERTMANAGER / "alertmanager",
                f"building Alertmanager {ALERTMANAGER} once; some 3 minutes",
                self._build_alertmanager,
            ),
            "collector": (
                self._folder / module_digest(COLLECTOR_SOURCE, SMALL) / "collector",
                "building an OpenTelemetry collector once; some 3 minutes",
                self._build_collector,
            ),
            "kafka": (kafka.jars(), f"fetching Apache Kafka {kafka.VERSION} once", _fetch_kafka),
        }

    @property
    def missing(self) -> list[str]:
        return [name for name, (path, _, _) in self._makers.items() if not path.exists()]

    def find(self, name: str) -> Path | None:
        """Return a program, or Kafka's jars, if they were made."""
        path, _, _ = self._makers[name]
        return path if path.exists() else None

    def make(self) -> None:
        """Make what is missing. Raises BinariesUnavailable."""
        for path, told, make in self._makers.values():
            self._binaries.made(path, told, make)

    def _build_nats_server(self, target: Path) -> None:
        module = f"github.com/nats-io/nats-server/v2@{NATS_SERVER}"
        self._binaries.install(module, SMALL, target)

    def _build_collector(self, target: Path) -> None:
        self._binaries.build(".", target, folder=COLLECTOR_SOURCE, flags=link_flags(SMALL))

    def _build_alertmanager(self, target: Path) -> None:
        """Without its pages: its module lacks them, so it cannot be installed."""
        downloaded = self._binaries.download(_ALERTMANAGER_MODULE)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            source = Path(folder) / "source"
            # Go's cache is read-only.
            shutil.copytree(downloaded, source, copy_function=shutil.copyfile)
            for made in (source, *source.rglob("*/")):
                made.chmod(0o755)
            pages = source / "ui" / "app" / "dist"
            pages.mkdir()
            pages.joinpath("index.html").write_text("no pages\n", encoding="utf-8")
            self._binaries.build(
                "./cmd/alertmanager", target, folder=source, flags=link_flags(SMALL)
            )


def _fetch_kafka(target: Path) -> None:
    try:
        kafka.fetch(target)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BinariesUnavailable(f"Kafka cannot be fetched with Maven: {error}") from None
