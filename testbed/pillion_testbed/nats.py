"""NATS for tests: ``python -m pillion_testbed.nats`` builds nats-server once for all checkouts of
this user. It needs Go."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pillion_testbed.binaries import cache_folder

VERSION = "v2.15.2"
_MODULE = f"github.com/nats-io/nats-server/v2@{VERSION}"


def program(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the program, which may be missing."""
    return cache_folder(environment).parent / f"nats-server-{VERSION}"


def build() -> Path:
    """Build the program, if it is missing. Raises CalledProcessError and FileNotFoundError if Go
    cannot."""
    target = program()
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        environment = {**os.environ, "GOBIN": folder, "CGO_ENABLED": "0"}
        subprocess.run(["go", "install", _MODULE], env=environment, check=True)
        # Whole or not at all.
        (Path(folder) / "nats-server").rename(target)
    return target


if __name__ == "__main__":
    try:
        print(build())
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"nats-server cannot be built: {error}")
