"""The API server refuses what the schema refuses, says how to mend it, and takes the rest."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from pillion_sidecar.config.parsing import Document, parse_documents
from pillion_sidecar.config.resolving import build_service
from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.config.schema.deliverer import DELIVERER, DelivererSpec, StorageSpec
from pillion_sidecar.config.validation import Complaints, check
from pillion_sidecar.fields import Kind, Struct
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.rest import Refused
from support.resource_cases import CASES
from support.resource_rules import Case, every_rule, schema
from support.resource_values import nearly
from support.resources import JSON, alert_filter, destination, document, service, subscription

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds")]

#: Objects that the property puts to both; the API server takes a few milliseconds for each.
RANDOM = 100


class Server:
    """The API server, asked about resources without keeping them."""

    def __init__(self, plane: ControlPlane) -> None:
        self._rest = plane.rest

    @contextmanager
    def kept(self, resource: JSON) -> Iterator[JSON]:
        """A resource that is there for a while."""
        path = collection(resource)
        made = self._rest.request("POST", path, resource)
        try:
            yield made
        finally:
            self._rest.request("DELETE", f"{path}/{resource['metadata']['name']}")

    def create(self, resource: JSON, *, validation: str = "Strict") -> JSON:
        """What would be kept of a new resource; Refused, with the server's words."""
        query = f"dryRun=All&fieldValidation={validation}"
        made: JSON = self._rest.request("POST", f"{collection(resource)}?{query}", resource)
        return made

    def create_of_kubernetes(self, path: str, resource: JSON) -> None:
        """The same for a resource of Kubernetes itself."""
        self._rest.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", resource)

    def change(self, kept: JSON, spec: JSON) -> None:
        """Put another spec in the place of a kept one's; Refused, with the server's words."""
        path = f"{collection(kept)}/{kept['metadata']['name']}?dryRun=All"
        self._rest.request("PUT", path, {**kept, "spec": spec})


def collection(resource: JSON) -> str:
    """Where resources of this kind lie."""
    return f"/apis/pillion.dev/v1alpha1/namespaces/default/{schema(resource['kind']).plural}"


@pytest.fixture
def server(control_plane: ControlPlane) -> Server:
    return Server(control_plane)


def refused(ask: Callable[[], object]) -> Refused | None:
    """What the server says against it."""
    try:
        ask()
    except Refused as refusal:
        if refusal.status not in (400, 422):
            raise
        return refusal
    return None


