"""The operator's metrics, each under ``pillion_operator_``.

Gauges that another room knows are read when Prometheus asks, so nothing is counted twice.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

Family = CounterMetricFamily | GaugeMetricFamily


class Result(StrEnum):
    """How a reconcile ended."""

    SUCCESS = "success"
    #: The API server refused or could not be reached; it is tried again.
    RETRY = "retry"
    #: An error that nobody has foreseen; it is logged with its trace and tried again.
    FAILED = "failed"


class Metrics:
    """All metrics of one operator, in a registry of their own."""

    def __init__(self, *, version: str) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Counter(
            "pillion_operator_reconciles",
            "Reconciles, by kind of object and by how they ended.",
            ("kind", "result"),
            registry=self.registry,
        )
        self.reconcile_seconds = Histogram(
            "pillion_operator_reconcile_seconds",
            "How long a reconcile took.",
            ("kind",),
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0),
            registry=self.registry,
        )
        self.conflicts = Counter(
            "pillion_operator_api_conflicts",
            "Writes that the API server refused because somebody else had written meanwhile.",
            registry=self.registry,
        )
        self.watch_restarts = Counter(
            "pillion_operator_watch_restarts",
            "Watches that began, anew or for the first time, by kind (plural).",
            ("kind",),
            registry=self.registry,
        )
        self.watch_missed = Counter(
            "pillion_operator_watch_missed",
            "Changes that no watch has brought and that a listing has found.",
            ("kind",),
            registry=self.registry,
        )
        self.pokes = Counter(
            "pillion_operator_pokes",
            "Pods annotated so that the kubelet refreshes their configuration, by result.",
            ("result",),
            registry=self.registry,
        )
        self.drift = Counter(
            "pillion_operator_drift",
            "Objects of the operator's own that somebody else had changed, set right again.",
            ("kind",),
            registry=self.registry,
        )
        self.leader = Gauge(
            "pillion_operator_leader",
            "1 where this process is the one that writes, 0 where it stands by.",
            registry=self.registry,
        )
        self.webhook_seconds = Histogram(
            "pillion_operator_webhook_seconds",
            "How long the injecting webhook took to answer.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0),
            registry=self.registry,
        )
        self.webhook_answers = Counter(
            "pillion_operator_webhook_answers",
            "Pods that the injecting webhook was asked about, by what it did: injected, left, "
            "failed.",
            ("outcome",),
            registry=self.registry,
        )
        self.evictions = Counter(
            "pillion_operator_evictions",
            "Pods without the deliverer that they should have, evicted so that they are made anew, "
            "by result.",
            ("result",),
            registry=self.registry,
        )
        self.missed_injections = Gauge(
            "pillion_operator_missed_injections",
            "Pods that should have a deliverer and have none.",
            ("namespace", "service"),
            registry=self.registry,
        )
        self.certificate_expiry = Gauge(
            "pillion_operator_certificate_expiry_timestamp_seconds",
            "When the certificate that the webhook shows expires.",
            registry=self.registry,
        )
        self.gathered = Counter(
            "pillion_operator_deliverers_asked",
            "Deliverers that were asked for their queues, by result.",
            ("result",),
            registry=self.registry,
        )
        self.events_dropped = Counter(
            "pillion_operator_events_dropped",
            "Kubernetes Events that could not be published.",
            registry=self.registry,
        )
        info = Gauge(
            "pillion_operator_info",
            "The operator's version; always 1.",
            ("version",),
            registry=self.registry,
        )
        info.labels(version).set(1)
        # A counter that first appears with 1 hides its first event from increase().
        for outcome in ("injected", "left", "failed"):
            self.webhook_answers.labels(outcome)
        for result in ("done", "failed"):
            self.pokes.labels(result)

    def read(self, families: Callable[[], Iterator[Family]]) -> None:
        """Have more families read whenever Prometheus asks."""
        self.registry.register(_Reader(families))


class _Reader(Collector):
    def __init__(self, families: Callable[[], Iterator[Family]]) -> None:
        self._families = families

    def describe(self) -> Iterator[Family]:
        """Nothing: asking for the families once only to learn their names would be in vain."""
        return iter(())

    def collect(self) -> Iterator[Family]:
        return self._families()
