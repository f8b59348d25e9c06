"""The resources of an example namespace, as the operator judges and renders them."""

import base64
import json
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import pytest
import yaml

from pillion_cim.schema import load_schema
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Namespace, Parsing
from pillion_operator.evaluation.references import References
from pillion_operator.evaluation.service import ServiceEvaluation, evaluate_service
from pillion_operator.store import Key, Store
from pillion_sidecar.config.addresses import AddressPolicy
from support.house import ROOT

NAMESPACE = "shop"
SERVICE = Key("IndicationService", NAMESPACE, "default")


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(addresses=AddressPolicy(), schema=load_schema())


@pytest.fixture
def example() -> list[dict[str, Any]]:
    """The objects as the API server would have them."""
    found = []
    for path in sorted((ROOT / "examples" / "kubernetes").glob("*.yaml")):
        found += list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    for number, body in enumerate(found, 1):
        body["metadata"] |= {
            "namespace": NAMESPACE,
            "uid": f"uid-{number}",
            "resourceVersion": str(number),
            "generation": 1,
        }
        texts = body.pop("stringData", None)
        if texts is not None:
            data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
            body["data"] = data
    return found


def evaluated(objects: Iterable[dict[str, Any]], judge: Judge) -> ServiceEvaluation:
    """What the service comes to."""
    store, references, parsing = Store(), References(), Parsing()
    store.subscribe(references.follow)
    for body in deepcopy(list(objects)):
        store.put(body)
    return evaluate_service(
        SERVICE.name,
        namespace=Namespace(NAMESPACE, store=store, parsing=parsing),
        judge=judge,
        subscriptions=[key.name for key in references.naming(SERVICE)],
        ended=(),
    )


def without(objects: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [body for body in objects if body["metadata"]["name"] != name]


def test_subscriptions_bring_their_filters_destinations_and_secrets(
    example: list[dict[str, Any]], judge: Judge
) -> None:
    evaluation = evaluated(example, judge)
    assert evaluation.verdict.accepted
    assert {name: one.reason for name, one in evaluation.subscriptions.items()} == {
        "all-alerts-to-operations": "Accepted",
        "major-alerts-to-on-call": "Accepted",
    }
    assert {(key.kind, key.name) for key in evaluation.content} == {
        ("IndicationService", "default"),
        ("IndicationSubscription", "all-alerts-to-operations"),
        ("IndicationSubscription", "major-alerts-to-on-call"),
        ("IndicationFilter", "all-alerts"),
        ("IndicationFilter", "major-alerts"),
        ("ListenerDestination", "operations"),
        ("ListenerDestination", "on-call"),
        ("Secret", "on-call-token"),
    }


@pytest.mark.parametrize(
    ("missing", "reason", "named"),
    [
        ("major-alerts", "FilterNotFound", "IndicationFilter major-alerts"),
        ("on-call", "DestinationNotFound", "ListenerDestination on-call"),
    ],
)
def test_what_is_missing_is_named_and_keeps_nothing_else_out(
    example: list[dict[str, Any]], judge: Judge, missing: str, reason: str, named: str
) -> None:
    evaluation = evaluated(without(example, missing), judge)
    verdict = evaluation.subscriptions["major-alerts-to-on-call"]
    assert (verdict.accepted, verdict.reason) == (False, reason)
    assert named in verdict.message
    assert evaluation.subscriptions["all-alerts-to-operations"].accepted
    assert {key.name for key in evaluation.content} == {
        *("default", "all-alerts-to-operations", "all-alerts", "operations")
    }


def test_a_destination_whose_secret_is_missing_keeps_its_queue_and_sends_nothing(
    example: list[dict[str, Any]], judge: Judge
) -> None:
    evaluation = evaluated(without(example, "on-call-token"), judge)
    verdict = evaluation.subscriptions["major-alerts-to-on-call"]
    assert (verdict.accepted, verdict.reason) == (False, "DestinationNotAccepted")
    held = {key.name: json.loads(item) for key, item in evaluation.content.items()}
    assert held["on-call"]["spec"]["suspended"] is True
    assert "credentials" not in held["on-call"]["spec"]
    assert "major-alerts-to-on-call" in held
    assert "on-call-token" not in held


def test_a_destination_of_which_more_than_a_secret_is_wrong_is_left_out(
    example: list[dict[str, Any]], judge: Judge
) -> None:
    bodies = without(example, "on-call-token")
    for body in bodies:
        if body["metadata"]["name"] == "on-call":
            body["spec"]["destination"] = "https://127.0.0.1/"
    evaluation = evaluated(bodies, judge)
    assert evaluation.destinations["on-call"].reason in (
        "AddressNotPermitted",
        "CredentialsNotPermitted",
    )
    assert "on-call" not in {key.name for key in evaluation.content}


def test_a_secret_without_the_label_is_not_permitted_and_in_no_configuration(
    example: list[dict[str, Any]], judge: Judge
) -> None:
    for body in example:
        if body["kind"] == "Secret":
            body["metadata"]["labels"] = {}
    evaluation = evaluated(example, judge)
    verdict = evaluation.destinations["on-call"]
    assert verdict.reason == "CredentialsNotPermitted"
    assert 'has the label pillion.dev/credentials: "true"' in verdict.message
    assert all(key.kind != "Secret" for key in evaluation.content)
