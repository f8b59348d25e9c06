"""Containers of an image on this machine, by runc alone: for what an image is by itself, without a
cluster. Each has a read-only root, no capability, no new privileges, and the machine's network.
"""

import json
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pillion_testbed import image_archive
from pillion_testbed.images import Image

#: Seconds for a command in a container; a backstop.
LONGEST = 120.0
#: A kubelet gives each pod a name that resolves, and so does this.
HOSTNAME = "container"

_MOUNTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("/proc", "proc", ()),
    ("/dev", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
    ("/dev/shm", "tmpfs", ("nosuid", "noexec", "nodev", "mode=1777", "size=65536k")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """An image's files in a folder, and how it says that it is run."""

    image: Image
    folder: Path
    config: Mapping[str, Any] = field(repr=False)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def entrypoint(self) -> list[str]:
        return list(self.config["Entrypoint"])

    def run(self, *command: str, writable: Sequence[str] = ()) -> str:
        """Run a command in place of the entry point; returns its standard output.

        ``writable`` are folders that get an empty file system in memory. AssertionError with what
        it said where it fails.
        """
        with self.started(*command, writable=writable) as process:
            said, wrong = process.communicate(timeout=LONGEST)
        assert process.returncode == 0, f"{' '.join(command)}: {process.returncode}\n{said}{wrong}"
        return said

    @contextmanager
    def started(
        self,
        *command: str,
        writable: Sequence[str] = (),
        folders: Mapping[str, Path] | None = None,
    ) -> "Iterator[subprocess.Popen[str]]":
        """A container while the context lasts; ``folders`` of this machine are mounted read-only.

        The process is runc's, which passes signals on and ends as the container does.
        """
        name = f"pillion-{uuid.uuid4().hex[:12]}"
        bundle = self.folder / name
        bundle.mkdir()
        (bundle / "hosts").write_text(f"127.0.0.1 localhost {HOSTNAME}\n")
        bound = {"/etc/hosts": bundle / "hosts", **(folders or {})}
        specification = self._specification(command, writable, bound)
        (bundle / "config.json").write_text(json.dumps(specification))
        runc = ["runc", "--root", str(self.folder / "runc")]
        process = subprocess.Popen(
            [*runc, "run", "--bundle", str(bundle), name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    subprocess.run([*runc, "kill", name, "KILL"], check=False, capture_output=True)
                    process.communicate()

    def _specification(
        self, command: Sequence[str], writable: Sequence[str], folders: Mapping[str, Path]
    ) -> dict[str, Any]:
        user, _, group = self.config["User"].partition(":")
        given: dict[str, list[str]] = {key: [] for key in ("bounding", "effective", "permitted")}
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": int(user), "gid": int(group)},
                "args": list(command),
                "env": list(self.config.get("Env", ())),
                "cwd": self.config.get("WorkingDir") or "/",
                "capabilities": given,
                "noNewPrivileges": True,
            },
            "root": {"path": str(self.root), "readonly": True},
            "hostname": HOSTNAME,
            "mounts": [
                *(_mount(where, kind, options) for where, kind, options in _MOUNTS),
                *(_mount(where, "tmpfs", ("mode=1777",)) for where in writable),
                *(_bound(where, folder) for where, folder in folders.items()),
            ],
            # The machine's network: a test reaches what listens in the container.
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
        }


def unpack(image: Image, folder: Path) -> Unpacked:
    """Lay an image's layers into a folder, from which containers of it run."""
    (folder / "root").mkdir(parents=True)
    image_archive.unpack(image.archive, into=folder / "root")
    return Unpacked(image=image, folder=folder, config=image.contents().config["config"])


def _mount(where: str, kind: str, options: Sequence[str]) -> dict[str, Any]:
    return {"destination": where, "type": kind, "source": kind, "options": list(options)}


def _bound(where: str, folder: Path) -> dict[str, Any]:
    options = ["bind", "ro"]
    return {"destination": where, "type": "bind", "source": str(folder), "options": options}
