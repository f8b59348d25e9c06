"""Ready is said of an object once its present state is in force, and not before it is known."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from pillion_operator.controllers.readiness import (
    GRACE,
    Wait,
    ready,
    running_on,
    services_of,
)
from pillion_operator.controllers.states import ServiceState, ServiceStates
from pillion_operator.evaluation.namespace import Parsing
from pillion_operator.evaluation.references import References
from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.evaluation.verdict import ACCEPTED, Verdict
from pillion_operator.polling.reports import NO_TOKEN, Answer, DelivererReport, Unreachable
from pillion_operator.status.conditions import Condition
from pillion_operator.status.deliverers import DelivererCounts
from pillion_operator.store import Key, Store
from support.operator_context import context_of
from support.operator_objects import (
    DESTINATION,
    FILTER,
    NAMESPACE,
    SECRET,
    SERVICE,
    SUBSCRIPTION,
    bearer,
    changed,
    destination,
    filter_of,
    pod,
    service,
    subscription,
)
from support.operator_time import FakeClock

NOW = 1000.0
X = Key(SERVICE.kind, NAMESPACE, "x")


def report(name: str = "p", revision: str | None = "r1") -> DelivererReport:
    return DelivererReport(pod=name, revision=revision, queues={}, at=1.0)


def silent(name: str = "p", reason: str = "timed out") -> Unreachable:
    return Unreachable(pod=name, reason=reason, since=1.0)


class Bench:
    """A namespace with services, and what is known of what they run."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.store, self.references, self.states = Store(), References(), ServiceStates()
        self.parsing = Parsing()
        self.store.subscribe(self.references.follow)
        for body in (service(), filter_of(), destination(), subscription(), *bodies):
            self.store.put(body)
        self.answers: dict[str, tuple[Answer, ...]] = {}
        self.asked = {"default", "x"}
        self.clock = FakeClock()
        self.context = context_of(
            clock=self.clock,
            store=self.store,
            references=self.references,
            parsing=self.parsing,
            states=self.states,
            deliverers=self,
        )

    def written(
        self,
        *keys: Key,
        name: str = "default",
        revision: str = "r1",
        at: float = 0.0,
        judged: Iterable[str] = ("s",),
    ) -> ServiceState:
        """A service was reconciled with these objects, and its revision written."""
        content = {key: self.item(key) for key in keys}
        evaluation = ServiceEvaluation(
            verdict=ACCEPTED,
            subscriptions=dict.fromkeys(judged, ACCEPTED),
            content=content,
        )
        state = self.states.put(service(name), evaluation)
        state.rollout.advance(revision, content)
        state.rolled_out_at = at
        return state

    def item(self, key: Key) -> str:
        body = self.store.get(key)
        assert body is not None
        return self.parsing.parse(body).item

    def runs(self, *answers: Answer, name: str = "default") -> None:
        """Pods with a deliverer of a service, and what they said."""
        for answer in answers:
            self.store.put(pod(answer.pod, deliverer=name))
        self.answers[name] = answers

    def of(self, key: Key = FILTER, *services: Key, now: float = NOW) -> Condition | Wait:
        body = self.store.get(key)
        assert body is not None
        self.clock.skip(now - self.clock.monotonic())
        return ready(self.context, body, services or [SERVICE])

    def reason(self, key: Key = FILTER, *services: Key, now: float = NOW) -> tuple[str, str]:
        found = self.of(key, *services, now=now)
        assert isinstance(found, Condition), found
        assert found.type == "Ready"
        return found.status, found.reason

    # what it reads from the poller

    def reports(self, _namespace: str, service: str) -> tuple[Answer, ...]:
        return self.answers.get(service, ())

    def has_synced(self, _namespace: str, service: str) -> bool:
        return service in self.asked

    def rendered(self, namespace: str, service: str, revision: str) -> None:
        raise AssertionError

    def service_gone(self, namespace: str, service: str) -> None:
        raise AssertionError


ALL = (SERVICE, FILTER, DESTINATION, SUBSCRIPTION)


# ---------------------------------------------------------------- in force


def test_what_every_deliverer_runs_on_is_in_force() -> None:
    bench = Bench()
    state = bench.written(*ALL)
    state.pending.add(FILTER)
    bench.runs(report("p"), report("q"))
    for key in (FILTER, DESTINATION, SUBSCRIPTION):
        assert bench.reason(key) == ("True", "InForce")
    assert state.pending == set()


def test_a_revision_that_changed_something_else_is_as_good() -> None:
    bench = Bench()
    bench.written(*ALL)
    bench.store.put(changed(destination(suspended=True), generation=2, resourceVersion="2"))
    bench.written(*ALL, revision="r2")
    bench.runs(report("p", "r1"))
    assert bench.reason(FILTER) == ("True", "InForce")
    assert bench.reason(DESTINATION) == ("False", "RollingOut")


def test_who_does_not_run_on_it_yet_is_named_by_number() -> None:
    bench = Bench()
    state = bench.written(*ALL)
    bench.runs(report("p"), report("q", "r0"))
    found = bench.of()
    assert isinstance(found, Condition)
    assert (found.status, found.reason) == ("False", "RollingOut")
    assert "1 deliverer(s)" in found.message
    # Looked at again with every answer.
    assert state.pending == {FILTER}


