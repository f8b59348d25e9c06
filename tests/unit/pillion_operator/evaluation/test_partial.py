"""An evaluation of what has changed says the same as one of everything."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillion_cim.schema import load_schema
from pillion_operator.evaluation import partial
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Namespace, Parsing
from pillion_operator.evaluation.partial import ChangeLog, concerned, is_of, with_part
from pillion_operator.evaluation.references import References
from pillion_operator.evaluation.relaying import gateways_named
from pillion_operator.evaluation.service import ServiceEvaluation, Surroundings, evaluate_service
from pillion_operator.store import Key, Store
from pillion_sidecar.config.addresses import AddressPolicy
from support.operator_objects import (
    DESTINATION,
    FILTER,
    NAMESPACE,
    SECRET,
    SERVICE,
    SUBSCRIPTION,
    bearer,
    destination,
    filter_of,
    secret,
    service,
    subscription,
)

JUDGE = Judge(addresses=AddressPolicy(), schema=load_schema())
DELETED = "2026-01-31T12:00:00Z"


class Evaluated:
    """A namespace, and the evaluation of its service that is continued from change to change."""

    def __init__(self) -> None:
        self._store = Store()
        self._references, self._log = References(), ChangeLog()
        self._parsing = Parsing()
        for follow in (self._references.follow, self._log.follow, self._parsing.follow):
            self._store.subscribe(follow)
        self.namespace = Namespace(NAMESPACE, store=self._store, parsing=self._parsing)
        self._versions = 0
        self.before: ServiceEvaluation | None = None
        self._seen = self._log.latest(NAMESPACE)
        #: How many were evaluated at the last change; None: all.
        self.evaluated: int | None = None

    def put(self, body: Mapping[str, Any]) -> None:
        """Make or change an object, by its kind and name."""
        self._versions += 1
        version = {"generation": self._versions, "resourceVersion": str(self._versions)}
        self._store.put({**body, "metadata": {**body["metadata"], **version}})

    def remove(self, key: Key) -> None:
        self._store.remove(key)

    def again(self, *, most: int = 100) -> ServiceEvaluation:
        """Continue with what has changed, if that concerns at most so many subscriptions."""
        found = None
        if self.before is not None and not self.before.lapsed and self.before.basis is not None:
            changed = self._log.since(self._seen, NAMESPACE)
            assert changed is not None
            names = concerned(
                changed,
                self.before,
                service=SERVICE,
                namespace=self.namespace,
                references=self._references,
                most=most,
            )
            if names is not None:
                own = [name for name in names if is_of(name, SERVICE, self.namespace)]
                found = with_part(self.before, self._evaluate(own), names, NAMESPACE)
                self.evaluated = len(own)
        if found is None:
            self.evaluated = None
            found = self.whole()
        self.before, self._seen = found, self._log.latest(NAMESPACE)
        return found

    def whole(self) -> ServiceEvaluation:
        return self._evaluate([key.name for key in self._references.subscriptions_to(SERVICE)])

    def _evaluate(self, names: list[str]) -> ServiceEvaluation:
        bodies = self.namespace.bodies(SUBSCRIPTION.kind)
        body = self.namespace.body(SERVICE.kind, SERVICE.name)
        return evaluate_service(
            SERVICE.name,
            namespace=self.namespace,
            judge=JUDGE,
            subscriptions=names,
            ended={
                name
                for name in names
                if bodies[name]["spec"].get("subscriptionState") == "Disabled"
            },
            surroundings=Surroundings(
                rendered=self.before.content if self.before is not None else {},
                gateways={} if body is None else gateways_named(body, namespace=self.namespace),
            ),
        )


def assert_same(part: ServiceEvaluation, whole: ServiceEvaluation) -> None:
    assert part == whole
    assert list(part.content) == list(whole.content)
    # To evaluate everything next is never wrong.
    assert part.basis in (None, whole.basis)


# ---------------------------------------------------------------- any changes


def of(kind: Key, name: str) -> Key:
    return kind._replace(name=name)


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


names = one_of("a", "b", "c")
urls = one_of(
    "https://one.example.org/",
    "https://two.example.org/",
    "https://192.0.2.1/",
    "https://127.0.0.1/",
    "nonsense",
)
specs = st.fixed_dictionaries(
    {"destination": urls},
    optional={
        "credentials": st.builds(bearer, names),
        "deadLetterRef": st.fixed_dictionaries({"name": names}),
        "deliverThrough": one_of("Gateway"),
        "removalPolicy": one_of("DeadLetter", "Drain"),
        "sequenceIdentifiers": one_of("Send", "Omit"),
        "suspended": st.booleans(),
    },
)
queries = one_of(
    "SELECT * FROM CIM_AlertIndication", "SELECT * FROM ACME_Unknown", "SELECT nonsense", ""
)
disabled = one_of({}, {}, {"subscriptionState": "Disabled"}, {"onFatalErrorPolicy": 7})
of_services = one_of(
    {},
    {"gatewayRef": {"name": "hub"}},
    {"deliveryRetryAttempts": -1},
    {"classes": [{"name": "ACME_Unknown", "superclass": "CIM_AlertIndication"}]},
    {"deadLetterRef": {"name": "a"}},
)


def subscribed(name: str, to: str, by: str, more: dict[str, Any], which: str) -> dict[str, Any]:
    body = subscription(name, filter=by, destination=to, service=which)
    return {**body, "spec": {**body["spec"], **more}}


def deleting(body: dict[str, Any], is_deleted: bool) -> dict[str, Any]:
    more = {"deletionTimestamp": DELETED} if is_deleted else {}
    return {**body, "metadata": {**body["metadata"], **more}}


seldom = one_of(False, False, False, True)
objects = st.one_of(
    st.builds(
        subscribed,
        one_of("p", "q", "r", "s"),
        names,
        names,
        disabled,
        one_of("default", "default", "default", "other"),
    ),
    st.builds(
        deleting, st.builds(lambda name, spec: destination(name, **spec), names, specs), seldom
    ),
    st.builds(
        deleting,
        st.builds(lambda name, query: filter_of(name, query=query), names, queries),
        seldom,
    ),
    st.builds(
        lambda name, label, token: secret(name, label=label, token=token),
        names,
        one_of("true", "true", None),
        one_of("b25l", "dHdv", "Ojo6"),
    ),
    st.builds(lambda spec: service(**spec), of_services),
    st.builds(lambda replicas: gateway(replicas), one_of(1, 2)),
)
keys = st.builds(
    of, one_of(DESTINATION, FILTER, SECRET, SUBSCRIPTION), one_of("a", "b", "c", "p", "q", "r", "s")
)


def gateway(replicas: int) -> dict[str, Any]:
    return service("hub", deliverer={"mode": "Gateway", "replicas": replicas})


def begun() -> Evaluated:
    """Something that works, for changes to disturb."""
    world = Evaluated()
    for body in (service(), gateway(1), secret("a"), secret("b")):
        world.put(body)
    for name, url in (("a", "one"), ("b", "two"), ("c", "one")):
        world.put(
            destination(name, destination=f"https://{url}.example.org/", credentials=bearer("a"))
        )
        world.put(filter_of(name))
    for name, to in (("p", "a"), ("q", "a"), ("r", "b"), ("s", "c")):
        world.put(subscription(name, filter=to, destination=to, service="default"))
    world.again()
    return world


@settings(max_examples=40)
@given(st.lists(st.lists(objects | keys, min_size=1, max_size=3), max_size=8))
def test_after_any_changes_the_part_says_what_the_whole_says(
    changes: list[list[dict[str, Any] | Key]],
) -> None:
    world = begun()
    for together in changes:
        for change in together:
            (world.remove if isinstance(change, Key) else world.put)(change)  # type: ignore[operator]
        # With the same filters in force.
        whole = world.whole()
        assert_same(world.again(), whole)


# ---------------------------------------------------------------- how much


@pytest.mark.parametrize(
    ("change", "evaluated"),
    [
        (destination("b", credentials=bearer("a")), 1),
        (destination("a", credentials=bearer("a")), 2),
        (filter_of("c"), 1),
        (subscription("r", filter="a", destination="c", service="default"), 1),
        (subscription("r", filter="a", destination="c", service="other"), 0),
        (subscription("t", filter="a", destination="c", service="default"), 1),
        (secret("a"), 4),
        (secret("b"), 0),
        (service(deliveryRetryAttempts=7), None),
    ],
)
def test_only_the_subscriptions_that_a_change_concerns_are_evaluated(
    change: dict[str, Any], evaluated: int | None
) -> None:
    world = begun()
    world.put(change)
    whole = world.whole()
    assert_same(world.again(), whole)
    assert world.evaluated == evaluated


def test_a_change_that_concerns_too_many_is_none_of_a_part() -> None:
    world = begun()
    world.put(destination("a", credentials=bearer("a")))
    world.again(most=1)
    assert world.evaluated is None
    world.put(destination("a", credentials=bearer("a"), suspended=True))
    world.again(most=2)
    assert world.evaluated == 2


def test_an_ended_subscription_gets_another_verdict_once_its_filter_is_in_force_no_more() -> None:
    world = begun()
    world.put(filter_of("c", query=""))
    world.again()
    ended = subscription("p", filter="c", destination="a", service="default")
    world.put({**ended, "spec": {**ended["spec"], "subscriptionState": "Disabled"}})
    assert world.again().subscriptions["p"].accepted
    world.put(subscription("s", filter="a", destination="c", service="default"))
    world.again()
    world.put(filter_of("b"))
    assert not world.again().subscriptions["p"].accepted


def logged(*bodies: dict[str, Any]) -> tuple[Store, ChangeLog]:
    """A log of what happens after these are there."""
    store, log = Store(), ChangeLog()
    log.latest(NAMESPACE)
    for body in bodies:
        store.put(body)
    store.subscribe(log.follow)
    return store, log


def version(body: dict[str, Any], number: int, **more: Any) -> dict[str, Any]:
    return {**body, **more, "metadata": {**body["metadata"], "resourceVersion": str(number)}}


@pytest.mark.parametrize("kind", [destination, filter_of, subscription])
def test_a_status_is_no_change_for_an_evaluation(
    kind: Callable[[], dict[str, Any]],
) -> None:
    store, log = logged(kind())
    store.put(version(kind(), 2, status={"observedGeneration": 1}))
    assert log.since(0, NAMESPACE) == []


def test_the_end_of_a_subscription_is_a_change() -> None:
    store, log = logged(subscription())
    store.put(version(subscription(), 2, status={"subscriptionState": "Disabled"}))
    assert log.since(0, NAMESPACE) == [SUBSCRIPTION]


def test_a_secret_of_somebody_else_is_no_change() -> None:
    store, log = logged()
    store.put(secret(label=None))
    store.put(secret("mine"))
    assert log.since(0, NAMESPACE) == [SECRET._replace(name="mine")]


def test_a_change_is_told_once_and_only_to_those_who_have_not_seen_it() -> None:
    store, log = logged()
    store.put(filter_of())
    seen = log.latest(NAMESPACE)
    store.put(destination())
    store.remove(DESTINATION)
    assert log.since(seen, NAMESPACE) == [DESTINATION]
    assert log.since(log.latest(NAMESPACE), NAMESPACE) == []
    assert log.since(0, "elsewhere") == []


def test_who_has_missed_too_many_changes_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "MOST_CHANGES", 2)
    store, log = logged()
    seen = log.latest(NAMESPACE)
    for name in ("a", "b"):
        store.put(filter_of(name))
    assert len(log.since(seen, NAMESPACE) or ()) == 2
    store.put(filter_of("c"))
    assert log.since(seen, NAMESPACE) is None
    assert log.since(seen + 1, NAMESPACE) is not None
    log.forget(NAMESPACE)
    assert log.since(seen, NAMESPACE) == []
