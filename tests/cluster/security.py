"""What the tests of safety do on a node: guarded namespaces, pods that ask, what pods may do."""

import hashlib
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from cluster.story import RESTRICTED_CONTAINER, RESTRICTED_POD, listener_objects
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until
from support import echoing_listener, pod_client

JSON = dict[str, Any]

#: Where a client's pod has tokens: for the audience of Pillion, and for another.
TOKENS = "/tokens"
PILLION, OTHER = f"{TOKENS}/pillion", f"{TOKENS}/other"
LISTENER_PORT, CONTROL_PORT = 8443, 8080
ALERT = json.dumps(
    {
        "class": "CIM_AlertIndication",
        "properties": {"AlertType": 5, "PerceivedSeverity": 6, "ProbableCause": 94},
    }
)
SLEEP = "import signal; signal.sigwait([signal.SIGTERM])"


def guarded_namespace(name: str) -> JSON:
    """A namespace that enforces the restricted profile, and warns of what it refuses."""
    modes = ("enforce", "audit", "warn")
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in modes}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def python_container(name: str, image: str, program: str, *arguments: str, **other: Any) -> JSON:
    """A container of the deliverer's image that runs a program of Python."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", program, *arguments],
        "securityContext": RESTRICTED_CONTAINER,
        **other,
    }


def client_pod(name: str, *, image: str, account: str = "default", **labels: str) -> JSON:
    """A pod that sends what it is told to (``Client``), with tokens of its service account."""
    sources = [
        {"serviceAccountToken": {"audience": audience, "expirationSeconds": 3600, "path": path}}
        for audience, path in (("pillion", "pillion"), ("https://other.example", "other"))
    ]
    mounts = [{"name": "tokens", "mountPath": TOKENS, "readOnly": True}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name, **labels}},
        "spec": {
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "securityContext": RESTRICTED_POD,
            "terminationGracePeriodSeconds": 1,
            "containers": [python_container("client", image, SLEEP, volumeMounts=mounts)],
            "volumes": [{"name": "tokens", "projected": {"sources": sources}}],
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a pod was answered: no status where it did not come to one."""

    status: int | None
    headers: Mapping[str, str]
    body: str

    @property
    def json(self) -> JSON:
        found: JSON = json.loads(self.body)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A pod that sends what it is told to."""

    kubectl: Kubectl
    pod: str
    container: str = "client"

    def send(self, *asked: JSON) -> list[Answer]:
        """Send requests, one after the other: see ``support.pod_client``."""
        program = Path(pod_client.__file__).read_text()
        command = ("exec", "-i", self.pod, "-c", self.container, "--", "python", "-c", program)
        said = json.loads(self.kubectl.run(*command, input=json.dumps(asked)))
        return [Answer(status=status, headers=head, body=body) for status, head, body in said]

    def statuses(self, *asked: JSON) -> list[int | None]:
        """The same, and the statuses of the answers."""
        return [answer.status for answer in self.send(*asked)]

    def get(self, url: str, **also: Any) -> Answer:
        """Send one request."""
        (answer,) = self.send({"url": url, **also})
        return answer

    def python(self, program: str, *arguments: str) -> str:
        """Run a program in the container, and return what it prints."""
        command = ("exec", self.pod, "-c", self.container, "--", "python", "-c", program)
        return self.kubectl.run(*command, *arguments)


def publishing(url: str, *, query: str = "source=test", **also: Any) -> JSON:
    """A request that publishes one alert."""
    headers = {"Content-Type": "application/json", **also.pop("headers", {})}
    target = f"{url}/v1/indications?{query}"
    return {"url": target, "method": "POST", "body": ALERT, "headers": headers, **also}


def echoing(name: str, *, image: str, certificates: str) -> list[JSON]:
    """``support.echoing_listener`` behind a Service, with the certificates of a Secret."""
    ports = {LISTENER_PORT: LISTENER_PORT, CONTROL_PORT: CONTROL_PORT}
    probe = {"httpGet": {"path": "/", "port": CONTROL_PORT}}
    objects = listener_objects(name, image=image, command=(), ports=ports, probe=probe)
    spec = objects[0]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    program = Path(echoing_listener.__file__).read_text()
    del container["args"]
    container["command"] = ["python", "-c", program, "/certificates"]
    container["command"] += [str(LISTENER_PORT), str(CONTROL_PORT)]
    container["volumeMounts"].append({"name": "certificates", "mountPath": "/certificates"})
    secret = {"secretName": certificates}
    spec["volumes"].append({"name": "certificates", "secret": secret})
    return objects


def secret(
    name: str, data: Mapping[str, str], *, permitted: bool = True, kind: str = "Opaque"
) -> JSON:
    """A Secret; ``permitted``: destinations may use it."""
    labels = {"pillion.dev/credentials": "true"} if permitted else {}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": name, "labels": labels},
        "stringData": dict(data),
    }


def applied(kubectl: Kubectl, *objects: JSON) -> None:
    """Make objects, of which the API server must not warn, and wait until their pods are ready.

    Of ours the operator warns while what they name is not there yet.
    """
    for ours, items in groupby(objects, lambda one: one["apiVersion"].startswith("pillion.dev/")):
        listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
        kubectl.apply(json.dumps(listed), *([] if ours else ["--warnings-as-errors"]))
    pods = [f"pod/{one['metadata']['name']}" for one in objects if one["kind"] == "Pod"]
    if pods:
        kubectl.wait(*pods, "--for=condition=Ready", within=90)
    for one in objects:
        if one["kind"] == "Deployment":
            named = f"deployment/{one['metadata']['name']}"
            kubectl.run("rollout", "status", named, "--timeout=90s", "--request-timeout=0")


def accepted(kubectl: Kubectl, *services: str) -> None:
    """Wait until IndicationServices are accepted, and the gateways among them ready."""
    for name in services:
        kubectl.wait(f"indicationservice/{name}", "--for=condition=Accepted", within=60)
        mode = kubectl.json("get", "indicationservice", name)["spec"].get("deliverer", {})
        if mode.get("mode") == "Gateway":
            pod = f"pod/pillion-{name}-0"
            kubectl.wait(pod, "--for=create", within=60)
            kubectl.wait(pod, "--for=condition=Ready", within=90)


def until_injecting(kubectl: Kubectl) -> None:
    """Wait until the API server trusts the webhook: pods made before that get no deliverer."""

    def trusted() -> bool:
        found = kubectl.json("get", "mutatingwebhookconfiguration", "pillion-injector")
        return all("caBundle" in one["clientConfig"] for one in found["webhooks"])

    wait_until(trusted, within=60, what="the webhook has a certificate that is trusted")


def gateway_ca(kubectl: Kubectl, service: str) -> str:
    """The authorities that a gateway's certificate comes from, as its publishers get them."""
    name = f"configmap/pillion-{service}"
    kubectl.wait(name, "--for=create", within=60)
    return str(kubectl.json("get", name)["data"]["ca.crt"])


