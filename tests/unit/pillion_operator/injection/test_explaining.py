"""Why a pod has no sidecar."""

from collections.abc import Sequence
from typing import Any

import pytest

from pillion_operator.injection.decision import Reason
from pillion_operator.injection.explaining import Explanation, Surroundings, explain
from support.injection import pod, selector, service

ASKS = {"pillion.dev/inject": "true"}
LATER = "2026-01-02T00:00:00Z"


def configuration(namespace_selector: Any = None, *, namespace: str = "ops") -> dict[str, Any]:
    return {
        "webhooks": [
            {"name": "other.example.org"},
            {
                "name": "inject.pillion.dev",
                "clientConfig": {
                    "service": {"name": "x", "namespace": namespace},
                    "caBundle": "Q0E=",
                },
                "namespaceSelector": namespace_selector,
            },
        ]
    }


def explained(
    body: dict[str, Any],
    *services: dict[str, Any],
    labels: dict[str, str] | None = None,
    configurations: Sequence[dict[str, Any]] | None = (configuration(),),
) -> Explanation:
    around = Surroundings(
        services=services,
        namespace=None if labels is None else {"metadata": {"name": "shop", "labels": labels}},
        configurations=configurations,
        operator_namespace="pillion-system",
    )
    return explain(body, around)


def test_a_pod_with_a_sidecar_is_told_so() -> None:
    body = pod(
        labels={"pillion.dev/deliverer": "web"},
        spec={"initContainers": [{"name": "pillion-deliverer"}]},
    )
    found = explained(body)
    assert (found.rule, found.remedy) == ("HasOne", "")
    assert "web" in found.message


WEB = {"podSelector": selector(app="web")}


@pytest.mark.parametrize(
    ("rule", "body", "services"),
    [
        ("ExcludedNamespace", pod(labels=ASKS, namespace="kube-system"), [service()]),
        ("ExcludedNamespace", pod(labels=ASKS, namespace="ops"), [service()]),
        ("OptedOut", pod(labels={"pillion.dev/inject": "false"}), [service()]),
        ("BadName", pod(labels={"pillion.dev/inject": "No!"}), [service()]),
        ("Gateway", pod(labels=ASKS), [service(mode="Gateway")]),
        ("NotSelected", pod(), [service(**WEB)]),
        ("SparkDriver", pod(labels={"app": "web", "spark-role": "driver"}), [service(**WEB)]),
        ("HostNetwork", pod(labels=ASKS, spec={"hostNetwork": True}), [service()]),
        ("Windows", pod(labels=ASKS, spec={"os": {"name": "windows"}}), [service()]),
        ("Mirror", pod(labels=ASKS, annotations={"kubernetes.io/config.mirror": "x"}), [service()]),
        ("OlderThanService", pod(labels=ASKS), [service(made=LATER)]),
        ("Missed", pod(labels=ASKS, creationTimestamp=LATER), [service()]),
        # A service that is not there yet keeps no pod from its sidecar.
        ("Missed", pod(labels=ASKS), []),
    ],
)
def test_each_rule_is_named_with_a_remedy(
    rule: str, body: dict[str, Any], services: list[dict[str, Any]]
) -> None:
    found = explained(body, *services, labels={})
    assert found.rule == rule
    assert found.message.endswith(".")
    assert found.remedy.endswith(".")


def test_every_reason_of_the_webhook_has_a_case_above() -> None:
    (mark,) = test_each_rule_is_named_with_a_remedy.pytestmark  # type: ignore[attr-defined]
    named = {case[0] for case in mark.args[1]} | {"HasOne"}
    reasons = {"".join(map(str.capitalize, reason.name.split("_"))) for reason in Reason}
    assert reasons <= named


def test_a_pod_that_nothing_selects_is_told_the_services_there_are() -> None:
    found = explained(pod(), service("b"), service("a"), service("gate", mode="Gateway"))
    assert "are a, b." in found.remedy
    assert "no service with mode Sidecar" in explained(pod()).remedy


def test_without_a_webhook_nothing_is_injected() -> None:
    other = {"webhooks": [{"name": "other.example.org"}]}
    for configurations in ([], [other]):
        found = explained(pod(labels=ASKS), service(), configurations=configurations)
        assert found.rule == "NoWebhook"


def test_a_namespace_that_the_webhook_leaves_out_is_named() -> None:
    only = configuration(selector(pillion="yes"))
    ask = {"labels": {"pillion": "no"}, "configurations": [only]}
    found = explained(pod(labels=ASKS), service(), **ask)
    assert found.rule == "NamespaceNotSelected"
    assert "namespace shop" in found.message
    # Another installation serves it.
    ask["configurations"] = [only, configuration(selector(pillion="no"))]
    assert explained(pod(labels=ASKS), service(), **ask).rule == "Missed"


def test_what_may_not_be_read_is_no_reason() -> None:
    assert explained(pod(labels=ASKS), service(), configurations=None).rule == "Missed"
    only = configuration(selector(pillion="yes"))
    assert explained(pod(labels=ASKS), service(), configurations=[only]).rule == "Missed"
