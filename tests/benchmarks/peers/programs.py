"""The peers' programs: what is on this machine, or in a folder of the benchmark's own.

Debian's packages are unpacked there and not installed: syslog-ng and rsyslog exclude each other,
and none shall start as a service.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_HERE = Path(__file__).parent
_FOLDER = _HERE.parents[2] / ".cache" / "bench-peers"
_DEBIAN = _FOLDER / "debian"
#: Where the peers run: on the disk of the checkout.
RUNS = _FOLDER / "runs"
#: By program; those of one line do not exclude each other.
_PACKAGES = {
    "syslog-ng": ("syslog-ng-core", "syslog-ng-mod-http"),
    "redis-server": ("redis-server",),
    "rsyslogd": ("rsyslog",),
}
_PATH = os.pathsep.join(("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"))
_REQUIREMENTS = _HERE / "requirements.txt"
#: Without the virtual environment: what it is made from runs the peers as well as the deliverer.
_BASE = Path(sys.executable).resolve()
_DIGEST = hashlib.sha256(f"{_BASE}\n{_REQUIREMENTS.read_text()}".encode()).hexdigest()[:12]
_ENVIRONMENT = _FOLDER / f"python-{_DIGEST}"
_COMPLETE = _ENVIRONMENT / "complete"
#: The interpreter that has the libraries of requirements.txt.
PYTHON = _ENVIRONMENT / "bin" / "python"
FETCH = "make bench-peers gets it"


def find(name: str) -> Path | None:
    """A program: of the machine, of the benchmark's own folder, or of the tests' receivers."""
    if name == "nats-server":
        # Not for the peers' interpreter, which lacks what this needs.
        from support.broker_programs import NATS_SERVER

        if NATS_SERVER is not None:
            return NATS_SERVER
    own = os.pathsep.join(str(_DEBIAN / place) for place in ("usr/sbin", "usr/bin"))
    found = shutil.which(name, path=os.pathsep.join((_PATH, own)))
    return Path(found) if found else None


def root_of(program: Path) -> Path:
    """The folder that stands for ``/``: where the modules of a program are."""
    return _DEBIAN if program.is_relative_to(_DEBIAN) else Path("/")


def environment_of(program: Path) -> dict[str, str]:
    """What a program needs to find the libraries that came with it."""
    if not program.is_relative_to(_DEBIAN):
        return {}
    places = ("usr/lib/*-linux-gnu", "lib/*-linux-gnu", "usr/lib/syslog-ng")
    folders = (folder for place in places for folder in _DEBIAN.glob(place))
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}


def has_libraries() -> bool:
    return _COMPLETE.exists()


def fetch() -> None:
    """Get what is missing. What cannot be had is told, and its peer is skipped."""
    for program, packages in _PACKAGES.items():
        if find(program) is None and not _unpack(packages):
            print(f"{program}: Debian's packages {', '.join(packages)} cannot be had")
    if find("nats-server") is None:
        print("nats-server is missing: make receivers builds it")
    if not has_libraries() and not _install():
        print(f"the libraries of {_REQUIREMENTS.name} cannot be had")


def draw(results: Path, picture: Path) -> None:
    """Draw the plot of what was measured."""
    subprocess.run([str(PYTHON), str(_HERE / "plot.py"), str(results), str(picture)], check=True)


def _unpack(packages: Sequence[str]) -> bool:
    """Download packages, with what they need and the machine lacks; install nothing."""
    if shutil.which("apt-get") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "partial").mkdir()
        own = ["-o", f"Dir::Cache::archives={folder}", "-o", "Debug::NoLocking=1"]
        quiet = ["--quiet=2", "--yes", "--no-install-recommends", "--download-only"]
        if not _succeeds(["apt-get", "install", *quiet, *own, *packages]):
            return False
        _DEBIAN.mkdir(parents=True, exist_ok=True)
        archives = Path(folder).glob("*.deb")
        return all(_succeeds(["dpkg-deb", "-x", str(one), str(_DEBIAN)]) for one in archives)


def _install() -> bool:
    made = _succeeds([str(_BASE), "-m", "venv", str(_ENVIRONMENT)])
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    ready = ["--only-binary", ":all:", "--requirement", str(_REQUIREMENTS)]
    if not made or not _succeeds([*pip, *ready]):
        return False
    _COMPLETE.touch()
    return True


def _succeeds(command: Sequence[str]) -> bool:
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        print(*ended.stderr.splitlines()[-3:], sep="\n", file=sys.stderr)
    return not ended.returncode
