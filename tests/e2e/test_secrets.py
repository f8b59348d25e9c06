"""Credentials on a node: they are found nowhere but where they belong, listeners are verified, and
whatever is rotated is in force without a restart. See test_security, too."""

import base64
import hashlib
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import trustme

from cluster.planted import Planted, findings, forms, holders, readable, secret_line
from cluster.security import (
    CONTROL_PORT,
    LISTENER_PORT,
    PILLION,
    Client,
    accepted,
    applied,
    client_pod,
    digest_of,
    echoing,
    fingerprint,
    gateway_ca,
    guarded_namespace,
    publishing,
    python_container,
    secret,
    starts,
    until_injecting,
    until_status,
)
from cluster.story import SYSTEM, Installation, proxied
from cluster.story_fixtures import in_namespace
from pillion_operator.names import CONTAINER
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, service, subscription

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

GATEWAY = "pillion-hub-0"
INTAKE = "http://127.0.0.1:8288"
WITHIN = 120.0
#: Of each destination: the protocol, the path, which has the listener behave, and the rest.
FAILING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bearer-401": ("CloudEvents", "/401/", {"credentials": "bearer"}),
    "bearer-cim-401": ("CIM-XML", "/401/", {"credentials": "bearer"}),
    "bearer-302": ("CIM-XML", "/302/", {"credentials": "bearer"}),
    "bearer-500": ("CloudEvents", "/500/", {"credentials": "bearer"}),
    "bearer-garbage": ("CloudEvents", "/garbage/", {"credentials": "bearer"}),
    "basic-403": ("CIM-XML", "/403/", {"credentials": "basic"}),
    "basic-cim": ("CIM-XML", "/cim/", {"credentials": "basic"}),
    "basic-relayed": ("CIM-XML", "/503/", {"credentials": "basic", "deliverThrough": "Gateway"}),
    "unusable": ("CloudEvents", "/401/", {"credentials": "unusable"}),
    "client": ("CloudEvents", "/taken/client", {"certificate": "client-tls"}),
    "bad-key": ("CloudEvents", "/taken/bad-key", {"certificate": "bad-key"}),
    "bad-ca": ("CloudEvents", "/taken/bad-ca", {"ca": "bad-ca"}),
    "hook": ("CloudEvents", "/401/", {"hook": "hook"}),
    "hook-relayed": ("CIM-XML", "/500/", {"hook": "hook", "deliverThrough": "Gateway"}),
}


def marker(kind: str) -> str:
    """A secret that is nobody else's, with what is written otherwise in a URL."""
    return f"planted/{kind}+{uuid.uuid4().hex}"


