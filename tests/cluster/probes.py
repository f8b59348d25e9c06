"""Pods of the small program that every node has: servers and clients, for tests of the node."""

import json
from dataclasses import dataclass
from typing import Any

from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.node_files import PROBE_IMAGE
from pillion_testbed.rest import wait_until

Object = dict[str, Any]
#: Seconds until a Service leads to its pods.
WITHIN = 20.0
#: Where a claimed volume is in the container.
DATA = "/data"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def container(name: str, *arguments: str, **other: Any) -> Object:
    """A container of the small program."""
    return {
        "name": name,
        "image": PROBE_IMAGE,
        "imagePullPolicy": "Never",
        "args": list(arguments),
        "securityContext": RESTRICTED,
        **other,
    }


def server(name: str, *, port: int = 8080, **other: Any) -> Object:
    """A container that says its name by HTTP."""
    ready = {"httpGet": {"path": "/", "port": port}, "periodSeconds": 1}
    return container(name, "serve", f":{port}", name, readinessProbe=ready, **other)


def pod(name: str, *, node: str | None = None, claim: str | None = None, **spec: Any) -> Object:
    """A pod with a server, which passes Pod Security "restricted"; further parts of its spec."""
    main = server(name)
    if claim is not None:
        main["volumeMounts"] = [{"name": "data", "mountPath": DATA}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "securityContext": {
                "runAsNonRoot": True,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": 5,
            "containers": [main],
            **spec,
        },
    }


def service(name: str, app: str) -> Object:
    """A Service, on port 80, before the pods of an app."""
    ports = [{"port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": ports},
    }


def claim(name: str) -> Object:
    """A claim to a volume of the default StorageClass."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
        },
    }


@dataclass(frozen=True, slots=True)
class Probes:
    """Pods of one namespace."""

    kubectl: Kubectl

    def apply(self, *objects: Object) -> None:
        """Make them, and wait until the pods among them are ready."""
        self.kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        names = [f"pod/{one['metadata']['name']}" for one in objects if one["kind"] == "Pod"]
        if names:
            self.kubectl.wait(*names, "--for=condition=Ready", within=60)

    def do(self, name: str, *arguments: str) -> str:
        """Run the small program in a pod, and return what it prints."""
        return self.kubectl.run("exec", name, "-c", name, "--", "/probe", *arguments).strip()

    def get(self, name: str, url: str) -> str:
        """What a server answers to a pod."""
        return self.do(name, "get", url)

    def until_got(self, name: str, url: str, text: str) -> None:
        """Wait until a server answers a pod so: proxies learn of a Service a while after it is."""

        def got() -> bool:
            try:
                return self.get(name, url) == text
            except KubectlFailed:
                return False

        wait_until(got, within=WITHIN, what=f"{text!r} from {url} to pod {name}")

    def address(self, name: str) -> str:
        """A pod's address."""
        found: str = self.kubectl.json("get", "pod", name)["status"]["podIP"]
        return found

    def restarts(self, name: str) -> int:
        """How often a pod's containers were started again."""
        status = self.kubectl.json("get", "pod", name)["status"]
        listed = status["containerStatuses"] + status.get("initContainerStatuses", [])
        return sum(one["restartCount"] for one in listed)
