"""What a service serves, what it leaves out, and what is said of it."""

import base64
import json
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from pillion_cim.schema import load_schema
from pillion_operator.evaluation.judging import Judge, Judgement, object_problems
from pillion_operator.evaluation.namespace import Namespace, Parsing
from pillion_operator.evaluation.references import References
from pillion_operator.evaluation.rendering import suspended
from pillion_operator.evaluation.service import (
    ServiceEvaluation,
    evaluate_service,
)
from pillion_operator.store import Key, Store
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.parsing import Resource, Secret
from pillion_sidecar.config.problems import Problem
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
    made,
    secret,
    service,
    subscription,
)

DELETED = "2026-01-31T12:00:00Z"


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(addresses=AddressPolicy(), schema=load_schema())


def evaluated(
    *bodies: dict[str, Any], judge: Judge, ended: Collection[str] = (), name: str = "default"
) -> ServiceEvaluation:
    store, references = Store(), References()
    store.subscribe(references.follow)
    for body in bodies:
        store.put(body)
    return evaluate_service(
        name,
        namespace=Namespace(NAMESPACE, store=store, parsing=Parsing()),
        judge=judge,
        subscriptions=[key.name for key in references.naming(Key(SERVICE.kind, NAMESPACE, name))],
        ended=ended,
    )


def contents(evaluation: ServiceEvaluation) -> set[Key]:
    return set(evaluation.content)


def item(evaluation: ServiceEvaluation, key: Key) -> dict[str, Any]:
    found = json.loads(evaluation.content[key])
    assert isinstance(found, dict)
    return found


def reasons(evaluation: ServiceEvaluation) -> dict[str, str]:
    return {name: verdict.reason for name, verdict in evaluation.subscriptions.items()}


WHOLE = (service(), filter_of(), destination(), subscription())
#: What is in the configuration of these.
ALL = {SERVICE, FILTER, DESTINATION, SUBSCRIPTION}


def test_what_is_named_is_served_and_what_nobody_names_is_not(judge: Judge) -> None:
    evaluation = evaluated(
        *WHOLE, filter_of("unused"), destination("unused"), secret("unused"), judge=judge
    )
    assert evaluation.verdict.accepted
    assert reasons(evaluation) == {"s": "Accepted"}
    assert evaluation.destinations == {}
    assert contents(evaluation) == ALL
    assert list(evaluation.content) == sorted(evaluation.content)
    assert evaluation.counts[SUBSCRIPTION.kind] == evaluation.counts[FILTER.kind] == 1
    assert evaluation.counts[SECRET.kind] == 0


def test_a_service_without_subscriptions_is_served_empty(judge: Judge) -> None:
    evaluation = evaluated(service(), filter_of(), judge=judge)
    assert evaluation.verdict.accepted
    assert contents(evaluation) == {SERVICE}


def test_the_subscriptions_of_another_service_are_not_served(judge: Judge) -> None:
    evaluation = evaluated(*WHOLE, service("x"), subscription("t", service="x"), judge=judge)
    assert reasons(evaluation) == {"s": "Accepted"}
    assert contents(evaluation) == ALL


# ---------------------------------------------------------------- the service itself


def test_a_service_that_is_not_there_is_named_and_serves_nobody(judge: Judge) -> None:
    evaluation = evaluated(filter_of(), destination(), subscription(), judge=judge)
    assert (evaluation.verdict.accepted, evaluation.verdict.reason) == (False, "ServiceNotFound")
    assert "IndicationService default" in evaluation.verdict.message
    assert "Create it." in evaluation.verdict.message
    assert reasons(evaluation) == {"s": "ServiceNotAccepted"}
    assert evaluation.content == {}


def test_a_service_that_is_flawed_serves_nobody_and_says_why(judge: Judge) -> None:
    flawed = service(deliveryRetryAttempts="many")
    evaluation = evaluated(
        flawed, filter_of(), destination(), subscription(), subscription("t"), judge=judge
    )
    assert evaluation.verdict.reason == "Invalid"
    assert "spec.deliveryRetryAttempts" in evaluation.verdict.message
    assert reasons(evaluation) == {"s": "ServiceNotAccepted", "t": "ServiceNotAccepted"}
    assert not any(verdict.accepted for verdict in evaluation.subscriptions.values())
    assert "IndicationService default" in evaluation.subscriptions["s"].message
    assert evaluation.content == {}


