"""Has resources written, and waits until the operator has made of them what it should."""

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pillion_operator.evaluation.references import secrets_of
from pillion_sidecar.config.rendered import items, unpack
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.rest import LOOK_INTERVAL, Refused, wait_until

Object = dict[str, Any]
Content = dict[tuple[str, str], Any]

#: Seconds for the operator to come round to something, on a machine that is busy.
WITHIN = 30.0
#: Attempts at one request, where the API server is only just there.
ATTEMPTS = 100
#: Of a pod that is refused for want of its namespace's account.
NO_ACCOUNT = "error looking up service account"

_PATHS = {
    "IndicationService": "/apis/pillion.dev/v1alpha1/namespaces/{}/indicationservices",
    "ListenerDestination": "/apis/pillion.dev/v1alpha1/namespaces/{}/listenerdestinations",
    "IndicationFilter": "/apis/pillion.dev/v1alpha1/namespaces/{}/indicationfilters",
    "IndicationReplay": "/apis/pillion.dev/v1alpha1/namespaces/{}/indicationreplays",
    "IndicationSubscription": "/apis/pillion.dev/v1alpha1/namespaces/{}/indicationsubscriptions",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Pod": "/api/v1/namespaces/{}/pods",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "Event": "/apis/events.k8s.io/v1/namespaces/{}/events",
}
OURS = ("IndicationService", "ListenerDestination", "IndicationFilter", "IndicationSubscription")


