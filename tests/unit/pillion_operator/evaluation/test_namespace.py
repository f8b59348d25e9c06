"""One namespace, as the evaluation reads it."""

from typing import Any

import pytest

from pillion_operator.evaluation.namespace import (
    Namespace,
    Parsing,
    being_deleted,
    being_drained,
    draining,
    usable,
)
from pillion_operator.names import DRAIN_FINALIZER
from pillion_operator.store import MOST_SECRET, Key, Store
from support.operator_objects import (
    DESTINATION,
    FILTER,
    NAMESPACE,
    changed,
    destination,
    filter_of,
    secret,
)

DELETED = "2026-01-31T12:00:00Z"


def namespace_of(*bodies: dict[str, Any]) -> Namespace:
    return Namespace(NAMESPACE, store=stored(*bodies), parsing=Parsing())


def stored(*bodies: dict[str, Any]) -> Store:
    store = Store()
    for body in bodies:
        store.put(body)
    return store


def test_objects_are_those_of_the_namespace_alone() -> None:
    namespace = namespace_of(filter_of("f"), changed(filter_of("g"), namespace="elsewhere"))
    assert namespace.body(FILTER.kind, "f") == filter_of("f")
    assert namespace.body(FILTER.kind, "g") is None
    assert set(namespace.bodies(FILTER.kind)) == {"f"}
    assert namespace.bodies(DESTINATION.kind) == {}


def test_a_copy_stays_as_it_was() -> None:
    store = stored(filter_of("f"), changed(filter_of("h"), namespace="elsewhere"))
    copy = Namespace(NAMESPACE, store=store, parsing=Parsing()).copied()
    store.put(filter_of("g"))
    store.put(changed(filter_of("f"), resourceVersion="1000", generation=2))
    assert dict(copy.bodies(FILTER.kind)) == {"f": filter_of("f")}
    store.remove(Key(FILTER.kind, NAMESPACE, "f"))
    assert copy.body(FILTER.kind, "f") == filter_of("f")


def test_what_is_deleted_while_another_thread_parses_it_is_forgotten() -> None:
    store, parsing = stored(filter_of("f"), filter_of("g")), Parsing()
    store.subscribe(parsing.follow)
    namespace = Namespace(NAMESPACE, store=store, parsing=parsing)
    copy = namespace.copied()
    kept = namespace.parsed(FILTER.kind, "g")
    with parsing.beside():
        store.remove(Key(FILTER.kind, NAMESPACE, "f"))
        parsed = copy.parsed(FILTER.kind, "f")
        assert copy.parsed(FILTER.kind, "f") is parsed
    assert copy.parsed(FILTER.kind, "f") is not parsed
    assert namespace.parsed(FILTER.kind, "g") is kept


def test_what_is_not_there_is_not_parsed() -> None:
    namespace = namespace_of(filter_of())
    assert namespace.parsed(FILTER.kind, "g") is None
    parsed = namespace.parsed(FILTER.kind, "f")
    assert parsed is not None
    assert parsed is namespace.parsed(FILTER.kind, "f")


def test_of_the_secrets_that_are_named_those_that_may_be_used_are_found() -> None:
    namespace = namespace_of(
        secret("good"),
        secret("unnamed"),
        secret("plain", label=None),
        secret("refused", label="false"),
        secret("broken", token="!"),
        secret("large", token="x" * (MOST_SECRET + 4)),
    )
    (found,) = namespace.secrets(["good", "plain", "refused", "broken", "large", "absent"])
    assert found.secret is not None
    assert (found.secret.name, found.secret.data) == ("good", {"token": b"one"})


@pytest.mark.parametrize("label", [None, "", "True", "rendered"])
def test_no_other_label_lets_a_secret_be_used(label: str | None) -> None:
    assert not usable(secret(label=label))
    assert usable(secret())


def test_a_secret_of_which_the_data_is_not_held_cannot_be_used() -> None:
    assert not usable({**secret(), "data": None})
    without = secret()
    del without["data"]
    assert usable(without)
    assert not usable(changed(secret(), labels=None))


def test_an_object_that_waits_for_its_finalizers_is_being_deleted() -> None:
    assert not being_deleted(filter_of())
    assert not being_deleted(changed(filter_of(), deletionTimestamp=None))
    assert being_deleted(changed(filter_of(), deletionTimestamp=DELETED))


@pytest.mark.parametrize(
    ("metadata", "drained"),
    [
        ({}, False),
        ({"finalizers": [DRAIN_FINALIZER]}, False),
        ({"deletionTimestamp": DELETED}, False),
        ({"deletionTimestamp": DELETED, "finalizers": None}, False),
        ({"deletionTimestamp": DELETED, "finalizers": ["somebody/else"]}, False),
        ({"deletionTimestamp": DELETED, "finalizers": ["x/y", DRAIN_FINALIZER]}, True),
    ],
)
def test_only_our_finalizer_on_what_is_deleted_waits_for_queues(
    metadata: dict[str, Any], drained: bool
) -> None:
    assert being_drained(changed(destination(), **metadata)) is drained


def test_the_destinations_that_drain_are_those_of_one_namespace() -> None:
    held = {"deletionTimestamp": DELETED, "finalizers": [DRAIN_FINALIZER]}
    store = stored(
        changed(destination("d"), **held),
        destination("e"),
        changed(filter_of("d"), **held),
        changed(destination("g"), namespace="elsewhere", **held),
    )
    assert draining(store, NAMESPACE) == {DESTINATION}
    assert draining(store, "elsewhere") == {Key(DESTINATION.kind, "elsewhere", "g")}
    assert draining(store, "nowhere") == set()
