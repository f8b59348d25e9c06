"""The destinations that get dead letters are in the configuration; a wrong reference is told, and
removes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from pillion_cim.model import CIMInstance
from pillion_cim.schema import load_schema
from pillion_operator.controllers.triggers import triggered
from pillion_operator.evaluation.dead_letters import letters_to, marked_in
from pillion_operator.evaluation.judging import Judge, object_problems
from pillion_operator.evaluation.namespace import Namespace, Parsing
from pillion_operator.evaluation.references import References
from pillion_operator.evaluation.relaying import relayed_to
from pillion_operator.evaluation.service import (
    ServiceEvaluation,
    Surroundings,
    evaluate_service,
)
from pillion_operator.evaluation.verdict import ACCEPTED
from pillion_operator.store import Change, Key, Store
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.rendered import pack, render_items
from pillion_sidecar.direct import PREFIX
from pillion_sidecar.routing import Router
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
    with_status,
)

TO_GRAVE = {"deadLetterRef": {"name": "grave"}}
GRAVE = Key(DESTINATION.kind, NAMESPACE, "grave")
HUB, HUB_KEY = {"name": "gateway"}, Key(SERVICE.kind, NAMESPACE, "gateway")
GATEWAY = service("gateway", deliverer={"mode": "Gateway"})
RELAYED = destination("grave", deliverThrough="Gateway", credentials=bearer("token"))
ALL = {SERVICE, FILTER, DESTINATION, SUBSCRIPTION}


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(addresses=AddressPolicy(), schema=load_schema())


class World:
    def __init__(self, judge: Judge, *bodies: dict[str, Any]) -> None:
        self.judge = judge
        self.store, self.references = Store(), References()
        self.store.subscribe(self.references.follow)
        for body in (filter_of(), subscription(), *bodies):
            self.store.put(body)
        self.namespace = Namespace(NAMESPACE, store=self.store, parsing=Parsing())

    def evaluate(self, name: str = "default", **around: Any) -> ServiceEvaluation:
        key = Key(SERVICE.kind, NAMESPACE, name)
        return evaluate_service(
            name,
            namespace=self.namespace,
            judge=self.judge,
            subscriptions=[one.name for one in self.references.subscriptions_to(key)],
            ended=(),
            surroundings=Surroundings(**around),
        )

    def at_gateway(self, name: str = "gateway", **around: Any) -> ServiceEvaluation:
        key = Key(SERVICE.kind, NAMESPACE, name)
        return self.evaluate(
            name,
            relayed=relayed_to(key, namespace=self.namespace, references=self.references),
            letters=letters_to(
                key, namespace=self.namespace, references=self.references, rendered={}
            ),
            **around,
        )


def replay_of(**spec: Any) -> dict[str, Any]:
    wanted = {"destinationRef": {"name": "again"}, "from": "2026-01-31T12:00:00Z", **spec}
    return made(Key("IndicationReplay", NAMESPACE, "r"), wanted)


def not_decoded() -> CIMInstance:
    raise AssertionError


def spec(evaluation: ServiceEvaluation, key: Key) -> dict[str, Any]:
    found = json.loads(evaluation.content[key])["spec"]
    assert isinstance(found, dict)
    return found


def test_a_destination_that_gets_dead_letters_comes_with_its_secret(judge: Judge) -> None:
    grave = destination("grave", credentials=bearer("token"))
    world = World(judge, service(), destination(**TO_GRAVE), grave, secret())
    evaluation = world.evaluate()
    assert evaluation.verdict.accepted
    assert evaluation.destinations == {}
    assert set(evaluation.content) == {*ALL, GRAVE, SECRET}
    assert spec(evaluation, DESTINATION)["deadLetterRef"] == {"name": "grave"}


def test_the_one_of_the_service_comes_too(judge: Judge) -> None:
    world = World(judge, service(**TO_GRAVE), destination(), destination("grave"))
    assert set(world.evaluate().content) == {*ALL, GRAVE}
    # Before its first subscription.
    world.store.remove(SUBSCRIPTION)
    assert set(world.evaluate().content) == {SERVICE, GRAVE}


@pytest.mark.parametrize(
    ("grave", "reason", "says"),
    [
        ((), "DeadLetterNotFound", "does not exist in this namespace. Create it"),
        (
            (made(GRAVE, destination()["spec"], deletionTimestamp="2026-01-31T12:00:00Z"),),
            "DeadLetterBeingDeleted",
            "is being deleted. Name another",
        ),
        ((destination("grave", protocol="x"),), "DeadLetterNotAccepted", "is not accepted"),
        (
            (destination("grave", deadLetterRef={"name": "e"}), destination("e")),
            "DeadLetterNotUsable",
            "has a deadLetterRef itself, to e",
        ),
        # Only this service's deliverers refuse it: it is judged with the others.
        (
            (destination("grave", destination="http://127.0.0.1/"),),
            "DeadLetterNotAccepted",
            "is not accepted",
        ),
    ],
)
@pytest.mark.parametrize("policy", ["Discard", "DeadLetter"])
def test_a_wrong_one_is_told_and_left_out_and_nothing_else(
    judge: Judge, grave: tuple[dict[str, Any], ...], reason: str, says: str, policy: str
) -> None:
    loses = destination(**TO_GRAVE, removalPolicy=policy)
    evaluation = World(judge, service(), loses, *grave).evaluate()
    assert evaluation.verdict.accepted
    verdict = evaluation.destinations["d"]
    assert (verdict.accepted, verdict.reason) == (False, reason)
    assert "spec.deadLetterRef names ListenerDestination grave" in verdict.message
    assert says in verdict.message
    assert evaluation.subscriptions["s"].accepted
    assert set(evaluation.content) == ALL
    assert "deadLetterRef" not in spec(evaluation, DESTINATION)
    assert spec(evaluation, DESTINATION)["removalPolicy"] == "Discard"


def test_one_that_names_itself_is_told(judge: Judge) -> None:
    world = World(judge, service(), destination(deadLetterRef={"name": "d"}))
    assert world.evaluate().destinations["d"].reason == "DeadLetterNotUsable"


def test_the_wrong_one_of_a_service_keeps_its_deliverers_as_they_are(judge: Judge) -> None:
    evaluation = World(judge, service(**TO_GRAVE), destination()).evaluate()
    assert (evaluation.verdict.accepted, evaluation.verdict.reason) == (False, "DeadLetterNotFound")
    assert evaluation.content == {}
    # Refused only beside the service.
    local = destination("grave", destination="http://127.0.0.1/")
    evaluation = World(judge, service(**TO_GRAVE), destination(), local).evaluate()
    assert (evaluation.verdict.accepted, evaluation.content) == (False, {})


def test_removal_to_nowhere_is_told(judge: Judge) -> None:
    loses = destination(removalPolicy="DeadLetter")
    evaluation = World(judge, service(), loses).evaluate()
    assert evaluation.destinations["d"].reason == "DeadLetterMissing"
    assert spec(evaluation, DESTINATION)["removalPolicy"] == "Discard"
    # The service's applies.
    evaluation = World(judge, service(**TO_GRAVE), loses, destination("grave")).evaluate()
    assert evaluation.destinations == {}
    assert spec(evaluation, DESTINATION)["removalPolicy"] == "DeadLetter"


def test_each_object_alone_is_accepted(judge: Judge) -> None:
    loses = destination(**TO_GRAVE, removalPolicy="DeadLetter")
    world = World(judge, service(**TO_GRAVE), loses)
    for key in (SERVICE, DESTINATION):
        assert object_problems(key.kind, key.name, namespace=world.namespace, judge=judge) == ()


def test_a_gateway_has_those_that_its_sidecars_may_relay(judge: Judge) -> None:
    sidecars = service(**TO_GRAVE, handOverTo=HUB)
    world = World(judge, GATEWAY, sidecars, destination(), destination("grave"))
    evaluation = world.at_gateway()
    assert evaluation.verdict.accepted
    assert GRAVE in evaluation.content


@pytest.mark.parametrize("named_by", ["destination", "service", "replay"])
def test_a_gateway_has_those_that_are_relayed_though_no_subscription_is(
    judge: Judge, tmp_path: Path, named_by: str
) -> None:
    sidecars = service(gatewayRef=HUB, **TO_GRAVE if named_by == "service" else {})
    loses = destination(**TO_GRAVE if named_by == "destination" else {})
    again = (
        replay_of(),
        destination("again", destination="https://again.example.org/", **TO_GRAVE),
    )
    world = World(
        judge, GATEWAY, sidecars, loses, RELAYED, secret(), *again if named_by == "replay" else ()
    )
    replays = ["r"] if named_by == "replay" else []
    # Sidecars get no credentials of it.
    own = world.evaluate(gateways={"gatewayRef": ACCEPTED}, replays=replays)
    assert own.verdict.accepted
    assert spec(own, GRAVE)["deliverThrough"] == "Gateway"
    assert SECRET not in own.content
    found = world.at_gateway()
    assert found.verdict.accepted
    assert set(found.content) == {HUB_KEY, GRAVE, SECRET}
    assert spec(found, GRAVE)["credentials"] == RELAYED["spec"]["credentials"]
    # Its deliverer takes what sidecars relay to it.
    for file, content in pack(render_items(list(found.content.values()))).files:
        (tmp_path / file).write_bytes(content)
    configuration = load_folder(tmp_path, service="gateway", addresses=AddressPolicy())
    router = Router(configuration, schema=load_schema())
    target = router.relayed(f"{PREFIX}{RELAYED['metadata']['uid']}", not_decoded)
    assert target is not None
    assert target.destination == "grave"
    # It stays when nobody names it any more, with what is queued.
    world.store.remove(SERVICE)
    assert GRAVE in world.at_gateway(rendered=found.content).content


def test_a_gateway_has_none_that_its_sidecars_deliver_themselves(judge: Judge) -> None:
    for sidecars, grave in (
        (service(gatewayRef=HUB), destination("grave")),
        (service(gatewayRef={"name": "another"}), RELAYED),
        (service(), RELAYED),
    ):
        world = World(judge, GATEWAY, sidecars, destination(**TO_GRAVE), grave)
        assert set(world.at_gateway().content) == {HUB_KEY}


def test_a_gateway_has_none_of_a_replay_that_is_over_or_of_a_wrong_reference(judge: Judge) -> None:
    over = with_status(replay_of(), completionTime="2026-01-31T12:00:00Z")
    further = destination("grave", deliverThrough="Gateway", deadLetterRef={"name": "e"})
    for bodies in (
        (over, destination("again", **TO_GRAVE), destination(), RELAYED),
        (destination(**TO_GRAVE), further, destination("e")),
        (destination(**TO_GRAVE),),
    ):
        world = World(judge, GATEWAY, service(gatewayRef=HUB), *bodies)
        assert set(world.at_gateway().content) == {HUB_KEY}


def test_a_deleted_one_stays_at_the_gateway_while_sidecars_may_relay_to_it(judge: Judge) -> None:
    deleted = changed(RELAYED, deletionTimestamp="2026-01-31T12:00:00Z")
    world = World(
        judge, GATEWAY, service(gatewayRef=HUB), destination(**TO_GRAVE), deleted, secret()
    )
    assert GRAVE in world.at_gateway(draining=["grave"]).content
    assert GRAVE not in world.at_gateway().content


# ---------------------------------------------------------------- what a change concerns


def test_a_change_of_one_that_gets_dead_letters_concerns_who_loses_to_it(judge: Judge) -> None:
    gateway = service("gateway", deliverer={"mode": "Gateway"})
    sidecars = service(gatewayRef={"name": "gateway"})
    grave = destination("grave", credentials=bearer("token"))
    world = World(judge, gateway, sidecars, destination(**TO_GRAVE), grave)
    both = {SERVICE, Key(SERVICE.kind, NAMESPACE, "gateway")}
    for key in (GRAVE, SECRET):
        assert world.references.services_using(key) == both
    assert GRAVE in world.references.served_by(SERVICE)
    assert world.references.losing_to(GRAVE) == {DESTINATION}
    world.store.put(changed(destination(), resourceVersion="2"))
    assert world.references.services_using(GRAVE) == set()
    world.store.put(changed(service(**TO_GRAVE), resourceVersion="2"))
    assert world.references.services_using(GRAVE) == {SERVICE}
    assert GRAVE in world.references.served_by(SERVICE)


# ---------------------------------------------------------------- how long it stays


def test_the_last_one_that_loses_to_it_leaves_it_in_the_configuration(judge: Judge) -> None:
    loses = destination(**TO_GRAVE, removalPolicy="DeadLetter")
    world = World(judge, service(), loses, destination("grave"))
    first = world.evaluate()
    world.store.remove(DESTINATION)
    second = world.evaluate(rendered=first.content)
    assert set(second.content) == {SERVICE, GRAVE}
    third = world.evaluate(rendered=second.content)
    assert third.content == second.content
    # What a restarted operator reads.
    objects = [json.loads(item) for item in third.content.values()]
    assert marked_in(objects, namespace=NAMESPACE) == {GRAVE: third.content[GRAVE]}
    assert GRAVE in world.evaluate(rendered=marked_in(objects, namespace=NAMESPACE)).content
    # Its own changes are in force, until it is deleted or another one has its name.
    world.store.put(
        changed(destination("grave", suspended=True), resourceVersion="2", generation=2)
    )
    assert spec(world.evaluate(rendered=third.content), GRAVE)["suspended"]
    other = changed(destination("grave"), resourceVersion="3", uid="another")
    for body in (other, changed(destination("grave"), deletionTimestamp="2026-01-31T12:00:00Z")):
        world.store.put(body)
        assert set(world.evaluate(rendered=third.content).content) == {SERVICE}


def test_a_destination_that_never_got_any_leaves_with_its_last_subscription(judge: Judge) -> None:
    world = World(judge, service(), destination(), destination("grave"))
    first = world.evaluate()
    world.store.remove(SUBSCRIPTION)
    assert set(world.evaluate(rendered=first.content).content) == {SERVICE}


def test_a_destination_that_nobody_names_may_be_in_any_configuration(judge: Judge) -> None:
    world = World(judge, service(), destination("grave"))
    change = Change(GRAVE, before=None, after=destination("grave"))
    found = {key for key, _ in triggered(change, world.references, services=[service()])}
    assert SERVICE in found
    world.store.put(destination(**TO_GRAVE))
    change = Change(FILTER, before=None, after=filter_of())
    assert GRAVE not in {key for key, _ in triggered(change, world.references, services=[])}