def test_a_service_with_a_name_that_is_none_serves_nobody(judge: Judge) -> None:
    name = "x" * 45
    evaluation = evaluated(service(name), subscription(service=name), judge=judge, name=name)
    assert not evaluation.verdict.accepted
    assert "metadata.name" in evaluation.verdict.message
    assert evaluation.content == {}


# ---------------------------------------------------------------- what a subscription names


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(FILTER.kind, "FilterNotFound"), (DESTINATION.kind, "DestinationNotFound")],
)
def test_what_is_named_and_not_there_is_said_of_the_subscription(
    judge: Judge, kind: str, reason: str
) -> None:
    evaluation = evaluated(*(one for one in WHOLE if one["kind"] != kind), judge=judge)
    verdict = evaluation.subscriptions["s"]
    assert (verdict.accepted, verdict.reason) == (False, reason)
    assert "does not exist in this namespace" in verdict.message
    assert contents(evaluation) == {SERVICE}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(FILTER.kind, "FilterBeingDeleted"), (DESTINATION.kind, "DestinationBeingDeleted")],
)
def test_what_is_being_deleted_is_delivered_for_no_more(
    judge: Judge, kind: str, reason: str
) -> None:
    bodies = [
        changed(one, deletionTimestamp=DELETED) if one["kind"] == kind else one for one in WHOLE
    ]
    evaluation = evaluated(*bodies, judge=judge)
    verdict = evaluation.subscriptions["s"]
    assert (verdict.accepted, verdict.reason) == (False, reason)
    assert "is being deleted" in verdict.message
    assert contents(evaluation) == {SERVICE}


@pytest.mark.parametrize(
    ("flawed", "reason"),
    [
        (made(FILTER, {"query": 7}), "FilterNotAccepted"),
        (destination(protocol="Pigeon"), "DestinationNotAccepted"),
    ],
)
def test_what_is_flawed_by_itself_is_said_of_the_subscription(
    judge: Judge, flawed: dict[str, Any], reason: str
) -> None:
    bodies = [one for one in WHOLE if one["kind"] != flawed["kind"]]
    evaluation = evaluated(*bodies, flawed, judge=judge)
    verdict = evaluation.subscriptions["s"]
    assert (verdict.accepted, verdict.reason) == (False, reason)
    assert f"{flawed['kind']} " in verdict.message
    assert evaluation.destinations == {}
    assert contents(evaluation) == {SERVICE}


def test_a_subscription_that_is_flawed_says_so_itself(judge: Judge) -> None:
    flawed = subscription("t")
    flawed["spec"]["nonsense"] = 1
    evaluation = evaluated(*WHOLE, flawed, judge=judge)
    assert reasons(evaluation) == {"s": "Accepted", "t": "UnknownField"}
    assert "spec.nonsense" in evaluation.subscriptions["t"].message
    assert contents(evaluation) == ALL


def test_one_that_cannot_be_served_keeps_no_other_out(judge: Judge) -> None:
    evaluation = evaluated(
        *WHOLE,
        subscription("t", filter="absent"),
        subscription("u", destination="absent"),
        judge=judge,
    )
    assert reasons(evaluation) == {
        "s": "Accepted",
        "t": "FilterNotFound",
        "u": "DestinationNotFound",
    }
    assert contents(evaluation) == ALL


# ---------------------------------------------------------------- ended


def test_a_subscription_that_has_ended_is_judged_and_left_out(judge: Judge) -> None:
    evaluation = evaluated(
        *WHOLE,
        filter_of("g"),
        subscription("t", filter="g"),
        subscription("u", filter="absent"),
        judge=judge,
        ended=["t", "u"],
    )
    assert reasons(evaluation) == {"s": "Accepted", "t": "Accepted", "u": "FilterNotFound"}
    # Neither the subscription nor the filter that it alone names.
    assert contents(evaluation) == ALL


def test_the_query_of_a_subscription_that_has_ended_is_judged_too(judge: Judge) -> None:
    evaluation = evaluated(
        *WHOLE,
        filter_of("g", query="SELECT nonsense"),
        subscription("t", filter="g"),
        judge=judge,
        ended=["t"],
    )
    assert reasons(evaluation) == {"s": "Accepted", "t": "FilterNotAccepted"}


def test_where_all_have_ended_nothing_is_served(judge: Judge) -> None:
    assert contents(evaluated(*WHOLE, judge=judge, ended=["s"])) == {SERVICE}


# ---------------------------------------------------------------- what only shows together


