"""The hunt for planted secrets: whether what is secret can be read where it has no place.

Looked at is whatever somebody can read who may read neither Secrets nor what is mounted in a pod:
logs, all objects of the API but Secrets, metrics, command lines and environments, what helm keeps,
journals, and what the commands in a deliverer's container print.
"""

import base64
import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_from_bytes

from cluster.security import JSON, Client, containers_of
from cluster.story import SYSTEM
from pillion_operator.injection.container import TELEMETRY_PORT
from pillion_operator.names import CONTAINER
from pillion_testbed.helm import Helm
from pillion_testbed.kubectl import Kubectl

#: Where an operator's pod has its metrics.
OPERATOR_PORT = 8081
#: Prints what the processes of a container are called with, as JSON; not of itself.
PROCESSES = """
import json, os, pathlib
found = {}
for entry in pathlib.Path("/proc").glob("[0-9]*"):
    for name in ("cmdline", "environ"):
        try:
            found[f"{name} of {entry.name}"] = (entry / name).read_bytes().decode(errors="replace")
        except OSError:
            pass
print(json.dumps(found))
"""
#: Prints all files below a folder, as JSON of base64.
FILES = """
import base64, json, pathlib, sys
files = [one for one in pathlib.Path(sys.argv[1]).rglob("*") if one.is_file()]
print(json.dumps({str(one): base64.b64encode(one.read_bytes()).decode() for one in files}))
"""
#: What a person types in a deliverer's container.
COMMANDS = (
    ("queues", "--output", "json"),
    ("journal", "inspect", "/var/lib/pillion"),
    ("journal", "verify", "/var/lib/pillion", "--output", "json"),
    ("journal", "export", "/var/lib/pillion", "--all", "--envelope"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One secret, and the Secrets that hold it: ``NAMESPACE/NAME``."""

    name: str
    value: bytes
    secrets: frozenset[str] = frozenset()


def forms(value: bytes) -> set[bytes]:
    """A secret as it is, as it is in a URL, and as it is within anything in base64."""
    found = {value, quote_from_bytes(value, safe="").encode()}
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + value).rstrip(b"=")
        # What the neighbours have a share in is not known.
        start = (before * 8 + 5) // 6
        whole = encoded[start : (before + len(value)) * 8 // 6]
        found |= {whole, whole.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def findings(
    planted: Iterable[Planted], places: Iterable[tuple[str, bytes]]
) -> set[tuple[str, str]]:
    """Each secret that is in a place, with the place."""
    wanted = [(one.name, form) for one in planted for form in forms(one.value)]
    return {(name, place) for place, text in places for name, form in wanted if form in text}


def secret_line(pem: bytes) -> bytes:
    """What tells a private key from others: a line from its middle."""
    lines = [line for line in pem.splitlines() if line and not line.startswith(b"-----")]
    return lines[len(lines) // 2][:40]


def readable(kubectl: Kubectl, helm: Helm) -> Iterator[tuple[str, bytes]]:
    """All places, each with what can be read there."""
    pods = kubectl.json("get", "pods", "--all-namespaces")["items"]
    yield from _logs(kubectl, pods)
    yield from _objects(kubectl)
    yield from _metrics(kubectl, pods)
    yield from _host_processes()
    yield "helm", helm.run("get", "all", "pillion", f"--namespace={SYSTEM}").encode()
    for pod in pods:
        for container in containers_of(pod):
            if container.get("command", [""])[0] == "python" or _is_pillions(pod, container):
                yield from _of_container(kubectl, pod, container["name"])


def holders(kubectl: Kubectl, planted: Iterable[Planted]) -> set[tuple[str, str]]:
    """Each secret with each Secret that holds it."""
    found = set()
    for one in kubectl.json("get", "secrets", "--all-namespaces")["items"]:
        name = f"{one['metadata']['namespace']}/{one['metadata']['name']}"
        data = (base64.b64decode(value) for value in (one.get("data") or {}).values())
        texts = [(name, text) for text in data]
        found |= findings(planted, texts)
    return found


def _is_pillions(pod: JSON, container: JSON) -> bool:
    return bool(container["name"] == CONTAINER or pod["metadata"]["namespace"] == SYSTEM)


def _logs(kubectl: Kubectl, pods: Iterable[JSON]) -> Iterator[tuple[str, bytes]]:
    for pod in pods:
        metadata, status = pod["metadata"], pod["status"]
        listed = [*status["containerStatuses"], *status.get("initContainerStatuses", [])]
        for one in listed:
            of = (metadata["name"], "-c", one["name"], f"--namespace={metadata['namespace']}")
            place = f"{metadata['namespace']}/{metadata['name']}/{one['name']}"
            yield f"log of {place}", kubectl.run("logs", "--tail=-1", *of).encode()
            if one["restartCount"]:
                said = kubectl.run("logs", "--tail=-1", "--previous", *of)
                yield f"previous log of {place}", said.encode()


def _objects(kubectl: Kubectl) -> Iterator[tuple[str, bytes]]:
    """All objects, Events and managed fields among them; each as a place of its own."""
    listing = kubectl.run("api-resources", "--verbs=list", "--output=name").split()
    kinds = ",".join(kind for kind in listing if kind != "secrets")
    listed = kubectl.json("get", kinds, "--all-namespaces", "--show-managed-fields")
    for one in listed["items"]:
        metadata = one["metadata"]
        place = f"{one['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
        yield place, json.dumps(one, ensure_ascii=False).encode()


def _metrics(kubectl: Kubectl, pods: Iterable[JSON]) -> Iterator[tuple[str, bytes]]:
    for pod in pods:
        metadata = pod["metadata"]
        operator = metadata["namespace"] == SYSTEM
        if not operator and all(one["name"] != CONTAINER for one in containers_of(pod)):
            continue
        port = OPERATOR_PORT if operator else TELEMETRY_PORT
        at = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}:{port}/proxy"
        said = kubectl.run("get", "--raw", f"{at}/metrics")
        assert "pillion_" in said
        yield f"metrics of {metadata['name']}", said.encode()


def _host_processes() -> Iterator[tuple[str, bytes]]:
    """Of all processes of this machine, which are those of its containers, too."""
    for entry in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                yield f"{name} on this machine", (entry / name).read_bytes()


def _of_container(kubectl: Kubectl, pod: JSON, container: str) -> Iterator[tuple[str, bytes]]:
    metadata = pod["metadata"]
    name = metadata["name"]
    there = Kubectl(
        program=kubectl.program, kubeconfig=kubectl.kubeconfig, namespace=metadata["namespace"]
    )
    inside = Client(kubectl=there, pod=name, container=container)
    for what, text in json.loads(inside.python(PROCESSES)).items():
        yield f"{what.split()[0]} in {name}/{container}", text.encode()
    if container != CONTAINER:
        return
    administration = "8288" if name == "publisher" else "8290"
    queues = json.loads(_command(there, name, *COMMANDS[0], port=administration))["queues"]
    assert queues
    details = [("queues", queue["name"], "--output", "json") for queue in queues]
    for command in (*COMMANDS, *details):
        yield (
            f"pillion {' '.join(command)}",
            _command(there, name, *command, port=administration).encode(),
        )
    for file, content in json.loads(inside.python(FILES, "/var/lib/pillion")).items():
        yield f"{file} in {name}", base64.b64decode(content)


def _command(kubectl: Kubectl, pod: str, *command: str, port: str) -> str:
    at = ("--at", f"http://127.0.0.1:{port}") if command[0] == "queues" else ()
    return kubectl.run("exec", pod, "-c", CONTAINER, "--", "pillion", *command, *at)
