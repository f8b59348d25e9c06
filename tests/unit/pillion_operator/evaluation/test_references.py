"""Who names whom, both ways, whatever changes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillion_operator.evaluation.references import (
    MOST_AT_ONE_URL,
    References,
    named_by,
    secrets_of,
    service_of,
    stores_named,
    url_of,
)
from pillion_operator.store import Change, Key, Store, key_of
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


def other(key: Key, name: str) -> Key:
    return Key(key.kind, key.namespace, name)


def referring(*bodies: dict[str, Any]) -> tuple[Store, References]:
    store, references = Store(), References()
    store.subscribe(references.follow)
    for body in bodies:
        store.put(body)
    return store, references


def test_a_subscription_names_its_filter_destination_and_service() -> None:
    assert list(named_by(subscription(service="x"))) == [FILTER, DESTINATION, other(SERVICE, "x")]


def test_a_subscription_that_names_no_service_names_the_default() -> None:
    assert list(named_by(subscription())) == [FILTER, DESTINATION, SERVICE]
    specs: list[dict[str, Any]] = [{}, {"serviceRef": None}, {"serviceRef": {"name": ""}}]
    for spec in specs:
        assert service_of(made(SUBSCRIPTION, spec)) == "default"
    assert service_of(made(SUBSCRIPTION)) == "default"


def test_a_destination_names_every_secret_that_it_uses_once() -> None:
    ref = {"secretRef": {"name": "credentials"}}
    tls = {
        "caSecretRef": {"name": "ca"},
        "clientCertificateSecretRef": {"name": "client"},
    }
    assert secrets_of({"tls": tls, "credentials": {"basic": ref}}) == {
        "ca",
        "client",
        "credentials",
    }
    assert secrets_of({"credentials": {"bearer": ref}}) == {"credentials"}
    tls["caSecretRef"] = tls["clientCertificateSecretRef"]
    assert list(named_by(destination(tls=tls))) == [other(SECRET, "client")]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"tls": None, "credentials": None},
        {"tls": {}, "credentials": {"basic": None, "bearer": {}}},
        {"tls": {"caSecretRef": None, "clientCertificateSecretRef": {}}},
        {"tls": {"caSecretRef": {"name": ""}}},
    ],
)
def test_a_destination_without_secrets_names_none(spec: dict[str, Any]) -> None:
    assert secrets_of(spec) == set()


def test_filters_services_and_secrets_name_nobody() -> None:
    for body in (filter_of(), service(), secret()):
        assert list(named_by(body)) == []


def test_a_reference_stays_within_its_namespace() -> None:
    _, references = referring(subscription())
    assert references.naming(Key(FILTER.kind, "elsewhere", FILTER.name)) == frozenset()


def test_a_secret_is_used_by_the_services_of_the_subscriptions_of_its_destinations() -> None:
    _, references = referring(
        destination("d", credentials=bearer("token")),
        destination("e", credentials=bearer("token")),
        destination("g", credentials=bearer("another")),
        subscription("s", destination="d"),
        subscription("t", destination="e", service="x"),
        subscription("u", destination="g", service="y"),
    )
    assert references.services_using(SECRET) == {SERVICE, other(SERVICE, "x")}
    assert references.services_using(FILTER) == {SERVICE, other(SERVICE, "x"), other(SERVICE, "y")}
    assert references.services_using(DESTINATION) == {SERVICE}
    assert references.services_using(other(SECRET, "nobody")) == set()


def test_a_service_serves_its_subscriptions_and_what_they_name() -> None:
    _, references = referring(subscription("s"), subscription("t", filter="g", service="x"))
    assert references.served_by(SERVICE) == {SUBSCRIPTION, FILTER, DESTINATION}
    assert references.served_by(other(SERVICE, "y")) == set()


def test_asking_leaves_nothing_behind() -> None:
    store, references = referring(
        subscription(), destination(credentials=bearer("token")), filter_of()
    )
    for name in "abc":
        references.naming(other(FILTER, name))
        references.services_using(other(SECRET, name))
    assert store.put(changed(subscription(filter="g"), resourceVersion="2"))
    for key in (SUBSCRIPTION, DESTINATION, FILTER):
        store.remove(key)
    assert references._from == {}
    assert references._to == {}


# ---------------------------------------------------------------- random histories

NAMES = st.sampled_from(["a", "b", "c"])
SPACES = st.sampled_from(["one", "two"])


def put_in(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "namespace": namespace}}


BODIES = st.one_of(
    st.builds(
        subscription,
        NAMES,
        filter=NAMES,
        destination=NAMES,
        service=st.one_of(st.none(), NAMES),
    ),
    st.builds(lambda name, ref: destination(name, credentials=bearer(ref)), NAMES, NAMES),
    st.builds(destination, NAMES),
    st.builds(filter_of, NAMES),
)


def uses(body: dict[str, Any]) -> set[tuple[str, str]]:
    """By hand: kind and name of what an object names."""
    spec = body["spec"]
    if body["kind"] == SUBSCRIPTION.kind:
        return {
            (FILTER.kind, spec["filterRef"]["name"]),
            (DESTINATION.kind, spec["destinationRef"]["name"]),
            (SERVICE.kind, spec.get("serviceRef", {"name": "default"})["name"]),
        }
    if "credentials" in spec:
        return {(SECRET.kind, spec["credentials"]["bearer"]["secretRef"]["name"])}
    return set()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(BODIES, SPACES, st.booleans()), max_size=30))
def test_after_any_history_the_references_are_those_of_what_is_there(
    history: list[tuple[dict[str, Any], str, bool]],
) -> None:
    store, references = referring()
    there: dict[Key, dict[str, Any]] = {}
    for version, (plain, namespace, stays) in enumerate(history, 1):
        body = put_in(plain, namespace)
        body["metadata"] |= {"resourceVersion": str(version), "uid": f"uid-{version}"}
        key = Key(body["kind"], namespace, body["metadata"]["name"])
        if stays:
            store.put(body)
            there[key] = body
        else:
            store.remove(key)
            there.pop(key, None)

    def namers(kind: str, namespace: str, name: str) -> set[Key]:
        return {
            key
            for key, body in there.items()
            if key.namespace == namespace and (kind, name) in uses(body)
        }

    for namespace in ("one", "two"):
        for name in ("a", "b", "c", "default"):
            for kind in (SERVICE.kind, DESTINATION.kind, FILTER.kind, SECRET.kind):
                found = namers(kind, namespace, name)
                assert references.naming(Key(kind, namespace, name)) == found
                if kind == SECRET.kind:
                    found = {
                        user
                        for one in found
                        for user in namers(DESTINATION.kind, namespace, one.name)
                    }
                if kind != SERVICE.kind:
                    assert references.services_using(Key(kind, namespace, name)) == {
                        Key(used, namespace, target)
                        for key in found
                        for used, target in uses(there[key])
                        if used == SERVICE.kind
                    }
                else:
                    assert references.served_by(Key(kind, namespace, name)) == found | {
                        Key(used, namespace, target)
                        for key in found
                        for used, target in uses(there[key])
                        if used != SERVICE.kind
                    }
    assert set(references._from) == {
        key for key, body in there.items() if uses(body) or key.kind == DESTINATION.kind
    }
    assert all(references._to.values())


# ---------------------------------------------------------------- gateways


Body = dict[str, Any]


def gateway(name: str = "hub") -> Body:
    return service(name, deliverer={"mode": "Gateway"})


HUB = other(SERVICE, "hub")


def known(*bodies: Body) -> References:
    references = References()
    for body in bodies:
        references.follow(Change(key_of(body), None, body))
    return references


def test_a_service_names_its_gateways_and_what_it_uses_is_used_by_them() -> None:
    naming = service(gatewayRef={"name": "hub"}, handOverTo={"name": "hub"})
    assert list(named_by(naming)) == [HUB]
    references = known(naming, gateway(), destination(), subscription())
    assert references.guests(HUB) == {SERVICE}
    assert references.gateways_of(SERVICE) == {HUB}
    assert references.gateways(NAMESPACE) == {HUB}
    assert references.services_using(DESTINATION) == {SERVICE, HUB}
    assert references.served_by(HUB) == {SUBSCRIPTION, DESTINATION, FILTER}
    assert references.subscriptions_to(HUB) == set()


def stores(*members: str, backups: tuple[str, ...] = ()) -> dict[str, Any]:
    named = [{"gatewayRef": {"name": name}} for name in members]
    spare = [{"gatewayRef": {"name": name}} for name in backups]
    return {"groups": [{"name": "all", "members": named, "backups": spare}]}


def test_stores_are_no_gateways_that_deliver() -> None:
    naming = service(stores=stores("hub", backups=("spare",)))
    references = known(naming, gateway(), destination(), subscription())
    assert references.stores_of(SERVICE) == {HUB, other(SERVICE, "spare")}
    assert references.writers(HUB) == {SERVICE}
    assert references.guests(HUB) == references.gateways_of(SERVICE) == set()
    assert references.served_by(HUB) == set()
    assert references.services_using(DESTINATION) == {SERVICE}
    references.follow(Change(SERVICE, naming, service()))
    assert references.writers(HUB) == references.stores_of(SERVICE) == set()


def test_a_service_is_no_store_of_its_own() -> None:
    references = known(service(stores=stores("default")))
    assert references.stores_of(SERVICE) == references.writers(SERVICE) == set()


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "hub",
        {"groups": "hub"},
        {"groups": ["hub"]},
        {"groups": [{"members": ["hub", {"gatewayRef": "hub"}, {"gatewayRef": {"name": 5}}]}]},
    ],
)
def test_stores_of_any_form_are_read(wrong: object) -> None:
    assert stores_named(service(stores=wrong)) == {}


def test_a_store_is_named_with_its_field() -> None:
    assert stores_named(service(stores=stores("a", "b", backups=("c",)))) == {
        "stores.groups[0].members[0].gatewayRef": "a",
        "stores.groups[0].members[1].gatewayRef": "b",
        "stores.groups[0].backups[0].gatewayRef": "c",
    }


def test_a_service_that_names_itself_is_no_guest_of_its_own() -> None:
    references = known(service(gatewayRef={"name": "default"}))
    assert references.guests(SERVICE) == set()
    assert references.gateways_of(SERVICE) == set()


def test_a_gateway_that_becomes_none_and_a_guest_that_leaves_are_forgotten() -> None:
    naming = service(gatewayRef={"name": "hub"})
    references = known(naming, gateway())
    references.follow(Change(HUB, gateway(), service("hub")))
    assert references.gateways(NAMESPACE) == frozenset()
    references.follow(Change(SERVICE, naming, service()))
    assert references.guests(HUB) == set()
    references.follow(Change(HUB, service("hub"), None))
    assert not references._to


def test_destinations_are_known_by_their_urls_and_forgotten_with_them() -> None:
    one, two = destination(sequenceIdentifiers="Send"), destination("e")
    references = known(one, two)
    url = url_of(one)
    assert url_of(destination(destination="HTTPS://One.example.org")) == url
    assert references.at(NAMESPACE, url) == {DESTINATION, other(DESTINATION, "e")}
    assert references.senders_beside(other(DESTINATION, "e")) == {DESTINATION}
    moved = destination(destination="https://two.example.org/")
    references.follow(Change(DESTINATION, one, moved))
    assert references.at(NAMESPACE, url) == {other(DESTINATION, "e")}
    assert references.senders_at(NAMESPACE, url_of(moved)) == set()
    for body in (moved, two):
        references.follow(Change(key_of(body), body, None))
    assert not references._to


def test_of_very_many_at_one_url_none_is_told_of_the_others() -> None:
    many = [destination(f"d{n}", sequenceIdentifiers="Send") for n in range(MOST_AT_ONE_URL + 1)]
    assert known(*many).senders_beside(key_of(many[0])) == set()
    assert len(known(*many[1:]).senders_beside(key_of(many[1]))) == MOST_AT_ONE_URL
