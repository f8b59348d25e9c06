"""What tests of a running operator share: whom it runs as, a pod with a deliverer, publishing."""

import json
import os
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.convergence import World, condition
from cluster.deliverer_pod import DelivererPod
from cluster.operators import IMAGE, OperatorProcess, webhook_configuration
from pillion_operator.injection.container import (
    configuration_volume,
    data_volume,
    deliverer_container,
    token_volume,
)
from pillion_operator.names import DELIVERER_LABEL, SERVICE_LABEL
from pillion_operator.settings import DelivererDefaults
from pillion_testbed.audit import Request, requests, writes
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until

#: Seconds that something is waited for.
WITHIN = 30.0
#: Annotated by a user to have an object reconciled: it means nothing.
NUDGE = "example.com/nudge"

_ALERT: dict[str, Any] = {"AlertType": 5, "PerceivedSeverity": 6, "ProbableCause": 94}


# ------------------------------------------------------------------ operators


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whom an operator runs as: the audit log tells it from all others."""

    user: str
    kubeconfig: Path
    #: The API server's audit log.
    log: Path

    def written(self) -> list[Request]:
        """What it has written, but to pods, its Lease and Events."""
        return [one for one in writes(self.log, self.user) if one.resource != "pods"]

    def pokes(self) -> list[Request]:
        """What it has written to pods."""
        return [one for one in writes(self.log, self.user) if one.resource == "pods"]

    def listed(self, resource: str) -> list[Request]:
        """Its listings of a kind."""
        wanted = (self.user, "list", resource)
        return [one for one in requests(self.log) if (one.user, one.verb, one.resource) == wanted]


class Identities:
    """Makes service accounts for operators, each with all rights where the operator works."""

    def __init__(
        self, control_plane: ControlPlane, admin: Kubectl, *, home: str, served: str
    ) -> None:
        """``home`` is the operator's own namespace, ``served`` the one that it serves."""
        self._control_plane = control_plane
        self._admin = admin
        self._home = home
        self._served = served
        self._everywhere: list[str] = []

    def make(self, name: str, *, everywhere: bool = False) -> Identity:
        """Make one; ``everywhere``: it works in all namespaces."""
        account = f"{self._home}:{name}"
        role = ("--clusterrole=cluster-admin", f"--serviceaccount={account}")
        self._admin.run("create", "serviceaccount", name, f"--namespace={self._home}")
        if everywhere:
            binding = f"{self._home}-{name}"
            self._admin.run("create", "clusterrolebinding", binding, *role)
            self._everywhere.append(binding)
        else:
            for place in (self._home, self._served):
                binding = f"of-{name}"
                self._admin.run("create", "rolebinding", binding, *role, f"--namespace={place}")
        return Identity(
            user=f"system:serviceaccount:{account}",
            kubeconfig=self._control_plane.service_account_kubeconfig(self._home, name),
            log=self._control_plane.audit_log,
        )

    def close(self) -> None:
        """Remove what is not in a namespace."""
        for binding in self._everywhere:
            self._admin.run("delete", "clusterrolebinding", binding)


def reconciles(operator: OperatorProcess) -> dict[str, float]:
    """How often an operator has reconciled, by kind."""
    found: dict[str, float] = {}
    for sample, value in operator.metrics().items():
        if sample.startswith("pillion_operator_reconciles_total{"):
            kind = sample.partition('kind="')[2].partition('"')[0]
            found[kind] = found.get(kind, 0.0) + value
    return found


def nudge(world: World, operator: OperatorProcess) -> None:
    """Annotate our resources and what is rendered of them; wait until all are reconciled."""
    before = reconciles(operator)
    wanted: Counter[str] = Counter()
    for body in world.ours():
        _annotate(world, body)
        # A service itself is reconciled when something of its own is touched.
        status = body["kind"] == "IndicationService"
        wanted[f"{body['kind']}/status" if status else body["kind"]] += 1
    for secret in world.all("Secret"):
        if SERVICE_LABEL in (secret["metadata"].get("labels") or {}):
            _annotate(world, {**secret, "kind": "Secret"})
            wanted["IndicationService"] = 1

    def reconciled() -> bool:
        now = reconciles(operator)
        return all(
            now.get(kind, 0.0) - before.get(kind, 0.0) >= count for kind, count in wanted.items()
        )

    wait_until(reconciled, within=WITHIN, what=f"reconciles of {dict(wanted)}")


