"""Which reconciles a change asks for, and which it does not."""

from collections.abc import Iterable
from typing import Any

import pytest

from pillion_operator.cluster.types import Object
from pillion_operator.controllers.states import status_of
from pillion_operator.controllers.triggers import POD_SETTLE, SETTLE, triggered
from pillion_operator.evaluation.references import References
from pillion_operator.names import SERVICE_LABEL
from pillion_operator.store import Change, Key, key_of
from support.operator_objects import (
    DESTINATION,
    FILTER,
    NAMESPACE,
    SECRET,
    SERVICE,
    SUBSCRIPTION,
    bearer,
    changed,
    config_map,
    destination,
    filter_of,
    made,
    mof_from,
    pod,
    secret,
    service,
    subscription,
    with_status,
)

Body = dict[str, Any]
STATUS = status_of(SERVICE)
DELETED = "2026-01-31T12:00:00Z"


def test_a_config_map_with_mof_reaches_the_services_that_name_it() -> None:
    known = references(*OURS.values(), service(mofFrom=[mof_from()]), service("other"))
    for before, after in (
        (None, config_map("")),
        (config_map(""), None),
        (config_map(""), changed(config_map(""), resourceVersion="2")),
    ):
        assert asked(before, after, known=known) == {SERVICE: SETTLE}
    assert asked(None, config_map("", "unused"), known=known) == {}


#: What each of our kinds is to the others: all are connected.
OURS = {
    SERVICE: service(),
    FILTER: filter_of(),
    DESTINATION: destination(credentials=bearer("token")),
    SUBSCRIPTION: subscription(),
}


def references(*bodies: Body) -> References:
    known = References()
    for body in bodies or OURS.values():
        known.follow(Change(key_of(body), None, body))
    return known


def asked(
    before: Body | None,
    after: Body | None,
    *,
    known: References | None = None,
    services: Iterable[Object] = (),
) -> dict[Key, float]:
    """The keys, each with the shortest time that it was asked for."""
    body = after if after is not None else before
    assert body is not None
    found: dict[Key, float] = {}
    change = Change(key_of(body), before, after)
    for key, delay in triggered(change, known or references(), services=list(services)):
        found[key] = min(delay, found.get(key, delay))
    return found


def x(key: Key, name: str = "x") -> Key:
    return Key(key.kind, key.namespace, name)


def anew(body: Body) -> Body:
    """The object after a change of its spec."""
    return changed(body, generation=2)


# ---------------------------------------------------------------- our kinds

#: By kind, what a change of what it means asks for; a service's is rendered before the others say
#: what they do of it.
MEANT = {
    SERVICE: {
        SERVICE: SETTLE,
        SUBSCRIPTION: 2 * SETTLE,
        FILTER: 2 * SETTLE,
        DESTINATION: 2 * SETTLE,
    },
    FILTER: {FILTER: 2 * SETTLE, SUBSCRIPTION: 2 * SETTLE, SERVICE: SETTLE},
    DESTINATION: {DESTINATION: 2 * SETTLE, SUBSCRIPTION: 2 * SETTLE, SERVICE: SETTLE},
    SUBSCRIPTION: {
        SUBSCRIPTION: 2 * SETTLE,
        FILTER: 2 * SETTLE,
        DESTINATION: 2 * SETTLE,
        SERVICE: SETTLE,
    },
}


@pytest.mark.parametrize("key", OURS, ids=lambda key: key.kind)
@pytest.mark.parametrize(
    "metadata",
    [{"generation": 2}, {"uid": "another"}, {"deletionTimestamp": DELETED}],
    ids=lambda metadata: next(iter(metadata)),
)
def test_a_change_of_what_is_meant_reaches_all_whom_it_concerns(
    key: Key, metadata: dict[str, Any]
) -> None:
    before, after = OURS[key], changed(OURS[key], **metadata)
    assert asked(before, after) == MEANT[key]
    assert asked(after, before) == MEANT[key]


@pytest.mark.parametrize("key", OURS, ids=lambda key: key.kind)
def test_what_comes_and_what_goes_reaches_all_whom_it_concerns(key: Key) -> None:
    assert asked(None, OURS[key]) == MEANT[key]
    # What is gone names nobody any more: it is asked by what it named.
    gone = references()
    gone.follow(Change(key, OURS[key], None))
    expected = MEANT[key]
    assert asked(OURS[key], None, known=gone if key == SUBSCRIPTION else None) == expected


@pytest.mark.parametrize("key", OURS, ids=lambda key: key.kind)
def test_a_status_or_a_label_reaches_the_object_alone(key: Key) -> None:
    before = OURS[key]
    expected = {STATUS: SETTLE} if key == SERVICE else {key: 2 * SETTLE}
    for after in (
        with_status(before, observedGeneration=1),
        changed(before, labels={"a": "b"}, resourceVersion="2"),
        changed(before, annotations={"a": "b"}),
    ):
        assert asked(before, after) == expected