class World:
    """One namespace of a cluster, as administrator, over one connection."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self.namespace = namespace
        self._connection: http.client.HTTPSConnection | None = None
        #: What the last answer warned of: HTTP headers, as they came.
        self.warnings: list[str] = []

    # ------------------------------------------------------------------ plain requests

    def request(
        self, method: str, path: str, body: Any = None, *, type: str = "application/json"
    ) -> Any:
        """The JSON that the API server answers; Refused for an error status."""
        headers = {"Authorization": f"Bearer {self._plane.token('admin')}", "Content-Type": type}
        # YAML, which a patch is read as, takes no pairs of escapes for one character.
        text = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        for _ in range(ATTEMPTS):
            try:
                status, answer = self._ask(method, path, text, headers)
            except (http.client.HTTPException, OSError):
                # The API server was restarted, maybe, and the connection is of before.
                self.close()
                continue
            if status == 429 or (status == 403 and NO_ACCOUNT in answer):
                # It has just started: "storage is (re)initializing", or it does not know yet what
                # it holds.
                time.sleep(LOOK_INTERVAL)
                continue
            if status >= 400:
                raise Refused(status, answer)
            return json.loads(answer)
        raise AssertionError(f"{method} {path}: no answer at {ATTEMPTS} attempts")

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, str]:
        if self._connection is None:
            context = ssl.create_default_context(cafile=self._plane.ca)
            port = self._plane.api_port
            self._connection = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=30, context=context
            )
        self._connection.request(method, path, body, dict(headers))
        answer = self._connection.getresponse()
        self.warnings = answer.headers.get_all("Warning") or []
        return answer.status, answer.read().decode()

    def close(self) -> None:
        """Close the connection; another is made for the next request."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------ objects

    def path(self, kind: str, name: str = "") -> str:
        """Where an object is, or all of a kind."""
        return _PATHS[kind].format(self.namespace) + (f"/{name}" if name else "")

    def apply(self, *resources: Object) -> None:
        """Server-side apply, one after the other, as a user does."""
        for resource in resources:
            self.request(
                "PATCH",
                self.path(resource["kind"], resource["metadata"]["name"])
                + "?fieldManager=user&force=true",
                resource,
                type="application/apply-patch+yaml",
            )

    def patch(self, kind: str, name: str, patch: Object, *, manager: str = "user") -> Object:
        """Merge patch."""
        path = f"{self.path(kind, name)}?fieldManager={manager}"
        patched: Object = self.request("PATCH", path, patch, type="application/merge-patch+json")
        return patched

    def delete(self, kind: str, name: str) -> None:
        """Delete, and do not wait for finalizers."""
        self.request("DELETE", self.path(kind, name))

    def get(self, kind: str, name: str) -> Object | None:
        """An object; None where there is none."""
        try:
            found: Object = self.request("GET", self.path(kind, name))
        except Refused as error:
            if error.status == 404:
                return None
            raise
        return found

    def all(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        found: list[Object] = self.request("GET", self.path(kind))["items"]
        return found

    def status(self, kind: str, name: str) -> Object:
        """The status of an object; empty where there is none."""
        return (self.get(kind, name) or {}).get("status") or {}

    def condition(self, kind: str, name: str, type: str) -> tuple[str, str]:
        """The status and the reason of a condition; empty where there is none."""
        return condition(self.get(kind, name) or {}, type)

    def reasons(self) -> set[str]:
        """The reasons of all Events."""
        return {event["reason"] for event in self.all("Event")}

    # ------------------------------------------------------------------ waiting

    def until(self, holds: Callable[[], bool], what: str, *, within: float = WITHIN) -> None:
        """Wait for something; what is there instead is in the error."""
        try:
            wait_until(holds, within=within, what=what)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.described()}") from None

    def becomes(self, kind: str, name: str, type: str, *wanted: str) -> None:
        """Wait for a condition: its status, and its reason where one is given."""
        self.until(
            lambda: self.condition(kind, name, type)[: len(wanted)] == wanted,
            f"{kind} {name}: {type} {' '.join(wanted)}",
        )

    def converges(self, *services: str) -> None:
        """Wait until everything is accepted and ready as it stands, and the configurations of
        these services (without any: of the default one) are what they should be."""
        services = services or ("default",)
        self.until(lambda: all(map(is_ready, self.ours())), "everything is accepted and ready")
        self.renders(*services)
        self.until(lambda: self._tells_of(services), "the statuses tell of that configuration")

    def renders(self, *services: str) -> None:
        """Wait until the configurations of these services are what they should be."""
        self.until(lambda: not self.wrong(*services), "the configurations hold what they should")

    def _tells_of(self, services: Iterable[str]) -> bool:
        """Whether the status of each service has the revision that is rendered."""
        secrets = self.all("Secret")
        told = {
            body["metadata"]["name"]: (body.get("status") or {}).get("revision")
            for body in self.all("IndicationService")
        }
        return all(told[name] == self.revision(name, secrets=secrets) for name in services)

    def ours(self) -> list[Object]:
        """All objects of our kinds."""
        return [{**item, "kind": kind} for kind in OURS for item in self.all(kind)]

    def described(self) -> str:
        """All objects of our kinds, with their conditions."""
        lines = []
        for body in self.ours():
            told = [
                f"{one['type']}={one['status']} {one['reason']} ({one['message']})"
                for one in (body.get("status") or {}).get("conditions") or ()
            ]
            lines.append(f"{body['kind']} {body['metadata']['name']}: {'; '.join(told)}")
        return "\n".join(lines)

    # ------------------------------------------------------------------ what is rendered

    def rendered(
        self, service: str = "default", *, secrets: Iterable[Object] | None = None
    ) -> dict[str, bytes]:
        """The files in the Secrets of a service's configuration, of all or of these."""
        prefix = f"pillion-{service}-"
        return {
            name: base64.b64decode(data)
            for secret in (self.all("Secret") if secrets is None else secrets)
            if secret["metadata"]["name"].startswith(prefix)
            for name, data in (secret.get("data") or {}).items()
            if ".part-" in name
        }

    def revision(
        self, service: str = "default", *, secrets: Iterable[Object] | None = None
    ) -> str | None:
        """The revision of the configuration; None where there is none complete."""
        unpacked = unpack(self.rendered(service, secrets=secrets))
        return None if unpacked is None else unpacked.revision

    def content(
        self, service: str = "default", *, secrets: Iterable[Object] | None = None
    ) -> Content | None:
        """What the configuration holds, by kind and name: a spec, or a Secret's data."""
        unpacked = unpack(self.rendered(service, secrets=secrets))
        if unpacked is None:
            return None
        return {
            (item["kind"], item["metadata"]["name"]): item.get("spec", item.get("data"))
            for item in items(unpacked.text)
        }

    def wrong(self, *services: str) -> list[str]:
        """Of these services, those whose configuration is not what it should be."""
        secrets = self.all("Secret")
        bodies = {(one["kind"], one["metadata"]["name"]): one for one in self.ours()}
        bodies |= {("Secret", one["metadata"]["name"]): one for one in secrets}
        return [
            service
            for service in services
            if self.content(service, secrets=secrets) != expected(service, bodies)
        ]


