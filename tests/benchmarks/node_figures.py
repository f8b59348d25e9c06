"""The figures that users ask for first, measured on a node: ``make bench-node``. No goal is
asserted: the report has the figures.

The node's control plane, kubelet, Spark's three JVMs, deliverers and listeners share the machine's
cores, so each figure is what all of it together comes to.
"""

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from cluster.breakable import PATIENT, TELEMETRY_PORT, values
from cluster.starts import board, listening_namespace, pod, ran_at, resources
from cluster.story import (
    EXAMPLE,
    SYSTEM,
    Installation,
    submitted,
)
from cluster.witnesses import ask
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support.weather import ALERTS

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

#: Pods of each sort whose start is timed.
STARTS = 5
#: Years of weather that one job publishes: some 100,000 alerts.
COPIES = 200
JOB = "local:///opt/pillion/jobs/weather_alerts.py"
#: Of a sidecar's metrics: what it took as new, what it has delivered, and its memory.
TAKEN = 'pillion_intake_indications_total{kind="ndjson",outcome="accepted"}'
DELIVERED = "pillion_indications_delivered_total{"
RESIDENT = "process_resident_memory_bytes"
FIRST = json.dumps(
    {
        "class": "CIM_AlertIndication",
        "properties": {"AlertType": 5, "PerceivedSeverity": 6, "ProbableCause": 1},
    }
)
SETTINGS = {
    # They stay when they have ended, so that their containers' logs can be read.
    "spark.kubernetes.executor.deleteOnTermination": "false",
    # None begins while the other is not there: both are asked before that.
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "240s",
}
#: Seconds that a sidecar has at the end of its executor: more than the listener needs for all.
GRACE = 100


@pytest.fixture
def namespace(pillion: Installation, deliverer_image: str) -> Iterator[Kubectl]:
    with listening_namespace(pillion.kubectl, deliverer_image) as kubectl:
        yield kubectl


def test_from_helm_install_to_the_first_delivery(
    pillion: Installation, namespace: Kubectl, deliverer_image: str, report: Report
) -> None:
    """On a cluster that has never had it, with images on the node and a listener that runs."""
    pillion.uninstall()
    kinds = namespace.run("get", "crd", "--output=name").split()
    ours = [one for one in kinds if one.endswith(".pillion.dev")]
    namespace.run("delete", *ours, "--request-timeout=0")
    namespace.run("delete", "secret,lease", "--all", f"--namespace={SYSTEM}")
    began = time.monotonic()
    pillion.install()
    installed = time.monotonic()
    namespace.apply(resources(namespace))
    namespace.wait("indicationservice/default", "--for=condition=Ready", within=60)
    publish = ("sh", "-c", f"echo '{FIRST}' | pillion publish -")
    first = pod("first", image=deliverer_image, command=publish, inject=True)
    namespace.apply(json.dumps(first))
    wait_until(lambda: board(namespace).summary()["received"] >= 1, within=60, what="the first")
    ended = time.monotonic()
    report.figure(
        "helm install until the first indication is delivered",
        f"{ended - began:.1f} s; helm install --wait {installed - began:.1f} s of it",
    )


def started_after(kubectl: Kubectl, name: str, *, image: str, inject: bool) -> float:
    """Seconds from the request for a pod to the first moment of its own container's program."""
    began = time.time()
    told = ran_at(kubectl, name, image=image, inject=inject)
    kubectl.run("delete", "pod", name, "--grace-period=1", "--wait=false")
    return told - began


def test_the_start_of_a_pod_with_a_sidecar(
    namespace: Kubectl, deliverer_image: str, report: Report
) -> None:
    """Beside pods without, in turns."""
    namespace.apply(resources(namespace))
    namespace.wait("indicationservice/default", "--for=condition=Ready", within=60)
    took: dict[bool, list[float]] = {False: [], True: []}
    with report.step(f"figures: {STARTS} pods with a sidecar and {STARTS} without are started"):
        for turn in range(STARTS):
            for inject, times in took.items():
                name = f"{'with' if inject else 'without'}-{turn}"
                times.append(started_after(namespace, name, image=deliverer_image, inject=inject))
    without, beside = (statistics.median(times) for times in took.values())
    report.figure(
        "start of a pod that the sidecar adds (goal 1.5 s)",
        f"{beside - without:.2f} s: {beside:.2f} s with, {without:.2f} s without, medians of"
        f" {STARTS}; at most {max(took[True]):.2f} s and {max(took[False]):.2f} s",
    )


