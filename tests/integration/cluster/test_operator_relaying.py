"""Sidecars that relay, and their gateway: what each is told, and what a bad day makes of it."""

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from cluster.convergence import World
from cluster.door import Door, token
from cluster.kubelet import Kubelet
from cluster.operators import Operators
from cluster.scenes import WITHIN, deliverer_pod, held, in_force, publish, queue, serving
from pillion_operator.names import ABANDON_RELAY_ANNOTATION
from pillion_testbed.rest import wait_until
from support.cluster_resources import (
    credentials,
    destination,
    filter_,
    service,
    subscription,
)
from support.relay_lines import compact, relayed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

HUB = {"name": "hub"}
ADMINISTRATION = 8290
URL = "https://listener.example.com/events"
SERVICE, GATEWAY = ("IndicationService", "default"), ("IndicationService", "hub")
SUBSCRIPTION = ("IndicationSubscription", "alerts-to-operations")
DESTINATION = ("ListenerDestination", "operations")
FILTER = ("IndicationFilter", "alerts")
SECRET = ("Secret", "token")
RELAYED = {GATEWAY, SERVICE, SUBSCRIPTION, DESTINATION, FILTER}
BEARER = {"bearer": {"secretRef": {"name": "token"}}}


def gateway(**deliverer: Any) -> dict[str, Any]:
    return service("hub", deliverer={"mode": "Gateway", **deliverer})


def through(**more: Any) -> dict[str, Any]:
    return destination(URL, deliverThrough="Gateway", **more)


def content(world: World, name: str) -> Mapping[tuple[str, str], Any]:
    return world.content(name) or {}


def holds(world: World, name: str, wanted: set[tuple[str, str]]) -> None:
    world.until(lambda: set(content(world, name)) == wanted, f"{name} is told of {sorted(wanted)}")


def test_a_gateway_is_told_what_is_relayed_to_it_and_runs_on_it(
    world: World, operators: Operators, kubelet: Kubelet
) -> None:
    operators.start("--no-webhook")
    world.apply(
        service(gatewayRef=HUB),
        gateway(),
        filter_(),
        through(credentials=BEARER),
        credentials(),
        subscription(),
        deliverer_pod(namespace=world.namespace),
    )
    holds(world, "hub", RELAYED | {SECRET})
    # Sidecars get into no listener that they do not deliver to.
    holds(world, "default", {SERVICE, SUBSCRIPTION, DESTINATION, FILTER})
    assert "credentials" not in content(world, "default")[DESTINATION]
    assert content(world, "hub")[DESTINATION]["sequenceIdentifiers"] == "Auto"

    # A real deliverer takes it, and whoever waits for the subscription waits for the gateway too.
    pods = kubelet.ready("pillion-hub-0"), kubelet.ready("publisher")
    in_force(world, *SUBSCRIPTION)
    in_force(world, *GATEWAY)
    world.becomes(*SERVICE, "GatewayReady", "True", "GatewayServes")
    assert queue(pods[0].url(ADMINISTRATION), "operations")["depth"] == 0
    wait_until(
        lambda: queue(pods[1].url(8288), "operations").get("relayTo") == "hub",
        within=WITHIN,
        what="the sidecar relays",
    )

    # Level by level: a change of whatever it depends on reaches it, and so does its end.
    world.patch(*FILTER, {"spec": {"query": "SELECT * FROM CIM_Indication"}})
    world.until(
        lambda: content(world, "hub")[FILTER]["query"] == "SELECT * FROM CIM_Indication",
        "the gateway is told of the filter",
    )
    world.patch(*SECRET, {"stringData": {"token": "another"}})
    world.apply(subscription("more"))
    holds(world, "hub", RELAYED | {SECRET, ("IndicationSubscription", "more")})
    world.delete("IndicationSubscription", "more")
    holds(world, "hub", RELAYED | {SECRET})
    # Another service that delivers there by itself: now nobody numbers what is sent.
    world.apply(
        service("near"), destination(URL, name="too"), subscription("near", to="too", by="near")
    )
    world.until(
        lambda: content(world, "hub")[DESTINATION]["sequenceIdentifiers"] == "Omit",
        "the gateway omits identifiers",
    )


