"""Safe by default, on a node: what pods may do, who gets through a gateway's door, what is reached
from elsewhere, what policies let through, and what the operator may do. See test_secrets, too."""

import base64
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cluster.policies import Endpoint, lets_in
from cluster.security import (
    ABLE,
    OTHER,
    PILLION,
    Answer,
    Client,
    able,
    accepted,
    applied,
    client_pod,
    containers_of,
    gateway_ca,
    guarded_namespace,
    publishing,
    starts,
    tokens_of,
    until_injecting,
    until_status,
    weaknesses,
)
from cluster.story import SYSTEM, Installation, listener_objects
from cluster.story_fixtures import in_namespace
from pillion_operator.names import REVISION_ANNOTATION
from pillion_testbed.helm import only
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, service, subscription

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

SIDECARS = "networkPolicy.deliverers.sidecars=SparkExecutors"
OPERATOR = f"system:serviceaccount:{SYSTEM}:pillion-operator"
#: The container of a deliverer.
SIDE = "pillion-deliverer"
#: As the chart says who the operator's pods are.
COMPONENT = {"app.kubernetes.io/component": "operator"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A namespace with a gateway, ``hub``, a listener and a publisher with a sidecar; and another
    one, ``lab``, with a publisher that has none."""

    plant: Kubectl
    lab: Kubectl
    publisher: Client
    stranger: Client
    ca: str

    @property
    def door(self) -> str:
        return f"https://pillion-hub.{self.plant.namespace}.svc:8288"

    def asking(self, path: str, **also: Any) -> dict[str, Any]:
        """A request to the gateway with a good token."""
        return {"url": self.door + path, "ca": self.ca, "token_file": PILLION, **also}

    def publishing(self, query: str = "source=test", **also: Any) -> dict[str, Any]:
        """A request that publishes at the gateway with a good token."""
        return publishing(self.door, query=query, **{"ca": self.ca, "token_file": PILLION, **also})

    def let(self, *publishers: dict[str, str]) -> None:
        """Say who may publish; nobody: who may by default."""
        patch = {"spec": {"publishers": list(publishers) or None}}
        patched = ("patch", "indicationservice", "hub", "--type=merge", "-p", json.dumps(patch))
        self.plant.run(*patched)


def resources(namespace: str) -> list[dict[str, Any]]:
    """A sidecar's service, a gateway, and a listener that is there and one that is not."""
    return [
        service(gatewayRef={"name": "hub"}, deliveryRetryAttempts=1000),
        service("hub", deliverer={"mode": "Gateway"}, deliveryRetryAttempts=1000),
        filter_(),
        destination(f"http://board.{namespace}.svc:8080/", name="board"),
        destination(f"http://board.{namespace}.svc:9/", name="dead", deliverThrough="Gateway"),
        subscription("to-board", to="board"),
        subscription("to-dead", to="dead"),
        subscription("hub-to-dead", to="dead", by="hub"),
    ]


@pytest.fixture(scope="module")
def plant(pillion: Installation, deliverer_image: str, report: Report) -> Iterator[Plant]:
    names = [f"{name}-{uuid.uuid4().hex[:6]}" for name in ("plant", "lab")]
    home, lab = (in_namespace(pillion.kubectl, name) for name in names)
    modes = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("audit", "warn")]
    pillion.kubectl.run("label", "namespace", SYSTEM, *modes)
    with report.step("install with a policy for executors' sidecars"):
        pillion.install(SIDECARS)
        until_injecting(pillion.kubectl)
    for name in names:
        pillion.kubectl.apply(json.dumps(guarded_namespace(name)))
        pillion.kubectl.wait("serviceaccount/default", "--for=create", f"--namespace={name}")
    lab.run("create", "serviceaccount", "spark")
    board = listener_objects(
        "board",
        image=deliverer_image,
        command=("listen", "--address", "0.0.0.0", "--port", "8080"),
        ports={8080: 8080},
        probe={"httpGet": {"path": "/-/summary", "port": 8080}},
    )
    with report.step("a gateway, a publisher with a sidecar, and one of another namespace"):
        applied(home, *board, *resources(names[0]))
        accepted(home, "default", "hub")
        publisher = client_pod("publisher", image=deliverer_image, **{"pillion.dev/inject": "true"})
        applied(home, publisher)
        applied(lab, client_pod("stranger", image=deliverer_image, account="spark"))
        made = Plant(
            plant=home,
            lab=lab,
            publisher=Client(kubectl=home, pod="publisher"),
            stranger=Client(kubectl=lab, pod="stranger"),
            ca=gateway_ca(home, "hub"),
        )
        until_status(made.publisher, 200, made.publishing())
    yield made
    for name in names:
        pillion.kubectl.run("delete", "namespace", name, "--wait=false")
    pillion.install()


