"""``pillion why-not``: what it asks of the cluster, and how it tells the answer."""

import argparse
import json
from typing import Any

import pytest

from pillion_cli.commands import why_not
from pillion_cli.exits import CommandError
from pillion_operator.cluster.api import ApiError
from pillion_operator.cluster.types import Object, ResourceType
from pillion_operator.injection.explaining import Explanation
from support.injection import pod, selector, service
from support.manual import codes, table

ASKS = {"pillion.dev/inject": "true"}


class FakeCluster:
    """An API server with one pod, which lets its user see the whole cluster or not."""

    def __init__(self, *, reads_all: bool = True) -> None:
        self.pod: Object | None = pod(labels=ASKS)
        self.ca = "Q0E="
        self._reads_all = reads_all

    async def get(self, kind: ResourceType, namespace: str | None, name: str) -> Object | None:
        if kind.kind == "Pod":
            return self.pod if (namespace, name) == ("shop", "web") else None
        assert (kind.kind, name) == ("Namespace", "shop")
        if not self._reads_all:
            raise ApiError(403, "Forbidden", "namespaces is forbidden")
        return {"metadata": {"name": "shop", "labels": {}}}

    async def list(self, kind: ResourceType, namespace: str | None = None) -> list[Object]:
        if kind.kind == "IndicationService":
            return [service()]
        chosen = {
            "name": "inject.pillion.dev",
            "clientConfig": {"caBundle": self.ca},
            "namespaceSelector": selector(pillion="yes"),
        }
        return [{"webhooks": [chosen]}]


async def rule_of(cluster: FakeCluster, name: str = "web") -> str:
    return (await explanation_of(cluster, name)).rule


async def explanation_of(cluster: FakeCluster, name: str = "web") -> Explanation:
    return await why_not.explained(
        cluster,  # type: ignore[arg-type]
        namespace="shop",
        pod=name,
        operator_namespace="pillion-system",
    )


async def test_the_whole_cluster_is_asked() -> None:
    assert await rule_of(FakeCluster()) == "NamespaceNotSelected"


async def test_a_webhook_that_cannot_be_verified_is_told() -> None:
    cluster = FakeCluster()
    cluster.ca = ""
    found = await explanation_of(cluster)
    assert (found.rule, found.unchecked) == ("NoCABundle", ())
    assert "its caBundle is empty" in found.message


async def test_a_user_of_one_namespace_gets_the_rest_of_the_rules() -> None:
    found = await explanation_of(FakeCluster(reads_all=False))
    assert found.rule == "Missed"
    assert [one.partition(":")[0] for one in found.unchecked] == ["namespaces"]
    told = why_not.shown(found, namespace="shop", pod="web", output="text")
    assert "\nNot checked, since you may not read namespaces: whether the webhook selects" in told


async def test_a_pod_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandError, match="no pod other in the namespace shop"):
        await rule_of(FakeCluster(), "other")


FOUND = Explanation(rule="HostNetwork", message="It is.", remedy="Do not.")


def test_the_answer_is_text_or_json() -> None:
    where: dict[str, Any] = {"namespace": "shop", "pod": "web"}
    text = why_not.shown(FOUND, **where, output="text")
    assert text.splitlines() == ["shop/web has no sidecar: HostNetwork", "It is.", "Do not."]
    document = json.loads(why_not.shown(FOUND, **where, output="json"))
    assert document == {
        **where,
        "injected": False,
        "rule": "HostNetwork",
        "message": "It is.",
        "remedy": "Do not.",
        "notChecked": [],
    }
    has = Explanation(rule="HasOne", message="It has.")
    assert why_not.shown(has, **where, output="text").splitlines() == [
        "shop/web has a sidecar: HasOne",
        "It has.",
    ]


def test_without_a_way_to_the_cluster_it_says_so(tmp_path: Any) -> None:
    parser = argparse.ArgumentParser()
    why_not.add_arguments(parser)
    missing = str(tmp_path / "none")
    args = parser.parse_args(["web", "--namespace", "shop", "--kubeconfig", missing])
    with pytest.raises(CommandError, match=f"there is no kubeconfig {missing}"):
        why_not.run(args)


def test_the_manual_lists_every_rule() -> None:
    listed = {rule for row in table("injection.md", "rule") for rule in codes(row[0])}
    assert listed == {
        *("ExcludedNamespace", "OptedOut", "BadName", "Gateway", "NotSelected", "SparkDriver"),
        *("HostNetwork", "Windows", "Mirror", "NoWebhook", "NoCABundle"),
        *("NamespaceNotSelected", "OlderThanService", "Missed"),
    }
