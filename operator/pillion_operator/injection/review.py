"""AdmissionReview of ``admission.k8s.io/v1``: what is asked, and the answer. Pure."""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pillion_operator.cluster.types import Object

API_VERSION = "admission.k8s.io/v1"
#: Warnings to one answer, and characters of one: the API server cuts longer ones off.
MOST_WARNINGS = 8
LONGEST_WARNING = 256
#: Characters of why something is refused.
LONGEST_REFUSAL = 4096


class BadReview(ValueError):
    """A request that is no AdmissionReview about a pod's creation; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One question of the API server."""

    uid: str
    namespace: str
    #: The pod as it would be made; None where the question is about something else.
    pod: Object | None


def parse_review(body: bytes) -> Review:
    """Read a request's body; raises BadReview."""
    request = _request(body)
    uid = _uid(request)
    if not _is_creation_of_pod(request):
        return Review(uid=uid, namespace="", pod=None)
    pod = _pod(request.get("object"))
    namespace = request.get("namespace") or pod["metadata"].get("namespace")
    if not isinstance(namespace, str):
        raise BadReview("request.namespace is missing")
    return Review(uid=uid, namespace=namespace, pod=pod)


def _uid(request: Object) -> str:
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise BadReview("request.uid is missing")
    return uid


def _request(body: bytes) -> Object:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadReview(f"the body is not JSON: {error}") from error
    review = _mapping(document, "the body")
    if review.get("apiVersion") != API_VERSION or review.get("kind") != "AdmissionReview":
        raise BadReview(
            # What it is instead is not told: this is logged, and anybody may have sent it.
            f"the body is no AdmissionReview of {API_VERSION}: set admissionReviewVersions to [v1]"
        )
    return _mapping(review.get("request"), "request")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeReview:
    """A question about one of Pillion's own resources."""

    uid: str
    namespace: str
    #: The resource as it would be stored; None where its spec is not to change.
    body: Object | None


#: The name of what gets one from the API server later.
UNNAMED = "to-be-named"


def parse_change(body: bytes) -> ChangeReview:
    """Read a request's body about a resource of ours; raises BadReview."""
    request = _request(body)
    uid = _uid(request)
    changed = request.get("object")
    if request.get("operation") not in ("CREATE", "UPDATE") or request.get("subResource"):
        return ChangeReview(uid=uid, namespace="", body=None)
    resource = _mapping(changed, "request.object")
    metadata = _mapping(resource.get("metadata"), "request.object.metadata")
    _mapping(resource.get("spec") or {}, "request.object.spec")
    for name in ("apiVersion", "kind"):
        _text(resource.get(name), f"request.object.{name}")
    before = request.get("oldObject")
    same = isinstance(before, dict) and before.get("spec") == resource.get("spec")
    namespace = request.get("namespace")
    _text(namespace, "request.namespace")
    if same or metadata.get("deletionTimestamp"):
        # Whoever takes a finalizer off, or labels it, has not written what stands there.
        return ChangeReview(uid=uid, namespace=str(namespace), body=None)
    named = {"name": UNNAMED, **metadata, "namespace": namespace}
    return ChangeReview(uid=uid, namespace=str(namespace), body={**resource, "metadata": named})


def answer_change(
    review: ChangeReview, *, refusal: str = "", warnings: Iterable[str] = ()
) -> Object:
    """The AdmissionReview that answers; ``refusal`` says why it must not be stored."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": not refusal}
    if refusal:
        message = refusal[:LONGEST_REFUSAL]
        response["status"] = {"code": 422, "reason": "Invalid", "message": message}
    return _answered(response, warnings)


def answer(review: Review, *, patch: Sequence[Object] = (), warnings: Iterable[str] = ()) -> Object:
    """The AdmissionReview that answers. The pod is always allowed: without a deliverer it is
    reported as missed, but nobody's deployment stands still for us."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return _answered(response, warnings)


def _answered(response: dict[str, Any], warnings: Iterable[str]) -> Object:
    shown = [warning[:LONGEST_WARNING] for warning in warnings][:MOST_WARNINGS]
    if shown:
        response["warnings"] = shown
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def _is_creation_of_pod(request: Object) -> bool:
    resource = request.get("resource")
    return (
        request.get("operation") == "CREATE"
        and not request.get("subResource")
        and isinstance(resource, dict)
        and (resource.get("group") or "", resource.get("resource")) == ("", "pods")
    )


def _pod(value: Any) -> Object:
    """The pod, with the shape that the rest of this room relies on."""
    pod = _mapping(value, "request.object")
    metadata = _mapping(pod.get("metadata"), "request.object.metadata")
    spec = _mapping(pod.get("spec"), "request.object.spec")
    for name in ("labels", "annotations"):
        field = f"request.object.metadata.{name}"
        for text in _mapping(metadata.get(name) or {}, field).values():
            _text(text, f"a value in {field}")
    for name in ("nodeSelector", "securityContext", "os"):
        _mapping(spec.get(name) or {}, f"request.object.spec.{name}")
    for name in ("containers", "initContainers", "volumes", "imagePullSecrets"):
        _named_items(spec.get(name) or [], f"request.object.spec.{name}")
    grace = spec.get("terminationGracePeriodSeconds")
    if not isinstance(grace, int | None):
        raise BadReview("request.object.spec.terminationGracePeriodSeconds is not an integer")
    return pod


def _named_items(value: Any, field: str) -> None:
    for item in _list(value, field):
        _text(_mapping(item, f"an item of {field}").get("name"), f"a name in {field}")
        for port in _list(item.get("ports") or [], f"ports in {field}"):
            _mapping(port, f"a port in {field}")


def _text(value: Any, field: str) -> None:
    if not isinstance(value, str):
        raise BadReview(f"{field} is not a text")


def _mapping(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadReview(f"{field} is not a JSON object")
    return value


def _list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadReview(f"{field} is not a JSON array")
    return value
