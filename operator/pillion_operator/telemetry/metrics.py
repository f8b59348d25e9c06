"""The operator's metrics, under ``pillion_operator_``."""

from collections.abc import Sequence
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Result(StrEnum):
    SUCCESS = "success"
    #: The API server refused a request or was unreachable; it is retried.
    RETRY = "retry"
    #: An internal error; logged with its trace and retried.
    FAILED = "failed"


class Metrics:
    def __init__(self, *, version: str) -> None:
        self.registry = CollectorRegistry()
        self._add_reconciling()
        self._add_watching()
        self._add_injection()
        self._add_deliverers()
        self._gauge("info", "The operator's version; always 1.", "version").labels(version).set(1)

    def _add_reconciling(self) -> None:
        self.reconciles = self._counter(
            "reconciles", "Reconciles, by kind of object and by how they ended.", "kind", "result"
        )
        self.reconcile_seconds = Histogram(
            "pillion_operator_reconcile_seconds",
            "How long a reconcile took.",
            ("kind",),
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0),
            registry=self.registry,
        )
        self.queue_depth = self._gauge("queue_depth", "Objects that wait to be reconciled.")
        self.api_writes = self._counter(
            "api_writes",
            "Requests that write to the API server, by verb.",
            "verb",
            begin=("apply", "patch", "create", "replace", "delete"),
        )
        self.conflicts = self._counter(
            "api_conflicts",
            "Writes that the API server refused because another client had written before.",
        )
        self.drift = self._counter(
            "drift",
            "The operator's objects that it restored after a change by another client.",
            "kind",
        )
        self.events_dropped = self._counter(
            "events_dropped", "Kubernetes Events that could not be published."
        )
        self.leader = self._gauge(
            "leader", "1 where this process is the one that writes, 0 where it stands by."
        )

    def _add_watching(self) -> None:
        self.watch_restarts = self._counter(
            "watch_restarts",
            "Watches that began, anew or for the first time, by kind (plural).",
            "kind",
        )
        self.watch_missed = self._counter(
            "watch_missed",
            "Changes that no watch has brought and that a listing has found.",
            "kind",
        )
        self.watch_stalled = self._gauge(
            "watch_stalled",
            "1 where no watch of a kind (plural) has begun for too long.",
            "kind",
        )

    def _add_injection(self) -> None:
        self.webhook_seconds = Histogram(
            "pillion_operator_webhook_seconds",
            "How long the injecting webhook took to answer.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0),
            registry=self.registry,
        )
        self.webhook_answers = self._counter(
            "webhook_answers",
            "Pods that the injecting webhook was asked about, by what it did: injected, left, "
            "failed.",
            "outcome",
            begin=("injected", "left", "failed"),
        )
        self.evictions = self._counter(
            "evictions",
            "Pods without the deliverer that they should have, evicted so that they are made anew, "
            "by result: evicted, refused, failed.",
            "result",
            begin=("evicted", "refused", "failed"),
        )
        self.missed_injections = self._gauge(
            "missed_injections",
            "Pods that should have a deliverer and have none.",
            "namespace",
            "service",
        )
        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds",
            "When the certificate that the webhook shows expires.",
        )
        self.gateway_ca_expiry = self._gauge(
            "gateway_ca_expiry_timestamp_seconds",
            "When the authority that signs gateways' certificates expires; 0 as long as there is "
            "none.",
        )
        self.token_keys_read = self._counter(
            "token_keys_read",
            "Looks at the API server's keys of service-account tokens, by result: read, failed.",
            "result",
            begin=("read", "failed"),
        )

    def _add_deliverers(self) -> None:
        self.pokes = self._counter(
            "pokes",
            "Pods annotated so that the kubelet refreshes their configuration, by result: done, "
            "failed.",
            "result",
            begin=("done", "failed"),
        )
        self.polls = self._counter(
            "deliverers_asked",
            "Deliverers that were asked for their queues, by result: answered, unreachable.",
            "result",
            begin=("answered", "unreachable"),
        )
        self.unreachable_deliverers = self._gauge(
            "unreachable_deliverers",
            "Deliverers whose queues the operator could not read when it last asked.",
        )
        self.lost_pending = self._counter(
            "lost_deliverer_pending",
            "Indications that waited at deliverers which ended together with their volumes: as the "
            "deliverer said at its end, else as it was last seen.",
            "namespace",
            "service",
        )
        self.sessions_pending = self._gauge(
            "sessions_pending",
            "Journals of pods that are gone, which stores keep and no gateway has adopted yet. Of "
            "services with stores.",
            "namespace",
            "service",
        )
        self.poll_seconds = Histogram(
            "pillion_operator_deliverer_answer_seconds",
            "How long a deliverer took to answer, or not to.",
            buckets=(0.005, 0.02, 0.1, 0.5, 2.0, 5.0),
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *labels: str, begin: Sequence[str] = ()) -> Counter:
        """``begin``: label values whose series start at 0, because ``increase()`` misses the first
        event of a series that starts at 1."""
        counter = Counter(f"pillion_operator_{name}", text, labels, registry=self.registry)
        for value in begin:
            counter.labels(value)
        return counter

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"pillion_operator_{name}", text, labels, registry=self.registry)