def starts(kubectl: Kubectl, pod: str) -> dict[str, tuple[int, str]]:
    """How often each container of a pod was started again, and when it was last."""
    status = kubectl.json("get", "pod", pod)["status"]
    listed = status["containerStatuses"] + status.get("initContainerStatuses", [])
    return {
        one["name"]: (one["restartCount"], one["state"]["running"]["startedAt"]) for one in listed
    }


def containers_of(pod: JSON) -> list[JSON]:
    """All containers of a pod."""
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def tokens_of(pod: JSON) -> Iterator[tuple[str, str | None]]:
    """Each token that a pod has: its volume, and whom it is for (None: the API server)."""
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if "serviceAccountToken" in source:
                yield volume["name"], source["serviceAccountToken"].get("audience")


def weaknesses(pod: JSON) -> list[str]:
    """What of a pod is less strict than it could be, beside what "restricted" looks at."""
    found = []
    for one in containers_of(pod):
        context = one.get("securityContext") or {}
        if not context.get("readOnlyRootFilesystem"):
            found.append(f"{one['name']} may write its root")
        if context.get("capabilities") != {"drop": ["ALL"]}:
            found.append(f"{one['name']} has capabilities")
    return found


#: Prints what a process may do, as the kernel has it.
PROBE = """
import json, os
said = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "root": os.getuid() == 0,
    "capabilities": int(said["CapEff"], 16) | int(said["CapBnd"], 16),
    "gains": said["NoNewPrivs"].strip() != "1",
    "filtered": said["Seccomp"].strip() == "2",
    "writes": not os.statvfs("/").f_flag & os.ST_RDONLY,
    "api": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"),
}))
"""
#: What it says in every container but the operator's, which has a token for the API server.
ABLE = {
    "root": False,
    "capabilities": 0,
    "gains": False,
    "filtered": True,
    "writes": False,
    "api": False,
}


def able(kubectl: Kubectl, pod: str, container: str) -> JSON:
    """What a container may do, by what its kernel says."""
    found: JSON = json.loads(Client(kubectl=kubectl, pod=pod, container=container).python(PROBE))
    return found


def fingerprint(client: Client, host: str, port: int) -> str:
    """The digest of the certificate that a listener shows to a pod."""
    program = (
        "import hashlib, ssl, sys; at = sys.argv[1], int(sys.argv[2]);"
        "pem = ssl.get_server_certificate(at);"
        "print(hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest())"
    )
    return client.python(program, host, str(port)).strip()


def digest_of(pem: str) -> str:
    """The same of a certificate in PEM, the first of several."""
    end = "-----END CERTIFICATE-----"
    first = pem.partition(end)[0] + end
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()


def until_status(client: Client, wanted: int, asked: JSON, *, within: float = 90.0) -> None:
    """Send a request again and again until it is answered so."""
    seen: list[Answer] = []

    def answered() -> bool:
        seen[:] = client.send(asked)
        return seen[0].status == wanted

    try:
        wait_until(answered, within=within, what=f"{wanted} for {asked['url']}")
    except TimeoutError as error:
        raise AssertionError(f"{error}; at last {seen}") from None
