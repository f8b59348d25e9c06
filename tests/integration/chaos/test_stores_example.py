"""``examples/stores``, as a reader runs it (S3.2, S3.7, S3.11)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker_programs import NATS_SERVER, WITHOUT_NATS_SERVER
from support.chaos import free_ports
from support.house import ROOT

STABLE = 200
#: What is published while one gateway and while none is missed.
MORE = 20


@pytest.mark.timeout(180)
@pytest.mark.skipif(shutil.which("jq") is None, reason="the example needs jq")
@pytest.mark.parametrize(
    ("engine", "server"),
    [
        ("gateways", "gateway"),
        pytest.param(
            "nats",
            "nats-server",
            marks=pytest.mark.skipif(NATS_SERVER is None, reason=WITHOUT_NATS_SERVER),
        ),
    ],
)
def test_what_was_stable_arrives_once(engine: str, server: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ports = " ".join(map(str, free_ports(7)))
    ended = subprocess.run(
        [ROOT / "examples" / "stores" / "run.sh", "--engine", engine, str(STABLE)],
        env={**os.environ, "PATH": path, "PORTS": ports, "NATS_SERVER": str(NATS_SERVER)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0] == f"published {STABLE}; they are stable, and their listener is down"
    assert lines[2].startswith(f"one {server} is killed: ")
    assert lines[3].startswith(f"two {server}s are killed: publishing is refused")
    assert lines[-1].endswith("came again 0: nothing that was stable is lost")
    assert int(lines[-1].split()[1].rstrip(",")) >= STABLE + MORE
