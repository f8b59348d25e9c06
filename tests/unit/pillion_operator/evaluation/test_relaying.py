"""What a gateway is told of the services that relay to it, and what those are told of it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pillion_cim.schema import load_schema
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Namespace, Parsing
from pillion_operator.evaluation.references import References, is_gateway
from pillion_operator.evaluation.relaying import (
    accounts_refused,
    delivered_alone,
    gateways_named,
    relayed_to,
    shared_by,
)
from pillion_operator.evaluation.service import ServiceEvaluation, Surroundings, evaluate_service
from pillion_operator.store import Key, Store
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.rendered import pack, render_items
from pillion_sidecar.config.resources import Configuration
from support.operator_objects import (
    DESTINATION,
    FILTER,
    NAMESPACE,
    SECRET,
    SUBSCRIPTION,
    bearer,
    changed,
    destination,
    filter_of,
    secret,
    service,
    subscription,
)

GATEWAY = Key("IndicationService", NAMESPACE, "hub")
SIDECARS = Key("IndicationService", NAMESPACE, "default")
HUB = {"name": "hub"}


def gateway(name: str = "hub", **more: Any) -> dict[str, Any]:
    deliverer = {"mode": "Gateway", **more.pop("deliverer", {})}
    return service(name, deliverer=deliverer, **more)


def through(name: str = "d", **more: Any) -> dict[str, Any]:
    return destination(name, deliverThrough="Gateway", **more)


RELAYING = (service(gatewayRef=HUB), gateway(), filter_of(), through(), subscription())


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(addresses=AddressPolicy(), schema=load_schema())


class Shop:
    """A namespace with these objects."""

    def __init__(self, bodies: Iterable[dict[str, Any]], judge: Judge) -> None:
        store, self.references, self.judge = Store(), References(), judge
        store.subscribe(self.references.follow)
        for body in bodies:
            store.put(body)
        self.namespace = Namespace(NAMESPACE, store=store, parsing=Parsing())

    def evaluated(self, name: str) -> ServiceEvaluation:
        key = Key("IndicationService", NAMESPACE, name)
        body = self.namespace.body(key.kind, name)
        assert body is not None
        relayed = relayed_to(key, namespace=self.namespace, references=self.references)
        return evaluate_service(
            name,
            namespace=self.namespace,
            judge=self.judge,
            subscriptions=[one.name for one in self.references.subscriptions_to(key)],
            ended=(),
            surroundings=Surroundings(
                relayed=relayed if is_gateway(body) else (),
                gateways=gateways_named(body, namespace=self.namespace),
                sole_deliverer=lambda url: delivered_alone(
                    name, url, namespace=self.namespace, references=self.references
                ),
            ),
        )


def spec(evaluation: ServiceEvaluation, key: Key) -> dict[str, Any]:
    found = json.loads(evaluation.content[key])["spec"]
    assert isinstance(found, dict)
    return found


def loaded(evaluation: ServiceEvaluation, name: str, folder: Path) -> Configuration:
    """What a deliverer makes of it."""
    for file, content in pack(render_items(list(evaluation.content.values()))).files:
        (folder / file).write_bytes(content)
    return load_folder(folder, service=name, addresses=AddressPolicy())


# ---------------------------------------------------------------- what a gateway is told


def test_a_gateway_has_what_is_relayed_to_it_and_its_deliverer_takes_it(
    judge: Judge, tmp_path: Path
) -> None:
    evaluation = Shop(RELAYING, judge).evaluated("hub")
    assert set(evaluation.content) == {GATEWAY, SIDECARS, FILTER, DESTINATION, SUBSCRIPTION}
    assert evaluation.relayed["s"].accepted
    assert evaluation.subscriptions == {}
    configuration = loaded(evaluation, "hub", tmp_path)
    assert set(configuration.relayed) == {"s"}
    assert configuration.subscriptions == {}
    assert configuration.destinations["d"].relay_to is None


def test_the_sidecars_relay_it_and_get_no_credentials_for_it(judge: Judge, tmp_path: Path) -> None:
    bodies = (
        *RELAYING[:3],
        through(credentials=bearer("token"), tls={"serverName": "x"}),
        subscription(),
        secret(),
    )
    shop = Shop(bodies, judge)
    evaluation = shop.evaluated("default")
    assert set(evaluation.content) == {SIDECARS, FILTER, DESTINATION, SUBSCRIPTION}
    assert not {"credentials", "tls"} & set(spec(evaluation, DESTINATION))
    assert evaluation.subscriptions["s"].accepted
    configuration = loaded(evaluation, "default", tmp_path)
    assert configuration.destinations["d"].relay_to == "hub"
    assert SECRET in shop.evaluated("hub").content


def test_a_secret_that_is_missing_holds_the_gateway_and_no_sidecar(judge: Judge) -> None:
    shop = Shop((*RELAYING[:3], through(credentials=bearer("token")), subscription()), judge)
    assert shop.evaluated("default").held == {}
    assert shop.evaluated("default").subscriptions["s"].accepted
    at_the_gateway = shop.evaluated("hub")
    assert at_the_gateway.held == {"d": "CredentialsMissing"}
    assert at_the_gateway.relayed["s"].reason == "DestinationNotAccepted"
    assert SUBSCRIPTION in at_the_gateway.content


def test_what_sidecars_deliver_themselves_is_not_for_the_gateway(judge: Judge) -> None:
    shop = Shop((*RELAYING[:3], destination(), subscription()), judge)
    assert set(shop.evaluated("hub").content) == {GATEWAY}


def test_all_is_for_a_gateway_that_takes_what_is_left(judge: Judge, tmp_path: Path) -> None:
    bodies = (service(handOverTo=HUB), gateway(), filter_of(), destination(), subscription())
    evaluation = Shop(bodies, judge).evaluated("hub")
    assert set(evaluation.content) == {GATEWAY, SIDECARS, FILTER, DESTINATION, SUBSCRIPTION}
    assert set(loaded(evaluation, "hub", tmp_path).relayed) == {"s"}


def test_of_a_guest_the_gateway_is_told_its_name_alone(judge: Judge) -> None:
    one = Shop(RELAYING, judge).evaluated("hub")
    other = service(gatewayRef=HUB, deliveryRetryAttempts=9, subscriptionRemovalAction="Disable")
    assert Shop((other, *RELAYING[1:]), judge).evaluated("hub").content == one.content
    assert spec(one, SIDECARS) == {"handOverTo": HUB}


def test_a_guest_that_is_not_accepted_takes_nothing_from_the_gateway(judge: Judge) -> None:
    flawed = service(gatewayRef=HUB, deliveryRetryAttempts="many")
    assert SUBSCRIPTION in Shop((flawed, *RELAYING[1:]), judge).evaluated("hub").content


def test_two_services_relay_to_one_gateway_beside_its_own_subscriptions(
    judge: Judge, tmp_path: Path
) -> None:
    bodies = (
        *RELAYING,
        service("x", gatewayRef=HUB),
        subscription("t", service="x"),
        subscription("own", service="hub"),
    )
    configuration = loaded(Shop(bodies, judge).evaluated("hub"), "hub", tmp_path)
    assert set(configuration.relayed) == {"s", "t"}
    assert set(configuration.subscriptions) == {"own"}


# ---------------------------------------------------------------- a gateway that is none


@pytest.mark.parametrize(
    ("hub", "reason", "remedy"),
    [
        (None, "GatewayNotFound", "Create it"),
        (service("hub"), "GatewayNotUsable", "mode Gateway"),
        (gateway(deliverer={"replicas": 2}), "GatewayNotUsable", "replicas to 1"),
        (gateway(durability="Memory"), "GatewayNotUsable", "to Disk"),
        (gateway(publishers=[{"namespace": "b"}]), "GatewayNotUsable", f"Add {NAMESPACE}"),
        (gateway(deliveryRetryAttempts="many"), "GatewayNotUsable", "not accepted"),
        (
            changed(gateway(), deletionTimestamp="2026-01-31T12:00:00Z"),
            "GatewayNotUsable",
            "recreate it",
        ),
    ],
)
def test_a_gateway_that_is_none_is_told_of_and_takes_nothing_from_the_sidecars(
    judge: Judge, hub: dict[str, Any] | None, reason: str, remedy: str
) -> None:
    right = Shop(RELAYING, judge).evaluated("default")
    bodies = [body for body in RELAYING if body["metadata"]["name"] != "hub"]
    evaluation = Shop([*bodies, *([hub] if hub else [])], judge).evaluated("default")
    assert evaluation.verdict.accepted
    assert evaluation.subscriptions["s"].reason == reason
    assert remedy in evaluation.subscriptions["s"].message
    assert "gatewayRef" in evaluation.subscriptions["s"].message
    assert evaluation.gateways["gatewayRef"].reason == reason
    assert evaluation.content == right.content


def test_a_gateway_whose_publishers_are_of_its_namespace_too_can_be_one(judge: Judge) -> None:
    own = {"namespace": NAMESPACE, "serviceAccount": "spark"}
    hub = gateway(publishers=[{"namespace": "b"}, own])
    shop = Shop((RELAYING[0], hub, *RELAYING[2:]), judge)
    assert shop.evaluated("default").subscriptions["s"].accepted


def test_a_service_that_names_itself_has_no_gateway(judge: Judge) -> None:
    evaluation = Shop((service(gatewayRef={"name": "default"}), *RELAYING[2:]), judge).evaluated(
        "default"
    )
    assert evaluation.subscriptions["s"].reason == "GatewayNotUsable"
    assert SUBSCRIPTION in evaluation.content


def test_a_wrong_hand_over_stops_no_delivery(judge: Judge) -> None:
    bodies = (service(handOverTo=HUB), filter_of(), destination(), subscription())
    evaluation = Shop(bodies, judge).evaluated("default")
    assert evaluation.subscriptions["s"].accepted
    assert evaluation.gateways["handOverTo"].reason == "GatewayNotFound"
    assert "handOverTo" in evaluation.gateways["handOverTo"].message


FIRST_STORE = "stores.groups[0].members[0].gatewayRef"
STORES = {"groups": [{"name": "all", "members": [{"gatewayRef": HUB}]}]}
COPIES: dict[str, Any] = {"journalCopies": {"maximumBytes": "64Mi"}}


@pytest.mark.parametrize(
    ("hub", "reason", "remedy"),
    [
        (None, "GatewayNotFound", "journalCopies"),
        (service("hub"), "GatewayNotUsable", "mode Gateway"),
        (gateway(), "GatewayNotUsable", "Set its journalCopies"),
        (gateway(deliverer={"replicas": 2}, **COPIES), "GatewayNotUsable", "its own copies"),
        (gateway(publishers=[{"namespace": "b"}], **COPIES), "GatewayNotUsable", "Add "),
    ],
)
def test_a_store_that_is_none_is_told_of_and_stops_no_delivery(
    judge: Judge, hub: dict[str, Any] | None, reason: str, remedy: str
) -> None:
    bodies = [service(stores=STORES), filter_of(), destination(), subscription()]
    evaluation = Shop([*bodies, *([hub] if hub else [])], judge).evaluated("default")
    assert evaluation.subscriptions["s"].accepted
    assert set(evaluation.gateways) == {FIRST_STORE}
    assert evaluation.gateways[FIRST_STORE].reason == reason
    assert FIRST_STORE in evaluation.gateways[FIRST_STORE].message
    assert remedy in evaluation.gateways[FIRST_STORE].message


def test_a_store_gets_nothing_to_deliver_and_its_writers_are_told_of_it(
    judge: Judge, tmp_path: Path
) -> None:
    bodies = (service(stores=STORES), gateway(**COPIES), filter_of(), destination(), subscription())
    shop = Shop(bodies, judge)
    assert set(shop.evaluated("hub").content) == {GATEWAY}
    evaluation = shop.evaluated("default")
    assert evaluation.gateways[FIRST_STORE].accepted
    stores = loaded(evaluation, "default", tmp_path).service.stores
    assert stores is not None
    assert [member.gateway for member in stores.groups[0].members] == ["hub"]


@pytest.mark.parametrize(
    ("publishers", "refused"),
    [
        ([], []),
        ([{"namespace": NAMESPACE}], []),
        ([{"namespace": NAMESPACE, "serviceAccount": "b"}], ["a", "c"]),
        ([{"namespace": "x"}, {"namespace": NAMESPACE, "serviceAccount": "a"}], ["b", "c"]),
    ],
)
def test_accounts_that_are_no_publishers_are_refused(
    publishers: list[dict[str, str]], refused: list[str]
) -> None:
    assert accounts_refused(gateway(publishers=publishers), ["c", "b", "a", "a"]) == refused


def test_a_wrong_gateway_stops_nothing_that_is_delivered_directly(judge: Judge) -> None:
    bodies = (
        service(gatewayRef=HUB),
        *RELAYING[2:],
        destination("near"),
        subscription("t", destination="near"),
    )
    evaluation = Shop(bodies, judge).evaluated("default")
    assert evaluation.subscriptions["t"].accepted
    assert not evaluation.subscriptions["s"].accepted


def test_replicas_that_are_too_many_take_nothing_from_the_gateway(judge: Judge) -> None:
    bodies = (RELAYING[0], gateway(deliverer={"replicas": 2}), *RELAYING[2:])
    assert SUBSCRIPTION in Shop(bodies, judge).evaluated("hub").content


def test_without_a_gateway_what_needs_one_waits_in_the_sidecars(
    judge: Judge, tmp_path: Path
) -> None:
    evaluation = Shop((service(), *RELAYING[2:]), judge).evaluated("default")
    assert evaluation.subscriptions["s"].reason == "GatewayMissing"
    assert "Name a gateway there" in evaluation.subscriptions["s"].message
    assert evaluation.held == {"d": "GatewayMissing"}
    configuration = loaded(evaluation, "default", tmp_path)
    assert configuration.destinations["d"].suspended
    assert set(configuration.subscriptions) == {"s"}


# ---------------------------------------------------------------- sequence identifiers


def identifiers(evaluation: ServiceEvaluation, key: Key = DESTINATION) -> object:
    return spec(evaluation, key).get("sequenceIdentifiers", "Auto")


def test_sidecars_are_many_so_that_under_auto_none_sends_identifiers(judge: Judge) -> None:
    shop = Shop((service(), filter_of(), destination(), subscription()), judge)
    evaluation = shop.evaluated("default")
    assert identifiers(evaluation) == "Omit"
    # The resource is in the configuration all the same.
    parsed = shop.namespace.parsed(DESTINATION.kind, "d")
    assert parsed is not None
    assert evaluation.holds(DESTINATION, parsed.item)
    assert not evaluation.holds(DESTINATION, evaluation.content[DESTINATION])


def test_one_gateway_alone_sends_them(judge: Judge) -> None:
    assert identifiers(Shop(RELAYING, judge).evaluated("hub")) == "Auto"


@pytest.mark.parametrize("said", ["Send", "Omit"])
def test_what_is_said_is_rendered(judge: Judge, said: str) -> None:
    shop = Shop(
        (service(), filter_of(), destination(sequenceIdentifiers=said), subscription()), judge
    )
    assert identifiers(shop.evaluated("default")) == said


@pytest.mark.parametrize(
    "others",
    [
        (service("x"), subscription("t", service="x")),
        (gateway("h2"), subscription("t", service="h2")),
        (service("x"), destination("e"), subscription("t", service="x", destination="e")),
    ],
)
def test_a_gateway_that_is_not_the_only_one_to_deliver_there_sends_none(
    judge: Judge, others: tuple[dict[str, Any], ...]
) -> None:
    assert identifiers(Shop((*RELAYING, *others), judge).evaluated("hub")) == "Omit"


def test_a_gateway_with_several_replicas_sends_none(judge: Judge) -> None:
    bodies = (RELAYING[0], gateway(deliverer={"replicas": 2}), *RELAYING[2:])
    assert identifiers(Shop(bodies, judge).evaluated("hub")) == "Omit"


def test_who_takes_what_is_left_is_not_the_only_one_to_deliver(judge: Judge) -> None:
    bodies = (service(handOverTo=HUB), gateway(), filter_of(), destination(), subscription())
    assert identifiers(Shop(bodies, judge).evaluated("hub")) == "Omit"


def test_a_url_is_shared_by_all_that_deliver_there(judge: Judge) -> None:
    def shared(*bodies: dict[str, Any]) -> list[str]:
        shop = Shop(bodies, judge)
        body = shop.namespace.body(DESTINATION.kind, "d")
        assert body is not None
        return shared_by(body, namespace=shop.namespace, references=shop.references)

    url = str(destination()["spec"]["destination"]).replace("https", "HTTPS").rstrip("/")
    spelled = (through("e", destination=url), subscription("t", destination="e"))
    assert shared(*RELAYING) == []
    assert shared(destination()) == []
    assert shared(service(), filter_of(), destination(), subscription()) == ["default"]
    assert shared(*RELAYING, service("x"), subscription("t", service="x")) == ["hub", "x"]
    assert shared(*RELAYING, *spelled) == ["hub"]
    # Two destinations have numbers of their own, whoever delivers.
    two = (through("e"), subscription("t", destination="e"))
    assert shared(*RELAYING, *two) == ["hub"]


def test_a_gateway_keeps_what_sidecars_still_drain_by_relaying(judge: Judge) -> None:
    going = changed(
        through(removalPolicy="Drain"),
        deletionTimestamp="2026-01-31T12:00:00Z",
        finalizers=["pillion.dev/drain"],
    )
    own = subscription("own", service="hub")
    shop = Shop((*RELAYING[:3], going, subscription(), own), judge)
    for draining, kept in (((), False), (("d",), True)):
        evaluation = evaluate_service(
            "hub",
            namespace=shop.namespace,
            judge=judge,
            subscriptions=["own"],
            ended=(),
            surroundings=Surroundings(relayed={"s"}, draining=draining),
        )
        assert (SUBSCRIPTION in evaluation.content) is kept
        # What the gateway takes from its own publishers goes as ever.
        assert evaluation.subscriptions["own"].reason == "DestinationBeingDeleted"
        assert Key(SUBSCRIPTION.kind, NAMESPACE, "own") not in evaluation.content
