"""What deliverers say has only those looked at whose status may say something else."""

from typing import Any

from pillion_operator.controllers.states import ServiceState, ServiceStates, status_of
from pillion_operator.controllers.triggers import DeliveryChanges
from pillion_operator.evaluation.references import References
from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.evaluation.verdict import ACCEPTED
from pillion_operator.names import DRAIN_FINALIZER
from pillion_operator.polling.reports import (
    Answer,
    DelivererReport,
    QueueReport,
    Unreachable,
)
from pillion_operator.store import Key, Store
from pillion_sidecar.wire.queues import SubscriptionEnd
from support.operator_context import context_of
from support.operator_objects import (
    DESTINATION,
    FILTER,
    NAMESPACE,
    SERVICE,
    SUBSCRIPTION,
    changed,
    destination,
    filter_of,
    service,
    subscription,
)

STATUS = status_of(SERVICE)
OTHER = Key(SERVICE.kind, NAMESPACE, "x")


def queue(name: str = "d", depth: int = 0) -> QueueReport:
    return QueueReport(name=name, depth=depth, capacity=10, high_water=9)


def report(
    *queues: QueueReport, pod: str = "p", revision: str | None = "r1", **more: Any
) -> DelivererReport:
    named = {one.name: one for one in queues}
    return DelivererReport(pod=pod, revision=revision, queues=named, at=1.0, **more)


def silent(pod: str = "p") -> Unreachable:
    return Unreachable(pod=pod, reason="timed out", since=1.0)


class Bench:
    """The news of one operator, and who is looked at."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.store, self.references, self.states = Store(), References(), ServiceStates()
        self.store.subscribe(self.references.follow)
        for body in (service(), filter_of(), destination(), subscription(), *bodies):
            self.store.put(body)
        self.enqueued: list[Key] = []
        self.answers: dict[Key, tuple[Answer, ...]] = {}
        self.news = DeliveryChanges(
            context_of(
                store=self.store,
                references=self.references,
                states=self.states,
                queue=self,
                deliverers=self,
            )
        )

    def reconciled(self, **facts: Any) -> ServiceState:
        """The service was reconciled, and its objects were told what runs."""
        state = self.states.put(service(), ServiceEvaluation(verdict=ACCEPTED))
        for name, value in facts.items():
            setattr(state, name, value)
        return state

    def heard(self, *answers: Answer, name: str = "default") -> set[Key]:
        """Who is looked at after these answers."""
        self.answers[Key(SERVICE.kind, NAMESPACE, name)] = answers
        self.enqueued.clear()
        self.news.enqueue(Key(SERVICE.kind, NAMESPACE, name))
        return set(self.enqueued)

    # what it reads from the poller and of the queue

    def reports(self, namespace: str, service: str) -> tuple[Answer, ...]:
        return self.answers[Key(SERVICE.kind, namespace, service)]

    def add(self, key: Key) -> None:
        self.enqueued.append(key)


RUNNING = frozenset({"r1"})


def test_the_service_is_always_looked_at() -> None:
    bench = Bench()
    bench.reconciled(running=frozenset())
    assert bench.heard() == {STATUS}


def test_a_destination_is_looked_at_when_what_is_said_of_it_differs() -> None:
    bench = Bench()
    bench.reconciled(running=RUNNING)
    e = Key(DESTINATION.kind, NAMESPACE, "e")
    assert bench.heard(report(queue("d"), queue("e"))) == {STATUS, DESTINATION, e}
    assert bench.heard(report(queue("d"), queue("e"))) == {STATUS}
    assert bench.heard(report(queue("d", depth=1), queue("e"))) == {STATUS, DESTINATION}
    # Nobody has a queue for it any more.
    assert bench.heard(report(queue("d", depth=1))) == {STATUS, e}
    assert bench.heard(report(queue("d", depth=1))) == {STATUS}
    assert bench.heard(report()) == {STATUS, DESTINATION}
    assert bench.heard(report()) == {STATUS}


def test_where_nobody_says_anything_nothing_is_remembered() -> None:
    bench = Bench()
    bench.reconciled(running=RUNNING)
    bench.heard(report(queue()))
    bench.heard(report())
    assert bench.news._before == {}


def test_services_are_not_mixed_up() -> None:
    bench = Bench(service("x"))
    bench.reconciled(running=RUNNING)
    bench.states.put(service("x"), ServiceEvaluation(verdict=ACCEPTED)).running = RUNNING
    bench.heard(report(queue()))
    assert bench.heard(report(queue()), name="x") == {status_of(OTHER), DESTINATION}
    assert bench.heard(report(queue())) == {STATUS}


def test_destinations_that_drain_are_looked_at_with_every_answer() -> None:
    held = changed(
        destination("gone"),
        deletionTimestamp="2026-01-31T12:00:00Z",
        finalizers=[DRAIN_FINALIZER],
    )
    bench = Bench(held)
    bench.reconciled(running=frozenset())
    assert bench.heard() == {STATUS, Key(DESTINATION.kind, NAMESPACE, "gone")}


def test_a_subscription_that_a_deliverer_has_ended_is_looked_at() -> None:
    bench = Bench()
    bench.reconciled(running=RUNNING | {""})
    ended = (SubscriptionEnd(name="s", reason="Expired"),)
    assert bench.heard(report(ended=ended), silent("q")) == {STATUS, SUBSCRIPTION}
    assert bench.heard(report(), silent("q")) == {STATUS}


# ---------------------------------------------------------------- who runs on what

SERVED = {SUBSCRIPTION, FILTER, DESTINATION}


def test_before_a_service_is_reconciled_all_that_it_serves_is_looked_at() -> None:
    bench = Bench()
    for _ in range(2):
        assert bench.heard() == {STATUS} | SERVED


def test_another_revision_that_runs_reaches_all_that_is_served_once() -> None:
    bench = Bench()
    state = bench.reconciled(running=RUNNING)
    assert bench.heard(report(revision="r1")) == {STATUS}
    assert bench.heard(report(revision="r2")) == {STATUS} | SERVED
    assert state.running == frozenset({"r2"})
    assert bench.heard(report(revision="r2")) == {STATUS}


def test_a_deliverer_that_falls_silent_reaches_all_that_is_served() -> None:
    bench = Bench()
    bench.reconciled(running=RUNNING)
    assert bench.heard(report(), silent("q")) == {STATUS} | SERVED
    assert bench.heard(report(), silent("q")) == {STATUS}


def test_after_it_was_asked_for_all_that_is_served_is_looked_at_in_any_case() -> None:
    bench = Bench()
    bench.reconciled(running=None)
    assert bench.heard(report()) == {STATUS} | SERVED
    assert bench.heard(report()) == {STATUS}


def test_what_is_not_in_force_yet_is_looked_at_with_every_answer() -> None:
    bench = Bench()
    waiting = Key(FILTER.kind, NAMESPACE, "unserved")
    bench.reconciled(running=RUNNING, pending={waiting})
    assert bench.heard(report()) == {STATUS, waiting}
    assert bench.heard(report(revision="r2")) == {STATUS, waiting} | SERVED
