"""The operator as a process, for tests that see it from the outside."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.deliverer_pod import PILLION
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.processes import ProcessFailed, Running, Spawner
from pillion_testbed.rest import wait_until

#: Seconds that an operator has to list the cluster, and to end when it is told to.
START = 30.0
GRACE = 15.0
#: Between two looks at its log.
LOOK = 0.05

IMAGE = "registry.example/pillion:test"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorProcess:
    """One ``pillion operator`` that has started."""

    running: Running
    #: Where its Lease and Secrets are.
    namespace: str
    telemetry: str
    webhook: str
    #: Empty: it serves none.
    console: str = ""

    def metrics(self) -> dict[str, float]:
        """Its metrics, each sample by name and labels as they are printed."""
        samples = {}
        for line in self.read("/metrics").splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                samples[name] = float(value)
        return samples

    def read(self, path: str) -> str:
        """What it answers on its telemetry port."""
        with urllib.request.urlopen(f"{self.telemetry}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def is_ready(self) -> bool:
        """Whether a Service would lead to it: it knows the cluster, and has its certificate."""
        try:
            return self.read("/readyz") == "ok\n"
        except urllib.error.HTTPError as answer:
            answer.close()
            return False

    def records(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        return [json.loads(line) for line in _lines(self.running.log) if line.startswith("{")]

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        return self.running.stop(grace=GRACE)

    def kill(self) -> None:
        """SIGKILL."""
        self.running.stop()


class Operators:
    """Starts operators for one test, and ends what is left of them."""

    def __init__(
        self, *, folder: Path, kubeconfig: Path, namespace: str, watched: tuple[str, ...]
    ) -> None:
        """``namespace`` is the operator's own, ``watched`` are those that it serves."""
        self._folder = folder
        self._kubeconfig = kubeconfig
        self.namespace = namespace
        self._watched = watched
        self._spawner = Spawner()
        self._started: list[Running] = []

    def start(
        self,
        *options: str,
        kubeconfig: Path | None = None,
        everywhere: bool = False,
        loopback: bool = True,
    ) -> OperatorProcess:
        """Start one and wait until it knows the cluster.

        ``everywhere``: it serves all namespaces. ``loopback``: destinations may be on loopback.
        """
        begun = self.begin(
            *options, kubeconfig=kubeconfig, everywhere=everywhere, loopback=loopback
        )
        return self.started(begun)

    def begin(
        self,
        *options: str,
        kubeconfig: Path | None = None,
        everywhere: bool = False,
        loopback: bool = True,
    ) -> Running:
        """Start one, and do not wait for anything."""
        number = len(self._started)
        log = self._folder / f"operator-{number}.log"
        watched = () if everywhere else self._watched
        scope = [option for name in watched for option in ("--namespace", name)]
        running = self._spawner.start(
            f"operator {number}",
            [
                *PILLION,
                "operator",
                *scope,
                *("--operator-namespace", self.namespace),
                *("--deliverer-image", IMAGE),
                *("--kubeconfig", str(kubeconfig or self._kubeconfig)),
                *("--webhook", "127.0.0.1:0", "--webhook-host", "127.0.0.1"),
                *("--webhook-configuration", f"pillion-{self.namespace}"),
                *("--telemetry", "127.0.0.1:0"),
                *("--gather-interval", "0.5"),
                *(("--allow-loopback",) if loopback else ()),
                *options,
            ],
            log=log,
        )
        self._started.append(running)
        return running

    def started(self, running: Running) -> OperatorProcess:
        """Wait until one that was begun knows the cluster."""
        addresses = self._announced(running)
        return OperatorProcess(running=running, namespace=self.namespace, **addresses)

    def _announced(self, running: Running) -> dict[str, str]:
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            for line in _lines(running.log):
                if line.startswith('{"telemetry"'):
                    addresses: dict[str, str] = json.loads(line)
                    return addresses
            if running.exit_code() is not None:
                raise running.failed("ended")
            time.sleep(LOOK)
        raise running.failed(f"did not start within {START:g} s")

    def close(self) -> None:
        """End what still runs."""
        for running in self._started:
            if running.exit_code() is None:
                running.stop(grace=GRACE)
        self._spawner.close()


def _lines(log: Path) -> list[str]:
    """The lines of a log, but not one that is half written."""
    return [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


@contextmanager
def running_operators(
    kubectl: Kubectl, *, folder: Path, namespace: str, watched: tuple[str, ...]
) -> Iterator[Operators]:
    """Operators whose own namespace is made for them, and removed without waiting."""
    kubectl.run("create", "namespace", namespace)
    operators = Operators(
        folder=folder, kubeconfig=kubectl.kubeconfig, namespace=namespace, watched=watched
    )
    try:
        yield operators
    finally:
        operators.close()
        kubectl.run("delete", "namespace", namespace, "--wait=false")


def webhook_configuration(
    operator: OperatorProcess, *, namespace: str, failure_policy: str = "Fail"
) -> dict[str, Any]:
    """A MutatingWebhookConfiguration, as the chart's, that leads to ``operator``.

    For the pods of one namespace alone. The operator writes caBundle.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": f"pillion-{operator.namespace}"},
        "webhooks": [
            {
                "name": "inject.pillion.dev",
                "clientConfig": {"url": f"{operator.webhook}/mutate"},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                        "scope": "Namespaced",
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "failurePolicy": failure_policy,
                "reinvocationPolicy": "IfNeeded",
                "sideEffects": "None",
                "timeoutSeconds": 5,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def validating_configuration(operator: OperatorProcess, *, namespace: str) -> dict[str, Any]:
    """A ValidatingWebhookConfiguration, as the chart's, that leads to ``operator``.

    For the resources of one namespace alone. The operator writes caBundle.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"pillion-{operator.namespace}"},
        "webhooks": [
            {
                "name": "validate.pillion.dev",
                "clientConfig": {"url": operator.webhook.removesuffix("/mutate") + "/validate"},
                "rules": [
                    {
                        "apiGroups": ["pillion.dev"],
                        "apiVersions": ["v1alpha1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["*"],
                        "scope": "Namespaced",
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "failurePolicy": "Ignore",
                "matchPolicy": "Equivalent",
                "sideEffects": "None",
                # The chart's are 3: here a machine may be busy.
                "timeoutSeconds": 10,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


@contextmanager
def judging(operator: OperatorProcess, admin: Kubectl, *, namespace: str) -> Iterator[None]:
    """Have the API server ask ``operator`` about pods and resources of a namespace meanwhile."""
    configurations = [
        webhook_configuration(operator, namespace=namespace),
        validating_configuration(operator, namespace=namespace),
    ]
    named = [f"{one['kind']}/{one['metadata']['name']}".lower() for one in configurations]
    wrong = {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": "IndicationFilter",
        "metadata": {"name": "tried", "namespace": namespace},
        "spec": {"query": "nothing"},
    }
    admin.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": configurations}))
    try:
        for name in named:
            admin.wait(name, "--for=jsonpath={.webhooks[0].clientConfig.caBundle}")
        # The API server takes a moment to notice.
        wait_until(lambda: _refuses(admin, wrong), within=START, what="a wrong query is refused")
        yield
    finally:
        admin.run("delete", *named)


def _refuses(admin: Kubectl, resource: dict[str, Any]) -> bool:
    try:
        admin.apply(json.dumps(resource), "--dry-run=server")
    except KubectlFailed as error:
        return "validate.pillion.dev" in error.printed
    return False


__all__ = [
    "OperatorProcess",
    "Operators",
    "ProcessFailed",
    "judging",
    "running_operators",
    "validating_configuration",
    "webhook_configuration",
]