def test_a_gateway_that_goes_and_comes_takes_nothing_from_anybody(
    world: World, operators: Operators
) -> None:
    operators.start("--no-webhook")
    world.apply(service(gatewayRef=HUB), gateway(), filter_(), through(), subscription())
    holds(world, "hub", RELAYED)
    in_force(world, *SUBSCRIPTION)
    before = world.revision("default")

    world.delete(*GATEWAY)
    world.becomes(*SUBSCRIPTION, "Accepted", "False", "GatewayNotFound")
    world.becomes(*SERVICE, "GatewayReady", "False", "GatewayNotFound")
    assert world.revision("default") == before
    world.until(lambda: "NotGatewayReady" in world.reasons(), "an Event tells of it")

    world.apply(gateway())
    world.becomes(*SUBSCRIPTION, "Accepted", "True")
    holds(world, "hub", RELAYED)
    world.patch(*GATEWAY, {"spec": {"deliverer": {"replicas": 2}}})
    world.becomes(*SUBSCRIPTION, "Accepted", "False", "GatewayNotUsable")
    holds(world, "hub", RELAYED)
    world.patch(*GATEWAY, {"spec": {"deliverer": {"replicas": 1}}})
    world.becomes(*SUBSCRIPTION, "Accepted", "True")
    assert world.revision("default") == before

    # Without a name for it what is to be relayed waits, suspended.
    world.patch(*SERVICE, {"spec": {"gatewayRef": None}})
    world.becomes(*SUBSCRIPTION, "Accepted", "False", "GatewayMissing")
    world.becomes(*DESTINATION, "Delivering", "False", "GatewayMissing")
    assert content(world, "default")[DESTINATION]["suspended"]


def test_what_a_gateway_may_still_hold_stays_with_it_when_its_guests_go(
    world: World, operators: Operators, kubelet: Kubelet
) -> None:
    first = operators.start("--no-webhook")
    world.apply(service(gatewayRef=HUB), gateway(), filter_(), through(), subscription())
    pod = kubelet.ready("pillion-hub-0")
    holds(world, "hub", RELAYED)
    in_force(world, *GATEWAY)
    assert queue(pod.url(ADMINISTRATION), "operations")["depth"] == 0

    # Whoever sees the service go while nobody is there to relay lets the gateway go on until it
    # has been seen to hold nothing.
    first.stop()
    world.delete(*SERVICE)
    with held(pod.pid):
        operators.start("--no-webhook")
        world.becomes(*SUBSCRIPTION, "Accepted", "False", "ServiceNotFound")
        assert set(content(world, "hub")) == RELAYED
    holds(world, "hub", {GATEWAY})


def test_what_a_former_gateway_holds_is_discarded_for_who_abandons_it(
    world: World, operators: Operators, kubelet: Kubelet
) -> None:
    operators.start("--no-webhook", "--gather-interval", "1")
    retry = {"attempts": 10_000, "intervalSeconds": 60}
    world.apply(
        service(gatewayRef=HUB),
        gateway(),
        service("spare", deliverer={"mode": "Gateway"}),
        filter_(),
        # Nobody listens there.
        destination("http://203.0.113.7:9/", deliverThrough="Gateway", retry=retry),
        subscription(),
    )
    pod = kubelet.ready("pillion-hub-0")
    kubelet.ready("pillion-spare-0")
    holds(world, "hub", RELAYED)
    in_force(world, *GATEWAY)
    uid = (world.get(*SUBSCRIPTION) or {})["metadata"]["uid"]
    lines = [relayed(str(one), one, uid=uid, accepted_at=time.time()) for one in range(3)]
    door = Door(world, pod, service="hub")
    assert door.ask("/v1/relay?ack=durable", bearer=token(world), body=compact(*lines))[0] == 200
    world.until(lambda: world.status(*DESTINATION).get("depth") == 3, "three wait")

    world.patch(*SERVICE, {"spec": {"gatewayRef": {"name": "spare"}}})
    world.becomes(*SERVICE, "RelayRetained", "True", "GatewayMayHold")
    abandon(world, "spare")
    world.becomes(*SERVICE, "RelayAbandoned", "False", "GatewayInUse")
    assert set(content(world, "hub")) == RELAYED
    assert queue(pod.url(ADMINISTRATION), "operations")["depth"] == 3

    abandon(world, "hub")
    world.becomes(*SERVICE, "RelayAbandoned", "True", "Abandoned")
    holds(world, "hub", {GATEWAY})
    wait_until(
        lambda: discards(pod.url(ADMINISTRATION)) == {("operations", "destination-removed"): 3},
        within=WITHIN,
        what="the gateway discards three",
    )
    world.until(lambda: "RelayAbandoned" in world.reasons(), "an Event tells of it")
    (event,) = (one for one in world.all("Event") if one["reason"] == "RelayAbandoned")
    assert "hub: " in event["note"]
    assert "holds for them: 3, as it last reported" in event["note"]
    world.until(lambda: not world.condition(*SERVICE, "RelayRetained")[0], "hub keeps nothing")
    assert SUBSCRIPTION in content(world, "spare")


