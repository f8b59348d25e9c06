"""AdmissionReview: the question and the answer."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_operator.injection.decision import Inject, decide
from pillion_operator.injection.patch import injection_patch
from pillion_operator.injection.webhook import BadReview, answer, parse_pod_review
from pillion_operator.settings import DelivererDefaults
from support.injection import OPERATOR_NAMESPACE, patch_of, pod, review, selector, service


def parsed(document: Any) -> Any:
    return parse_pod_review(json.dumps(document).encode())


def test_a_creation_is_read() -> None:
    found = parsed(review(pod()))
    assert (found.uid, found.namespace, found.body) == ("review-1", "shop", pod())


def test_a_pod_without_a_name_yet_is_read() -> None:
    body = {"metadata": {"generateName": "web-"}, "spec": {"containers": []}}
    assert parsed(review(body)).body == body


def test_a_namespace_that_only_the_pod_states_is_taken() -> None:
    assert parsed(review(pod(namespace="own"), namespace=None)).namespace == "own"


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"subResource": "eviction"},
        {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
        {"resource": None},
    ],
)
def test_what_is_no_creation_of_a_pod_has_no_pod(request_: dict[str, Any]) -> None:
    assert parsed(review(pod(), **request_)).body is None


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ([], "the body"),
        ({}, "AdmissionReview"),
        ({**review(pod()), "apiVersion": "admission.k8s.io/v1beta1"}, "admissionReviewVersions"),
        ({**review(pod()), "request": None}, "request"),
        (review(pod(), uid=""), "uid"),
        (review(None), "request.object"),
        (review({"metadata": {}, "spec": {}}, namespace=None), "namespace"),
        (review(pod(spec={"containers": "app"})), "containers"),
        (review({"metadata": {"labels": {"a": []}}, "spec": {}}), "labels"),
        (review(pod(spec={"terminationGracePeriodSeconds": "x"})), "terminationGracePeriod"),
    ],
)
def test_what_is_no_review_is_refused_by_name(document: Any, named: str) -> None:
    with pytest.raises(BadReview, match=named):
        parsed(document)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(BadReview, match="not JSON"):
        parse_pod_review(body)


def test_the_answer_allows_always_and_echoes_the_uid() -> None:
    response = answer(parsed(review(pod())))["response"]
    assert response == {"uid": "review-1", "allowed": True}


def test_a_patch_comes_in_base64() -> None:
    operation = {"op": "add", "path": "/x", "value": "ä"}
    answered = answer(parsed(review(pod())), patch=[operation])
    assert answered["response"]["patchType"] == "JSONPatch"
    assert patch_of(answered) == [operation]


def test_warnings_are_bounded() -> None:
    shown = answer(parsed(review(pod())), warnings=["w" * 1000] * 100)["response"]["warnings"]
    assert shown == ["w" * 256] * 8


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("name", "labels", "ports", "containerPort", "app", "x")),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
PARTS = ("containers", "initContainers", "volumes", "securityContext", "nodeSelector", "os")
PODS = st.fixed_dictionaries(
    {
        "metadata": JSON
        | st.fixed_dictionaries(
            {}, optional={"labels": JSON, "annotations": JSON, "namespace": JSON}
        ),
        "spec": JSON
        | st.fixed_dictionaries(
            {},
            optional={
                **dict.fromkeys(PARTS, JSON),
                "hostNetwork": JSON,
                "terminationGracePeriodSeconds": JSON,
            },
        ),
    }
)


@given(JSON | PODS)
def test_any_pod_is_refused_or_understood(body: Any) -> None:
    try:
        found = parsed(review(body))
    except BadReview:
        return
    everybody = service(
        podSelector={"matchExpressions": [{"key": "z", "operator": "DoesNotExist"}]}
    )
    decision = decide(
        found.body,
        namespace=found.namespace,
        services=[everybody, service("web", podSelector=selector(app="x"))],
        operator_namespace=OPERATOR_NAMESPACE,
    )
    if isinstance(decision, Inject):
        defaults = DelivererDefaults(image="i")
        patch, warnings = injection_patch(
            found.body, namespace=found.namespace, decision=decision, defaults=defaults
        )
        assert patch_of(answer(found, patch=patch, warnings=warnings)) == patch