# ---------------------------------------------------------------------- what pods may do


def pods(kubectl: Kubectl, *namespaces: str | None) -> list[Any]:
    """The pods of namespaces."""
    found = []
    for name in namespaces:
        found += kubectl.json("get", "pods", f"--namespace={name}")["items"]
    return found


def test_every_container_may_do_as_little_as_it_can(plant: Plant, pillion: Installation) -> None:
    listed = pods(pillion.kubectl, SYSTEM, plant.plant.namespace, plant.lab.namespace)
    assert len(listed) == 5, [one["metadata"]["name"] for one in listed]
    for pod in listed:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        assert weaknesses(pod) == [], name
        for container in containers_of(pod):
            there = in_namespace(pillion.kubectl, namespace)
            wanted = ABLE | {"api": namespace == SYSTEM}
            assert able(there, name, container["name"]) == wanted, (name, container["name"])


def test_no_pod_has_a_token_that_it_does_not_need(plant: Plant, pillion: Installation) -> None:
    listed = pods(pillion.kubectl, SYSTEM, plant.plant.namespace)
    found = {pod["metadata"]["name"]: list(tokens_of(pod)) for pod in listed}
    operator = [name for name in found if name.startswith("pillion-operator")]
    assert len(operator) == 1
    # The client's own two are its test's.
    assert dict(found["publisher"])["pillion-token"] == "pillion"
    assert len(found["publisher"]) == 3
    assert found["pillion-hub-0"] == []
    for name, tokens in found.items():
        audiences = {audience for _volume, audience in tokens}
        assert (None in audiences) == (name in operator), name


def test_the_environment_of_a_gateway_tells_of_no_other_service(plant: Plant) -> None:
    pod = plant.plant.json("get", "pod", "pillion-hub-0")
    assert pod["spec"]["enableServiceLinks"] is False
    gateway = Client(kubectl=plant.plant, pod="pillion-hub-0", container=SIDE)
    names = json.loads(gateway.python("import json, os; print(json.dumps(list(os.environ)))"))
    assert [name for name in names if "BOARD" in name or "HUB" in name] == []


