"""Pods, services and reviews for the tests of injection, and an API server in memory."""

import base64
import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pillion_operator.cluster.api import Api, ApiError, Conflict, NotFound
from pillion_operator.cluster.types import ResourceType

DEFAULT_TIME = "2026-01-01T00:00:00Z"
OPERATOR_NAMESPACE = "pillion-system"


def pod(
    *,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """A pod as the API server shows it, in namespace ``shop``."""
    known: dict[str, Any] = {
        "name": "web",
        "namespace": "shop",
        "uid": "uid-web",
        "creationTimestamp": DEFAULT_TIME,
        **metadata,
    }
    if labels is not None:
        known["labels"] = dict(labels)
    containers = [{"name": "app", "image": "app:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": known,
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 30, **(spec or {})},
    }


def service(
    name: str = "default", *, made: str = DEFAULT_TIME, spec: Any = None, **deliverer: Any
) -> dict[str, Any]:
    """An IndicationService; ``deliverer`` are the fields of that block."""
    return {
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": made},
        "spec": {**(spec or {}), "deliverer": {"mode": "Sidecar", **deliverer}},
    }


def selector(**labels: str) -> dict[str, Any]:
    """A LabelSelector by equality."""
    return {"matchLabels": labels}


class Known:
    """The services of each namespace, in memory."""

    def __init__(self, *services: Mapping[str, Any], namespace: str = "shop") -> None:
        self.by_namespace = {namespace: list(services)}

    def namespaces(self, kind: str) -> Iterable[str]:
        assert kind == "IndicationService"
        return self.by_namespace

    def all(self, kind: str, namespace: str) -> Mapping[str, Mapping[str, Any]]:
        assert kind == "IndicationService"
        return {one["metadata"]["name"]: one for one in self.by_namespace.get(namespace, ())}


def review(body: Mapping[str, Any] | None, **request: Any) -> dict[str, Any]:
    """The AdmissionReview of a pod's creation."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "review-1",
            "operation": "CREATE",
            "namespace": "shop",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": body,
            **request,
        },
    }


def patch_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch of an answer; empty where there is none."""
    encoded = answer["response"].get("patch")
    return [] if encoded is None else list(json.loads(base64.b64decode(encoded)))


def patched(document: Any, patch: Iterable[Mapping[str, Any]]) -> Any:
    """The document after a JSON patch of ``add`` and ``test``."""
    result = copy.deepcopy(document)
    for operation in patch:
        *way, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        place = result
        for part in way:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if operation["op"] == "test":
            assert place[last] == operation["value"]
        elif last == "-":
            place.append(operation["value"])
        else:
            assert operation["op"] == "add"
            place[last] = operation["value"]
    return result


class MemoryApi(Api):
    """An API server in memory, as far as injection needs one. Its objects may be written to."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.lists: dict[tuple[str | None, str | None], list[dict[str, Any]]] = {}
        self.asked: list[tuple[str | None, str | None]] = []
        self.created: list[tuple[str, Any]] = []
        self.patches: list[Any] = []
        #: What the next write, or every listing, raises.
        self.refusals: list[Exception] = []
        self.down: Exception | None = None
        self._version = 0

    async def get(
        self, kind: ResourceType, namespace: str | None, name: str
    ) -> dict[str, Any] | None:
        if self.down is not None:
            raise self.down
        return copy.deepcopy(self.objects.get(kind.path(namespace, name)))

    async def list(
        self, kind: ResourceType, namespace: str | None = None, *, label_selector: str | None = None
    ) -> list[Any]:
        if self.down is not None:
            raise self.down
        self.asked.append((namespace, label_selector))
        return self.lists.get((namespace, label_selector), [])

    async def create(
        self,
        body: Any,
        *,
        namespace: str | None = None,
        path: str | None = None,
        dry_run: bool = False,
    ) -> Any:
        self._refuse()
        metadata = body["metadata"]
        place = path or f"/api/v1/namespaces/{metadata['namespace']}/secrets/{metadata['name']}"
        self.created.append((place, body))
        if path is None:
            if place in self.objects:
                raise Conflict(409, "AlreadyExists", "it is there")
            self.objects[place] = self._stored(body)
        return body

    async def replace(self, body: Any) -> Any:
        self._refuse()
        metadata = body["metadata"]
        place = f"/api/v1/namespaces/{metadata['namespace']}/secrets/{metadata['name']}"
        if place not in self.objects:
            raise NotFound(404, "NotFound", "it is gone")
        if self.objects[place]["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict(409, "Conflict", "it has changed")
        self.objects[place] = self._stored(body)
        return body

    async def patch(
        self,
        kind: ResourceType,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
    ) -> Any:
        assert isinstance(body, list)
        self.patches.append(body)
        place = kind.path(namespace, name)
        self.objects[place] = patched(self.objects[place], body)
        return self.objects[place]

    def _stored(self, body: Any) -> dict[str, Any]:
        self._version += 1
        stored: dict[str, Any] = copy.deepcopy(dict(body))
        stored["metadata"] = {**stored["metadata"], "resourceVersion": str(self._version)}
        return stored

    def _refuse(self) -> None:
        if self.refusals:
            raise self.refusals.pop(0)


def too_many_requests() -> ApiError:
    """What the API server answers where a disruption budget forbids an eviction."""
    return ApiError(429, "TooManyRequests", "Cannot evict pod: the disruption budget needs it")
