"""What NetworkPolicies let through, as Kubernetes defines it."""

from typing import Any

import pytest

from cluster.policies import Endpoint, lets_in, selects

HERE = Endpoint(namespace="here", labels={"app": "a", "tier": "front"})
THERE = Endpoint(namespace="there", labels={"app": "b"})


def policy(*ingress: Any, namespace: str = "here", selector: Any = None, **spec: Any) -> Any:
    body = {"podSelector": selector or {}, "policyTypes": ["Ingress"], "ingress": list(ingress)}
    return {"metadata": {"name": "p", "namespace": namespace}, "spec": body | spec}


@pytest.mark.parametrize(
    "policies",
    [
        [],
        [policy(namespace="there")],
        [policy(selector={"matchLabels": {"app": "other"}})],
        [policy(policyTypes=["Egress"])],
        [policy(), policy({})],
        [policy({"ports": [{"port": 80}]})],
        [policy({"ports": [{"port": 443, "protocol": "TCP"}, {"port": 80, "protocol": "TCP"}]})],
        [policy({"from": [{"namespaceSelector": {}}]})],
        [policy({"from": [{"podSelector": {}}, {"namespaceSelector": {}}]})],
        [
            policy(
                {
                    "from": [
                        {
                            "namespaceSelector": {
                                "matchLabels": {"kubernetes.io/metadata.name": "there"}
                            },
                            "podSelector": {"matchLabels": {"app": "b"}},
                        }
                    ]
                }
            )
        ],
    ],
)
def test_what_is_let_in(policies: list[Any]) -> None:
    assert lets_in(policies, source=THERE, to=HERE, port=80)


@pytest.mark.parametrize(
    "policies",
    [
        [policy()],
        [policy(ingress=None)],
        [policy({"ports": [{"port": 80, "protocol": "UDP"}]})],
        [policy({"ports": [{"port": 81}]})],
        [policy({"from": [{"podSelector": {}}]})],
        [policy({"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"x": "y"}}}]})],
        [policy({"from": [{"namespaceSelector": {"matchLabels": {"team": "there"}}}]})],
        [
            policy(
                {"ports": [{"port": 80}], "from": [{"podSelector": {}}]}, {"ports": [{"port": 1}]}
            )
        ],
    ],
)
def test_what_is_not(policies: list[Any]) -> None:
    assert not lets_in(policies, source=THERE, to=HERE, port=80)


@pytest.mark.parametrize(
    "rule",
    [{"ports": [{"port": "http"}]}, {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
)
def test_what_is_not_understood_is_an_error(rule: Any) -> None:
    with pytest.raises(ValueError, match=r"port|peer"):
        lets_in([policy(rule)], source=THERE, to=HERE, port=80)


@pytest.mark.parametrize(
    ("operator", "values", "selected"),
    [
        ("In", ["a", "b"], True),
        ("NotIn", ["a"], False),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
    ],
)
def test_expressions(operator: str, values: Any, selected: bool) -> None:
    expression = {"key": "app", "operator": operator, "values": values}
    assert selects({"matchExpressions": [expression]}, HERE.labels) is selected


def test_an_operator_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="Gt"):
        selects({"matchExpressions": [{"key": "app", "operator": "Gt"}]}, HERE.labels)
