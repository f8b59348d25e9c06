"""What is secret stays in Secrets: no log, Event, status, metric or command line shows it."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from cluster.convergence import World
from cluster.deliverer_pod import DelivererPod
from cluster.kubelet import Kubelet
from cluster.operators import OperatorProcess, Operators
from cluster.scenes import injecting, publish, queue, serving
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until
from support.cluster_resources import credentials, destination, filter_, pod, service, subscription
from support.processes import listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

TELEMETRY = 8289
BEARER, PASSWORD, UNUSABLE = "planted-bearer", "planted-password", "planted and unusable"
#: Of a URL: its path, and the host of another, which nobody knows.
HOOK, HOST = "planted-hook", "planted-host"
#: Of each destination, what keeps its listener from being content.
DESTINATIONS: dict[str, dict[str, Any]] = {
    "bearer": {"credentials": {"bearer": {"secretRef": {"name": "bearer"}}}},
    "basic": {"credentials": {"basic": {"secretRef": {"name": "basic"}}}},
    "certificate": {"tls": {"clientCertificateSecretRef": {"name": "certificate"}}},
    "hook": {"destinationFrom": {"secretKeyRef": {"name": "hook"}}},
    "nobody": {"destinationFrom": {"secretKeyRef": {"name": "hook", "key": "nobody"}}},
}
#: Destinations whose Secrets cannot be used.
UNUSED: dict[str, dict[str, Any]] = {
    "unusable": {"credentials": {"bearer": {"secretRef": {"name": "unusable"}}}},
    "mismatch": {"tls": {"clientCertificateSecretRef": {"name": "mismatch"}}},
    "no-url": {"destinationFrom": {"secretKeyRef": {"name": "bearer", "key": "token"}}},
}


def resources(url: str, control_plane: ControlPlane) -> Iterator[dict[str, Any]]:
    key = (control_plane.folder / "server.key").read_text()
    certificates = {name: control_plane.folder / f"{name}.crt" for name in ("server", "ca")}
    yield service(deliveryRetryAttempts=1000)
    yield filter_()
    yield credentials("bearer", token=BEARER)
    yield credentials("basic", username="planted-user", password=PASSWORD)
    yield credentials("unusable", token=UNUSABLE)
    yield credentials("hook", url=f"{url}{HOOK}", nobody=f"http://{HOST}.invalid/")
    for name, certificate in (("certificate", "server"), ("mismatch", "ca")):
        pair = {"tls.crt": certificates[certificate].read_text(), "tls.key": key}
        yield {**credentials(name, permitted=True, **pair), "type": "kubernetes.io/tls"}
    yield from destinations(url, DESTINATIONS)


def destinations(url: str, specs: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for name, spec in specs.items():
        secure = url.replace("http:", "https:") if "tls" in spec else url
        made = destination(secure, name=name, **spec)
        if "destinationFrom" in spec:
            del made["spec"]["destination"]
        yield made
        yield subscription(f"to-{name}", to=name)


def secrets(kubectl: Kubectl, operator: OperatorProcess) -> set[bytes]:
    """All that is secret, as it is, and as the API server has it."""
    found = {one.encode() for one in (BEARER, PASSWORD, UNUSABLE, HOOK, HOST)}
    found.add(base64.b64encode(f"planted-user:{PASSWORD}".encode()))
    own = kubectl.json("get", "secrets", f"--namespace={operator.namespace}")["items"]
    rendered = kubectl.json("get", "secret", "pillion-default-0")["data"]["operator-token"]
    certificate = kubectl.json("get", "secret", "certificate")["data"]["tls.key"]
    values = [rendered, certificate, *(data for one in own for data in one["data"].values())]
    for value in values:
        decoded = base64.b64decode(value)
        if b"-----BEGIN CERTIFICATE" in decoded:
            continue
        if b"-----BEGIN" in decoded:
            # A line from the middle of the key is enough.
            found.add(decoded.splitlines()[2][:40])
            found.add(value[100:140].encode())
        else:
            found |= {decoded, value.encode()}
    return found


def shown(
    kubectl: Kubectl, operator: OperatorProcess, deliverer: DelivererPod
) -> Iterator[tuple[str, bytes]]:
    """Whatever somebody may read who may not read Secrets."""
    yield "the operator's log", operator.running.log.read_bytes()
    yield "the deliverer's log", deliverer.log.read_bytes()
    kinds = "indsvc,ldest,indfilter,indsub,pods,events.events.k8s.io,configmaps,leases"
    for namespace in (kubectl.namespace, operator.namespace):
        listed = kubectl.json("get", kinds, f"--namespace={namespace}")
        yield f"the objects of {namespace}", json.dumps(listed).encode()
    webhook = f"pillion-{operator.namespace}"
    yield (
        "the webhook",
        kubectl.run("get", "mutatingwebhookconfiguration", webhook, "-ojson").encode(),
    )
    yield "the operator's metrics", operator.read("/metrics").encode()
    yield "the deliverer's metrics", asked(deliverer, "/metrics")[1]
    for name, pid in (("operator", operator.running.pid), ("deliverer", deliverer.pid)):
        for file in ("cmdline", "environ"):
            yield f"the {name}'s {file}", Path(f"/proc/{pid}/{file}").read_bytes()


def asked(deliverer: DelivererPod, path: str, *, token: str | None = None) -> tuple[int, bytes]:
    """What a deliverer answers on its pod's address: status and body."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(deliverer.url(TELEMETRY) + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_no_secret_is_shown_anywhere(
    world: World,
    operators: Operators,
    control_plane: ControlPlane,
    admin_kubectl: Kubectl,
    kubectl: Kubectl,
    kubelet: Kubelet,
    tmp_path: Path,
) -> None:
    operator = operators.start("--log-level", "DEBUG")
    injecting(operator, admin_kubectl, namespace=world.namespace)
    with listener_process(tmp_path, "--status", "401") as listener:
        world.apply(*resources(listener.url, control_plane), pod())
        deliverer = kubelet.ready("publisher")
        url = serving(world, deliverer)
        publish(url, ack="accepted")
        for name in DESTINATIONS:
            wait_until(
                lambda name=name: queue(url, name)["attemptsByResult"],  # type: ignore[misc]
                within=30,
                what=f"an attempt at {name}",
            )
        for name in DESTINATIONS:
            world.becomes("ListenerDestination", name, "ListenerUnreachable", "True")
        world.apply(*destinations(listener.url, UNUSED))
        for name in UNUSED:
            world.becomes("ListenerDestination", name, "Accepted", "False", "CredentialsUnusable")
        hidden = secrets(kubectl, operator)
        assert len(hidden) >= 12
        assert any(record.get("level") == "DEBUG" for record in operator.records())
        for place, text in shown(kubectl, operator, deliverer):
            for secret in hidden:
                assert secret not in text, (place, secret)


def test_a_deliverer_shows_its_queues_to_the_bearer_of_the_operators_token_alone(
    world: World,
    operators: Operators,
    admin_kubectl: Kubectl,
    kubectl: Kubectl,
    kubelet: Kubelet,
) -> None:
    operator = operators.start()
    injecting(operator, admin_kubectl, namespace=world.namespace)
    world.apply(service(), pod())
    deliverer = kubelet.ready("publisher")
    world.becomes("IndicationService", "default", "Ready", "True", "InForce")
    data = kubectl.json("get", "secret", "pillion-default-0")["data"]
    token = base64.b64decode(data["operator-token"]).decode()
    assert asked(deliverer, "/v1/queues", token=token)[0] == HTTPStatus.OK
    for wrong in (None, "", token[:-1], f"{token}0"):
        assert asked(deliverer, "/v1/queues", token=wrong)[0] == HTTPStatus.UNAUTHORIZED
    for path in ("/v1/queues/operations", "/v1/indications", "/drain"):
        assert asked(deliverer, path, token=token)[0] == HTTPStatus.NOT_FOUND
