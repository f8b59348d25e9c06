"""The local stand-in for ``python:3.12-slim``, where no registry of images is reached: Debian with
its own Python, by debootstrap. Made once for all checkouts of this user.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from pillion_testbed.binaries import Say

SUITE = "bookworm"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
#: What a package manager leaves behind and a container does not need.
LEFT_BEHIND = ("var/cache/apt", "var/lib/apt/lists", "var/log/bootstrap.log")

DOCKERFILE = """\
FROM scratch
ADD {tar} /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["python3"]
"""


class ImagesUnavailable(Exception):
    """An image cannot be built here. The message says what is missing, or shows what failed."""


def base_key() -> str:
    """What tells one base from another, for names and digests."""
    made_of = json.dumps([SUITE, PACKAGES, LEFT_BEHIND, DOCKERFILE])
    return f"{SUITE}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


def make_base(folder: Path, *, say: Say) -> Path:
    """Return the base's files as a tar archive in ``folder``, made by debootstrap if need be."""
    archive = folder / f"{base_key()}.tar"
    if not archive.exists():
        say(f"making Debian {SUITE} with Python as the images' base, once; about a minute")
        with tempfile.TemporaryDirectory(dir=folder) as work:
            root = Path(work) / "root"
            command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
            run([*command, SUITE, str(root)])
            for name in LEFT_BEHIND:
                shutil.rmtree(root / name, ignore_errors=True)
            made = Path(work) / "base.tar"
            run(["tar", "-C", str(root), "--numeric-owner", "-cf", str(made), "."])
            made.rename(archive)
    return archive


def run(command: list[str], *, cwd: Path | None = None) -> str:
    """Run a program; returns what it prints.

    Raises ImagesUnavailable where it fails, or is not there.
    """
    if shutil.which(command[0]) is None:
        raise ImagesUnavailable(f"no {command[0]}. Debian: apt-get install buildah debootstrap")
    ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        shown = "\n".join((ran.stdout + ran.stderr).splitlines()[-25:])
        raise ImagesUnavailable(f"{' '.join(command)} ended with {ran.returncode}:\n{shown}")
    return ran.stdout
