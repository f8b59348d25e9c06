"""Whether a pod gets a deliverer, and whose."""

from typing import Any

import pytest

from pillion_operator.injection.decision import Decision, Inject, Leave, Reason, decide
from support.injection import OPERATOR_NAMESPACE, pod, selector, service

WEB = service("web", podSelector=selector(app="web"))


def decided(body: dict[str, Any], *services: dict[str, Any], namespace: str = "shop") -> Decision:
    return decide(
        body, namespace=namespace, services=services, operator_namespace=OPERATOR_NAMESPACE
    )


def left(decision: Decision) -> Reason:
    assert isinstance(decision, Leave)
    return decision.reason


def injected(decision: Decision) -> Inject:
    assert isinstance(decision, Inject)
    return decision


def asking(value: str, **more: Any) -> dict[str, Any]:
    return pod(labels={"pillion.dev/inject": value}, **more)


@pytest.mark.parametrize(
    "namespace", [OPERATOR_NAMESPACE, "kube-system", "kube-public", "kube-node-lease"]
)
def test_no_pod_of_the_operators_own_or_the_systems_namespaces_gets_one(namespace: str) -> None:
    assert left(decided(asking("true"), service(), namespace=namespace)) is (
        Reason.EXCLUDED_NAMESPACE
    )


@pytest.mark.parametrize("place", ["containers", "initContainers"])
def test_a_pod_that_has_one_is_left(place: str) -> None:
    body = asking("true", spec={place: [{"name": "pillion-deliverer"}]})
    assert left(decided(body, service())) is Reason.HAS_ONE


def test_a_label_names_the_service() -> None:
    for value, name in (("true", "default"), ("web", "web")):
        decision = injected(decided(asking(value), service(), WEB))
        assert (decision.service, decision.warnings) == (name, ())


def test_the_label_goes_before_every_selector() -> None:
    body = pod(labels={"app": "web", "pillion.dev/inject": "other"})
    assert injected(decided(body, WEB, service("other"))).service == "other"


def test_a_pod_can_opt_out_of_a_selector() -> None:
    body = pod(labels={"app": "web", "pillion.dev/inject": "false"})
    assert left(decided(body, WEB)) is Reason.OPTED_OUT


def test_a_service_that_is_not_there_yet_is_injected_with_defaults_and_a_warning() -> None:
    decision = injected(decided(asking("later")))
    assert (decision.service, dict(decision.spec)) == ("later", {})
    assert "no IndicationService later" in decision.warnings[0]


@pytest.mark.parametrize("value", ["", "Web", "web_1", "-web", "a" * 45, "a..b"])
def test_a_label_that_is_no_name_injects_nothing_and_warns(value: str) -> None:
    decision = decided(asking(value), service())
    assert left(decision) is Reason.BAD_NAME
    assert repr(value) in decision.warnings[0]


def test_a_gateway_is_never_injected() -> None:
    gateway = service("gate", mode="Gateway", podSelector=selector(app="web"))
    decision = decided(asking("gate"), gateway)
    assert left(decision) is Reason.GATEWAY
    assert "mode Gateway" in decision.warnings[0]
    assert left(decided(pod(labels={"app": "web"}), gateway)) is Reason.NOT_SELECTED


def test_a_selector_injects_without_a_word() -> None:
    decision = injected(decided(pod(labels={"app": "web"}), service(), WEB))
    assert (decision.service, decision.warnings) == ("web", ())
    assert decision.spec == WEB["spec"]


def test_a_pod_that_nobody_selects_is_left_without_a_word() -> None:
    decision = decided(pod(), service(), WEB)
    assert left(decision) is Reason.NOT_SELECTED
    assert decision.warnings == ()


def test_of_several_the_oldest_is_taken_then_the_first_by_name_and_the_others_are_named() -> None:
    services = (
        service("b", made="2026-01-02T00:00:00Z", podSelector=selector(app="web")),
        service("c", made="2026-01-01T00:00:00Z", podSelector=selector(app="web")),
        service("a", made="2026-01-02T00:00:00Z", podSelector=selector(app="web")),
    )
    for order in (services, services[::-1]):
        decision = injected(decided(pod(labels={"app": "web"}), *order))
        assert decision.service == "c"
        assert "a, b" in decision.warnings[0]


SPARK = service("spark", podSelector={"matchExpressions": [{"key": "x", "operator": "Exists"}]})


def spark(role: str, **labels: str) -> dict[str, Any]:
    return pod(labels={"spark-role": role, "x": "", **labels})


def test_executors_get_one_and_the_driver_does_not() -> None:
    assert injected(decided(spark("executor"), SPARK)).service == "spark"
    assert left(decided(spark("driver"), SPARK)) is Reason.SPARK_DRIVER


def test_a_driver_gets_one_where_it_or_its_service_says_so() -> None:
    body = spark("driver", **{"pillion.dev/inject": "spark"})
    assert injected(decided(body, SPARK)).service == "spark"
    willing = service("all", podSelector=selector(x=""), injectSparkDriver=True)
    assert injected(decided(spark("driver"), willing, SPARK)).service == "all"


OBSTACLES = [
    (Reason.HOST_NETWORK, {"spec": {"hostNetwork": True}}),
    (Reason.WINDOWS, {"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}}}),
    (Reason.WINDOWS, {"spec": {"os": {"name": "windows"}}}),
    (Reason.MIRROR, {"annotations": {"kubernetes.io/config.mirror": "x"}}),
]


@pytest.mark.parametrize(("reason", "more"), OBSTACLES)
def test_a_pod_in_which_none_can_run_is_left(reason: Reason, more: dict[str, Any]) -> None:
    silent = decided(pod(labels={"app": "web"}, **more), WEB)
    assert (left(silent), silent.warnings) == (reason, ())


@pytest.mark.parametrize(("reason", "more"), OBSTACLES)
def test_one_that_asked_is_told_why_not(reason: Reason, more: dict[str, Any]) -> None:
    decision = decided(asking("web", **more), WEB)
    assert left(decision) is reason
    assert reason.value in decision.warnings[0]


def test_a_pod_for_linux_is_no_obstacle() -> None:
    body = asking("web", spec={"nodeSelector": {"kubernetes.io/os": "linux"}})
    assert injected(decided(body, WEB)).service == "web"