def digest(authorization: str) -> str:
    return hashlib.sha256(authorization.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """A namespace with a listener that tells what it was sent, a publisher with a sidecar, and a
    gateway that the sidecar relays to."""

    kubectl: Kubectl
    publisher: Client
    #: Of the listener's certificates, which are ``a`` and ``b``.
    authorities: dict[str, trustme.CA]
    bearer: str

    @property
    def host(self) -> str:
        return f"listener.{self.kubectl.namespace}.svc"

    @property
    def door(self) -> str:
        return f"https://pillion-hub.{self.kubectl.namespace}.svc:8288"

    def behave(self, certificate: str, *known: str) -> None:
        """Have the listener show a certificate, and know these tokens; none given: any."""
        told = {"certificate": certificate, "known": [digest(f"Bearer {one}") for one in known]}
        body = json.dumps(told if known else {**told, "known": None})
        proxied(self.kubectl, f"listener:{CONTROL_PORT}", "", input=body)

    def taken(self, path: str, token: str) -> int:
        """How many indications the listener took at a path, with a token."""
        found = json.loads(proxied(self.kubectl, f"listener:{CONTROL_PORT}", ""))
        return int(found.get(f"/taken/{path} {digest(f'Bearer {token}')}", 0))

    def publish(self) -> None:
        """Publish an alert to the sidecar."""
        (answer,) = self.publisher.send(publishing(INTAKE))
        assert answer.status == 200, answer

    def starts(self) -> dict[str, Any]:
        """How often the sidecar and the gateway were started, and when."""
        return {pod: starts(self.kubectl, pod) for pod in ("publisher", GATEWAY)}

    def destination(self, name: str, protocol: str, path: str, **spec: Any) -> list[Any]:
        """A destination, and the sidecars' subscription to it."""
        url = f"https://{self.host}:{LISTENER_PORT}{path}"
        made = destination(url, name=name, protocol=protocol, **spec)
        return [made, subscription(f"to-{name}", to=name)]

    def condition(self, name: str, condition: str) -> dict[str, str]:
        """A condition of a destination."""
        status = self.kubectl.json("get", "listenerdestination", name).get("status", {})
        for one in status.get("conditions", ()):
            if one["type"] == condition:
                found: dict[str, str] = one
                return found
        return {}


def certificates(host: str, authorities: dict[str, trustme.CA]) -> dict[str, str]:
    """What the listener shows."""
    found = {}
    for name, authority in authorities.items():
        made = authority.issue_cert(host)
        found[f"{name}.crt"] = "".join(pem.bytes().decode() for pem in made.cert_chain_pems)
        found[f"{name}.key"] = made.private_key_pem.bytes().decode()
    return found


def authority(of: trustme.CA) -> str:
    return of.cert_pem.bytes().decode()


@pytest.fixture(scope="module")
def hunt(pillion: Installation, deliverer_image: str, report: Report) -> Iterator[Hunt]:
    name = f"hunt-{uuid.uuid4().hex[:6]}"
    kubectl = in_namespace(pillion.kubectl, name)
    pillion.install("log.level=DEBUG")
    until_injecting(pillion.kubectl)
    kubectl.apply(json.dumps(guarded_namespace(name)))
    kubectl.wait("serviceaccount/default", "--for=create")
    made = Hunt(
        kubectl=kubectl,
        publisher=Client(kubectl=kubectl, pod="publisher"),
        authorities={"a": trustme.CA(), "b": trustme.CA()},
        bearer=marker("bearer"),
    )
    verified = {"tls": {"caSecretRef": {"name": "listener-ca"}}}
    trusted = {**verified, "credentials": {"bearer": {"secretRef": {"name": "bearer"}}}}
    usual: dict[str, Any] = {
        "deliveryRetryAttempts": 1000,
        "durability": "Disk",
        "shutdownGracePeriodSeconds": 1,
    }
    with report.step("a listener with TLS, a publisher with a sidecar, a gateway"):
        applied(
            kubectl,
            secret("listener-tls", certificates(made.host, made.authorities), permitted=False),
            secret("listener-ca", {"ca.crt": authority(made.authorities["a"])}),
            secret("bearer", {"token": made.bearer}),
            *echoing("listener", image=deliverer_image, certificates="listener-tls"),
            service(gatewayRef={"name": "hub"}, **usual),
            service("hub", deliverer={"mode": "Gateway"}, **usual),
            filter_(),
            *made.destination("direct", "CloudEvents", "/taken/direct", **trusted),
            *made.destination(
                "relayed", "CloudEvents", "/taken/relayed", deliverThrough="Gateway", **trusted
            ),
        )
        accepted(kubectl, "default", "hub")
        labels = {"pillion.dev/inject": "true"}
        applied(kubectl, client_pod("publisher", image=deliverer_image, **labels))
        # It takes nothing before it has a configuration.
        until_status(made.publisher, 200, publishing(INTAKE))
        both = ("direct", "relayed")
        for path in both:
            wait_until(
                lambda path=path: made.taken(path, made.bearer) > 0,  # type: ignore[misc]
                within=WITHIN,
                what=f"an indication at {path}",
            )
    yield made
    pillion.kubectl.run("delete", "namespace", name, "--wait=false")
    pillion.install()


def test_a_listener_of_an_unknown_authority_gets_nothing(hunt: Hunt, report: Report) -> None:
    spec = {"credentials": {"bearer": {"secretRef": {"name": "bearer"}}}}
    applied(hunt.kubectl, *hunt.destination("unknown", "CloudEvents", "/taken/unknown", **spec))
    hunt.kubectl.wait("listenerdestination/unknown", "--for=condition=Ready", within=60)
    hunt.publish()
    with report.step("a certificate of an unknown authority, until a condition says so"):
        hunt.kubectl.wait(
            "listenerdestination/unknown", "--for=condition=ListenerUnreachable", within=90
        )
    told = hunt.condition("unknown", "ListenerUnreachable")
    assert "certificate" in told["message"], told
    assert hunt.taken("unknown", hunt.bearer) == 0

    patch = json.dumps({"spec": {"tls": {"caSecretRef": {"name": "listener-ca"}}}})
    hunt.kubectl.run("patch", "listenerdestination", "unknown", "--type=merge", "-p", patch)
    with report.step("with tls.caSecretRef, until it is delivered"):
        wait_until(
            lambda: hunt.taken("unknown", hunt.bearer) == 1, within=WITHIN, what="it is delivered"
        )


def test_authorities_and_tokens_of_listeners_rotate_without_a_restart(
    hunt: Hunt, report: Report
) -> None:
    before, fresh = hunt.starts(), marker("rotated")
    hunt.behave("b", fresh)
    hunt.publish()
    hunt.kubectl.wait(
        "listenerdestination/direct", "--for=condition=ListenerUnreachable", within=90
    )
    assert hunt.taken("direct", fresh) == 0
    began = time.monotonic()
    applied(
        hunt.kubectl,
        secret("listener-ca", {"ca.crt": authority(hunt.authorities["b"])}),
        secret("bearer", {"token": fresh}),
    )
    for path, who in (("direct", "a sidecar"), ("relayed", "a gateway")):
        wait_until(
            lambda path=path: hunt.taken(path, fresh) > 0,  # type: ignore[misc]
            within=WITHIN,
            what=f"{who} has the new authority and the new token",
        )
        took = f"{time.monotonic() - began:.1f} s"
        report.figure(f"a new CA and a new bearer token, until {who} delivers with them", took)
    assert hunt.starts() == before


def test_the_certificate_of_a_gateway_rotates_without_a_restart(
    hunt: Hunt, pillion: Installation, report: Report
) -> None:
    """An operator that runs writes a Secret again as it was; one that begins makes another."""
    host, _, port = hunt.door.removeprefix("https://").partition(":")

    def kept() -> str:
        try:
            found = hunt.kubectl.json("get", "secret", "pillion-hub-tls")
        except KubectlFailed:
            return ""
        return digest_of(base64.b64decode(found["data"]["tls.crt"]).decode())

    def shown() -> str:
        return fingerprint(hunt.publisher, host, int(port))

    before, old = hunt.starts(), shown()
    assert kept() == old
    at_home = in_namespace(pillion.kubectl, SYSTEM)
    at_home.run("scale", "deployment/pillion-operator", "--replicas=0")
    at_home.wait(
        "pod", "--selector=app.kubernetes.io/component=operator", "--for=delete", within=60
    )
    hunt.kubectl.run("delete", "secret", "pillion-hub-tls")
    began = time.monotonic()
    at_home.run("scale", "deployment/pillion-operator", "--replicas=1")
    wait_until(lambda: kept() not in ("", old), within=WITHIN, what="another certificate is made")
    hunt.publish()
    fresh = kept()
    wait_until(lambda: shown() == fresh, within=WITHIN, what="the gateway shows it")
    took = f"{time.monotonic() - began:.1f} s"
    report.figure(
        "an operator begins without a gateway's certificate, until another is shown", took
    )
    hunt.publish()
    token = base64.b64decode(hunt.kubectl.json("get", "secret", "bearer")["data"]["token"]).decode()
    wait_until(
        lambda: hunt.taken("relayed", token) == hunt.taken("direct", token),
        within=WITHIN,
        what="what is relayed arrives as before",
    )
    verified = publishing(hunt.door, ca=gateway_ca(hunt.kubectl, "hub"), token_file=PILLION)
    assert hunt.publisher.statuses(verified) == [200]
    assert hunt.starts() == before


# ---------------------------------------------------------------------- the hunt


def found_in(namespace: str, *names: str) -> frozenset[str]:
    """Secrets of users, and the rendered ones that hold copies of them."""
    rendered = (f"pillion-{name}-{part}" for name in ("default", "hub") for part in range(16))
    return frozenset(f"{namespace}/{name}" for name in (*names, *rendered))


def plant_credentials(hunt: Hunt) -> Iterator[Planted]:
    """Make the Secrets of the destinations that fail; yield what of them is secret."""
    namespace = str(hunt.kubectl.namespace)
    client = trustme.CA().issue_cert("pillion")
    chain = "".join(pem.bytes().decode() for pem in client.cert_chain_pems)
    key = client.private_key_pem.bytes()
    password, unusable = marker("password"), f"not a token {marker('unusable')}"
    hook = marker("hook")
    bad_key, bad_ca = marker("bad-key"), marker("bad-ca")
    tls = "kubernetes.io/tls"
    applied(
        hunt.kubectl,
        secret("basic", {"username": "pillion", "password": password}),
        secret("unusable", {"token": unusable}),
        secret("hook", {"url": f"https://{hunt.host}:{LISTENER_PORT}/401/{hook}"}),
        secret("client-tls", {"tls.crt": chain, "tls.key": key.decode()}, kind=tls),
        secret("bad-ca", {"ca.crt": bad_ca}),
        secret("listener-ca", {"ca.crt": authority(hunt.authorities["b"])}),
    )
    # The API server warns of this one.
    spoilt = secret("bad-key", {"tls.crt": chain, "tls.key": bad_key}, kind=tls)
    hunt.kubectl.apply(json.dumps(spoilt))
    token = base64.b64decode(hunt.kubectl.json("get", "secret", "bearer")["data"]["token"])
    values = {
        "bearer": token,
        "basic": password.encode(),
        "unusable": unusable.encode(),
        "hook": hook.encode(),
        "client-tls": secret_line(key),
        "bad-key": bad_key.encode(),
        "bad-ca": bad_ca.encode(),
        "listener-ca": secret_line(authority(hunt.authorities["b"]).encode()),
    }
    for name, value in values.items():
        yield Planted(name=name, value=value, secrets=found_in(namespace, name))
    yield Planted(name="the bearer token before", value=hunt.bearer.encode())


def own_secrets(hunt: Hunt, pillion: Installation) -> Iterator[Planted]:
    """What Pillion itself keeps secret: keys, the operator's tokens, those of pods."""
    for namespace in (SYSTEM, str(hunt.kubectl.namespace)):
        listed = pillion.kubectl.json("get", "secrets", f"--namespace={namespace}")["items"]
        for one in listed:
            name = one["metadata"]["name"]
            if not name.startswith("pillion-"):
                continue
            for key, encoded in one["data"].items():
                value = base64.b64decode(encoded)
                place = f"{namespace}/{name}"
                if b"PRIVATE KEY" in value:
                    value = secret_line(value)
                elif key not in ("operator-token", "token-key"):
                    continue
                yield Planted(name=f"{key} of {place}", value=value, secrets=frozenset({place}))
    (operator,) = pillion.kubectl.json("get", "pods", f"--namespace={SYSTEM}")["items"]
    at_home = in_namespace(pillion.kubectl, SYSTEM)
    api = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    places = (
        (at_home, operator["metadata"]["name"], "operator", api),
        (hunt.kubectl, "publisher", "client", PILLION),
        (hunt.kubectl, "publisher", CONTAINER, "/var/run/secrets/pillion/token"),
    )
    for kubectl, pod, container, path in places:
        inside = Client(kubectl=kubectl, pod=pod, container=container)
        token = inside.python("import sys; print(open(sys.argv[1]).read())", path).strip()
        # Its signature is what nobody else can make.
        yield Planted(name=f"the token of {container}", value=token.rpartition(".")[2].encode())


def fail(hunt: Hunt) -> None:
    """Have a listener refuse, and quote, everything that it is sent."""
    made = []
    for name, (protocol, path, given) in FAILING.items():
        spec: dict[str, Any] = {"tls": {"caSecretRef": {"name": given.get("ca", "listener-ca")}}}
        if "certificate" in given:
            spec["tls"]["clientCertificateSecretRef"] = {"name": given["certificate"]}
        if "credentials" in given:
            kind = "basic" if given["credentials"] == "basic" else "bearer"
            spec["credentials"] = {kind: {"secretRef": {"name": given["credentials"]}}}
        if "deliverThrough" in given:
            spec["deliverThrough"] = given["deliverThrough"]
        one, its_subscription = hunt.destination(name, protocol, path, **spec)
        if "hook" in given:
            del one["spec"]["destination"]
            one["spec"]["destinationFrom"] = {"secretKeyRef": {"name": given["hook"]}}
        made += [one, its_subscription]
    applied(hunt.kubectl, *made)
    wait_until(lambda: FAILING.keys() <= queues(hunt).keys(), within=WITHIN, what="all queues")
    hunt.publish()

    def attempted() -> bool:
        found = queues(hunt)
        # These wait, suspended, for Secrets that can be used.
        suspended = {"unusable", "bad-ca", "bad-key"}
        return all(found[name]["attemptsByResult"] for name in FAILING.keys() - suspended)

    wait_until(attempted, within=WITHIN, what="an attempt at each")
    for name in ("bearer-401", "basic-403", "basic-relayed", "client", "hook", "hook-relayed"):
        named = f"listenerdestination/{name}"
        hunt.kubectl.wait(named, "--for=condition=ListenerUnreachable", within=120)


def queues(hunt: Hunt) -> dict[str, Any]:
    """The sidecar's queues."""
    answer = hunt.publisher.get(f"{INTAKE}/v1/queues")
    return {queue["name"]: queue for queue in answer.json["queues"]}


def show_wrongly(hunt: Hunt, pillion: Installation, image: str) -> Iterator[Planted]:
    """Send tokens where none belong; yield them."""
    url, header, basic, jwt, raw, review = (
        marker(kind) for kind in ("url", "header", "basic", "jwt", "raw", "review")
    )
    pair = base64.b64encode(f"pillion:{basic}".encode()).decode()
    quoted = url.replace("/", "%2F").replace("+", "%2B")
    webhook = f"https://pillion-webhook.{SYSTEM}.svc/mutate"
    asked: list[dict[str, Any]] = []
    for at in (hunt.door, INTAKE, "http://127.0.0.1:8289"):
        asked += [
            publishing(at, query=f"access_token={quoted}"),
            {"url": f"{at}/v1/{quoted}"},
            {"url": f"{at}/v1/queues?token={quoted}", "headers": {"X-Api-Key": header}},
            publishing(at, headers={"Authorization": f"Token {header}"}),
            publishing(at, headers={"Authorization": f"Basic {pair}"}),
            publishing(at, headers={"Authorization": f"Bearer {jwt}"}),
            {"url": f"{at}/v1/queues", "headers": {"Authorization": f"Bearer {jwt}"}},
        ]
    asked += [
        {"url": hunt.door, "raw": f"Authorization: Bearer {raw}\r\n\r\n"},
        {"url": hunt.door, "raw": f"GET /{raw} HTTP/9\r\nAuthorization Bearer {raw}\r\n\r\n"},
        {"url": webhook, "method": "POST", "body": f'{{"planted": "{review}"'},
        {"url": webhook, "method": "POST", "body": json.dumps({"kind": review, "request": review})},
        {"url": f"{webhook}?token={quoted}", "method": "POST", "body": "{}"},
    ]
    answers = hunt.publisher.send(*asked)
    assert all(answer.status is not None for answer in answers[:-3])
    assert all(answer.status not in (200, None) for answer in answers[-3:]), answers[-3:]
    # A password in a URL is refused before it is kept anywhere.
    in_url = marker("in-url").replace("/", "-").replace("+", "-")
    wrong = destination(f"https://pillion:{in_url}@{hunt.host}/", name="wrong")
    with pytest.raises(KubectlFailed, match="user name or password"):
        hunt.kubectl.apply(json.dumps(wrong))
    given = {
        "url": url,
        "header": header,
        "basic pair": basic,
        "jwt": jwt,
        "raw": raw,
        "review": review,
        "in url": in_url,
    }
    for name, value in given.items():
        yield Planted(name=f"given wrongly: {name}", value=value.encode())
    # And what an application has, whose pod cannot get a deliverer.
    environment = marker("environment")
    refused = client_pod("refused", image=image, **{"pillion.dev/inject": "No_Name"})
    (container,) = refused["spec"]["containers"]
    container["env"] = [{"name": "PASSWORD", "value": environment}]
    said = hunt.kubectl.apply(json.dumps(refused), "--dry-run=server")
    assert "created" in said
    yield Planted(name="the environment of a pod", value=environment.encode())


DECOY = """
import base64, os, pathlib, signal, sys, urllib.parse
value, flag = os.environ["DECOY"], pathlib.Path("/tmp/started")
if not flag.exists():
    flag.touch()
    print(base64.b64encode(b"a" + value.encode() + b"z").decode(), flush=True)
    sys.exit(1)
print(urllib.parse.quote(value, safe=""), flush=True)
signal.sigwait([signal.SIGTERM])
"""


def plant_decoy(hunt: Hunt, image: str) -> Planted:
    """Put a secret where none may be: if it is not found there, the hunt is worth nothing."""
    value, kubectl = marker("decoy"), hunt.kubectl
    environment = [{"name": "DECOY", "value": value}]
    pod = client_pod("decoy", image=image)
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    pod["spec"]["containers"] = [
        python_container("decoy", image, DECOY, value, env=environment, volumeMounts=mounts)
    ]
    pod["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    encoded = base64.b64encode(f"<{value}>".encode()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "decoy"},
        "binaryData": {"decoy": encoded},
    }
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "decoy"},
        "involvedObject": {"kind": "Pod", "name": "decoy", "namespace": kubectl.namespace},
        "message": f"a decoy: {value}",
        "reason": "Decoy",
        "type": "Normal",
    }
    kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod, config, event]}))
    wait_until(lambda: bool(starts_again(kubectl, "decoy")), within=60, what="the decoy runs again")
    return Planted(name="decoy", value=value.encode())