def test_a_query_that_is_not_understood_keeps_its_subscription_out(judge: Judge) -> None:
    evaluation = evaluated(
        *WHOLE,
        filter_of("g", query="SELECT nonsense"),
        subscription("t", filter="g"),
        judge=judge,
    )
    assert reasons(evaluation) == {"s": "Accepted", "t": "FilterNotAccepted"}
    assert evaluation.destinations == {}
    assert contents(evaluation) == ALL


def test_a_retry_interval_beyond_the_most_of_a_destination_is_said_of_the_destination(
    judge: Judge,
) -> None:
    slow, quick = (service(deliveryRetryIntervalSeconds=seconds) for seconds in (60, 30))
    impatient = destination(retry={"maximumIntervalSeconds": 40})
    others = (filter_of(), impatient, subscription())

    evaluation = evaluated(slow, *others, judge=judge)
    assert evaluation.verdict.accepted
    verdict = evaluation.destinations["d"]
    assert (verdict.accepted, verdict.reason) == (False, "Invalid")
    assert "spec.retry.maximumIntervalSeconds" in verdict.message
    assert "60 s" in verdict.message
    assert reasons(evaluation) == {"s": "DestinationNotAccepted"}
    assert contents(evaluation) == {SERVICE}

    evaluation = evaluated(quick, *others, judge=judge)
    assert evaluation.destinations == {}
    assert contents(evaluation) == ALL


def test_one_destination_that_is_impossible_keeps_all_its_subscriptions_out_and_no_other(
    judge: Judge,
) -> None:
    evaluation = evaluated(
        *WHOLE,
        destination("e", destination="https://127.0.0.1/"),
        subscription("t", destination="e"),
        subscription("u", destination="e"),
        judge=judge,
    )
    assert reasons(evaluation) == {
        "s": "Accepted",
        "t": "DestinationNotAccepted",
        "u": "DestinationNotAccepted",
    }
    assert set(evaluation.destinations) == {"e"}
    assert contents(evaluation) == ALL


# ---------------------------------------------------------------- Secrets


def with_secrets(*secrets: dict[str, Any], **spec: Any) -> tuple[dict[str, Any], ...]:
    wanted = {"credentials": bearer("token"), **spec}
    return (service(), filter_of(), destination(**wanted), subscription(), *secrets)


def test_the_secrets_of_a_destination_are_taken_along(judge: Judge) -> None:
    evaluation = evaluated(*with_secrets(secret(), secret("unused")), judge=judge)
    assert reasons(evaluation) == {"s": "Accepted"}
    assert contents(evaluation) == ALL | {SECRET}
    assert item(evaluation, SECRET)["data"] == {"token": "b25l"}
    assert "b25l" not in repr(evaluation)


def test_the_secret_of_a_destination_that_is_left_out_is_left_out(judge: Judge) -> None:
    bodies = with_secrets(secret(), destination="https://127.0.0.1/")
    assert contents(evaluated(*bodies, judge=judge)) == {SERVICE}


@pytest.mark.parametrize(
    "secrets",
    [
        [],
        [secret(label=None)],
        [secret(other="b25l")],
        [secret(token=base64.b64encode(b"\n\n").decode())],
        [secret(token="!")],
    ],
    ids=["absent", "not labelled", "without its key", "empty", "no base64"],
)
def test_a_destination_of_which_only_the_secret_is_wrong_is_held_and_sends_nothing(
    judge: Judge, secrets: list[dict[str, Any]]
) -> None:
    evaluation = evaluated(
        *with_secrets(*secrets, tls={"serverName": "one.example.org"}), judge=judge
    )
    assert not evaluation.destinations["d"].accepted
    verdict = evaluation.subscriptions["s"]
    assert (verdict.accepted, verdict.reason) == (False, "DestinationNotAccepted")
    assert "ListenerDestination d" in verdict.message
    # Were it left out, its queue would be discarded.
    assert contents(evaluation) == ALL
    held = item(evaluation, DESTINATION)["spec"]
    assert held == {
        "destination": "https://one.example.org/",
        "protocol": "CloudEvents",
        "suspended": True,
    }


