"""The admission webhook for new pods and for Pillion's resources. It reads and answers
AdmissionReviews of ``admission.k8s.io/v1``. It writes nothing, so a dry run needs no special
case."""

import base64
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from aiohttp import web
from prometheus_client import Counter, Histogram

from pillion_operator.clock import Clock
from pillion_operator.cluster.types import Object
from pillion_operator.injection.decision import Inject, Services, decide
from pillion_operator.injection.patch import injection_patch
from pillion_operator.settings import DelivererDefaults
from pillion_sidecar.config.schema import INDICATION_SERVICE

#: Telemetry limits the lines of this logger, because clients cause them.
logger = logging.getLogger("pillion.operator.webhook")

API_VERSION = "admission.k8s.io/v1"
#: Maximum bytes of a review. An object in etcd has at most 1.5 MiB, and an answer may double it.
MOST_BYTES = 4 * 1024 * 1024
#: Maximum warnings in an answer, and their characters: the API server truncates longer ones.
MOST_WARNINGS = 8
LONGEST_WARNING = 256
LONGEST_REFUSAL = 4096
#: Stands for the name that the API server generates later.
UNNAMED = "to-be-named"

JSON = TypeVar("JSON")
_TYPES: Mapping[type, str] = {str: "a text", dict: "a JSON object", list: "a JSON array"}


class BadReview(ValueError): ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    uid: str
    namespace: str = ""
    #: None if it needs no answer of ours: no new pod, no changed spec.
    body: Object | None = None


def parse_pod_review(body: bytes) -> Review:
    """Raises BadReview."""
    request, uid = _request(body)
    if not _is_creation_of_pod(request):
        return Review(uid=uid)
    pod = _pod(request.get("object"))
    namespace = request.get("namespace") or pod["metadata"].get("namespace")
    if not isinstance(namespace, str):
        raise BadReview("request.namespace is missing")
    return Review(uid=uid, namespace=namespace, body=pod)


def parse_resource_review(body: bytes) -> Review:
    """Raises BadReview."""
    request, uid = _request(body)
    if request.get("operation") not in ("CREATE", "UPDATE") or request.get("subResource"):
        return Review(uid=uid)
    resource = _typed(request.get("object"), dict, "request.object")
    metadata = _typed(resource.get("metadata"), dict, "request.object.metadata")
    _typed(resource.get("spec") or {}, dict, "request.object.spec")
    for name in ("apiVersion", "kind"):
        _typed(resource.get(name), str, f"request.object.{name}")
    namespace = _typed(request.get("namespace"), str, "request.namespace")
    before = request.get("oldObject")
    same = isinstance(before, dict) and before.get("spec") == resource.get("spec")
    if same or metadata.get("deletionTimestamp"):
        # The author of this change, such as the removal of a finalizer, did not write the spec.
        return Review(uid=uid)
    named = {"name": UNNAMED, **metadata, "namespace": namespace}
    return Review(uid=uid, namespace=namespace, body={**resource, "metadata": named})


