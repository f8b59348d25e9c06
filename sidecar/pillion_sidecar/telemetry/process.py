"""The process's own metrics, by the names and texts of Prometheus' client libraries. Its client in
Python would cost a megabyte for these six."""

import os
import resource
from collections.abc import Iterator

from pillion_sidecar.telemetry.exposition import Metric, MetricType

_MEMORY = Metric(MetricType.GAUGE, "process_virtual_memory_bytes", "Virtual memory size in bytes.")
_RESIDENT = Metric(
    MetricType.GAUGE, "process_resident_memory_bytes", "Resident memory size in bytes."
)
_START = Metric(
    MetricType.GAUGE,
    "process_start_time_seconds",
    "Start time of the process since unix epoch in seconds.",
)
_CPU = Metric(
    MetricType.COUNTER,
    "process_cpu_seconds_total",
    "Total user and system CPU time spent in seconds.",
)
_OPEN = Metric(MetricType.GAUGE, "process_open_fds", "Number of open file descriptors.")
_MOST = Metric(MetricType.GAUGE, "process_max_fds", "Maximum number of open file descriptors.")


def process_metrics() -> bytes:
    """Read /proc; what it lacks is left out."""
    return "".join([*_usage(), *_descriptors()]).encode()


def _usage() -> Iterator[str]:
    try:
        with open("/proc/self/stat", "rb") as stat:
            # After the name, which may hold spaces and parentheses; numbered as in proc(5), from 3.
            fields = stat.read().rpartition(b")")[2].split()
        booted = _boot_time()
    except OSError:
        return
    ticks = os.sysconf("SC_CLK_TCK")
    yield _MEMORY.one(int(fields[20]))
    yield _RESIDENT.one(int(fields[21]) * resource.getpagesize())
    yield _START.one(booted + int(fields[19]) / ticks)
    yield _CPU.one((int(fields[11]) + int(fields[12])) / ticks)


def _boot_time() -> float:
    with open("/proc/stat", "rb") as stat:
        return next(float(line.split()[1]) for line in stat if line.startswith(b"btime "))


def _descriptors() -> Iterator[str]:
    try:
        yield _OPEN.one(len(os.listdir("/proc/self/fd")))
    except OSError:
        return
    yield _MOST.one(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
