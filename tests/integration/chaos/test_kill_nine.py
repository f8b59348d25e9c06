"""``examples/kill-nine``, as a reader runs it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.chaos import free_ports
from support.house import ROOT

KILLS = 3


@pytest.mark.timeout(180)
@pytest.mark.skipif(shutil.which("jq") is None, reason="the example needs jq")
def test_the_example_loses_nothing() -> None:
    (port,) = free_ports(1)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        [ROOT / "examples" / "kill-nine" / "run.sh", str(KILLS)],
        env={**os.environ, "PATH": path, "PORT": str(port)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith(f"killed {KILLS} times, published ")
    assert lines[-1] == "nothing lost, nothing out of order"
    published = lines[0].split()[-1]
    assert [line.split()[2] for line in lines[1:-1]] == [f"{published},", f"{published},"]
