"""The process's metrics: what Prometheus' own client tells of a process."""

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pillion_sidecar.telemetry.process import process_metrics


def read(text: bytes) -> dict[tuple[str, str, str], float]:
    families = text_string_to_metric_families(text.decode())
    return {
        (sample.name, family.type, family.documentation): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_metrics_are_those_of_prometheus() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    theirs, ours = read(generate_latest(registry)), read(process_metrics())
    assert list(ours) == list(theirs)
    of = {name: (ours[name, *more], value) for (name, *more), value in theirs.items()}
    for same in ("process_start_time_seconds", "process_max_fds", "process_open_fds"):
        assert of[same][0] == of[same][1]
    for close in ("process_resident_memory_bytes", "process_virtual_memory_bytes"):
        assert 0.5 < of[close][0] / of[close][1] < 2
    # Divided and added up in another order.
    assert -0.001 < of["process_cpu_seconds_total"][0] - of["process_cpu_seconds_total"][1] < 10
