"""What a kubelet works out of a pod: its address, its command line here, its status."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pillion_operator.cluster.types import Object
from pillion_operator.names import CONTAINER

#: How a process of this machine is called with the arguments of a container of ours: loopback is
#: where the tests' listeners are.
LEFT_OUT = frozenset({"--refuse-loopback"})
LISTENS = ("127.0.0.1:", "0.0.0.0:")


def pod_address(uid: str) -> str:
    """Return the pod's address on the loopback interface: 127.X.Y.Z with X from 16 to 239."""
    first, second, third = hashlib.sha256(uid.encode()).digest()[:3]
    return f"127.{16 + first % 224}.{second}.{1 + third % 254}"


def deliverer_of(pod: Object) -> Object | None:
    """Return the deliverer's container of a pod; None where it has none."""
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        if container["name"] == CONTAINER:
            found: Object = container
            return found
    return None


def annotations(pod: Object) -> dict[str, str]:
    """Return the pod's annotations: a kubelet syncs the pod when they change."""
    return dict(pod["metadata"].get("annotations") or {})


def container_port(container: Object, port: int | str) -> int:
    """Return the number of a container's port, which a probe may call by its name."""
    if isinstance(port, int):
        return port
    named = {one.get("name"): one["containerPort"] for one in container.get("ports") or ()}
    return int(named[port])


def port_asked(hook: Object) -> int:
    """Return the port that a hook's command asks, by its ``--to``."""
    command = hook["exec"]["command"]
    port = urlsplit(command[command.index("--to") + 1]).port
    assert port is not None, f"{command} names no port"
    return int(port)


def map_arguments(
    arguments: Sequence[str], *, folders: Mapping[str, Path], address: str
) -> list[str]:
    """Return a container's arguments for a process of this machine.

    Its mount points become folders, and what it listens on is the pod's address, where nothing
    else listens.
    """
    mapped = []
    for argument in arguments:
        if argument in LEFT_OUT:
            continue
        for inside, outside in folders.items():
            if argument == inside or argument.startswith(f"{inside}/"):
                argument = str(outside) + argument[len(inside) :]
                break
        for host in LISTENS:
            if argument.startswith(host) and argument[len(host) :].isdigit():
                argument = f"{address}:{argument[len(host) :]}"
        mapped.append(argument)
    return mapped


def pod_status(
    pod: Object, *, address: str, started: bool, ready: bool, restarts: int, now: str
) -> dict[str, Any]:
    """Return what is merged into the pod's status.

    The other containers run as soon as the deliverer has started, as behind a native sidecar.
    """
    conditions = {one["type"]: one for one in pod["status"].get("conditions") or ()}
    all_ready = started and ready
    for name, holds in (
        ("PodReadyToStartContainers", True),
        ("Initialized", started),
        ("ContainersReady", all_ready),
        ("Ready", all_ready),
    ):
        status = "True" if holds else "False"
        if conditions.get(name, {}).get("status") != status:
            conditions[name] = {"type": name, "status": status, "lastTransitionTime": now}
    spec = pod["spec"]

    def statuses(containers: Sequence[Object]) -> list[dict[str, Any]]:
        return [
            _container_status(
                one,
                running=started or one["name"] == CONTAINER,
                started=started,
                ready=all_ready if one["name"] == CONTAINER else started,
                restarts=restarts if one["name"] == CONTAINER else 0,
                now=now,
            )
            for one in containers
        ]

    return {
        "phase": "Running" if started else "Pending",
        "startTime": pod["status"].get("startTime") or now,
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": list(conditions.values()),
        "initContainerStatuses": statuses(spec.get("initContainers") or ()),
        "containerStatuses": statuses(spec["containers"]),
    }


def _container_status(
    container: Object, *, running: bool, started: bool, ready: bool, restarts: int, now: str
) -> dict[str, Any]:
    waiting = {"waiting": {"reason": "PodInitializing"}}
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "started": started,
        "ready": ready,
        "restartCount": restarts,
        "state": {"running": {"startedAt": now}} if running else waiting,
    }