def starts_again(kubectl: Kubectl, pod: str) -> int:
    """How often a pod's containers were started again, if all of them run."""
    status = kubectl.json("get", "pod", pod)["status"]
    listed = [*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])]
    if not listed or not all("running" in one["state"] for one in listed):
        return 0
    return sum(int(one["restartCount"]) for one in listed)


def restart(hunt: Hunt, pillion: Installation) -> None:
    """End each process of Pillion once, so that it has a log of the one before."""
    (operator,) = pillion.kubectl.json("get", "pods", f"--namespace={SYSTEM}")["items"]
    named = operator["metadata"]["name"]
    at_home = in_namespace(pillion.kubectl, SYSTEM)
    ended = ((at_home, named, "operator"), (hunt.kubectl, "publisher", CONTAINER))
    everywhere = (*ended, (hunt.kubectl, GATEWAY, CONTAINER))
    for kubectl, pod, container in everywhere:
        inside = Client(kubectl=kubectl, pod=pod, container=container)
        inside.python("import os, signal; os.kill(1, signal.SIGTERM)")
    for kubectl, pod, _container in everywhere:
        wait_until(
            lambda kubectl=kubectl, pod=pod: starts_again(kubectl, pod) > 0,  # type: ignore[misc]
            within=WITHIN,
            what=f"{pod} runs again",
        )
        kubectl.wait(f"pod/{pod}", "--for=condition=Ready", within=90)


