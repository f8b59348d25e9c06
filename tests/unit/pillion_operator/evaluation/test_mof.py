"""MOF that a service takes from ConfigMaps: rendered as its own, or told what is wrong."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from pillion_cim.schema import load_schema
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Namespace, Parsing
from pillion_operator.evaluation.service import ServiceEvaluation, evaluate_service
from pillion_operator.store import Store
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.service import MOST_MOF
from support.operator_objects import (
    NAMESPACE,
    SERVICE,
    changed,
    config_map,
    destination,
    filter_of,
    mof_from,
    service,
    subscription,
)

ALERT = "class ACME_Alert : CIM_AlertIndication { uint16 Bay; };"
FAN = "class ACME_Fan : ACME_Alert { };"


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(addresses=AddressPolicy(), schema=load_schema())


def evaluated(
    *bodies: dict[str, Any],
    judge: Judge,
    store: Store | None = None,
    parsing: Parsing | None = None,
) -> ServiceEvaluation:
    store = store or Store()
    for body in (filter_of(), destination(), subscription(), *bodies):
        store.put(body)
    return evaluate_service(
        "default",
        namespace=Namespace(NAMESPACE, store=store, parsing=parsing or Parsing()),
        judge=judge,
        subscriptions=["s"],
        ended=(),
    )


def spec(evaluation: ServiceEvaluation) -> dict[str, Any]:
    found = json.loads(evaluation.content[SERVICE])["spec"]
    assert isinstance(found, dict)
    return found


def served(*names: str, **more: Any) -> dict[str, Any]:
    return service(mofFrom=[mof_from(name) for name in names], **more)


def test_the_mof_of_config_maps_is_rendered_as_the_services_own(judge: Judge) -> None:
    found = evaluated(
        served("one", "two", mof="class ACME_Root : CIM_Indication { };"),
        config_map(FAN, "one"),
        config_map(ALERT, "two"),
        judge=judge,
    )
    assert found.verdict.accepted
    rendered = spec(found)
    # What a deliverer of an earlier version knows, and nothing else.
    assert "mofFrom" not in rendered
    assert rendered["mof"] == f"class ACME_Root : CIM_Indication {{ }};\n{FAN}\n{ALERT}"


def test_a_service_without_it_is_rendered_as_before(judge: Judge) -> None:
    assert spec(evaluated(service(), judge=judge)) == {}
    # As the API server stores it, with the defaults of the CRD.
    assert spec(evaluated(service(mofFrom=[], classes=[]), judge=judge)) == {}


def test_a_change_of_the_config_map_changes_what_is_rendered(judge: Judge) -> None:
    store, parsing = Store(), Parsing()
    before = evaluated(
        served("classes"), config_map(ALERT), judge=judge, store=store, parsing=parsing
    )
    store.put(changed(config_map(f"{ALERT} {FAN}"), resourceVersion="2"))
    after = evaluated(judge=judge, store=store, parsing=parsing)
    assert spec(before)["mof"] == ALERT
    assert spec(after)["mof"] == f"{ALERT} {FAN}"


LARGE = "/*" + "x" * MOST_MOF + "*/"


@pytest.mark.parametrize(
    ("config_maps", "reason", "told"),
    [
        (
            [],
            "ConfigMapNotFound",
            "spec.mofFrom[0]: ConfigMap classes: no ConfigMap of this name has the label "
            'pillion.dev/classes: "true". Create it, or label it.',
        ),
        ([config_map(ALERT, label=None)], "ConfigMapNotFound", 'pillion.dev/classes: "true"'),
        ([config_map(ALERT, label="rendered")], "ConfigMapNotFound", "or label it"),
        (
            [config_map(ALERT, key="other.mof")],
            "ConfigMapKeyNotFound",
            "ConfigMap classes has no key classes.mof. It has: other.mof.",
        ),
        (
            [config_map("class A : CIM_AlertIndication {\n strin B; };")],
            "Invalid",
            "spec.mofFrom[0]: ConfigMap classes, key classes.mof: line 2: strin is not a CIM type",
        ),
        (
            [config_map('#pragma include ("/etc/passwd")')],
            "Invalid",
            "#pragma include is not followed. Put what it includes into the text",
        ),
        ([config_map(LARGE)], "ClassesTooLarge", "262,144 are allowed. Leave out the classes"),
        ([config_map("x" * 600_000)], "ClassesTooLarge", "is larger than 512 KiB"),
        (
            [config_map("class ACME_Fan : CIM_AlertIndicaton { };")],
            "Invalid",
            "spec.mofFrom (ConfigMap classes): ACME_Fan: its superclass CIM_AlertIndicaton is not "
            "known (value 'ACME_Fan'). Did you mean CIM_AlertIndication? Declare it too, or "
            "name a class that is known.",
        ),
        (
            [config_map("class acme_twice : CIM_Indication { };")],
            "Invalid",
            "it is declared twice",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_what_is_wrong_is_told_with_what_to_do_and_nothing_is_rendered(
    config_maps: Iterable[dict[str, Any]], reason: str, told: str, judge: Judge
) -> None:
    classes = [{"name": "ACME_Twice", "superclass": "CIM_AlertIndication"}]
    found = evaluated(served("classes", classes=classes), *config_maps, judge=judge)
    assert (found.verdict.accepted, found.verdict.reason) == (False, reason)
    assert told in found.verdict.message
    # The revision that deliverers have stays.
    assert found.content == {}
