"""The text format, checked by the client library's own parser."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.delivery.handler import (
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
    Hold,
    HoldCause,
)
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.pacing import Pace
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.stores.members import MemberStatus
from pillion_sidecar.stores.namespaces import NamespaceUsage
from pillion_sidecar.stores.stability import ForcedBy
from pillion_sidecar.stores.store import StoreLimits
from pillion_sidecar.telemetry.definitions import METRICS
from pillion_sidecar.telemetry.exposition import MetricType
from pillion_sidecar.telemetry.metrics import PIECE, IntakeOutcome, Metrics
from pillion_sidecar.testing import FakeTime
from support.intake import HeldQueues
from support.queues import StillQueue


def _metrics(fake_time: FakeTime, *queues: StillQueue) -> Metrics:
    return Metrics(
        clock=fake_time,
        version="0.1.0",
        queues=lambda: queues,
        intake_kinds=["ndjson", "cim-xml"],
    )


def _samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = "".join(metrics.exposition())
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} appears twice"
            found[key] = sample.value
    return found


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return _samples(metrics).get((name, frozenset(labels.items())))


def test_a_failing_destination_has_a_cause_and_attempts_have_their_seconds(
    fake_time: FakeTime,
) -> None:
    outcome = DeliveryOutcome(DeliveryResult.ERROR, "refused", cause=FailureCause.REFUSED)
    queue = StillQueue(name="siem", failing_since=3.0, last_outcome=outcome)
    queue.statistics.attempt_seconds = 1.5
    well = StillQueue(name="archive", last_outcome=DeliveryOutcome(DeliveryResult.SUCCESS))
    metrics = _metrics(fake_time, queue, well)
    found = _samples(metrics)
    failing = [key[1] for key in found if key[0] == "pillion_destination_failing"]
    assert failing == [frozenset({("destination", "siem"), ("cause", "refused")})]
    name = "pillion_destination_attempt_seconds_total"
    assert found[name, frozenset({("destination", "siem")})] == 1.5
    assert found[name, frozenset({("destination", "archive")})] == 0


def test_discards_of_a_removed_destination_stay(fake_time: FakeTime) -> None:
    metrics = _metrics(fake_time, StillQueue(name="siem"))
    lost = dict.fromkeys(DiscardReason, 0) | {DiscardReason.DESTINATION_REMOVED: 3}
    former = {'a "gone" one': lost, "idle": dict.fromkeys(DiscardReason, 0)}
    metrics.watch(former_discards=lambda: former)
    name, removed = "pillion_indications_discarded_total", "destination-removed"
    assert _value(metrics, name, destination='a "gone" one', reason=removed) == 3
    assert _value(metrics, name, destination="siem", reason=removed) == 0
    assert _value(metrics, name, destination="idle", reason=removed) is None


def test_a_queue_shows_its_depth_capacity_high_water_and_flight(fake_time: FakeTime) -> None:
    queue = StillQueue(
        name="siem", depth=7, capacity=50, high_water=9, in_flight_count=1, delivered=3
    )
    metrics = _metrics(fake_time, queue)
    assert _value(metrics, "pillion_destination_queue_depth", destination="siem") == 7
    assert _value(metrics, "pillion_destination_queue_capacity", destination="siem") == 50
    assert _value(metrics, "pillion_destination_queue_high_water", destination="siem") == 9
    assert _value(metrics, "pillion_destination_in_flight", destination="siem") == 1
    assert _value(metrics, "pillion_indications_delivered_total", destination="siem") == 3
    assert _value(metrics, "pillion_destination_suspended", destination="siem") == 0


def test_a_queue_that_is_held_shows_for_what(fake_time: FakeTime) -> None:
    hold = Hold(HoldCause.CERTIFICATES, "its key is not its certificate's", 0.0)
    metrics = _metrics(fake_time, StillQueue(name="siem", hold=hold), StillQueue(name="well"))
    held = {key: value for key, value in _samples(metrics).items() if key[0].endswith("_held")}
    labels = {"destination": "siem", "cause": "invalid-certificates"}
    assert _value(metrics, "pillion_destination_held", **labels) == 1
    assert [dict(key[1])["destination"] for key in held if "cause" in dict(key[1])] == ["siem"]


def test_a_queue_shows_whether_it_is_relayed(fake_time: FakeTime) -> None:
    metrics = _metrics(fake_time, StillQueue(name="siem"), StillQueue(name="far", relay_to="hub"))
    assert _value(metrics, "pillion_destination_relayed", destination="siem") == 0
    assert _value(metrics, "pillion_destination_relayed", destination="far") == 1


def test_discards_are_counted_by_reason_and_every_reason_is_there_from_the_start(
    fake_time: FakeTime,
) -> None:
    failing, fine = StillQueue(name="failing"), StillQueue(name="fine")
    failing.statistics.discarded[DiscardReason.QUEUE_FULL] = 4
    failing.statistics.discarded[DiscardReason.LIFETIME_EXPIRED] = 2
    samples = _samples(_metrics(fake_time, failing, fine))
    for queue in (failing, fine):
        for reason in DiscardReason:
            labels = {"destination": queue.name, "reason": reason.value}
            key = "pillion_indications_discarded_total", frozenset(labels.items())
            assert samples[key] == queue.statistics.discarded[reason]


def test_attempts_are_counted_by_result(fake_time: FakeTime) -> None:
    queue = StillQueue(name="siem")
    for count, result in enumerate(DeliveryResult, start=1):
        queue.statistics.attempts[result] = count
    metrics = _metrics(fake_time, queue)
    for result in DeliveryResult:
        name = "pillion_delivery_attempts_total"
        value = _value(metrics, name, destination="siem", result=result.value)
        assert value == queue.statistics.attempts[result]


def test_times_are_told_in_seconds_since_the_epoch_and_ages_in_seconds(
    fake_time: FakeTime,
) -> None:
    now = fake_time.monotonic()
    queue = StillQueue(
        name="siem",
        oldest_accepted_at=now - 12.5,
        next_attempt_at=now + 30,
        last_success_at=now - 1,
        failing_since=now - 7,
        lifetime=95.5,
    )
    metrics = _metrics(fake_time, queue)
    names = {
        "pillion_destination_oldest_indication_age_seconds": 12.5,
        "pillion_destination_next_attempt_timestamp_seconds": fake_time.time() + 30,
        "pillion_destination_last_success_timestamp_seconds": fake_time.time() - 1,
        "pillion_destination_failing_since_timestamp_seconds": fake_time.time() - 7,
        "pillion_queue_first_loss_due_timestamp_seconds": fake_time.time() + 83,
    }
    for name, value in names.items():
        assert _value(metrics, name, destination="siem") == pytest.approx(value)


def test_a_slow_queue_tells_since_when_unless_it_fails(fake_time: FakeTime) -> None:
    name, now = "pillion_destination_slow_since_timestamp_seconds", fake_time.monotonic()
    slow = StillQueue(name="siem", depth=3, slow_since=now - 60)
    told = _value(_metrics(fake_time, slow), name, destination="siem")
    assert told == pytest.approx(fake_time.time() - 60)
    failing = StillQueue(name="siem", depth=3, slow_since=now - 60, failing_since=now)
    assert _value(_metrics(fake_time, failing), name, destination="siem") is None


def test_a_queue_with_nothing_pending_has_age_zero_and_no_next_attempt(fake_time: FakeTime) -> None:
    metrics = _metrics(fake_time, StillQueue(name="siem"))
    age = "pillion_destination_oldest_indication_age_seconds"
    assert _value(metrics, age, destination="siem") == 0
    for absent in (
        "pillion_destination_next_attempt_timestamp_seconds",
        "pillion_destination_failing_since_timestamp_seconds",
        "pillion_destination_slow_since_timestamp_seconds",
        "pillion_queue_first_loss_due_timestamp_seconds",
    ):
        assert _value(metrics, absent, destination="siem") is None


@given(name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")))
def test_any_destination_name_survives_the_text_format(name: str) -> None:
    busy = StillQueue(name=name, depth=3)
    busy.statistics.discarded[DiscardReason.PURGED] = 5
    metrics = _metrics(FakeTime(), busy)
    assert _value(metrics, "pillion_destination_queue_depth", destination=name) == 3
    discarded = "pillion_indications_discarded_total"
    assert _value(metrics, discarded, destination=name, reason="purged") == 5


def test_samples_of_a_metric_stand_together_and_pieces_are_bounded(fake_time: FakeTime) -> None:
    queues = [StillQueue(name=f"listener-{index}") for index in range(2 * PIECE + 1)]
    pieces = list(_metrics(fake_time, *queues).exposition())
    assert max(piece.count("\n") for piece in pieces) <= PIECE * len(DiscardReason)
    headers = [line for piece in pieces for line in piece.split("\n") if line.startswith("# TYPE")]
    assert len(headers) == len(set(headers))
    samples = _samples(_metrics(fake_time, *queues))
    depths = [key for key in samples if key[0] == "pillion_destination_queue_depth"]
    assert len(depths) == len(queues)


def test_every_metric_of_the_reference_is_exposed_and_no_other(fake_time: FakeTime) -> None:
    metrics = Metrics(
        clock=fake_time,
        version="0.1.0",
        queues=lambda: [StillQueue()],
        duplicates=DuplicateMemory(clock=fake_time, window_seconds=60, capacity=10),
    )
    metrics.watch(
        groups=Groups(clock=fake_time, timers=fake_time, queues=HeldQueues(), window_seconds=60),
        journal=FullJournal(),
        history=History(clock=fake_time, timers=fake_time),
    )
    # A gateway alone has these.
    metrics.watch(stores=KeptCopies(), written_stores=WrittenStores(), adoptions=({}, {}))
    metrics.gateway.keys_read(1)
    metrics.gateway.certificate_read(0.0)
    metrics.gateway.watch(lambda: (0, 0, 0))
    text = "".join(metrics.exposition())
    for metric in METRICS:
        assert metric.header in text
    assert text.count("# TYPE") == len(METRICS)


@dataclass
class KeptCopies:
    """Copies of journals of some namespaces."""

    usage: dict[str, NamespaceUsage] = field(
        default_factory=lambda: {
            f"n{number:03}": NamespaceUsage(10, number) for number in range(103)
        }
    )
    limits: StoreLimits = field(
        default_factory=lambda: StoreLimits(maximum_bytes=5000, maximum_sessions=70)
    )
    requests: dict[tuple[str, str], int] = field(default_factory=lambda: {("claim", "quota"): 3})
    dropped: dict[str, int] = field(default_factory=lambda: {"n002": 1})


def test_the_copies_of_a_hundred_namespaces_have_samples_of_their_own(fake_time: FakeTime) -> None:
    metrics = Metrics(clock=fake_time, version="0.1.0")
    metrics.watch(stores=KeptCopies())
    value = partial(_value, metrics)
    assert value("pillion_journal_copy_requests_total", verb="claim", result="quota") == 3
    assert value("pillion_journal_copy_bytes_limit") == 5000
    assert value("pillion_journal_copy_sessions_limit") == 70
    for namespace, size, sessions in (("n099", 10, 99), ("n100", None, None), ("other", 30, 303)):
        assert value("pillion_journal_copy_bytes", writer_namespace=namespace) == size
        assert value("pillion_journal_copy_sessions", writer_namespace=namespace) == sessions
    for namespace, dropped in (("n002", 1), ("n003", 0)):
        assert value("pillion_journal_copies_dropped_total", writer_namespace=namespace) == dropped


@dataclass
class WrittenStores:
    """Stores of a journal: one of three is up."""

    unstable: int = 700
    flight_size: int = 1000
    unstable_seconds: float = 12.5
    unannounced: int = 300
    consensus: str = "Majority"
    lease_seconds: float | None = 7.5
    unprotected: int = 3
    forced_discards: dict[str, int] = field(default_factory=lambda: {"queue-full": 2})
    forced_segments: dict[ForcedBy, int] = field(default_factory=lambda: {ForcedBy.LIFETIME: 1})
    stalled: dict[str, str] = field(default_factory=lambda: {"b": "b is away"})
    requests: dict[tuple[str, str], int] = field(
        default_factory=lambda: {("append", "ok"): 5, ("claim", "unanswered"): 2}
    )

    def statuses(self) -> list[MemberStatus]:
        return [
            MemberStatus(store="a", is_up=True, behind=0, problem=None),
            MemberStatus(store="b", is_up=False, behind=900, problem="b is away"),
        ]


def test_each_store_of_the_journal_has_samples(fake_time: FakeTime) -> None:
    metrics = Metrics(clock=fake_time, version="0.1.0")
    assert "pillion_store" not in "".join(metrics.exposition())
    metrics.watch(written_stores=WrittenStores())
    value = partial(_value, metrics)
    assert value("pillion_store_unstable_bytes") == 700
    assert value("pillion_store_flight_size_bytes") == 1000
    assert value("pillion_store_unstable_seconds") == 12.5
    assert value("pillion_store_unannounced_bytes") == 300
    assert value("pillion_store_lease_seconds") == 7.5
    assert value("pillion_store_unprotected_indications_total") == 3
    assert value("pillion_store_forced_discards_total", reason="queue-full") == 2
    assert value("pillion_store_forced_segments_total", cause="lifetime") == 1
    for store, up, missed, behind in (("a", 1, 0, 0), ("b", 0, 1, 900)):
        assert value("pillion_store_up", store=store) == up
        assert value("pillion_store_missed", store=store) == missed
        assert value("pillion_store_behind_bytes", store=store) == behind
    assert value("pillion_store_requests_total", verb="claim", result="unanswered") == 2


@dataclass
class FullJournal:
    """A journal on a full disk, and its own statistics."""

    durability: str = "Disk"
    total_bytes: int = 5000
    live_bytes: int = 2000
    live_bound: int = 9000
    identity_bytes: int = 37
    segments: int = 3
    appended_bytes: int = 70_000
    damaged: int = 1
    torn: int = 1
    is_full: bool = True
    pending_barriers: int = 4

    @property
    def statistics(self) -> "FullJournal":
        return self


def test_a_journal_is_told_of_where_there_is_one(fake_time: FakeTime) -> None:
    metrics = Metrics(clock=fake_time, version="0.1.0")
    metrics.journal_committed(0.002)
    assert "pillion_journal" not in "".join(metrics.exposition())
    metrics.watch(journal=FullJournal())
    metrics.journal_committed(0.002)
    expected = {
        "bytes": 5000,
        "live_bytes": 2000,
        "live_limit_bytes": 9000,
        "identity_bytes": 37,
        "segments": 3,
        "written_bytes_total": 70_000,
        "damaged_records_total": 1,
        "full": 1,
        "waiting": 4,
    }
    assert {name: _value(metrics, f"pillion_journal_{name}") for name in expected} == expected
    text = "".join(metrics.exposition())
    assert 'pillion_journal_commit_duration_seconds_count{durability="Disk"} 1' in text


def test_a_start_is_told_as_it_was_and_changes_with_the_next(fake_time: FakeTime) -> None:
    began = fake_time.time()
    first = _metrics(fake_time)
    fake_time.advance(60)
    assert _value(first, "pillion_start_timestamp_seconds") == pytest.approx(began, abs=0.001)
    again = _value(_metrics(fake_time), "pillion_start_timestamp_seconds")
    assert again == pytest.approx(began + 60, abs=0.001)


def test_remembered_identities_and_evictions_are_counted(fake_time: FakeTime) -> None:
    @dataclass
    class Memory:
        entries: int = 12
        evictions: int = 3

    metrics = Metrics(clock=fake_time, version="0.1.0")
    assert _value(metrics, "pillion_duplicate_memory_entries") is None
    metrics.watch(duplicates=Memory())
    assert _value(metrics, "pillion_duplicate_memory_entries") == 12
    assert _value(metrics, "pillion_duplicate_memory_evictions_total") == 3


def test_no_histogram_is_labelled_by_destination() -> None:
    histograms = [metric for metric in METRICS if metric.type is MetricType.HISTOGRAM]
    assert len(histograms) == 3
    assert all("destination" not in metric.labels for metric in histograms)


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        assert metric.name.startswith("pillion_")
        assert metric.name.endswith("_total") == (metric.type is MetricType.COUNTER)
        assert "\n" not in metric.help


def _buckets(metrics: Metrics, name: str, protocol: str) -> Iterable[tuple[float, float]]:
    for (sample, labels), value in _samples(metrics).items():
        pairs = dict(labels)
        if sample == f"{name}_bucket" and pairs["protocol"] == protocol:
            yield float(pairs["le"]), value


def test_a_histogram_counts_up_to_and_including_each_bound(fake_time: FakeTime) -> None:
    metrics = _metrics(fake_time)
    for seconds in (0.0005, 0.3, 0.4, 3600.0):
        metrics.attempted("CIM-XML", seconds)
    metrics.attempted("CloudEvents", 0.02)
    name = "pillion_delivery_attempt_duration_seconds"
    counts = dict(_buckets(metrics, name, "CIM-XML"))
    assert (counts[0.0005], counts[0.25], counts[0.5], counts[60]) == (1, 1, 3, 3)
    assert counts[float("inf")] == 4
    assert _value(metrics, f"{name}_count", protocol="CIM-XML") == 4
    assert _value(metrics, f"{name}_sum", protocol="CIM-XML") == pytest.approx(3600.7005)
    assert _value(metrics, f"{name}_count", protocol="CloudEvents") == 1


def test_end_to_end_time_has_a_histogram_of_its_own(fake_time: FakeTime) -> None:
    metrics = _metrics(fake_time)
    metrics.delivered("CIM-XML", 90.0)
    name = "pillion_delivery_end_to_end_seconds"
    assert _value(metrics, f"{name}_count", protocol="CIM-XML") == 1
    assert dict(_buckets(metrics, name, "CIM-XML"))[60] == 0


def test_a_histogram_has_the_protocols_of_queues_and_of_former_attempts(
    fake_time: FakeTime,
) -> None:
    queue = StillQueue(name="siem")
    metrics = _metrics(fake_time, queue)
    metrics.attempted("SMTP", 0.3)
    found = {
        dict(labels)["protocol"]
        for (sample, labels) in _samples(metrics)
        if sample == "pillion_delivery_attempt_duration_seconds_count"
    }
    assert found == {queue.protocol, "SMTP"}


def test_unknown_protocols_share_one_label_value(fake_time: FakeTime) -> None:
    metrics = _metrics(fake_time)
    metrics.attempted("gopher", 1.0)
    metrics.attempted("finger", 1.0)
    name = "pillion_delivery_attempt_duration_seconds_count"
    assert _value(metrics, name, protocol="other") == 2


def test_intake_is_counted_by_kind_and_outcome(fake_time: FakeTime) -> None:
    metrics = _metrics(fake_time)
    metrics.received("ndjson", IntakeOutcome.ACCEPTED, 990)
    metrics.received("ndjson", IntakeOutcome.ACCEPTED, 5)
    metrics.received("ndjson", IntakeOutcome.INVALID)
    name = "pillion_intake_indications_total"
    assert _value(metrics, name, kind="ndjson", outcome="accepted") == 995
    assert _value(metrics, name, kind="ndjson", outcome="invalid") == 1
    assert _value(metrics, name, kind="cim-xml", outcome="accepted") == 0


def test_a_refused_configuration_leaves_the_revision_and_says_so(fake_time: FakeTime) -> None:
    metrics = _metrics(fake_time)
    assert not any(name == "pillion_configuration_info" for name, _ in _samples(metrics))
    metrics.configuration_loaded("r1")
    loaded_at = fake_time.time()
    fake_time.advance(60)
    metrics.configuration_refused()
    assert _value(metrics, "pillion_configuration_info", revision="r1") == 1
    assert _value(metrics, "pillion_configuration_last_reload_successful") == 0
    at = _value(metrics, "pillion_configuration_last_reload_success_timestamp_seconds")
    assert at == pytest.approx(loaded_at)
    assert _value(metrics, "pillion_configuration_reloads_total", outcome="failure") == 1


def test_only_limited_destinations_have_seconds_of_waiting(fake_time: FakeTime) -> None:
    pace = Pace(RateLimit(per_second=1.0))
    pace.wait(fake_time.monotonic())
    fake_time.advance(2.5)
    metrics = _metrics(fake_time, StillQueue(name="siem", pace=pace), StillQueue(name="free"))
    name = "pillion_destination_rate_limited_seconds_total"
    assert _value(metrics, name, destination="siem") == 2.5
    assert _value(metrics, name, destination="free") is None