def test_a_subscription_that_names_others_now_reaches_the_others_and_those_before() -> None:
    before = subscription()
    after = anew(subscription(filter="x", destination="x", service="x"))
    assert asked(before, after) == {
        SUBSCRIPTION: 2 * SETTLE,
        **{key: 2 * SETTLE for key in (FILTER, DESTINATION, x(FILTER), x(DESTINATION))},
        **{key: SETTLE for key in (SERVICE, x(SERVICE))},
    }


def test_a_subscription_that_ends_or_goes_on_reaches_its_service() -> None:
    """Its own status says whether it is rendered."""
    on = with_status(subscription(), subscriptionState="Enabled")
    off = with_status(subscription(), subscriptionState="Disabled")
    for before, after in ((on, off), (off, on), (subscription(), off)):
        assert asked(before, after) == MEANT[SUBSCRIPTION]
    assert asked(on, with_status(off, subscriptionState="Enabled", other=1)) == {
        SUBSCRIPTION: 2 * SETTLE
    }


def unreachable(status: str, since: str = DELETED) -> dict[str, Any]:
    return {
        "type": "ListenerUnreachable",
        "status": status,
        "lastTransitionTime": since,
    }


def test_since_when_a_listener_fails_reaches_its_subscriptions() -> None:
    """subscriptionRemovalAction counts from then."""
    fine, failing, later = (
        with_status(destination(), conditions=[condition])
        for condition in (
            unreachable("False"),
            unreachable("True"),
            unreachable("True", "2026-02-01T12:00:00Z"),
        )
    )
    told = {DESTINATION: 2 * SETTLE, SUBSCRIPTION: 2 * SETTLE}
    assert asked(fine, failing) == told
    assert asked(failing, fine) == told
    assert asked(failing, later) == told
    assert asked(failing, with_status(failing, **failing["status"], depth=3)) == {
        DESTINATION: 2 * SETTLE
    }


def test_what_no_subscription_leads_to_concerns_nobody_else() -> None:
    alone = references(filter_of())
    assert asked(None, filter_of(), known=alone) == {FILTER: 2 * SETTLE}
    assert asked(None, destination(), known=alone) == {DESTINATION: 2 * SETTLE}


def test_a_new_selector_may_overlap_with_those_of_all_other_services() -> None:
    others = [service("x"), service("y")]
    found = asked(service(), anew(service()), services=others)
    assert found == MEANT[SERVICE] | {
        status_of(x(SERVICE)): 2 * SETTLE,
        status_of(x(SERVICE, "y")): 2 * SETTLE,
    }
    written = with_status(service(), revision="r")
    assert asked(service(), written, services=others) == {STATUS: SETTLE}
    assert asked(filter_of(), anew(filter_of()), services=others) == MEANT[FILTER]


# ---------------------------------------------------------------- Secrets


def test_a_secret_reaches_the_destinations_that_name_it_and_their_services() -> None:
    expected = {DESTINATION: 2 * SETTLE, SERVICE: SETTLE}
    for before, after in (
        (None, secret()),
        (secret(), None),
        (secret(), changed(secret(), resourceVersion="2")),
        (secret(label=None), secret()),
        (secret(), secret(label=None)),
    ):
        assert asked(before, after) == expected


def test_a_secret_that_nobody_may_use_or_names_reaches_nobody() -> None:
    assert asked(None, secret(label=None)) == {}
    assert asked(None, secret(label="rendered")) == {}
    assert asked(None, secret("unused")) == {}


def test_a_secret_that_is_rendered_reaches_the_service_that_it_is_of() -> None:
    labels = {"pillion.dev/credentials": "rendered", SERVICE_LABEL: "default"}
    rendered = changed(made(x(SECRET)), labels=labels)
    for before, after in (
        (None, rendered),
        (rendered, None),
        (rendered, changed(rendered, resourceVersion="2")),
    ):
        assert asked(before, after) == {SERVICE: SETTLE}


# ---------------------------------------------------------------- pods, and what is made


def test_a_pod_reaches_the_status_of_its_service_alone() -> None:
    for before, after in (
        (None, pod()),
        (pod(), None),
        (pod(), {**pod(), "status": {"phase": "Failed"}}),
    ):
        assert asked(before, after) == {STATUS: POD_SETTLE}


def test_a_pod_that_changes_its_service_reaches_both() -> None:
    both = {STATUS: POD_SETTLE, status_of(x(SERVICE)): POD_SETTLE}
    assert asked(pod(), pod(deliverer="x")) == both
    assert asked(pod(deliverer=None), pod()) == {STATUS: POD_SETTLE}
    assert asked(pod(deliverer=None), pod(deliverer=None)) == {}


def selecting(name: str, app: str | None) -> Body:
    selector = {} if app is None else {"podSelector": {"matchLabels": {"app": app}}}
    return service(name, deliverer=selector)


def test_a_pod_reaches_every_service_that_selects_it_or_did() -> None:
    services = [selecting("a", "a"), selecting("b", "b"), selecting("c", "c"), service("x")]
    a, b = (status_of(x(SERVICE, name)) for name in "ab")
    before, after = pod(deliverer=None, app="a"), pod(deliverer=None, app="b")
    assert asked(None, before, services=services) == {a: POD_SETTLE}
    assert asked(before, None, services=services) == {a: POD_SETTLE}
    assert asked(before, after, services=services) == {a: POD_SETTLE, b: POD_SETTLE}


