"""Versions of Spark for tests beside that of ``.venv``: folders of packages that come before its
own, kept for all checkouts of this user."""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pillion_testbed.binaries import Binaries, BinariesUnavailable, cache_folder

#: The release that stands for each version.
RELEASES = {"3.5": "3.5.9", "4.0": "4.0.5", "4.1": "4.1.4", "4.3": "4.3.0"}
#: What Spark Connect needs beside what ``.venv`` has.
_CONNECT = ("grpcio==1.85.3", "grpcio-status==1.85.3", "zstandard==0.25.0")


def packages(version: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of a version, for ``PYTHONPATH``. It may be missing."""
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    return cache_folder(environment).parent / "spark" / f"{RELEASES[version]}-{python}"


def make(binaries: Binaries) -> None:
    """Make the missing ones. Raises BinariesUnavailable."""
    for version, release in RELEASES.items():
        told = f"fetching pyspark {release} once, 450 MB; a minute"
        binaries.made(packages(version), told, partial(_install, release))


def _install(release: str, target: Path) -> None:
    # Spark is published as source. Its needs are in .venv.
    options = ("--no-deps", "--no-build-isolation", "--target", str(target))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    command = (*pip, *options, f"pyspark=={release}", *_CONNECT)
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise BinariesUnavailable(f"pip cannot install pyspark {release}: {made.stderr.strip()}")