def answer(
    review: Review,
    *,
    patch: Sequence[Object] = (),
    refusal: str = "",
    warnings: Iterable[str] = (),
) -> Object:
    """``refusal`` says why the object must not be stored. A pod is never refused: without a
    deliverer it is reported as missed."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": not refusal}
    if refusal:
        message = refusal[:LONGEST_REFUSAL]
        response["status"] = {"code": 422, "reason": "Invalid", "message": message}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    shown = [warning[:LONGEST_WARNING] for warning in warnings][:MOST_WARNINGS]
    if shown:
        response["warnings"] = shown
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def _request(body: bytes) -> tuple[Object, str]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadReview(f"the body is not JSON: {error}") from error
    review = _typed(document, dict, "the body")
    if review.get("apiVersion") != API_VERSION or review.get("kind") != "AdmissionReview":
        raise BadReview(
            # Without the actual values: this is logged, and anybody may send it.
            f"the body is no AdmissionReview of {API_VERSION}: set admissionReviewVersions to [v1]"
        )
    request = _typed(review.get("request"), dict, "request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise BadReview("request.uid is missing")
    return request, uid


def _is_creation_of_pod(request: Object) -> bool:
    resource = request.get("resource")
    return (
        request.get("operation") == "CREATE"
        and not request.get("subResource")
        and isinstance(resource, dict)
        and (resource.get("group") or "", resource.get("resource")) == ("", "pods")
    )


def _pod(value: Any) -> Object:
    pod = _typed(value, dict, "request.object")
    metadata = _typed(pod.get("metadata"), dict, "request.object.metadata")
    spec = _typed(pod.get("spec"), dict, "request.object.spec")
    for name in ("labels", "annotations"):
        field = f"request.object.metadata.{name}"
        for text in _typed(metadata.get(name) or {}, dict, field).values():
            _typed(text, str, f"a value in {field}")
    for name in ("nodeSelector", "securityContext", "os"):
        _typed(spec.get(name) or {}, dict, f"request.object.spec.{name}")
    for name in ("containers", "initContainers", "volumes", "imagePullSecrets"):
        _named_items(spec.get(name) or [], f"request.object.spec.{name}")
    grace = spec.get("terminationGracePeriodSeconds")
    if not isinstance(grace, int | None):
        raise BadReview("request.object.spec.terminationGracePeriodSeconds is not an integer")
    return pod


def _named_items(value: Any, field: str) -> None:
    for item in _typed(value, list, field):
        _typed(_typed(item, dict, f"an item of {field}").get("name"), str, f"a name in {field}")
        for port in _typed(item.get("ports") or [], list, f"ports in {field}"):
            _typed(port, dict, f"a port in {field}")


def _typed(value: Any, type_: type[JSON], field: str) -> JSON:
    if not isinstance(value, type_):
        raise BadReview(f"{field} is not {_TYPES[type_]}")
    return value


@dataclass(frozen=True, slots=True)
class Opinion:
    #: Empty if the resource may be stored.
    refusal: str = ""
    warnings: tuple[str, ...] = ()


#: Judges a resource of a namespace, without waiting.
Admits = Callable[[Object, str], Opinion]


class InjectingWebhook:
    """Answers ``POST /mutate``, and ``POST /validate`` if there is an ``admission``."""

    def __init__(
        self,
        *,
        services: Services,
        defaults: DelivererDefaults,
        operator_namespace: str,
        clock: Clock,
        seconds: Histogram,
        answers: Counter,
        admission: Admits | None = None,
    ) -> None:
        """``answers`` has the label ``outcome``: injected, left or failed."""
        self._services = services
        self._defaults = defaults
        self._operator_namespace = operator_namespace
        self._clock = clock
        self._seconds = seconds
        self._answers = answers
        self._admission = admission

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_post("/mutate", self._mutate)
        if self._admission is not None:
            app.router.add_post("/validate", partial(self._validate, self._admission))
        app.router.add_get("/readyz", _ready)
        return app

    async def _mutate(self, request: web.Request) -> web.Response:
        body = await request.read()
        began = self._clock.monotonic()
        outcome = "failed"
        try:
            outcome, answered = self._injected(parse_pod_review(body))
        except BadReview as error:
            return _bad_request(error)
        finally:
            self._answers.labels(outcome).inc()
            self._seconds.observe(self._clock.monotonic() - began)
        return web.json_response(answered)

    async def _validate(self, admission: Admits, request: web.Request) -> web.Response:
        try:
            review = parse_resource_review(await request.read())
        except BadReview as error:
            return _bad_request(error)
        if review.body is None:
            return web.json_response(answer(review))
        opinion = admission(review.body, review.namespace)
        return web.json_response(answer(review, refusal=opinion.refusal, warnings=opinion.warnings))

    def _injected(self, review: Review) -> tuple[str, Object]:
        if review.body is None:
            return "left", answer(review)
        decision = decide(
            review.body,
            namespace=review.namespace,
            services=self._services.all(INDICATION_SERVICE.name, review.namespace).values(),
            operator_namespace=self._operator_namespace,
        )
        if not isinstance(decision, Inject):
            return "left", answer(review, warnings=decision.warnings)
        patch, warnings = injection_patch(
            review.body, namespace=review.namespace, decision=decision, defaults=self._defaults
        )
        return "injected", answer(review, patch=patch, warnings=(*decision.warnings, *warnings))


def _bad_request(error: BadReview) -> web.Response:
    logger.warning("a review is refused: %s", error, extra={"event": "bad-review"})
    return web.Response(status=400, text=f"{error}\n")


async def _ready(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")