def test_a_pod_whose_labels_stay_reaches_no_other_service() -> None:
    services = [selecting("a", "a")]
    before = pod(app="a")
    after = {**before, "status": {"phase": "Running", "podIP": "10.0.0.1"}}
    assert asked(before, after, services=services) == {STATUS: POD_SETTLE}


@pytest.mark.parametrize("kind", ["StatefulSet", "Service", "NetworkPolicy"])
def test_what_is_made_for_a_service_reaches_the_service(kind: str) -> None:
    key = Key(kind, NAMESPACE, "pillion-default")
    ours = changed(made(key), labels={SERVICE_LABEL: "default"})
    theirs = changed(made(key), labels={SERVICE_LABEL: "x"})
    for before, after in ((None, ours), (ours, None), (ours, ours)):
        assert asked(before, after) == {SERVICE: SETTLE}
    assert asked(ours, theirs) == {SERVICE: SETTLE, x(SERVICE): SETTLE}
    assert asked(None, made(key)) == {}
    assert asked(None, changed(made(key), labels=None)) == {}


# ---------------------------------------------------------------- gateways

HUB = x(SERVICE, "hub")
GUEST = service(gatewayRef={"name": "hub"})
GATEWAY = service("hub", deliverer={"mode": "Gateway"})
RELAYING = (
    GUEST,
    GATEWAY,
    filter_of(),
    destination(credentials=bearer("token"), deliverThrough="Gateway"),
    subscription(),
)


@pytest.mark.parametrize("body", RELAYING, ids=lambda body: body["metadata"]["name"])
def test_whatever_a_gateway_is_told_of_reaches_it(body: Body) -> None:
    known = references(*RELAYING)
    for before, after in ((body, anew(body)), (None, body), (body, None)):
        assert asked(before, after, known=known)[HUB] == SETTLE


def test_the_secret_of_what_is_relayed_reaches_the_gateway() -> None:
    known = references(*RELAYING)
    assert asked(secret(), changed(secret(), resourceVersion="2"), known=known)[HUB] == SETTLE


def test_a_gateway_reaches_those_that_name_it() -> None:
    known = references(*RELAYING)
    assert asked(GATEWAY, anew(GATEWAY), known=known)[SERVICE] == SETTLE
    assert SERVICE not in asked(GATEWAY, with_status(GATEWAY, deliverers=1), known=known)


def test_whoever_delivers_where_identifiers_are_forced_reaches_that_destination() -> None:
    forced = destination("forced", sequenceIdentifiers="Send")
    known = references(*RELAYING, forced)
    told = x(DESTINATION, "forced")
    assert asked(None, subscription(), known=known)[told] == 2 * SETTLE
    assert asked(GUEST, anew(GUEST), known=known)[told] == 2 * SETTLE
    assert asked(None, destination(), known=known)[told] == 2 * SETTLE
    elsewhere = destination("e", destination="https://two.example.org/")
    assert told not in asked(None, elsewhere, known=known)


# ---------------------------------------------------------------- replays

REPLAY = Key("IndicationReplay", NAMESPACE, "r")


def replay(*, service: str = "default", filter: str | None = None, **status: Any) -> Body:
    spec: dict[str, Any] = {
        "serviceRef": {"name": service},
        "destinationRef": {"name": "d"},
        "from": DELETED,
    }
    if filter is not None:
        spec["filterRef"] = {"name": filter}
    return with_status(made(REPLAY, spec), **status)


def test_a_replay_reaches_what_it_names() -> None:
    told = {REPLAY: 2 * SETTLE, DESTINATION: 2 * SETTLE, SERVICE: SETTLE}
    assert asked(None, replay()) == told
    assert asked(replay(), None) == told
    assert asked(None, replay(filter="f")) == {**told, FILTER: 2 * SETTLE}


def test_the_end_of_a_replay_reaches_its_service_and_its_progress_does_not() -> None:
    running = replay(state="Running", replayed=1)
    assert asked(running, replay(state="Running", replayed=2)) == {REPLAY: 2 * SETTLE}
    ended = replay(state="Complete", completionTime=DELETED)
    assert SERVICE in asked(running, ended)
    assert SERVICE in asked(ended, running)
    assert asked(ended, replay(state="Failed", completionTime=DELETED)) == {REPLAY: 2 * SETTLE}


def test_what_a_replay_names_reaches_it_and_its_service() -> None:
    known = references(replay(filter="f"), service())
    for body in (destination(), filter_of()):
        assert asked(body, anew(body), known=known)[SERVICE] == SETTLE
    assert REPLAY in asked(service(), anew(service()), known=known)


def test_a_pod_reaches_the_replays_of_its_service_and_of_those_that_relay_to_it() -> None:
    known = references(replay(service="guest"), service("guest", gatewayRef={"name": "default"}))
    assert asked(pod(), None, known=known)[REPLAY] == POD_SETTLE
    assert asked(pod(deliverer="guest"), None, known=known)[REPLAY] == POD_SETTLE
    assert REPLAY not in asked(pod(deliverer="other"), None, known=known)
