"""What others add where it changes the meaning is found, and taken out by one patch."""

from typing import Any

import pytest

from pillion_operator.cluster.differences import differences, without_additions
from pillion_operator.cluster.ownership import adoptable
from pillion_operator.names import APPLIED_ANNOTATION, SERVICE_LABEL

SELECTOR = {"pillion.dev/deliverer": "gw"}
MAIN = {"name": "deliverer", "image": "x"}


def pod(**spec: Any) -> dict[str, Any]:
    return {"kind": "StatefulSet", "spec": {"template": {"spec": {"containers": [MAIN], **spec}}}}


@pytest.mark.parametrize(
    ("desired", "live", "path", "patch"),
    [
        (
            {"kind": "ConfigMap", "data": {"a": "1"}},
            {"kind": "ConfigMap", "data": {"a": "1", "more": "x"}},
            "data[more]",
            {"data": {"more": None}},
        ),
        (
            pod(),
            pod(containers=[{**MAIN, "terminationMessagePath": "/d"}, {"name": "evil"}]),
            "spec.template.spec.containers[evil]",
            {
                "spec": {
                    "template": {"spec": {"containers": [{**MAIN, "terminationMessagePath": "/d"}]}}
                }
            },
        ),
        (
            pod(),
            pod(initContainers=[{"name": "evil"}]),
            "spec.template.spec.initContainers[evil]",
            {"spec": {"template": {"spec": {"initContainers": []}}}},
        ),
        (
            pod(volumes=[{"name": "a"}]),
            pod(volumes=[{"name": "b"}, {"name": "a"}]),
            "spec.template.spec.volumes[b]",
            {"spec": {"template": {"spec": {"volumes": [{"name": "a"}]}}}},
        ),
    ],
)
def test_an_addition_that_changes_the_meaning_is_found_and_taken_out(
    desired: Any, live: Any, path: str, patch: Any
) -> None:
    assert list(differences(desired, live)) == [path]
    assert without_additions(desired, live) == patch


@pytest.mark.parametrize(
    ("desired", "live", "path"),
    [
        (
            {"kind": "Service", "spec": {"selector": SELECTOR}},
            {"kind": "Service", "spec": {"selector": {**SELECTOR, "team": "x"}}},
            "spec.selector",
        ),
        (
            {"kind": "NetworkPolicy", "spec": {"podSelector": {"matchLabels": SELECTOR}}},
            {
                "kind": "NetworkPolicy",
                "spec": {"podSelector": {"matchLabels": {**SELECTOR, "team": "x"}}},
            },
            "spec.podSelector",
        ),
        (
            {"kind": "NetworkPolicy", "spec": {"podSelector": {"matchLabels": SELECTOR}}},
            {
                "kind": "NetworkPolicy",
                "spec": {"podSelector": {"matchLabels": SELECTOR, "matchExpressions": [1]}},
            },
            "spec.podSelector",
        ),
    ],
)
def test_a_selector_is_one_value_which_apply_restores(desired: Any, live: Any, path: str) -> None:
    assert list(differences(desired, live)) == [path]
    assert without_additions(desired, live) == {}


def test_two_further_containers_are_taken_out_by_one_list() -> None:
    live = pod(containers=[{"name": "a"}, MAIN, {"name": "b"}])
    assert list(differences(pod(), live)) == [
        "spec.template.spec.containers[a]",
        "spec.template.spec.containers[b]",
    ]
    assert without_additions(pod(), live) == {"spec": pod()["spec"]}


def test_what_others_add_beside_it_is_theirs() -> None:
    live = pod(nodeSelector={"a": "b"}, tolerations=[{"key": "x"}])
    live["metadata"] = {"labels": {"team": "x"}}
    live["spec"]["revisionHistoryLimit"] = 10
    assert without_additions(pod(), live) == {}
    assert differences(pod(), live) == {}


OWNER = {
    "apiVersion": "pillion.dev/v1alpha1",
    "kind": "IndicationService",
    "metadata": {"name": "gw", "uid": "1"},
}
#: Of a service of the same name.
EARLIER = {
    "apiVersion": "pillion.dev/v1alpha1",
    "kind": "IndicationService",
    "name": "gw",
    "uid": "earlier",
    "controller": True,
}


@pytest.mark.parametrize(
    ("lost", "ours"),
    [
        ({"ownerReferences": []}, True),
        ({"labels": {SERVICE_LABEL: "gw"}}, True),
        ({"labels": {}}, False),
        ({"annotations": {}}, False),
        ({"ownerReferences": [{"uid": "other", "controller": True}]}, False),
        ({"ownerReferences": [{"uid": "other"}]}, True),
        ({"ownerReferences": [EARLIER]}, True),
        ({"ownerReferences": [{**EARLIER, "name": "other"}]}, False),
        ({"ownerReferences": [{**EARLIER, "kind": "Deployment"}]}, False),
        ({"ownerReferences": [{**EARLIER, "apiVersion": "example.com/v1"}]}, False),
    ],
)
def test_what_is_plainly_ours_is_adopted_and_nothing_else(lost: Any, ours: bool) -> None:
    assert adoptable(child(**lost), OWNER) is ours


def test_a_stateful_set_of_an_earlier_service_is_left_to_the_collector() -> None:
    assert not adoptable(child("StatefulSet", ownerReferences=[EARLIER]), OWNER)


def child(kind: str = "Secret", **lost: Any) -> dict[str, Any]:
    metadata = {
        "labels": {SERVICE_LABEL: "gw", "app.kubernetes.io/managed-by": "pillion"},
        "annotations": {APPLIED_ANNOTATION: "x"},
        "ownerReferences": [{"uid": "1", "controller": True}],
    }
    return {"kind": kind, "metadata": {**metadata, **lost}}
