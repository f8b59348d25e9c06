"""What ends together with a deliverer is told, and nothing else is."""

import json
import logging
from collections.abc import Mapping
from typing import Any, cast

import pytest

from pillion_operator.controllers.lost_deliveries import LostDeliveries
from pillion_operator.events import EventRecorder
from pillion_operator.polling.poller import Departure
from pillion_operator.polling.reports import DelivererReport, QueueReport
from pillion_operator.store import Store, slimmed
from pillion_operator.telemetry.metrics import Metrics
from support.operator_objects import SERVICE, pod, service
from support.operator_time import FakeClock


def departure(pending: Mapping[str, int], *, at: float) -> Departure:
    queues = {
        name: QueueReport(name=name, depth=depth, capacity=100, high_water=depth)
        for name, depth in pending.items()
    }
    return Departure(
        pod="p", uid="u", last=DelivererReport(pod="p", revision="r", queues=queues, at=at)
    )


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def publish(self, regarding: Any, *, type: str, reason: str, note: str, action: str) -> None:
        self.events.append((regarding["metadata"]["name"], f"{type}/{reason}", note))


class Bench:
    def __init__(self) -> None:
        self.clock, self.store, self.recorder = FakeClock(), Store(), Recorder()
        self.metrics = Metrics(version="0")
        self.store.put(service())
        self.losses = LostDeliveries(
            store=self.store,
            recorder=cast(EventRecorder, self.recorder),
            metrics=self.metrics,
            clock=self.clock,
        )

    def counted(self) -> float | None:
        return self.metrics.registry.get_sample_value(
            "pillion_operator_lost_deliverer_pending_total",
            {"namespace": SERVICE.namespace, "service": SERVICE.name},
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def ended(message: str | None, *, field: str = "initContainerStatuses") -> dict[str, Any]:
    state = {"terminated": {"exitCode": 0, **({} if message is None else {"message": message})}}
    status = {"phase": "Succeeded", field: [{"name": "pillion-deliverer", "state": state}]}
    return dict(slimmed({**pod(), "status": status}))


def seen(bench: Bench, *, before: float = 4.0) -> Departure:
    return departure({"orders": 12, "on-call": 3}, at=bench.clock.time() - before)


def test_what_was_last_seen_is_told_counted_and_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "pillion.operator"):
        bench.losses.report(SERVICE, seen(bench), pod=pod())
    assert bench.counted() == 15
    ((about, kind, note),) = bench.recorder.events
    assert (about, kind) == ("default", "Warning/DelivererLost")
    assert "4 s before, 15 indication(s) were pending: orders 12, on-call 3" in note
    assert "Later changes are unknown." in note
    (record,) = caplog.records
    told = vars(record)
    assert (told["event"], told["pending"], told["exact"]) == ("deliverer-lost-pending", 15, False)


@pytest.mark.parametrize("field", ["initContainerStatuses", "containerStatuses"])
def test_what_the_deliverer_says_at_its_end_counts_instead(bench: Bench, field: str) -> None:
    bench.losses.report(SERVICE, seen(bench), pod=ended(json.dumps({"left": 2}), field=field))
    assert bench.counted() == 2
    assert "volume was deleted with 2 pending indication(s)" in bench.recorder.events[0][2]


def test_what_the_deliverer_says_of_each_destination_counts_instead(bench: Bench) -> None:
    said = {"left": 9, "destinations": {"siem": 7, "on-call": 2, "A\x1b": 4, "x": "y"}, "others": 0}
    bench.losses.report(SERVICE, seen(bench), pod=ended(json.dumps(said)))
    assert bench.counted() == 9
    note = bench.recorder.events[0][2]
    assert note.endswith("by the last message of its deliverer. They are for siem 7, on-call 2.")
    assert "orders" not in note


def test_one_that_has_delivered_all_at_its_end_has_lost_nothing(bench: Bench) -> None:
    bench.losses.report(SERVICE, seen(bench), pod=ended('{"left": 0}'))
    assert bench.counted() is None
    assert bench.recorder.events == []


def test_what_it_says_counts_though_it_was_never_seen_to_hold_anything(bench: Bench) -> None:
    never = Departure(pod="p", uid="u", last=None)
    bench.losses.report(SERVICE, never, pod=ended('{"left": 7}'))
    assert bench.counted() == 7
    bench.losses.report(SERVICE, never, pod=None)
    assert bench.counted() == 7


@pytest.mark.parametrize(
    "message",
    [None, "", "no JSON", "[]", '{"left": -1}', '{"left": true}', '{"left": 1e3}', "[" * 9],
)
def test_a_message_that_is_none_leaves_what_was_seen(bench: Bench, message: str | None) -> None:
    bench.losses.report(SERVICE, seen(bench), pod=ended(message))
    assert bench.counted() == 15


def test_what_lies_in_a_claim_is_not_lost(bench: Bench) -> None:
    claim = {"name": "pillion-data", "persistentVolumeClaim": {"claimName": "data-0"}}
    for volumes, lost in (([claim], None), ([{"name": "pillion-data", "emptyDir": {}}], 15)):
        body = slimmed({**pod(), "spec": {"volumes": volumes}})
        bench.losses.report(SERVICE, seen(bench), pod=body)
        assert bench.counted() == lost


def test_of_a_service_that_is_gone_it_is_still_counted(bench: Bench) -> None:
    bench.store.remove(SERVICE)
    bench.losses.report(SERVICE, seen(bench), pod=None)
    assert bench.counted() == 15
    assert bench.recorder.events == []


def test_a_few_destinations_are_named(bench: Bench) -> None:
    many = departure({f"d{n}": n for n in range(1, 9)}, at=bench.clock.time())
    bench.losses.report(SERVICE, many, pod=None)
    assert "d8 8, d7 7, d6 6, d5 5, d4 4 and 3 more" in bench.recorder.events[0][2]


def test_what_stores_keep_is_not_lost_with_its_pod(bench: Bench) -> None:
    groups = [{"name": "g", "members": [{"gatewayRef": {"name": "a"}}]}]
    with_stores = service(stores={"groups": groups})
    with_stores["metadata"]["resourceVersion"] = "2"
    bench.store.put(with_stores)
    bench.losses.report(SERVICE, seen(bench), pod=pod())
    assert bench.counted() is None
    assert bench.recorder.events == []