def expected(service: str, bodies: Mapping[tuple[str, str], Object]) -> Content:
    """What a configuration should hold, where everything is accepted and enabled."""
    wanted = {("IndicationService", service)}
    for (kind, name), body in bodies.items():
        spec = body.get("spec") or {}
        if kind == "IndicationSubscription" and _service_of(spec) == service:
            wanted |= {
                (kind, name),
                ("IndicationFilter", spec["filterRef"]["name"]),
                ("ListenerDestination", spec["destinationRef"]["name"]),
            }
    for kind, name in list(wanted):
        if kind == "ListenerDestination":
            wanted |= {("Secret", secret) for secret in secrets_of(bodies[kind, name]["spec"])}
    return {key: _rendered(bodies[key], alone=_alone(service, key, bodies)) for key in wanted}


def _alone(service: str, key: tuple[str, str], bodies: Mapping[tuple[str, str], Object]) -> bool:
    """Whether one deliverer alone serves a destination's listener: the only gateway that does."""
    if key[0] != "ListenerDestination":
        return False
    url = _listener(bodies[key])
    services = {
        _service_of(body["spec"])
        for (kind, _), body in bodies.items()
        if kind == "IndicationSubscription"
        and (to := bodies.get(("ListenerDestination", body["spec"]["destinationRef"]["name"])))
        and _listener(to) == url
    }
    deliverer = (bodies["IndicationService", service].get("spec") or {}).get("deliverer") or {}
    one = deliverer.get("mode") == "Gateway" and deliverer.get("replicas", 1) == 1
    return one and services <= {service}


def _listener(destination: Object) -> Any:
    spec = destination["spec"]
    return spec.get("destination") or spec["destinationFrom"]


def _service_of(spec: Mapping[str, Any]) -> str:
    return str((spec.get("serviceRef") or {}).get("name", "default"))


def _rendered(body: Mapping[str, Any], *, alone: bool) -> Any:
    if "spec" not in body:
        return body.get("data")
    if body["spec"].get("sequenceIdentifiers") == "Auto" and not alone:
        return {**body["spec"], "sequenceIdentifiers": "Omit"}
    left_out = {"deliverer", "mofFrom"} | (set() if body["spec"].get("classes") else {"classes"})
    spec = {name: value for name, value in body["spec"].items() if name not in left_out}
    mode = (body["spec"].get("deliverer") or {}).get("mode")
    # Of that block a deliverer is told only that it is a gateway.
    return {**spec, "deliverer": {"mode": mode}} if mode == "Gateway" else spec


def condition(body: Mapping[str, Any], type: str) -> tuple[str, str]:
    """The status and the reason of an object's condition; empty where there is none."""
    for one in (body.get("status") or {}).get("conditions") or ():
        if one["type"] == type:
            return one["status"], one["reason"]
    return "", ""


def is_ready(body: Mapping[str, Any]) -> bool:
    """Whether an object is accepted and ready as it stands now. Without a node no gateway runs."""
    status = body.get("status") or {}
    ready, reason = condition(body, "Ready")
    return (
        status.get("observedGeneration") == body["metadata"]["generation"]
        and condition(body, "Accepted")[0] == "True"
        and (ready == "True" or reason == "GatewayNotRunning")
    )