def test_soon_after_a_revision_was_written_nothing_is_said_of_those_behind() -> None:
    bench = Bench()
    bench.written(*ALL, at=NOW)
    bench.runs(report("p", "r0"))
    assert bench.of(now=NOW) == Wait(GRACE)
    assert bench.of(now=NOW + 1.0) == Wait(GRACE - 1.0)
    assert bench.reason(now=NOW + GRACE) == ("False", "RollingOut")


def test_what_is_in_force_is_said_at_once() -> None:
    bench = Bench()
    bench.written(*ALL, at=NOW)
    bench.runs(report())
    assert bench.reason(now=NOW) == ("True", "InForce")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((), ("True", "NoDeliverers")),
        ((report("p", None),), ("False", "RollingOut")),
        ((silent(reason=NO_TOKEN),), ("False", "RollingOut")),
        ((report("p"), report("q", None)), ("True", "InForce")),
        ((silent(),), ("True", "Unreported")),
        ((report("p"), silent("q")), ("True", "InForce")),
        ((report("p", "r0"), silent("q")), ("False", "RollingOut")),
    ],
)
def test_deliverers_that_cannot_be_asked_or_have_just_begun_are_no_obstacle(
    answers: tuple[Answer, ...], expected: tuple[str, str]
) -> None:
    bench = Bench()
    bench.written(*ALL)
    bench.runs(*answers)
    assert bench.reason() == expected


def test_the_answers_of_pods_that_are_gone_or_of_other_services_do_not_count() -> None:
    bench = Bench()
    bench.written(*ALL)
    bench.runs(report("p"))
    bench.answers["default"] += (report("gone", "r0"),)
    bench.store.put(pod("other", deliverer="x"))
    bench.answers["default"] += (report("other", "r0"),)
    bench.store.put({**pod("done"), "status": {"phase": "Succeeded"}})
    bench.answers["default"] += (report("done", "r0"),)
    assert bench.reason() == ("True", "InForce")
    assert [one["metadata"]["name"] for one in bench.context.pods(SERVICE)] == ["p"]


# ---------------------------------------------------------------- not known yet


def test_before_its_service_is_reconciled_nothing_is_said() -> None:
    assert Bench().of() == Wait()


def test_a_service_that_is_not_there_uses_nothing() -> None:
    assert Bench().reason(FILTER, X) == ("True", "NotUsed")


def test_what_is_rendered_otherwise_than_it_is_now_waits_for_its_service() -> None:
    bench = Bench()
    bench.written(*ALL)
    bench.runs(report())
    bench.store.put(changed(filter_of(query="SELECT *"), generation=2, resourceVersion="2"))
    assert bench.of() == Wait()


def test_what_was_evaluated_and_is_not_written_yet_waits() -> None:
    bench = Bench()
    state = bench.written(*ALL)
    bench.runs(report())
    bench.store.put(changed(filter_of(query="SELECT *"), generation=2, resourceVersion="2"))
    state.evaluation = ServiceEvaluation(
        verdict=ACCEPTED,
        subscriptions={"s": ACCEPTED},
        content={**state.evaluation.content, FILTER: bench.item(FILTER)},
    )
    assert bench.of() == Wait()


def test_what_runs_again_as_before_and_is_evaluated_otherwise_waits() -> None:
    """It was changed, evaluated, and changed back before anything was written."""
    bench = Bench()
    state = bench.written(*ALL)
    bench.runs(report())
    state.evaluation = ServiceEvaluation(
        verdict=ACCEPTED,
        subscriptions={"s": ACCEPTED},
        content={**state.evaluation.content, FILTER: "another"},
    )
    assert bench.of() == Wait()


def test_what_is_on_its_way_out_of_the_configuration_waits_until_it_is_out() -> None:
    bench = Bench()
    state = bench.written(*ALL)
    state.evaluation = ServiceEvaluation(verdict=ACCEPTED, subscriptions={"s": ACCEPTED})
    assert bench.of() == Wait()
    state.rollout.advance("r2", {})
    assert bench.reason() == ("True", "NotUsed")


def test_a_subscription_that_is_not_evaluated_yet_waits_and_so_does_what_it_names() -> None:
    bench = Bench()
    bench.written(SERVICE, judged=())
    for key in (SUBSCRIPTION, FILTER, DESTINATION):
        assert bench.of(key) == Wait()


def test_a_subscription_that_is_accepted_is_always_used() -> None:
    bench = Bench()
    bench.written(SERVICE, judged=("s",))
    assert bench.of(SUBSCRIPTION) == Wait()
    assert bench.reason(FILTER) == ("True", "NotUsed")


def test_a_new_leader_says_nothing_before_it_has_asked_and_is_called_then() -> None:
    bench = Bench()
    state = bench.written(*ALL)
    bench.runs(report())
    bench.asked = set()
    assert bench.of() == Wait()
    assert state.pending == {FILTER}
    bench.asked = {"default"}
    assert bench.reason() == ("True", "InForce")