def test_the_api_server_warns_of_nothing_that_is_made(plant: Plant, pillion: Installation) -> None:
    """Of what the chart makes, what the operator makes, and the pod of ``helm test``."""
    trial = ("--server-side", "--dry-run=server", "--force-conflicts", "--warnings-as-errors")
    repository, _, tag = pillion.image.rpartition(":")
    values = (f"image.repository={repository}", f"image.tag={tag}")
    made = pillion.helm.template(*values, namespace=SYSTEM, tests=True)
    test = only(made, "Pod")
    # Its account is not there yet, and would be asked for first.
    test["spec"]["serviceAccountName"] = "default"
    deployment = only(made, "Deployment")
    for body in (test, deployment):
        # Another one, since a trial over what is there would keep what others have said of it.
        body["metadata"]["name"] = "trial"
    pillion.kubectl.apply(json.dumps(deployment), *trial, f"--namespace={SYSTEM}")
    pillion.kubectl.apply(json.dumps(test), *trial, f"--namespace={SYSTEM}")
    stateful = plant.plant.json("get", "statefulset", "pillion-hub")
    slim = {key: stateful[key] for key in ("apiVersion", "kind", "spec")}
    plant.plant.apply(json.dumps({**slim, "metadata": {"name": "trial"}}), *trial)

    # It would, of a pod that is not so strict.
    test["spec"]["containers"][0]["securityContext"] = {}
    with pytest.raises(KubectlFailed, match="violates PodSecurity"):
        pillion.kubectl.apply(json.dumps(test), *trial, f"--namespace={SYSTEM}")
    deployment["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {}
    with pytest.raises(KubectlFailed, match="would violate PodSecurity"):
        pillion.kubectl.apply(json.dumps(deployment), *trial, f"--namespace={SYSTEM}")


# ---------------------------------------------------------------------- the gateway's door


def refused(answer: Answer, status: int, *words: str) -> None:
    assert answer.status == status
    for word in words:
        assert word in answer.json["reason"]
    challenge = answer.headers.get("WWW-Authenticate", "")
    assert challenge.startswith("Bearer ") == (status == 401)


def test_whoever_has_no_good_token_is_told_so(plant: Plant) -> None:
    nothing, other, rubbish, unsigned = plant.publisher.send(
        publishing(plant.door, ca=plant.ca),
        plant.publishing(token_file=OTHER),
        publishing(plant.door, ca=plant.ca, headers={"Authorization": "Bearer rubbish"}),
        plant.asking("/v1/faults?publisher=a", token_file=OTHER),
    )
    refused(nothing, 401, "there is no token")
    refused(other, 401, "not for the audience pillion")
    refused(rubbish, 401, "not a JSON Web Token")
    refused(unsigned, 401, "audience")


def test_the_door_is_https_alone_and_its_certificate_is_verified(plant: Plant) -> None:
    plain, system = plant.publisher.send(
        publishing(plant.door.replace("https", "http")),
        {"url": plant.door, "ca": "", "token_file": PILLION},
    )
    assert plain.status is None
    assert system.status is None


def test_another_namespace_comes_in_once_it_is_named(plant: Plant, report: Report) -> None:
    before = starts(plant.plant, "pillion-hub-0")
    (answer,) = plant.stranger.send(plant.publishing())
    account = f"system:serviceaccount:{plant.lab.namespace}:spark"
    refused(answer, 403, account, "publishers")

    own = {"namespace": str(plant.plant.namespace)}
    named = {"namespace": str(plant.lab.namespace), "serviceAccount": "spark"}
    began = time.monotonic()
    plant.let(own, named)
    until_status(plant.stranger, 200, plant.publishing())
    report.figure("publishers names another namespace, until it comes in", since(began))

    # The account that is named, and no other of its namespace.
    other = plant.lab.run("create", "token", "default", "--audience=pillion").strip()
    bearer = {"Authorization": f"Bearer {other}"}
    by_default = publishing(plant.door, ca=plant.ca, headers=bearer)
    relaying = plant.asking("/v1/relay?ack=durable", method="POST", body="{}")
    statuses = plant.stranger.statuses(by_default, relaying)
    assert statuses == [403, 403]
    assert plant.publisher.statuses(plant.publishing()) == [200]
    assert starts(plant.plant, "pillion-hub-0") == before

    plant.let()
    until_status(plant.stranger, 403, plant.publishing())
    assert starts(plant.plant, "pillion-hub-0") == before


def test_nobody_reads_what_another_namespace_has_published(plant: Plant) -> None:
    own = {"namespace": str(plant.plant.namespace)}
    plant.let(own, {"namespace": str(plant.lab.namespace)})
    until_status(plant.stranger, 200, plant.publishing())
    job = {"headers": {"Pillion-Publisher": "job"}}
    (answer,) = plant.publisher.send(plant.publishing("source=own&ack=delivered&timeout=0", **job))
    assert answer.status == 202
    asked = (
        plant.asking(f"/v1/receipts/{answer.json['receipt']}?timeout=0"),
        plant.asking("/v1/faults?publisher=job"),
        plant.asking("/v1/flush?publisher=job&timeout=0", method="POST", body=""),
    )
    # Its list of faults is its own, which is empty.
    assert plant.stranger.statuses(*asked) == [404, 200, 404]
    # Its own is answered, if only that it still waits.
    assert plant.publisher.statuses(*asked[:2]) == [202, 200]
    # Queues are the operator's: they are not at the door at all.
    queues = [plant.asking("/v1/queues"), plant.asking("/drain", method="POST", body="")]
    assert plant.stranger.statuses(*queues) == [404, 404]
    assert plant.publisher.statuses(*queues) == [404, 404]
    plant.let()


def test_a_token_is_good_until_it_expires_though_its_account_is_gone(plant: Plant) -> None:
    """Gateways ask nobody, so they do not learn of it: SECURITY.md says so."""
    plant.plant.run("create", "serviceaccount", "passing")
    made = plant.plant.run("create", "token", "passing", "--audience=pillion").strip()
    plant.plant.run("delete", "serviceaccount", "passing")
    headers = {"Authorization": f"Bearer {made}"}
    asked = publishing(plant.door, ca=plant.ca, headers=headers)
    assert plant.publisher.statuses(asked) == [200]


# ---------------------------------------------------------------------- a sidecar from elsewhere


def test_a_sidecar_takes_nothing_from_outside_of_its_pod(plant: Plant) -> None:
    address = plant.plant.json("get", "pod", "publisher")["status"]["podIP"]
    intake, telemetry = f"http://{address}:8288", f"http://{address}:8289"
    data = plant.plant.json("get", "secret", "pillion-default-0")["data"]["operator-token"]
    bearer = {"Authorization": f"Bearer {base64.b64decode(data).decode()}"}
    for client in (
        plant.stranger,
        Client(kubectl=plant.plant, pod="pillion-hub-0", container=SIDE),
    ):
        for answer in client.send(publishing(intake), {"url": f"{intake}/v1/queues"}):
            assert answer.status is None
            assert "refused" in answer.body
        paths = ("/metrics", "/livez", "/readyz", "/startupz")
        assert client.statuses(*({"url": telemetry + path} for path in paths)) == [200] * 4
        queues = {"url": f"{telemetry}/v1/queues"}
        wrong = {"Authorization": "Bearer wrong"}
        assert client.statuses(queues, {**queues, "headers": wrong}) == [401, 401]
        other = [
            publishing(telemetry),
            {"url": f"{telemetry}/drain", "method": "POST", "body": ""},
            {"url": f"{telemetry}/v1/queues/board"},
            {"url": f"{telemetry}/v1/queues/board/purge", "method": "POST", "body": ""},
            {"url": f"{telemetry}/v1/receipts/a"},
        ]
        assert set(client.statuses(*other)) <= {404, 405}
        # It is there for the operator.
        assert client.statuses({**queues, "headers": bearer}) == [200]
    assert plant.publisher.statuses(publishing("http://127.0.0.1:8288")) == [200]


def test_the_administration_of_a_gateway_is_its_pods_own(plant: Plant) -> None:
    address = plant.plant.json("get", "pod", "pillion-hub-0")["status"]["podIP"]
    for client in (plant.stranger, plant.publisher):
        answer = client.get(f"http://{address}:8290/v1/queues")
        assert answer.status is None
        assert "refused" in answer.body


# ---------------------------------------------------------------------- policies


def policies(kubectl: Kubectl) -> list[Any]:
    found: list[Any] = kubectl.json("get", "networkpolicies", "--all-namespaces")["items"]
    return found


def executor_policy(namespace: str) -> Any:
    """As Spark closes its executors: to all but the pods of their own application."""
    application = {"matchLabels": {"spark-app-selector": "spark-1"}}
    executors = {"matchLabels": {"spark-app-selector": "spark-1", "spark-role": "executor"}}
    return {
        "metadata": {"name": "spark", "namespace": namespace},
        "spec": {
            "podSelector": executors,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": application}]}],
        },
    }


def test_policies_say_who_reaches_a_gateway(plant: Plant) -> None:
    home, lab = str(plant.plant.namespace), str(plant.lab.namespace)
    gateway = Endpoint.of(plant.plant.json("get", "pod", "pillion-hub-0"))
    own, stranger = Endpoint(namespace=home, labels={}), Endpoint(namespace=lab, labels={})
    prometheus = Endpoint(namespace="monitoring", labels={"app": "prometheus"})

    def reaching(port: int) -> list[bool]:
        shipped = policies(plant.plant)
        found = (own, stranger, prometheus)
        return [lets_in(shipped, source=one, to=gateway, port=port) for one in found]

    wait_until(lambda: reaching(8288) == [True, False, False], within=30, what="its own alone")
    assert reaching(8289) == [True, True, True]
    assert reaching(8290) == reaching(22) == [False, False, False]
    plant.let({"namespace": home}, {"namespace": lab, "serviceAccount": "spark"})
    wait_until(lambda: reaching(8288) == [True, True, False], within=30, what="lab is let in")
    plant.let()
    wait_until(lambda: reaching(8288) == [True, False, False], within=30, what="and no more")


def test_policies_say_who_reaches_the_operator(plant: Plant, pillion: Installation) -> None:
    (pod,) = pods(pillion.kubectl, SYSTEM)
    assert pod["metadata"]["labels"].items() >= COMPONENT.items()
    operator = Endpoint.of(pod)
    anybody = Endpoint(namespace="anywhere", labels={})
    shipped = policies(pillion.kubectl)
    open_ports = [
        port
        for port in (22, 8080, 8081, 8288, 8289, 9443)
        if lets_in(shipped, source=anybody, to=operator, port=port)
    ]
    assert open_ports == [8081, 9443]


def test_metrics_of_executors_are_reached_though_spark_closes_them(plant: Plant) -> None:
    home = str(plant.plant.namespace)
    labels = {"spark-app-selector": "spark-1", "spark-role": "executor"}
    executor = Endpoint(namespace=home, labels={**labels, "pillion.dev/deliverer": "default"})
    driver = Endpoint(namespace=home, labels={**labels, "spark-role": "driver"})
    prometheus = Endpoint(namespace="monitoring", labels={})
    spark = executor_policy(home)
    shipped = policies(plant.plant)

    def let(given: list[Any], source: Endpoint, port: int) -> bool:
        return lets_in(given, source=source, to=executor, port=port)

    assert not let([spark], prometheus, 8289)
    both = [*shipped, spark]
    assert let(both, prometheus, 8289)
    assert [let(both, prometheus, port) for port in (8288, 7079)] == [False, False]
    assert let(both, driver, 7079)
    # Other pods with a sidecar are as open as they were.
    plain = Endpoint.of(plant.plant.json("get", "pod", "publisher"))
    assert plain.labels["pillion.dev/deliverer"] == "default"
    assert lets_in(shipped, source=prometheus, to=plain, port=80)


# ---------------------------------------------------------------------- the operator's rights


#: What every service account may do besides: ask what it may do, and how the API server is.
USUAL = {"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"}
MADE = frozenset({"list", "watch", "create", "patch"})
READ = frozenset({"list", "watch"})
#: The one object of the whole cluster that it writes to.
WEBHOOKS = (
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
)
INJECTOR, WEBHOOK = "pillion-injector", {"get", "patch"}
OURS = ("indicationfilters", "indicationservices", "indicationsubscriptions")
SERVED = {
    **{f"{kind}.pillion.dev": READ for kind in OURS},
    **{f"{kind}.pillion.dev/status": frozenset({"patch"}) for kind in OURS},
    "indicationreplays.pillion.dev": READ | {"delete"},
    "indicationreplays.pillion.dev/status": frozenset({"patch"}),
    "listenerdestinations.pillion.dev": READ | {"patch"},
    "listenerdestinations.pillion.dev/status": frozenset({"patch"}),
    "secrets": MADE | {"delete"},
    "configmaps": MADE,
    "services": MADE,
    "serviceaccounts": MADE,
    "pods": READ | {"patch"},
    "pods/eviction": frozenset({"create"}),
    "statefulsets.apps": MADE,
    "poddisruptionbudgets.policy": MADE,
    "networkpolicies.networking.k8s.io": MADE | {"delete"},
    "events.events.k8s.io": frozenset({"create"}),
}


def rights(kubectl: Kubectl, namespace: str) -> dict[str, set[str]]:
    """What the operator may do in a namespace, as ``kubectl auth can-i --list`` has it; names in
    brackets where it is of named objects alone."""
    listing = ("auth", "can-i", "--list", f"--as={OPERATOR}", f"--namespace={namespace}")
    found: dict[str, set[str]] = {}
    for line in kubectl.run(*listing, "--no-headers").splitlines():
        what, _, rest = line.partition(" ")
        if not what or what.partition(".")[0] in USUAL:
            continue
        _urls, names, verbs = (part.strip("[]") for part in bracketed(rest))
        key = f"{what}[{names}]" if names else what
        found.setdefault(key, set()).update(verbs.split())
    return found


def bracketed(text: str) -> list[str]:
    """The three lists of a line."""
    parts = [part.strip() for part in text.split("]")]
    return [f"{part}]" for part in parts if part]


def test_the_operator_may_do_what_it_needs_and_nothing_else(
    plant: Plant, pillion: Installation
) -> None:
    injectors = {f"{kind}[{INJECTOR}]": WEBHOOK for kind in WEBHOOKS}
    assert rights(pillion.kubectl, str(plant.plant.namespace)) == SERVED | injectors


def test_the_operator_may_change_one_annotation_of_a_pod(plant: Plant) -> None:
    def patched(**metadata: Any) -> str:
        # By server-side apply: for any other patch kubectl reads the pod first, which the operator
        # may not. And on a pod that no kubectl has made: it would take its own annotation off.
        named = {"name": "pillion-hub-0", **metadata}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": named}
        asked = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
        return plant.plant.run(*asked, f"--as={OPERATOR}", input=json.dumps(pod))

    assert "serverside-applied" in patched(annotations={REVISION_ANNOTATION: "planted"})
    with pytest.raises(KubectlFailed, match="may change only the annotation"):
        patched(annotations={"example.com/other": "planted"})
    with pytest.raises(KubectlFailed, match="labels, finalizers or owners"):
        patched(labels={"app": "other"})


def test_an_operator_with_a_scope_has_no_rights_elsewhere(
    plant: Plant, pillion: Installation, report: Report
) -> None:
    home, lab = str(plant.plant.namespace), str(plant.lab.namespace)
    with report.step("install for one namespace alone"):
        pillion.install(SIDECARS, f'scope.namespaces=["{home}"]')
    scoped = INJECTOR.replace("pillion", f"pillion-{SYSTEM}")
    injectors = {f"{kind}[{scoped}]": WEBHOOK for kind in WEBHOOKS}
    assert rights(pillion.kubectl, lab) == injectors
    assert rights(pillion.kubectl, home) == SERVED | injectors
    with pytest.raises(KubectlFailed, match="cannot list resource"):
        plant.lab.run("get", "secrets", f"--as={OPERATOR}")
    # And it goes on with what it serves.
    plant.let({"namespace": home})
    plant.plant.wait("indicationservice/hub", "--for=condition=Ready", within=60)


def since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