@pytest.mark.timeout(900)
def test_no_credential_is_shown_anywhere(
    hunt: Hunt, pillion: Installation, deliverer_image: str, report: Report
) -> None:
    hunt.behave("b")
    planted = list(plant_credentials(hunt))
    with report.step("let everything fail that needs a credential"):
        fail(hunt)
    planted += show_wrongly(hunt, pillion, deliverer_image)
    decoy = plant_decoy(hunt, deliverer_image)
    planted += own_secrets(hunt, pillion)
    with report.step("restart operator, sidecar and gateway"):
        restart(hunt, pillion)
    planted += [one for one in own_secrets(hunt, pillion) if one.name.startswith("the token")]
    assert len(planted) > 25
    assert all(len(form) >= 16 for one in planted for form in forms(one.value))

    with report.step("look for every secret everywhere"):
        found = findings([*planted, decoy], readable(pillion.kubectl, pillion.helm))
    home = str(hunt.kubectl.namespace)
    assert {place for name, place in found if name == "decoy"} >= {
        f"log of {home}/decoy/decoy",
        f"previous log of {home}/decoy/decoy",
        f"Pod {home}/decoy",
        f"ConfigMap {home}/decoy",
        f"Event {home}/decoy",
        "cmdline in decoy/decoy",
        "environ in decoy/decoy",
    }
    assert {one for one in found if one[0] != "decoy"} == set()

    allowed = {(one.name, place) for one in planted for place in one.secrets}
    held = holders(pillion.kubectl, planted)
    assert held - allowed == set()
    # It finds them where they are.
    assert {("bearer", f"{home}/bearer"), ("basic", f"{home}/basic")} <= held
    report.figure("secrets looked for", str(len(planted)))