def _annotate(world: World, body: dict[str, Any]) -> None:
    metadata = body["metadata"]
    count = int((metadata.get("annotations") or {}).get(NUDGE, 0)) + 1
    change = {"metadata": {"annotations": {NUDGE: str(count)}}}
    world.patch(body["kind"], metadata["name"], change)


def injecting(operator: OperatorProcess, admin: Kubectl, *, namespace: str) -> None:
    """Have the API server ask the operator about a namespace's pods."""
    admin.apply(json.dumps(webhook_configuration(operator, namespace=namespace)))
    admin.wait(
        f"mutatingwebhookconfiguration/pillion-{operator.namespace}",
        "--for=jsonpath={.webhooks[0].clientConfig.caBundle}",
    )
    # A replica that does not lead loads the certificate a moment after the leader has written it.
    wait_until(operator.is_ready, within=WITHIN, what="the webhook's certificate")


# ------------------------------------------------------------------ resources


def in_force(world: World, kind: str, name: str) -> Any:
    """Wait until a resource as it is now is in force everywhere; return it."""

    def holds() -> bool:
        body = world.get(kind, name) or {}
        current = (body.get("status") or {}).get("observedGeneration")
        return bool(
            condition(body, "Ready")[0] == "True" and current == body["metadata"]["generation"]
        )

    world.until(holds, f"{kind} {name} is in force")
    return world.get(kind, name)


def becomes(world: World, kind: str, name: str, **fields: Any) -> None:
    """Wait until fields of a status have these values."""

    def holds() -> bool:
        status = world.status(kind, name)
        return all(status.get(field) == value for field, value in fields.items())

    world.until(holds, f"{kind} {name}: {fields}")


def deliverer_pod(
    name: str = "publisher",
    *,
    service: str = "default",
    namespace: str = "default",
    grace: int = 1,
) -> dict[str, Any]:
    """A pod as the webhook leaves it, with a deliverer of a service; ``grace`` in seconds."""
    container = deliverer_container(
        service, namespace=namespace, spec={}, defaults=DelivererDefaults(image=IMAGE)
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {DELIVERER_LABEL: service}},
        "spec": {
            "terminationGracePeriodSeconds": grace,
            "initContainers": [{**container, "restartPolicy": "Always"}],
            "containers": [{"name": "application", "image": "registry.example/app:1"}],
            "volumes": [configuration_volume(service), data_volume({}), token_volume()],
        },
    }


# ------------------------------------------------------------------ deliverers


def serving(world: World, pod: DelivererPod, *, port: int = 8288) -> str:
    """Wait until a pod's deliverer runs on all that was applied; return where to publish.

    ``port`` is that of its administration.
    """
    world.converges()

    def holds() -> bool:
        try:
            with urllib.request.urlopen(f"{pod.url(port)}/v1/queues", timeout=10) as answer:
                revision = json.load(answer)["revision"]
        except urllib.error.HTTPError as error:
            error.close()
            return False
        return bool(revision == world.revision())

    wait_until(holds, within=WITHIN, what=f"pod {pod.name} runs on the configuration")
    return pod.url(8288)


def publish(
    url: str,
    *,
    count: int = 1,
    ack: str = "delivered",
    of: str = "CIM_AlertIndication",
    **properties: Any,
) -> None:
    """Publish so many alerts at a deliverer's door, ``of`` a class, with ``properties`` beside
    those they need."""
    alert = {"class": of, "properties": {**_ALERT, **properties}}
    request = urllib.request.Request(
        f"{url}/v1/indications?ack={ack}&timeout=20",
        data=(json.dumps(alert) + "\n").encode() * count,
        headers={"Content-Type": "application/x-ndjson"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def queue(url: str, name: str) -> Any:
    """What a deliverer's administration says of one queue."""
    with urllib.request.urlopen(f"{url}/v1/queues/{name}", timeout=10) as answer:
        return json.load(answer)


@contextmanager
def held(pid: int) -> Iterator[None]:
    """A process that does nothing, as one whose node hangs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
