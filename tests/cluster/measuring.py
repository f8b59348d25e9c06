"""What benchmarks on a cluster read: processes' memory and CPU, and when a change is out."""

import asyncio
import base64
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pillion_operator.cluster.types import SECRET, Object
from pillion_operator.names import SERVICE_LABEL
from pillion_sidecar.config.rendered import is_part, unpack
from pillion_testbed.client import SYNCED, Client

_MANAGED = f"{SECRET.path('{}')}?labelSelector={SERVICE_LABEL}"


def memory(pid: int) -> tuple[float, float]:
    """MiB of a process that are resident now, and at most so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kilobytes = {name: int(value.split()[0]) for name, _, value in _fields(lines)}
    return kilobytes["VmRSS"] / 1024, kilobytes["VmHWM"] / 1024


def _fields(lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    for line in lines:
        if line.startswith(("VmRSS:", "VmHWM:")):
            yield line.partition(":")


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], part: float) -> float:
    """The value that so large a part of all does not exceed: 0.99 for p99."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


class Expected:
    """One text that is to appear in the configurations of some services."""

    def __init__(self, text: str, services: Sequence[str]) -> None:
        self.text = text
        #: Services whose configuration does not have it yet.
        self.missing = set(services)
        #: Of each service: the revision that has it first.
        self.revisions: dict[str, str] = {}
        self.began = time.monotonic()
        self.seconds = 0.0
        self.done = asyncio.Event()

    def seen(self, service: str, revision: str, content: str) -> None:
        """A configuration was written."""
        if service in self.missing and self.text in content:
            self.missing.discard(service)
            self.revisions[service] = revision
            if not self.missing:
                self.seconds = time.monotonic() - self.began
                self.done.set()


class Configurations:
    """Reads every rendered configuration of a namespace as its Secret is written.

    For those of one Secret only.
    """

    def __init__(self) -> None:
        self._expected: set[Expected] = set()

    @contextmanager
    def expecting(self, text: str, services: Sequence[str]) -> Iterator[Expected]:
        """Wait for a text from now on."""
        expected = Expected(text, services)
        self._expected.add(expected)
        try:
            yield expected
        finally:
            self._expected.discard(expected)

    async def follow(self, client: Client, namespace: str) -> None:
        """Watch until cancelled."""
        async for kind, secret in client.events(_MANAGED.format(namespace)):
            if kind not in (SYNCED, "DELETED"):
                self._read(secret)

    def _read(self, secret: Object) -> None:
        parts = {
            name: base64.b64decode(data)
            for name, data in (secret.get("data") or {}).items()
            if is_part(name)
        }
        rendered = unpack(parts)
        if rendered is not None:
            service = secret["metadata"]["labels"][SERVICE_LABEL]
            for expected in list(self._expected):
                expected.seen(service, rendered.revision, rendered.text)