def test_a_ca_that_cannot_be_read_holds_the_destination_too(judge: Judge) -> None:
    evaluation = evaluated(
        *with_secrets(
            secret(),
            secret("ca", **{"ca.crt": "b25l"}),
            tls={"caSecretRef": {"name": "ca"}},
        ),
        judge=judge,
    )
    assert "spec.tls.caSecretRef" in evaluation.destinations["d"].message
    # What a destination that sends nothing would send with is not handed out.
    assert contents(evaluation) == ALL
    assert item(evaluation, DESTINATION)["spec"]["suspended"] is True


def test_of_several_subscriptions_only_those_to_the_held_destination_are_told(
    judge: Judge,
) -> None:
    evaluation = evaluated(
        *with_secrets(),
        destination("e"),
        subscription("t", destination="e"),
        subscription("u"),
        judge=judge,
    )
    assert reasons(evaluation) == {
        "s": "DestinationNotAccepted",
        "t": "Accepted",
        "u": "DestinationNotAccepted",
    }
    assert len(contents(evaluation)) == 7


def test_what_is_wrong_beside_the_secret_is_told_and_the_destination_left_out(
    judge: Judge,
) -> None:
    evaluation = evaluated(*with_secrets(destination="https://127.0.0.1/"), judge=judge)
    message = evaluation.destinations["d"].message
    assert "spec.destination" in message
    assert "secretRef" in message
    assert contents(evaluation) == {SERVICE}


def test_a_held_destination_of_which_more_turns_out_to_be_wrong_is_left_out() -> None:
    later = Told(
        [problem("spec.credentials.bearer.secretRef.name")],
        [problem("spec.destination")],
    )
    evaluation = evaluated(*with_secrets(), judge=later)
    assert contents(evaluation) == {SERVICE}
    assert "spec.destination" in evaluation.destinations["d"].message
    assert reasons(evaluation) == {"s": "DestinationNotAccepted"}


