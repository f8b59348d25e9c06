from typing import Any

import pytest

from pillion_operator.controllers import selector_overlap as module
from pillion_operator.controllers.selector_overlap import Overlaps, overlapping
from pillion_operator.injection.selectors import selects
from pillion_operator.store import Key, Store

NAMESPACE = "shop"


def service(name: str, selector: dict[str, Any] | None = None, **deliverer: Any) -> dict[str, Any]:
    block = {**deliverer, **({} if selector is None else {"podSelector": selector})}
    return {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": "IndicationService",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"deliverer": block},
    }


def app(name: str) -> dict[str, Any]:
    return {"matchLabels": {"app": name}}


def has(key: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "Exists"}]}


def pod(name: str = "p", **labels: str) -> dict[str, Any]:
    metadata = {"namespace": NAMESPACE, "name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}


def test_only_a_pod_that_is_there_makes_an_overlap() -> None:
    services = [service("a", app("x")), service("b", has("team"))]

    assert overlapping(services, pods=[pod(app="x"), pod(team="y")]) == {}
    assert overlapping(services, pods=[pod(app="x", team="y")]) == {"a": ["b"], "b": ["a"]}


def test_overlaps_of_several_pods_add_up() -> None:
    services = [service("a", has("one")), service("b", has("two")), service("c", has("three"))]
    pods = [pod(one="1", two="1"), pod(one="1", three="1")]

    assert overlapping(services, pods=pods) == {"a": ["b", "c"], "b": ["a"], "c": ["a"]}


def test_what_selects_nothing_by_itself_overlaps_with_nothing() -> None:
    services = [
        service("a", app("x")),
        service("gateway", app("x"), mode="Gateway"),
        service("bare"),
        service("empty", {}),
    ]

    assert overlapping(services, pods=[pod(app="x")]) == {}


def test_a_pod_that_names_its_service_is_no_matter_of_selectors() -> None:
    named = pod(app="x", tier="y")
    services = [service("a", app("x")), service("b", has("tier"))]
    assert overlapping(services, pods=[named]) != {}
    named["metadata"]["labels"]["pillion.dev/inject"] = "a"

    assert overlapping(services, pods=[named]) == {}


def test_pods_that_no_selector_tells_apart_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def counting(selector: Any, labels: Any) -> bool:
        asked.append(labels)
        return selects(selector, labels)

    monkeypatch.setattr(module, "selects", counting)
    services = [service("a", app("x")), service("b", app("x"))]
    found = overlapping(services, pods=[pod(app="x", number=str(one)) for one in range(100)])

    assert found == {"a": ["b"], "b": ["a"]}
    assert len(asked) == 2


def test_a_few_of_many_are_named() -> None:
    names = [f"s{number}" for number in range(9)]
    found = overlapping([service(name, app("x")) for name in names], pods=[pod(app="x")])

    assert found["s0"] == ["s1", "s2", "s3", "s4", "s5"]
    assert found["s8"] == ["s0", "s1", "s2", "s3", "s4"]


def test_looking_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOOKS", 6)
    services = [service("a", has("app")), service("b", {"matchLabels": {"tier": "4"}})]

    def pods(*numbers: int) -> list[dict[str, Any]]:
        return [pod(app=str(one), tier=str(one)) for one in numbers]

    assert overlapping(services, pods=pods(*range(3))) == {}
    assert overlapping(services, pods=pods(*range(9))) == {}
    assert overlapping(services, pods=pods(*range(4, 9))) != {}


def test_what_is_known_is_found_anew_once_something_changes() -> None:
    store = Store()
    overlaps = Overlaps(store=store)
    store.subscribe(overlaps.follow)
    versions = iter(range(1, 100))

    def put(body: dict[str, Any]) -> None:
        body["metadata"]["resourceVersion"] = str(next(versions))
        store.put(body)

    def others() -> list[str]:
        return list(overlaps.of(Key("IndicationService", NAMESPACE, "a")))

    def tier(name: str) -> dict[str, Any]:
        return {"matchLabels": {"tier": name}}

    put(service("a", app("x")))
    assert others() == []
    put(pod(app="x", tier="x"))
    put(service("b", tier("x")))
    assert others() == ["b"]
    put(service("b", tier("y")))
    assert others() == []
    put(service("b", tier("x")))
    put(pod(app="z", tier="x"))
    assert others() == []
    put(pod(app="x", tier="x"))
    assert others() == ["b"]
    store.remove(Key("Pod", NAMESPACE, "p"))
    assert others() == []


def test_selectors_overlap_before_there_is_any_pod() -> None:
    def sidecars(name: str, labels: dict[str, str]) -> dict[str, Any]:
        selector = {"podSelector": {"matchLabels": labels}}
        return {"metadata": {"name": name}, "spec": {"deliverer": selector}}

    services = [
        sidecars("one", {"app": "a"}),
        sidecars("two", {"app": "a"}),
        sidecars("narrow", {"app": "a", "tier": "x"}),
        sidecars("other", {"app": "b"}),
    ]
    assert overlapping(services, pods=[]) == {
        "one": ["narrow", "two"],
        "two": ["narrow", "one"],
        "narrow": ["one", "two"],
    }
