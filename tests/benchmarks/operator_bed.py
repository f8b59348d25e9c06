"""What the parts of the operator's benchmark stand on: a control plane, and operators on it."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.measuring import cpu_seconds
from cluster.operators import OperatorProcess, Operators
from pillion_testbed.audit import writes
from pillion_testbed.binaries import find_binaries
from pillion_testbed.client import Client, client_of
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.helm import CRDS
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.tiers import API_SERVER

#: The one that is measured, one without operator and webhook, and two for the last part alone.
NAMESPACE, BARE, OTHERS = "bench", "bare", ("more-1", "more-2")
OPERATOR, OPERATOR_NAMESPACE = "operator", "pillion-system"
#: Seconds that any wait may last.
LONGEST = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """A control plane with Pillion's kinds, and the ways to it."""

    plane: ControlPlane
    kubectl: Kubectl
    #: As admin.
    client: Client
    folder: Path

    @contextmanager
    def operators(self, *watched: str) -> Iterator[Operators]:
        """Operators that serve these namespaces, or all; they end with the context."""
        operators = Operators(
            # Each has a log of its own: what one announces is read there.
            folder=Path(tempfile.mkdtemp(dir=self.folder)),
            kubeconfig=self.plane.kubeconfig(OPERATOR),
            namespace=OPERATOR_NAMESPACE,
            watched=watched,
        )
        try:
            yield operators
        finally:
            operators.close()

    def written(self) -> int:
        """What the operator has written so far, apart from its Lease and Events."""
        return sum(1 for _ in writes(self.plane.audit_log, OPERATOR))


@asynccontextmanager
async def bed(folder: Path) -> AsyncIterator[Bed]:
    """Start everything that the operator needs."""
    binaries = find_binaries(os.environ)
    plane = ControlPlane(folder / "control-plane", binaries, audit=True)
    await asyncio.to_thread(plane.start)
    try:
        kubectl = Kubectl(program=binaries.kubectl(), kubeconfig=plane.kubeconfig())
        await asyncio.to_thread(_prepare, kubectl)
        async with client_of(plane.url, ca=plane.ca, token=plane.token("admin")) as client:
            yield Bed(plane=plane, kubectl=kubectl, client=client, folder=folder)
    finally:
        await asyncio.to_thread(plane.stop)


def _prepare(kubectl: Kubectl) -> None:
    kubectl.apply(CRDS, "--server-side")
    kubectl.wait("-f", str(CRDS), "--for=condition=Established")
    role = ("--clusterrole=cluster-admin", f"--user={OPERATOR}")
    kubectl.run("create", "clusterrolebinding", OPERATOR, *role)
    for name in (OPERATOR_NAMESPACE, NAMESPACE, BARE, *OTHERS):
        kubectl.run("create", "namespace", name)
        kubectl.wait("serviceaccount/default", "--for=create", f"--namespace={name}")


class Spent:
    """The CPU that the operator and the API server use from now on."""

    def __init__(self, bed: Bed, operator: OperatorProcess) -> None:
        self._pids = (operator.running.pid, bed.plane.pids()[API_SERVER])
        self._before = self._now()

    def seconds(self) -> tuple[float, float]:
        """Of the operator, and of the API server."""
        operator, server = (
            now - before for now, before in zip(self._now(), self._before, strict=True)
        )
        return operator, server

    def _now(self) -> list[float]:
        return [cpu_seconds(pid) for pid in self._pids]


async def start(operators: Operators) -> OperatorProcess:
    """Start an operator that looks at deliverers as seldom as it does by itself."""
    return await asyncio.to_thread(operators.start, "--gather-interval", "10")