def abandon(world: World, name: str) -> None:
    world.patch(*SERVICE, {"metadata": {"annotations": {ABANDON_RELAY_ANNOTATION: name}}})


def discards(url: str) -> Counter[tuple[str, str]]:
    """How many a deliverer has discarded, by destination and reason."""
    with urllib.request.urlopen(f"{url}/v1/discards", timeout=10) as answer:
        found = json.load(answer)["discards"]
    return Counter((one["destination"], one["reason"]) for one in found)


def test_what_goes_with_a_pod_is_told(world: World, operators: Operators, kubelet: Kubelet) -> None:
    operator = operators.start("--no-webhook", "--gather-interval", "1")
    world.apply(
        service(),
        filter_(),
        # Nobody listens there.
        destination("http://203.0.113.7:9/"),
        subscription(),
        deliverer_pod(namespace=world.namespace),
    )
    pod = kubelet.ready("publisher")
    publish(serving(world, pod), count=3, ack="durable")
    world.until(lambda: world.status(*DESTINATION).get("depth") == 3, "three wait")
    world.delete("Pod", "publisher")
    kubelet.ended("publisher")
    world.until(lambda: "DelivererLost" in world.reasons(), "an Event tells of it")
    lost = [one for one in operator.records() if one.get("event") == "deliverer-lost-pending"]
    assert [(one["pod"], one["pending"]) for one in lost] == [("publisher", 3)]


def test_what_waits_to_be_relayed_outlives_every_change_of_the_gateway(
    world: World, operators: Operators, kubelet: Kubelet
) -> None:
    operators.start("--no-webhook", "--gather-interval", "1")
    world.apply(
        # There is none of that name.
        service(gatewayRef=HUB),
        filter_(),
        through(),
        subscription(),
        deliverer_pod(namespace=world.namespace),
    )
    url = kubelet.ready("publisher").url(8288)

    def waits(**expected: Any) -> None:
        def holds() -> bool:
            told = queue(url, "operations")
            return all(told.get(name) == value for name, value in expected.items())

        wait_until(holds, within=WITHIN, what=f"the sidecar's queue says {expected}")

    world.until(lambda: DESTINATION in content(world, "default"), "it is rendered")
    waits(relayTo="hub", depth=0)
    publish(url, count=3, ack="durable")
    waits(relayTo="hub", depth=3)
    world.becomes(*SUBSCRIPTION, "Accepted", "False", "GatewayNotFound")
    world.becomes(*DESTINATION, "RelayFailing", "True", "GatewayFailing")
    world.until(lambda: world.status(*DESTINATION).get("depth") == 3, "status counts them")
    assert world.condition(*DESTINATION, "ListenerUnreachable")[0] == "Unknown"

    # No gateway is named at all; then one is again.
    world.patch(*SERVICE, {"spec": {"gatewayRef": None}})
    waits(suspended=True, depth=3)
    world.becomes(*DESTINATION, "Delivering", "False", "GatewayMissing")
    world.patch(*SERVICE, {"spec": {"gatewayRef": HUB}})
    waits(suspended=False, relayTo="hub", depth=3)

    # Another one: the queue is for that one now, and nothing of it is anywhere else.
    world.patch(*SERVICE, {"spec": {"gatewayRef": {"name": "spare"}}})
    waits(relayTo="spare", depth=3)
    assert not world.condition(*SERVICE, "RelayRetained")[0]