def test_many_destinations_without_their_secret_are_not_compared_with_each_other(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    equal = Problem.__eq__

    def counted(one: Problem, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equal(one, other)

    monkeypatch.setattr(Problem, "__eq__", counted)
    names = [f"d-{number}" for number in range(40)]
    evaluation = evaluated(
        service(),
        filter_of(),
        *(destination(name, credentials=bearer("missing")) for name in names),
        *(subscription(f"s-{name}", destination=name) for name in names),
        judge=judge,
    )
    assert set(evaluation.held) == set(names)
    assert compared < len(names)


def test_a_secret_goes_with_its_destination_when_the_filter_beside_it_is_refused(
    judge: Judge,
) -> None:
    bodies = [one for one in with_secrets(secret()) if one["kind"] != FILTER.kind]
    evaluation = evaluated(*bodies, filter_of(query="SELECT nonsense"), judge=judge)
    assert reasons(evaluation) == {"s": "FilterNotAccepted"}
    assert contents(evaluation) == {SERVICE}


def test_a_destination_is_held_once_and_left_out_where_that_does_not_help() -> None:
    wrong = [problem("spec.credentials.bearer.secretRef.name")]
    judge = Told(wrong, wrong)
    evaluation = evaluated(*with_secrets(), judge=judge)
    assert len(judge.asked) == 3
    assert contents(evaluation) == {SERVICE}
    assert reasons(evaluation) == {"s": "DestinationNotAccepted"}


def test_suspending_changes_no_object() -> None:
    body = destination(credentials=bearer("token"), tls={}, retry={"intervalSeconds": 3})
    held = suspended(body)
    assert held["spec"]["retry"] == {"intervalSeconds": 3}
    assert held["metadata"] == body["metadata"]
    assert "suspended" not in body["spec"]
    assert "credentials" in body["spec"]


# ---------------------------------------------------------------- rounds


class Told(Judge):
    """Says one thing after the other, the last for ever."""

    def __init__(self, *rounds: list[Problem]) -> None:
        self._rounds = list(rounds)
        self.asked: list[tuple[set[str], set[str], str | None]] = []

    def judge(
        self, objects: Iterable[Resource | Secret | None], *, service: str | None = None
    ) -> Judgement:
        known = [one for one in objects if one is not None]
        names = {f"{one.kind.name}/{one.name}" for one in known if isinstance(one, Resource)}
        secrets = {one.name for one in known if isinstance(one, Secret)}
        self.asked.append((names, secrets, service))
        number = len(self.asked) - 1
        told = self._rounds[number] if number < len(self._rounds) else []
        return Judgement(problems=tuple(told))


def problem(field: str = "spec.a", resource: str = "ListenerDestination/d") -> Problem:
    return Problem(
        reason="Invalid", message="is odd", remedy="Even it.", field=field, resource=resource
    )


def test_what_is_left_is_judged_again_until_nothing_is_wrong() -> None:
    judge = Told(
        [problem(resource="IndicationFilter/g")],
        [problem(resource="ListenerDestination/e")],
        [],
    )
    evaluation = evaluated(
        *WHOLE,
        filter_of("g"),
        destination("e"),
        subscription("t", filter="g"),
        subscription("u", destination="e"),
        judge=judge,
    )
    assert len(judge.asked) == 3
    assert [len(names) for names, _, _ in judge.asked] == [8, 6, 4]
    assert {service for _, _, service in judge.asked} == {"default"}
    assert reasons(evaluation) == {
        "s": "Accepted",
        "t": "FilterNotAccepted",
        "u": "DestinationNotAccepted",
    }
    assert contents(evaluation) == ALL


def test_what_never_comes_to_an_end_is_ended() -> None:
    judge = Told(*[[problem(resource="IndicationFilter/absent")]] * 99)
    evaluation = evaluated(*WHOLE, judge=judge)
    assert 1 < len(judge.asked) < 10
    assert contents(evaluation) == ALL


def test_secrets_are_judged_with_the_destination_that_names_them() -> None:
    judge = Told([])
    evaluated(*with_secrets(secret(), secret("unused")), judge=judge)
    assert [secrets for _, secrets, _ in judge.asked] == [{"token"}]


def test_what_is_wrong_with_the_service_among_the_others_empties_the_configuration() -> None:
    judge = Told([problem(resource="IndicationService/default", field="spec.b")], [])
    evaluation = evaluated(*WHOLE, judge=judge)
    assert not evaluation.verdict.accepted
    assert "spec.b" in evaluation.verdict.message
    assert evaluation.content == {}


def test_what_is_wrong_with_a_subscription_among_the_others_leaves_it_out() -> None:
    judge = Told(
        [problem(resource="IndicationSubscription/s"), problem("spec.b", "IndicationFilter/f")],
    )
    evaluation = evaluated(
        *WHOLE, filter_of("g"), subscription("t", filter="g", destination="d"), judge=judge
    )
    # Its own problem is what it is told, though its filter is refused as well.
    assert "spec.a" in evaluation.subscriptions["s"].message
    assert reasons(evaluation) == {"s": "Invalid", "t": "Accepted"}
    assert FILTER not in evaluation.content
    assert SUBSCRIPTION not in evaluation.content
    assert len(contents(evaluation)) == 4


# ---------------------------------------------------------------- objects by themselves


def problems_of(key: Key, *bodies: dict[str, Any], judge: Judge) -> set[tuple[str, str]]:
    store = Store()
    for body in bodies:
        store.put(body)
    namespace = Namespace(NAMESPACE, store=store, parsing=Parsing())
    found = object_problems(key.kind, key.name, namespace=namespace, judge=judge)
    return {(one.field, one.reason) for one in found}


def test_of_what_is_not_there_nothing_is_wrong(judge: Judge) -> None:
    assert problems_of(FILTER, judge=judge) == set()


def test_an_object_is_judged_whoever_uses_it(judge: Judge) -> None:
    assert problems_of(FILTER, filter_of(), judge=judge) == set()
    bad = filter_of(query="SELECT nonsense")
    assert problems_of(FILTER, bad, judge=judge) == {("spec.query", "Invalid")}


def test_of_what_is_flawed_by_itself_no_more_is_asked(judge: Judge) -> None:
    flawed = destination(protocol="Pigeon", destination="https://127.0.0.1/")
    assert problems_of(DESTINATION, flawed, judge=judge) == {("spec.protocol", "Invalid")}


def test_a_name_that_is_none_is_a_problem_of_the_object(judge: Judge) -> None:
    key = Key(SERVICE.kind, NAMESPACE, "x" * 45)
    assert {field for field, _ in problems_of(key, service(key.name), judge=judge)} == {
        "metadata.name"
    }


def test_a_destination_is_judged_with_the_secrets_that_it_names(judge: Judge) -> None:
    body = destination(credentials=bearer("token"))
    wanted = ("spec.credentials.bearer.secretRef.name", "NotFound")
    assert problems_of(DESTINATION, body, secret(), judge=judge) == set()
    assert problems_of(DESTINATION, body, judge=judge) == {wanted}
    assert problems_of(DESTINATION, body, secret(label=None), judge=judge) == {wanted}
