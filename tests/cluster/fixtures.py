"""pytest's fixtures for tests on a real API server."""

import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio
from kubernetes.aio.config import new_client_from_config

from cluster.bad_days import BadDay, bad_day
from cluster.convergence import World
from cluster.kubelet import Kubelet, running_kubelet
from cluster.operators import Operators, running_operators
from cluster.pods import PodRunner, running_pods
from cluster.scenes import Identities
from pillion_operator.cluster.api import Api
from pillion_testbed.binaries import BinariesUnavailable, find_binaries
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.existing import ExistingCluster, existing_cluster
from pillion_testbed.helm import CRDS
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.tiers import CONTROL_PLANE
from pillion_testbed.users import KUBELET

SKIP = "PILLION_SKIP_CLUSTER"
SKIPPED = f"{SKIP} is set: nothing was tried on a real API server"

#: Why the programs could not be had.
UNAVAILABLE = pytest.StashKey[str]()

Cluster = ControlPlane | ExistingCluster


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what is missing before the first test: no test's time-out has room for that."""
    wanted = any(item.get_closest_marker("cluster") for item in session.items)
    if not wanted or session.config.option.collectonly or os.environ.get(SKIP):
        return
    if os.environ.get("USE_EXISTING_CLUSTER"):
        return
    try:
        find_binaries(os.environ).prepare([one.name for one in CONTROL_PLANE])
    except BinariesUnavailable as error:
        session.config.stash[UNAVAILABLE] = str(error)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get(SKIP):
        terminalreporter.write_line(f"CLUSTER TESTS SKIPPED: {SKIPPED}", yellow=True, bold=True)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster: one of our own, or the one that the environment names. With all of our kinds."""
    if os.environ.get(SKIP):
        pytest.skip(SKIPPED)
    found = existing_cluster(os.environ)
    if found is not None:
        yield found
        return
    if UNAVAILABLE in pytestconfig.stash:
        why = pytestconfig.stash[UNAVAILABLE]
        pytest.fail(f"no cluster: {why}\n{SKIP}=1 leaves these tests out", pytrace=False)
    folder = Path(tempfile.mkdtemp(prefix="pillion-test-"))
    plane = ControlPlane(folder, find_binaries(os.environ), audit=True)
    plane.start()
    try:
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def control_plane(cluster: Cluster) -> ControlPlane:
    """The control plane of our own, for tests that stop it, read its audit log or add users."""
    if not isinstance(cluster, ControlPlane):
        pytest.skip("needs a control plane of its own: unset USE_EXISTING_CLUSTER")
    return cluster


@pytest.fixture(scope="session")
def admin_kubectl(cluster: Cluster) -> Kubectl:
    """kubectl as administrator, without a namespace."""
    program = find_binaries(os.environ).kubectl()
    return Kubectl(program=program, kubeconfig=cluster.kubeconfig())


@pytest.fixture(scope="session")
def crds(admin_kubectl: Kubectl) -> list[str]:
    """Our kinds, served by the API server: the names of their CustomResourceDefinitions."""
    admin_kubectl.apply(CRDS, "--server-side", "--force-conflicts")
    admin_kubectl.wait("-f", str(CRDS), "--for=condition=Established")
    found = admin_kubectl.json("get", "-f", str(CRDS))
    return sorted(item["metadata"]["name"] for item in found["items"])


@pytest.fixture
def namespace(admin_kubectl: Kubectl) -> Iterator[str]:
    """A new namespace. It is deleted after the test, which does not wait for that."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    admin_kubectl.run("create", "namespace", name)
    # Until the controller has made it, the API server refuses every pod.
    admin_kubectl.wait("serviceaccount/default", "--for=create", f"--namespace={name}")
    yield name
    admin_kubectl.run("delete", "namespace", name, "--wait=false")


@pytest.fixture
def kubectl(admin_kubectl: Kubectl, namespace: str) -> Kubectl:
    """kubectl as administrator, in this test's namespace."""
    return Kubectl(
        program=admin_kubectl.program, kubeconfig=admin_kubectl.kubeconfig, namespace=namespace
    )


@pytest_asyncio.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """The operator's own client, as administrator."""
    client = await new_client_from_config(  # type: ignore[no-untyped-call]
        str(cluster.kubeconfig()), persist_config=False
    )
    async with client:
        yield Api(client)


@pytest.fixture
def operators(
    admin_kubectl: Kubectl, crds: list[str], namespace: str, tmp_path: Path
) -> Iterator[Operators]:
    """Starts operators that serve this test's namespace, from a namespace of their own."""
    with running_operators(
        admin_kubectl, folder=tmp_path, namespace=f"{namespace}-operator", watched=(namespace,)
    ) as made:
        yield made


@pytest.fixture
def day(
    control_plane: ControlPlane,
    admin_kubectl: Kubectl,
    crds: list[str],
    namespace: str,
    tmp_path: Path,
) -> Iterator[BadDay]:
    """Operators that serve this test's namespace through a proxy that does harm when told to."""
    with bad_day(control_plane, admin_kubectl, folder=tmp_path, namespaces=(namespace,)) as made:
        yield made


@pytest.fixture
def world(control_plane: ControlPlane, crds: list[str], namespace: str) -> Iterator[World]:
    """This test's namespace, seen and changed as its users do."""
    with closing(World(control_plane, namespace)) as made:
        yield made


@pytest.fixture
def identities(
    control_plane: ControlPlane, admin_kubectl: Kubectl, operators: Operators, namespace: str
) -> Iterator[Identities]:
    """Makes service accounts for operators, so that the audit log tells them apart."""
    made = Identities(control_plane, admin_kubectl, home=operators.namespace, served=namespace)
    with closing(made):
        yield made


@pytest.fixture
def kubelet(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Kubelet]:
    """``pod_runner`` for tests that block."""
    with running_kubelet(control_plane, namespace, folder=tmp_path / "pods") as running:
        yield running


@pytest_asyncio.fixture
async def pod_runner(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[PodRunner]:
    """The kubelet's part for this test's namespace: see ``cluster.pods``."""
    async with running_pods(
        namespace,
        folder=tmp_path / "pods",
        server=control_plane.url,
        ca=control_plane.ca,
        token=control_plane.token(KUBELET.name),
    ) as runner:
        yield runner
