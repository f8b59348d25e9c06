"""Which pods should have a deliverer and have none."""

from typing import Any

import pytest

from pillion_operator.injection.missed import (
    ASKING,
    LONGEST_SELECTOR,
    WITHOUT_DELIVERER,
    MissedPod,
    listing_selectors,
    missed_pods,
)
from support.injection import OPERATOR_NAMESPACE, pod, selector, service

EVICTING = service("web", podSelector=selector(app="web"), onMissedInjection="Evict")
OWNED = {"ownerReferences": [{"uid": "rs-1", "controller": True}, {"uid": "other"}]}


def missed(*pods: dict[str, Any], services: Any = (EVICTING,)) -> list[MissedPod]:
    return missed_pods(pods, services={"shop": services}, operator_namespace=OPERATOR_NAMESPACE)


def web(**more: Any) -> dict[str, Any]:
    return pod(labels={"app": "web", **more.pop("labels", {})}, **more)


def test_a_selected_pod_without_a_deliverer_is_missed() -> None:
    assert missed(web(**OWNED)) == [
        MissedPod(
            namespace="shop",
            name="web",
            uid="uid-web",
            service="web",
            made=1_767_225_600.0,
            owner="rs-1",
            evict=True,
        )
    ]


def test_one_that_asks_for_a_service_that_is_not_there_is_missed_and_not_evicted() -> None:
    (found,) = missed(pod(labels={"pillion.dev/inject": "later"}), services=())
    assert (found.service, found.evict) == ("later", False)


@pytest.mark.parametrize(
    "body",
    [
        web(deletionTimestamp="2026-01-01T00:00:00Z"),
        web() | {"status": {"phase": "Succeeded"}},
        web() | {"status": {"phase": "Failed"}},
        web(spec={"initContainers": [{"name": "pillion-deliverer"}]}),
        web(spec={"hostNetwork": True}),
        web(labels={"pillion.dev/inject": "false"}),
        web(labels={"spark-role": "driver"}),
        pod(labels={"app": "other"}),
        web(namespace="kube-system"),
        web(namespace=OPERATOR_NAMESPACE),
        web(namespace="elsewhere"),
    ],
)
def test_a_pod_that_ends_or_is_meant_to_have_none_is_not_missed(body: dict[str, Any]) -> None:
    assert missed(body) == []


def test_a_pod_that_is_just_starting_is_missed_already() -> None:
    assert len(missed(web() | {"status": {"phase": "Pending"}})) == 1


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"ownerReferences": [{"uid": "x", "controller": False}]},
        {"labels": {"spark-role": "executor"}, **OWNED},
    ],
)
def test_a_pod_that_nobody_would_make_anew_or_that_is_sparks_has_no_owner(
    more: dict[str, Any],
) -> None:
    (found,) = missed(web(**more))
    assert found.owner is None


def test_a_service_that_only_reports_has_nobody_evicted() -> None:
    (found,) = missed(web(**OWNED), services=[service("web", podSelector=selector(app="web"))])
    assert not found.evict


def test_the_listings_ask_for_what_is_selected_and_has_none() -> None:
    services = [
        EVICTING,
        service("same", podSelector=selector(app="web")),
        service("none"),
        service("gate", mode="Gateway", podSelector=selector(app="gate")),
    ]
    assert listing_selectors(services) == {"app=web,!pillion.dev/deliverer"}
    assert ASKING == "pillion.dev/inject,pillion.dev/inject!=false,!pillion.dev/deliverer"


def test_a_selector_that_is_too_long_for_an_address_asks_for_more() -> None:
    values = [f"{number:063}" for number in range(LONGEST_SELECTOR // 63)]
    long = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    assert listing_selectors([service(podSelector=long)]) == {WITHOUT_DELIVERER}