# ---------------------------------------------------------------- what is wrong


def test_a_service_that_is_not_accepted_says_so_of_what_it_would_use() -> None:
    bench = Bench()
    state = bench.written(*ALL)
    state.evaluation = ServiceEvaluation(verdict=Verdict(False, "Invalid", "It is odd."))
    found = bench.of()
    assert isinstance(found, Condition)
    assert (found.status, found.reason) == ("False", "ServiceNotAccepted")
    assert "IndicationService default" in found.message


def test_what_could_not_be_written_is_not_ready_whatever_runs() -> None:
    bench = Bench()
    state = bench.written(SERVICE, FILTER)
    bench.runs(report())
    state.unwritten = Verdict(False, "NotWritten", "The quota is used up.")
    found = bench.of()
    assert found == Condition("Ready", "False", "NotWritten", "The quota is used up.")
    # It concerns only what is, or was, in the configuration.
    assert bench.reason(DESTINATION) == ("True", "NotUsed")


def test_what_could_not_be_taken_out_is_not_ready_either() -> None:
    bench = Bench()
    state = bench.written(*ALL)
    state.evaluation = ServiceEvaluation(verdict=ACCEPTED, subscriptions={"s": ACCEPTED})
    state.unwritten = Verdict(False, "NotWritten", "The quota is used up.")
    assert bench.reason() == ("False", "NotWritten")


# ---------------------------------------------------------------- several services


def test_every_service_that_uses_it_has_to_have_it_in_force() -> None:
    bench = Bench(service("x"))
    first, second = bench.written(*ALL), bench.written(*ALL, name="x", revision="x1")
    bench.runs(report("p"))
    bench.runs(report("q", "x0"), name="x")
    assert bench.reason(FILTER, SERVICE, X) == ("False", "RollingOut")
    assert first.pending == second.pending == {FILTER}

    bench.runs(report("q", "x1"), name="x")
    assert bench.reason(FILTER, SERVICE, X) == ("True", "InForce")
    assert first.pending == second.pending == set()


def test_the_grace_of_the_latest_revision_counts() -> None:
    bench = Bench(service("x"))
    bench.written(*ALL, at=NOW)
    bench.written(*ALL, name="x", revision="x1", at=NOW - 1.0)
    bench.runs(report("p", "r0"))
    assert bench.of(FILTER, SERVICE, X) == Wait(GRACE)
    assert bench.of(FILTER, X, SERVICE) == Wait(GRACE)


def test_one_service_that_does_not_use_it_says_nothing_of_it() -> None:
    bench = Bench(service("x"))
    bench.written(*ALL)
    bench.written(SERVICE, name="x", revision="x1")
    bench.runs(report())
    assert bench.reason(FILTER, X, SERVICE) == ("True", "InForce")


def test_one_service_of_which_nothing_is_known_keeps_all_waiting() -> None:
    bench = Bench(service("x"))
    bench.written(*ALL)
    bench.runs(report())
    assert bench.of(FILTER, SERVICE, X) == Wait()
    bench.written(*ALL, name="x")
    bench.asked = {"default"}
    assert bench.of(FILTER, SERVICE, X) == Wait()


def test_the_services_of_an_object_are_those_that_may_have_it() -> None:
    bench = Bench(
        service("x"),
        destination("e", credentials=bearer("token")),
        subscription("t", destination="e", service="x"),
    )
    of = partial(services_of, bench.context)
    assert of(FILTER) == [SERVICE, X]
    assert of(DESTINATION) == [SERVICE]
    assert of(SECRET) == [X]


# ---------------------------------------------------------------- newer answers


def test_judged_by_newer_answers_than_the_others_the_others_have_to_be_told() -> None:
    bench = Bench()
    state = bench.written(*ALL)
    bench.runs(report("p", "r1"))
    state.running = frozenset({"r1"})
    bench.of()
    assert state.running == {"r1"}
    state.running = frozenset({"r0"})
    bench.of()
    assert state.running is None


@pytest.mark.parametrize(
    ("answers", "running"),
    [
        ((), frozenset()),
        ((report("p", "r1"), report("q", "r1")), {"r1"}),
        ((report("p", "r1"), report("q", "r2")), {"r1", "r2"}),
        ((report("p", None),), {None}),
        # Executors begin without one all the time.
        ((report("p", "r1"), report("q", None)), {"r1"}),
        ((silent(),), {""}),
        ((report("p", None), silent("q")), {None, ""}),
        ((report("p", "r1"), report("o", None), silent("q")), {"r1", ""}),
    ],
)
def test_what_is_run_on_is_told_by_revision(
    answers: tuple[Answer, ...], running: frozenset[str | None]
) -> None:
    assert running_on(answers) == running


def test_the_deliverers_of_two_services_are_added_up() -> None:
    one = DelivererCounts(deliverers=1, ready=2, behind=3, starting=4, unreachable=5)
    other = DelivererCounts(deliverers=10, ready=20, behind=30, starting=40, unreachable=50)
    assert one + other == DelivererCounts(
        deliverers=11, ready=22, behind=33, starting=44, unreachable=55
    )
