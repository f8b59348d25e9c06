"""What the people of the story do on a node: install Pillion, run listeners, submit Spark jobs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pillion_testbed.helm import Helm
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "spark-on-kubernetes"
SYSTEM = "pillion-system"

JSON = dict[str, Any]

RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def listener_objects(
    name: str, *, image: str, command: Sequence[str], ports: Mapping[int, int], probe: JSON
) -> list[JSON]:
    """A listener's Deployment and Service, under Pod Security "restricted".

    ``ports`` are those of the Service, each with the container's behind it.
    """
    labels = {"app": name}
    container = {
        "name": "listener",
        "image": image,
        "imagePullPolicy": "Never",
        "args": list(command),
        "readinessProbe": {**probe, "periodSeconds": 1, "timeoutSeconds": 10},
        "securityContext": RESTRICTED_CONTAINER,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {
        "securityContext": RESTRICTED_POD,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    served = [
        {"name": f"p{port}", "port": port, "targetPort": target} for port, target in ports.items()
    ]
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": labels, "ports": served},
        },
    ]


def deployed(
    kubectl: Kubectl,
    name: str,
    *,
    image: str,
    command: Sequence[str],
    ports: Mapping[int, int],
    probe: JSON,
) -> None:
    """Run a listener, and wait until it listens."""
    objects = listener_objects(name, image=image, command=command, ports=ports, probe=probe)
    kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    kubectl.run("rollout", "status", f"deployment/{name}", "--timeout=60s", "--request-timeout=0")


def proxied(kubectl: Kubectl, service: str, path: str, *, input: str | None = None) -> str:
    """Ask a Service, ``NAME:PORT``, through the API server; with ``input`` by POST."""
    url = f"/api/v1/namespaces/{kubectl.namespace}/services/{service}/proxy/{path}"
    if input is None:
        return kubectl.run("get", "--raw", url)
    return kubectl.run("create", "--raw", url, "-f", "-", input=input)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An indication as a listener took it."""

    identifier: str
    context: str | None
    number: int | None
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEventsListener:
    """A ``pillion listen`` pod."""

    kubectl: Kubectl
    name: str
    port: int = 8080

    def deploy(self, image: str, *options: str) -> None:
        """Run it, and wait until it listens; ``options`` are those of ``pillion listen``."""
        command = ("listen", "--address", "0.0.0.0", "--port", str(self.port), "--keep", "1000000")
        deployed(
            self.kubectl,
            self.name,
            image=image,
            command=(*command, *options),
            ports={self.port: self.port},
            probe={"httpGet": {"path": "/-/summary", "port": self.port}},
        )

    def behave(self, **behaviour: object) -> None:
        """Change how it behaves: the options of ``pillion listen``'s bad behaviour."""
        proxied(
            self.kubectl, f"{self.name}:{self.port}", "-/behaviour", input=json.dumps(behaviour)
        )

    def summary(self) -> dict[str, int]:
        """Return its counts."""
        said = proxied(self.kubectl, f"{self.name}:{self.port}", "-/summary")
        found: dict[str, int] = json.loads(said)
        return found

    def wait_for(self, count: int, *, within: float = 60.0) -> list[Arrival]:
        """Return what arrived, once it was so many."""
        wait_until(
            lambda: self.summary()["received"] >= count,
            within=within,
            what=f"{count} indications at {self.name}, which has {self.summary()}",
        )
        return self.arrivals()

    def arrivals(self) -> list[Arrival]:
        """Return what arrived, in that order."""
        found: list[Arrival] = []
        while True:
            path = f"-/arrivals?after={len(found)}"
            said = proxied(self.kubectl, f"{self.name}:{self.port}", path)
            if not said:
                return found
            for line in map(json.loads, said.splitlines()):
                found.append(
                    Arrival(
                        identifier=line["identifier"],
                        context=line["context"],
                        number=line["number"],
                        verdict=line["verdict"],
                    )
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class PywbemListener:
    """A pod with the listener of pywbem, which knows nothing of Pillion."""

    kubectl: Kubectl
    name: str

    def deploy(self, image: str) -> None:
        """Run it, and wait until it listens: CIM-XML on port 5990."""
        deployed(
            self.kubectl,
            self.name,
            image=image,
            command=(),
            ports={5990: 5988, 8080: 8080},
            probe={"httpGet": {"path": "/healthz", "port": 8080}},
        )

    def count(self) -> int:
        """Return how many indications arrived."""
        found = json.loads(proxied(self.kubectl, f"{self.name}:8080", "count"))
        return int(found["count"])

    def identifiers(self) -> list[str]:
        """Return the IndicationIdentifiers of what arrived, in that order."""
        said = proxied(self.kubectl, f"{self.name}:8080", "record")
        lines = (json.loads(line) for line in said.splitlines())
        return [line["properties"]["IndicationIdentifier"] for line in lines]

    def wait_for(self, count: int, *, within: float = 60.0) -> list[str]:
        """Return the identifiers of what arrived, once so many were different."""
        wait_until(
            lambda: self.count() >= count and len(set(self.identifiers())) >= count,
            within=within,
            what=f"{count} indications at {self.name}, which has {self.count()}",
        )
        return self.identifiers()


def flight_board(kubectl: Kubectl) -> CloudEventsListener:
    return CloudEventsListener(kubectl=kubectl, name="flight-board")


def operations(kubectl: Kubectl) -> PywbemListener:
    return PywbemListener(kubectl=kubectl, name="operations-listener")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Pillion as ``helm install`` makes it."""

    helm: Helm
    kubectl: Kubectl
    image: str

    def install(self, *values: str) -> float:
        """Install and wait; return the seconds that it took."""
        repository, _, tag = self.image.rpartition(":")
        began = time.monotonic()
        self.helm.upgrade(
            SYSTEM,
            f"image.repository={repository}",
            f"image.tag={tag}",
            "image.pullPolicy=Never",
            *values,
            options=("--wait", "--timeout=120s"),
        )
        return time.monotonic() - began

    def uninstall(self) -> None:
        """Uninstall, until everything of the release is gone."""
        self.helm.uninstall(SYSTEM)

    def operator_logs(self) -> str:
        """Return what the operator has logged."""
        return self.kubectl.run(
            "logs",
            "--tail=-1",
            "--selector=app.kubernetes.io/component=operator",
            f"--namespace={SYSTEM}",
        )


def spark_pods(kubectl: Kubectl, role: str) -> list[str]:
    """Return the names of the pods of all jobs with a Spark role, oldest first."""
    printed = kubectl.run(
        "get",
        "pods",
        f"--selector=spark-role={role}",
        "--output=name",
        "--sort-by=.metadata.creationTimestamp",
    )
    return [line.removeprefix("pod/") for line in printed.split()]


class SparkJob:
    """A job under way: ``examples/spark-on-kubernetes/submit.sh``, as a data engineer runs it."""

    def __init__(
        self,
        process: "subprocess.Popen[str]",
        *,
        kubectl: Kubectl,
        log: Path,
        earlier: Collection[str] = (),
    ) -> None:
        """``earlier`` are the drivers of other jobs, which stay after their end."""
        self._process = process
        self._kubectl = kubectl
        self._log = log
        self._earlier = earlier

    @property
    def printed(self) -> str:
        return self._log.read_text()

    def runs(self) -> bool:
        """Whether spark-submit has not ended."""
        return self._process.poll() is None

    def driver(self, *, within: float = 90.0) -> str:
        """Return the driver's name, once there is one."""

        def found() -> str | None:
            names = [name for name in self.pods("driver") if name not in self._earlier]
            if not names and not self.runs():
                raise AssertionError(f"no driver was made: {self.printed[-3000:]}")
            return names[0] if names else None

        wait_until(lambda: found() is not None, within=within, what="a driver")
        name = found()
        assert name is not None
        return name

    def pods(self, role: str) -> list[str]:
        """Return the names of the pods with a Spark role, oldest first."""
        return spark_pods(self._kubectl, role)

    def executors(self, count: int, *, within: float = 90.0) -> list[str]:
        """Return the executors' names, once ``count`` of them are ready."""

        def ready() -> list[str]:
            found = self._kubectl.json("get", "pods", "--selector=spark-role=executor")
            return [
                pod["metadata"]["name"]
                for pod in found["items"]
                if "deletionTimestamp" not in pod["metadata"] and _is_ready(pod)
            ]

        what = f"{count} ready executors"
        wait_until(lambda: not self.runs() or len(ready()) >= count, within=within, what=what)
        if not self.runs():
            raise AssertionError(f"it ended before it had {what}: {self.printed[-4000:]}")
        return ready()

    def wait(self, *, within: float = 240.0) -> str:
        """Wait for its end and return what was printed; AssertionError where it failed."""
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {within} s: {self.printed[-3000:]}") from None
        assert code == 0, self.printed[-4000:]
        return self.printed

    def kill(self) -> None:
        """End what submits, the JVM of spark-submit too; the driver runs on."""
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()


def _is_ready(pod: JSON) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@contextmanager
def submitted(
    kubectl: Kubectl,
    *arguments: str,
    image: str,
    folder: Path,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkJob]:
    """Submit a job to the namespace of ``kubectl``; ``arguments`` begin with the script."""
    given = {
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.container.image.pullPolicy": "Never",
        **(settings or {}),
    }
    configuration = folder / "kubeconfig"
    configuration.write_bytes(kubectl.kubeconfig.read_bytes())
    configuration.chmod(0o600)
    environment = {
        **os.environ,
        "KUBECONFIG": str(configuration),
        "PATH": f"{Path(sys.executable).parent}:{kubectl.program.parent}:{os.environ['PATH']}",
        "SPARK_ARGS": " ".join(f"--conf {name}={value}" for name, value in given.items()),
    }
    subprocess.run(
        [kubectl.program, "config", "set-context", "--current", f"--namespace={kubectl.namespace}"],
        env=environment,
        check=True,
        capture_output=True,
    )
    earlier = spark_pods(kubectl, "driver")
    log = folder / "submit.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [EXAMPLE / "submit.sh", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    job = SparkJob(process, kubectl=kubectl, log=log, earlier=earlier)
    try:
        yield job
    finally:
        if job.runs():
            job.kill()


def alerts_of_a_batch() -> set[str]:
    """The identifiers of what the rules of the job make of the whole year."""
    printed = subprocess.run(
        [sys.executable, "-m", "support.weather_identifiers", "weather.nyc.rules"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(printed.stdout.split())