def causes(refusal: Refused) -> list[tuple[str, str]]:
    """The fields that the server complains of, and its messages."""
    status = json.loads(refusal.body)
    return [(cause["field"], cause["message"]) for cause in status["details"]["causes"]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_server_refuses_it_names_the_field_and_takes_what_the_remedy_says(
    server: Server, case: Case
) -> None:
    bad, good = case.resources()
    if case.before is None:
        expect_refusal(case, lambda: server.create(bad))
        server.create(good)
        return
    with server.kept({**bad, "spec": case.before}) as kept:
        expect_refusal(case, lambda: server.change(kept, case.refused))
        server.change(kept, case.mended)


def expect_refusal(case: Case, ask: Callable[[], object]) -> None:
    refusal = refused(ask)
    assert refusal is not None
    assert refusal.status == 422
    [(field, message)] = causes(refusal)
    assert field == case.field
    # What is wrong, and then what to do about it.
    rules = [placed.rule for placed in every_rule() if case.breaks(placed)]
    assert [rule.message in message and message.endswith(rule.remedy) for rule in rules] == [True]


FULL = [
    service(),
    service("gateway", deliverer={"mode": "Gateway", "resources": {"requests": {"cpu": 1}}}),
    destination(retry={"attempts": 1}, tls={"caSecretRef": {"name": "ca"}}),
    alert_filter(),
    subscription(),
    *[case.resources()[1] for case in CASES],
]


def test_the_server_fills_in_the_defaults_that_we_fill_in(server: Server) -> None:
    for resource in FULL:
        ours = check(
            schema(resource["kind"]).spec,
            resource.get("spec", {}),
            ("spec",),
            Complaints(lambda *complaint: pytest.fail(str(complaint))),
        )
        assert server.create(resource)["spec"] == ours


def test_a_service_needs_no_spec(server: Server) -> None:
    assert server.create(document("IndicationService", "default"))["spec"]["deliverer"] == {
        "mode": "Sidecar",
        "injectSparkDriver": False,
        "onMissedInjection": "Report",
        "replicas": 1,
        "resources": {},
        "storage": {},
    }


@pytest.mark.parametrize("where", [(), ("retry",)])
def test_an_unknown_field_is_refused_or_left_out_with_a_warning(
    server: Server, kubectl: Kubectl, where: tuple[str, ...]
) -> None:
    resource = destination(retry={})
    node = resource["spec"]
    for step in where:
        node = node[step]
    node["atempts"] = 5
    with pytest.raises(Refused, match="unknown field"):
        server.create(resource)
    assert "atempts" not in json.dumps(server.create(resource, validation="Warn")["spec"])
    options = ("--validate=warn", "--warnings-as-errors", "--dry-run=server")
    path = ".".join(("spec", *where, "atempts"))
    with pytest.raises(KubectlFailed, match=f'unknown field "{path}"'):
        kubectl.apply(json.dumps(resource), *options)


def test_a_set_holds_nothing_twice_and_what_is_atomic_may(server: Server) -> None:
    with pytest.raises(Refused, match="Duplicate value"):
        server.create(alert_filter(sourceNamespaces=["root", "root"]))
    exists = {"key": "app", "operator": "Exists"}
    selector = {"podSelector": {"matchExpressions": [exists, exists]}}
    server.create(service(deliverer=selector))


def test_two_managers_share_a_set_and_the_conditions(kubectl: Kubectl) -> None:
    for manager, root in (("one", "root/a"), ("two", "root/b")):
        condition = {
            "type": manager.capitalize(),
            "status": "True",
            "reason": "Tried",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        options = ("--server-side", f"--field-manager={manager}")
        kubectl.apply(json.dumps(alert_filter(sourceNamespaces=[root])), *options)
        status = {**alert_filter(), "status": {"conditions": [condition]}}
        del status["spec"]
        kubectl.apply(json.dumps(status), *options, "--subresource=status")
    found = kubectl.json("get", "indicationfilter/alerts")
    assert sorted(found["spec"]["sourceNamespaces"]) == ["root/a", "root/b"]
    assert sorted(c["type"] for c in found["status"]["conditions"]) == ["One", "Two"]


def test_the_server_has_nothing_to_say_against_the_definitions(admin_kubectl: Kubectl) -> None:
    names = [f"crd/{kind.plural}.pillion.dev" for kind in KINDS]
    for definition in admin_kubectl.json("get", *names)["items"]:
        said = {c["type"]: c["status"] for c in definition["status"]["conditions"]}
        assert said == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_any_object_gets_the_same_verdict_from_us_and_from_the_server(
    server: Server, kind: Kind
) -> None:
    good = [resource.get("spec", {}) for resource in FULL if resource["kind"] == kind.name]

    @settings(
        max_examples=RANDOM,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(nearly(kind.spec, good))
    def agree(spec: Any) -> None:
        resource = document(kind.name, "random", spec)
        ours = parse_documents([Document("random.yaml", resource)]).problems
        refusal = refused(lambda: server.create(resource))
        assert (refusal is None) == (ours == []), (refusal, ours)

    agree()


BLOCKS: list[JSON] = [
    {"podSelector": {"matchLabels": {"app": "web"}}},
    {"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}},
    {"resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}}, "image": "pillion:1"},
    {"mode": "Gateway", "storage": {"sizeLimit": "1Gi", "storageClassName": "fast"}},
]


def test_what_a_deliverer_is_made_of_is_what_kubernetes_takes(server: Server) -> None:
    block_type = DELIVERER
    assert isinstance(block_type, Struct)

    # Otherwise a good service would make the pods that it selects impossible.
    @settings(
        max_examples=RANDOM,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(nearly(block_type, BLOCKS))
    def taken(block: Any) -> None:
        resources = parse_documents([Document("x.yaml", service(deliverer=block))])
        assume(resources.problems == [])
        parsed = build_service(resources.by_kind["IndicationService"]["default"]).deliverer
        server.create_of_kubernetes("/api/v1/namespaces/default/pods", pod(parsed))
        if parsed.pod_selector is not None:
            path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
            server.create_of_kubernetes(path, budget(parsed.pod_selector))
        if parsed.storage.size_limit is not None:
            path = "/api/v1/namespaces/default/persistentvolumeclaims"
            server.create_of_kubernetes(path, claim(parsed.storage))

    taken()


def pod(deliverer: DelivererSpec) -> JSON:
    limit = deliverer.storage.size_limit
    volume: JSON = {"name": "v", "emptyDir": {} if limit is None else {"sizeLimit": limit}}
    container = {
        "name": "c",
        "image": deliverer.image or "pillion",
        "resources": deliverer.resources,
    }
    spec = {"containers": [container], "volumes": [volume]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


def budget(selector: Mapping[str, Any]) -> JSON:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "x"},
        "spec": {"selector": selector, "minAvailable": 1},
    }


def claim(storage: StorageSpec) -> JSON:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size_limit}},
        "storageClassName": storage.storage_class_name,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "x"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("ftp://one.example.org", "'ftp://one.example.org' does not begin with http"),
        ("https://me:planted@one.example.org", 'value: "string": holds a user name or password'),
        ("https://one.example.org/a b", "'https://one.example.org/a b' holds a character that no"),
        ("https://one.example.org/a\nb", 'value: "string": holds a character that no URL may hold'),
    ],
)
def test_a_refusal_shows_the_value_but_no_password(server: Server, url: str, told: str) -> None:
    refusal = refused(lambda: server.create(destination(destination=url)))
    assert refusal is not None
    message = json.loads(refusal.body)["message"]
    assert told in message
    assert "planted" not in message
