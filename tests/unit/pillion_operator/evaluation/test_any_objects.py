"""Whatever the API server may hold: a judgement, never an exception."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pillion_cim.schema import load_schema
from pillion_operator.evaluation.judging import Judge, object_problems
from pillion_operator.evaluation.namespace import Namespace, Parsing
from pillion_operator.evaluation.references import DESTINATION, FILTER, SERVICE, References
from pillion_operator.evaluation.relaying import gateways_named
from pillion_operator.evaluation.service import Surroundings, evaluate_service
from pillion_operator.store import Key, Store
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.parsing import Document, parse_documents
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.queries import Queries
from pillion_sidecar.config.resolving import resolve
from support.any_documents import resources, secrets
from support.operator_objects import NAMESPACE, destination, filter_of, service, subscription

STORED = st.lists(st.one_of(resources(), resources(), secrets()), max_size=8)
WHOLE = [service(), filter_of(), subscription()]


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(addresses=AddressPolicy(), schema=load_schema())


def is_admitted(document: dict[str, Any]) -> bool:
    """Whether the API server takes it: what passes the schema here passes the CRD."""
    return not parse_documents([Document("", document)]).problems


def as_stored(document: dict[str, Any]) -> dict[str, Any]:
    """A document with what the API server adds."""
    named = document["metadata"]["name"]
    return {
        **document,
        "metadata": {
            "namespace": NAMESPACE,
            "name": named,
            "uid": f"uid-{named}",
            "generation": 1,
            "resourceVersion": "1",
            "labels": document["metadata"].get("labels") or {},
        },
    }


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(documents=STORED)
@example([*WHOLE, destination(destination="http://[::1::2]/")])
@example([*WHOLE, destination(destination="http://[1.2.3.4]/")])
def test_any_objects_are_judged_and_what_is_rendered_is_taken(
    judge: Judge, documents: list[dict[str, Any]]
) -> None:
    store, references = Store(), References()
    store.subscribe(references.follow)
    for document in filter(is_admitted, documents):
        store.put(as_stored(document))
    namespace = Namespace(NAMESPACE, store=store, parsing=Parsing())
    for kind in (SERVICE, DESTINATION, FILTER):
        for name in namespace.bodies(kind):
            object_problems(kind, name, namespace=namespace, judge=judge)
    for name, body in namespace.bodies(SERVICE).items():
        named = references.naming(Key(SERVICE, NAMESPACE, name))
        evaluation = evaluate_service(
            name,
            namespace=namespace,
            judge=judge,
            subscriptions=[key.name for key in named if key.kind == "IndicationSubscription"],
            ended=(),
            surroundings=Surroundings(gateways=gateways_named(body, namespace=namespace)),
        )
        _is_taken(name, [json.loads(item) for item in evaluation.content.values()])


def _is_taken(service: str, items: list[dict[str, Any]]) -> None:
    if not items:
        return
    found = parse_documents(Document("rendered", item) for item in items)
    try:
        resolve(
            found,
            service=service,
            addresses=AddressPolicy(),
            queries=Queries(load_schema()),
            revision="r",
        )
    except ConfigurationError as error:
        pytest.fail(f"a deliverer would refuse what the operator renders: {error}")