@dataclass(slots=True, kw_only=True)
class Sampled:
    """What the executors' sidecars have told while a job ran."""

    #: By pod: moments, each with what it had taken and delivered until then.
    taken: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    resident: float = 0.0

    def ask(self, addresses: dict[str, str]) -> float:
        """Ask each once; returns what all have taken."""
        for name, address in addresses.items():
            try:
                lines = ask(f"http://{address}:{TELEMETRY_PORT}/metrics").decode().splitlines()
            except OSError:  # it has ended
                continue
            told = {begin: sum(values(lines, begin)) for begin in (TAKEN, DELIVERED, RESIDENT)}
            moments = self.taken.setdefault(name, [])
            moments.append((time.monotonic(), told[TAKEN], told[DELIVERED]))
            self.resident = max(self.resident, told[RESIDENT])
        return sum(moments[-1][1] for moments in self.taken.values())

    def waited(self) -> float:
        """What was not delivered yet when they were last asked."""
        return sum(told[-1][1] - told[-1][2] for told in self.taken.values())

    def seconds(self) -> float:
        """From the last moment at which none had taken anything to the first at which all was
        taken: the longer, by at most one round of asking at each end."""
        begins, ends = [], []
        for moments in self.taken.values():
            begins.append(max(at for at, taken, _ in moments if not taken))
            ends.append(min(at for at, taken, _ in moments if taken == moments[-1][1]))
        return max(ends) - min(begins)


def executors_addresses(kubectl: Kubectl, names: Sequence[str]) -> dict[str, str]:
    """Their pods' addresses, by their names."""
    return {name: kubectl.json("get", "pod", name)["status"]["podIP"] for name in names}


def moments(kubectl: Kubectl, name: str, container: str) -> list[datetime]:
    """When a container of a pod wrote each line of its log."""
    said = kubectl.run("logs", name, f"--container={container}", "--timestamps", "--tail=50")
    return [datetime.fromisoformat(line.split(" ", 1)[0]) for line in said.splitlines()]


def test_a_job_by_two_executors(
    namespace: Kubectl, weather_image: str, tmp_path: Path, report: Report
) -> None:
    """Alerts that are durable before their tasks end, while their listener gets them; then what is
    left when the executors end is delivered."""
    namespace.apply(resources(namespace, shutdownGracePeriodSeconds=GRACE, **PATIENT))
    namespace.apply(EXAMPLE / "resources" / "spark.yaml")
    namespace.wait("indicationservices", "--all", "--for=condition=Ready", within=60)
    count = ALERTS * COPIES
    arguments = (JOB, "--copies", str(COPIES), "--ack", "durable")
    sampled = Sampled()
    with (
        report.step(f"figures: a Spark job publishes {count:,} alerts, durable, by 2 executors"),
        submitted(
            namespace, *arguments, image=weather_image, folder=tmp_path, settings=SETTINGS
        ) as job,
    ):
        names = job.executors(2)
        addresses = executors_addresses(namespace, names)
        wait_until(
            lambda: sampled.ask(addresses) >= count or not job.runs(),
            within=240,
            what=f"{count} alerts are taken",
        )
        printed = job.wait()
    assert f"accepted={count}," in printed
    rate = 60 * count / sampled.seconds()
    report.figure(
        "alerts a minute, durable, through 2 executors (goal 300,000)",
        f"{rate:,.0f}: {count:,} in {sampled.seconds():.1f} s, while"
        f" {count - sampled.waited():,.0f} of them were delivered",
    )
    report.figure(
        "memory of a sidecar in the job, resident, at most", f"{sampled.resident / 2**20:.0f} MiB"
    )
    with report.step("figures: the executors' sidecars deliver what is left, and end"):
        for name in names:
            ended = f"pod/{name}"
            namespace.wait(ended, "--for=jsonpath={.status.phase}=Succeeded", within=GRACE + 30)
    assert board(namespace).summary()["received"] == count
    drains = [
        moments(namespace, name, "pillion-deliverer")[-1] - moments(namespace, name, "spark")[-1]
        for name in names
    ]
    report.figure(
        f"end of an executor until its sidecar has ended ({sampled.waited():,.0f} alerts waited in"
        " both)",
        " and ".join(f"{drain.total_seconds():.1f} s" for drain in drains),
    )
