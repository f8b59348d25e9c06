"""``IndicationService.spec.deliverer``: what is read of it, quantities above all."""

from decimal import Decimal
from typing import Any

import pytest

from pillion_sidecar.config.parsing import Document, Resources, parse_documents
from pillion_sidecar.config.resolving import build_service
from pillion_sidecar.config.schema.deliverer import (
    SMALLEST_VOLUME,
    DelivererMode,
    DelivererSpec,
    MissedInjectionPolicy,
    StorageSpec,
)
from pillion_sidecar.fields import amount
from pillion_sidecar.journal.limits import MINIMUM_BYTES
from support.resources import service


def parsed(**block: Any) -> Resources:
    return parse_documents([Document("x.yaml", service(deliverer=block))])


def deliverer(**block: Any) -> DelivererSpec:
    resources = parsed(**block)
    assert resources.problems == []
    return build_service(resources.by_kind["IndicationService"]["default"]).deliverer


def test_a_block_that_says_nothing_is_the_default() -> None:
    assert deliverer() == DelivererSpec()


def test_a_sidecar_is_read_in_full() -> None:
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
    }
    assert deliverer(
        podSelector=selector,
        injectSparkDriver=True,
        onMissedInjection="Evict",
        image="registry.example/pillion:1",
        resources={"requests": {"cpu": 1, "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        storage={"sizeLimit": 100_000_000},
    ) == DelivererSpec(
        mode=DelivererMode.SIDECAR,
        pod_selector=selector,
        inject_spark_driver=True,
        on_missed_injection=MissedInjectionPolicy.EVICT,
        image="registry.example/pillion:1",
        resources={"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        storage=StorageSpec(size_limit="100000000"),
    )


def test_a_gateway_is_read_in_full() -> None:
    storage = {"sizeLimit": "1Gi", "storageClassName": "fast"}
    assert deliverer(mode="Gateway", replicas=3, storage=storage) == DelivererSpec(
        mode=DelivererMode.GATEWAY,
        replicas=3,
        storage=StorageSpec(size_limit="1Gi", storage_class_name="fast"),
    )


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        (1, "1"),
        ("1", "1"),
        ("0.5", "0.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("500m", "0.5"),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("1.5Gi", "1610612736"),
        ("1M", "1000000"),
        ("1Ei", "1152921504606846976"),
        ("1E", "1e18"),
        ("1E3", "1000"),
        ("1e-3", "0.001"),
        ("1u", "0.000001"),
        ("1n", "0.000000001"),
    ],
)
def test_a_quantity_stands_for_a_number(quantity: str | int, number: str) -> None:
    assert deliverer(resources={"limits": {"cpu": quantity}}).resources == {
        "limits": {"cpu": str(quantity)}
    }
    assert amount(quantity) == Decimal(number)


@pytest.mark.parametrize(
    ("quantity", "says"),
    [
        (0, "is not a Kubernetes quantity"),
        (-1, "is not a Kubernetes quantity"),
        (2**63, "is not a Kubernetes quantity"),
        ("", "is not a Kubernetes quantity"),
        ("0", "is not a Kubernetes quantity"),
        ("0.0Mi", "is not a Kubernetes quantity"),
        ("-1", "is not a Kubernetes quantity"),
        ("1 Gi", "is not a Kubernetes quantity"),
        ("1GB", "is not a Kubernetes quantity"),
        ("1\n", "is not a Kubernetes quantity"),
        ("9" * 33, "is not a Kubernetes quantity"),
        (0.5, "is a fraction"),
        (True, "is not a quantity"),
        ([], "is not a quantity"),
    ],
)
def test_what_is_no_quantity_is_refused_with_a_remedy(quantity: Any, says: str) -> None:
    [problem] = parsed(resources={"limits": {"memory": quantity}}).problems
    assert problem.field == "spec.deliverer.resources.limits.memory"
    assert problem.message.startswith(says)
    assert problem.remedy


def test_a_whole_number_may_be_written_with_a_point() -> None:
    found = deliverer(mode="Gateway", replicas=2.0, resources={"limits": {"cpu": 1.0}})
    assert (found.replicas, found.resources) == (2, {"limits": {"cpu": "1"}})


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([], "is not an object"),
        ({str(number): "x" for number in range(17)}, "holds 17 keys, more than 16"),
        ({"app": 1}, "is not a text"),
    ],
)
def test_labels_that_are_none_are_refused(labels: Any, says: str) -> None:
    [problem] = parsed(podSelector={"matchLabels": labels}).problems
    assert problem.message == says
    assert problem.field.startswith("spec.deliverer.podSelector.matchLabels")


def test_a_label_without_a_value_counts_as_left_out() -> None:
    selector = {"matchLabels": {"app": "web", "tier": None}}
    assert deliverer(podSelector=selector).pod_selector == {"matchLabels": {"app": "web"}}


@pytest.mark.parametrize(("length", "good"), [(44, True), (45, False)])
def test_the_name_of_a_service_fits_the_labels_of_a_gateways_pods(length: int, good: bool) -> None:
    found = parse_documents([Document("x.yaml", service("s" * length))]).problems
    assert (found == []) is good


def test_the_smallest_volume_holds_the_smallest_journal() -> None:
    # A deliverer leaves a fifth of its volume free.
    assert amount(SMALLEST_VOLUME) * 4 / 5 == MINIMUM_BYTES
