"""Resident memory of a deliverer's process, against the limit that the chart gives it."""

from pathlib import Path

import yaml

from support.house import ROOT

MIB = 1 << 20


def memory_limit() -> int:
    """The limit of a deliverer, injected or a gateway, in bytes."""
    values = yaml.safe_load((ROOT / "charts/pillion/values.yaml").read_text())
    text = values["deliverer"]["resources"]["limits"]["memory"]
    assert text.endswith("Mi")
    return int(text.removesuffix("Mi")) * MIB


def peak_memory(pid: int) -> int:
    """The most resident memory that a process has had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
