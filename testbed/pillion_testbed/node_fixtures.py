"""pytest's fixtures for tests on real nodes: see ``fixtures`` for those that need none."""

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pillion_testbed.binaries import BinariesUnavailable, find_binaries
from pillion_testbed.existing import ExistingCluster, existing_cluster
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.machine import ImportFailed
from pillion_testbed.node_cluster import NodeCluster, free_index, write_own
from pillion_testbed.node_files import PROBE_IMAGE
from pillion_testbed.report import FILE, Report, table
from pillion_testbed.requirements import RequirementsMissing, check_requirements

SKIP = "PILLION_SKIP_NODE"
SKIPPED = f"{SKIP} is set: nothing was tried on a real node"
IMPORT = "PILLION_IMAGE_IMPORT"
#: The logs of the cluster's own processes, when it has gone.
LOGS = Path(".cache/e2e-logs")
#: Seconds for a test on a node, unless it says otherwise itself.
TIMEOUT = 300

REPORT = pytest.StashKey[Report]()


@dataclass(frozen=True, slots=True)
class ExistingNodes:
    """Somebody's cluster. Tests that harm its nodes cannot use it."""

    cluster: ExistingCluster

    def kubeconfig(self) -> Path:
        """Return its kubeconfig, which has an administrator's rights."""
        return self.cluster.kubeconfig()

    def has_image(self, _name: str) -> bool:
        """Nobody knows: its nodes may be anywhere."""
        return False

    def import_image(self, archive: Path) -> None:
        """Take an image by the command of PILLION_IMAGE_IMPORT."""
        named = os.environ.get(IMPORT, "")
        if "{}" not in named:
            raise ImportFailed(
                f"{IMPORT}={named!r}: set it to the command that takes an image archive, {{}}, "
                "into the cluster, for example 'kind load image-archive {}'"
            )
        command = [str(archive) if part == "{}" else part for part in shlex.split(named)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise ImportFailed(f"{shlex.join(command)}: {(ran.stdout + ran.stderr).strip()}")


Nodes = NodeCluster | ExistingNodes


def pytest_configure(config: pytest.Config) -> None:
    config.stash[REPORT] = Report()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("node") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what is missing before the first test, or say loudly why no test can run."""
    wanted = any(item.get_closest_marker("node") for item in session.items)
    if not wanted or session.config.option.collectonly or os.environ.get(SKIP):
        return
    if os.environ.get("USE_EXISTING_CLUSTER"):
        return
    try:
        check_requirements()
        find_binaries(os.environ).prepare_node()
    except (RequirementsMissing, BinariesUnavailable) as error:
        pytest.exit(f"NO TEST ON A NODE CAN RUN. {error}", returncode=1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get(SKIP):
        terminalreporter.write_line(f"TESTS ON A NODE SKIPPED: {SKIPPED}", yellow=True, bold=True)
    lines = terminalreporter.config.stash[REPORT].lines()
    lines += ["", *times_of_tests(terminalreporter)] if lines else []
    if lines:
        terminalreporter.section("what was done on the node")
        terminalreporter.write_line("\n".join(lines))
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text("# The last run on a node\n\n" + "\n".join(lines) + "\n")
        terminalreporter.write_line(f"this report is {FILE}; logs are in {LOGS}")


def times_of_tests(terminalreporter: pytest.TerminalReporter) -> list[str]:
    """Each test with its time, fixtures included, as a table."""
    took: dict[str, float] = {}
    for outcome in ("passed", "failed", ""):  # what only prepares or clears up passes as ""
        for one in terminalreporter.getreports(outcome):
            if isinstance(one, pytest.TestReport):
                name = one.nodeid.rpartition("/")[2]
                took[name] = took.get(name, 0.0) + one.duration
    return table(("test", "seconds"), [(name, f"{took[name]:.1f}") for name in took])


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Report:
    """The report of this session: ``with report.step("what is done"):``."""
    return pytestconfig.stash[REPORT]


@pytest.fixture(scope="session")
def node_cluster(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A cluster with a node: one of our own, or the one that the environment names."""
    if os.environ.get(SKIP):
        pytest.skip(SKIPPED)
    found = existing_cluster(os.environ)
    if found is not None:
        nodes = ExistingNodes(found)
        probe = find_binaries(os.environ).probe()
        nodes.import_image(write_own(PROBE_IMAGE, probe, tmp_path_factory.mktemp("probe")))
        yield nodes
        return
    folder = Path(tempfile.mkdtemp(prefix="pillion-node-"))
    cluster = NodeCluster(folder, find_binaries(os.environ), index=free_index(folder), audit=True)
    try:
        with report.step("start a cluster with a node"):
            cluster.start()
        yield cluster
    finally:
        with report.step("end it"):
            cluster.stop()
        keep_logs(folder, LOGS)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def own_nodes(node_cluster: Nodes) -> NodeCluster:
    """The cluster of our own, for tests that add nodes and harm them."""
    if not isinstance(node_cluster, NodeCluster):
        pytest.skip("needs nodes of its own: unset USE_EXISTING_CLUSTER")
    return node_cluster


@pytest.fixture(scope="session")
def node_kubectl(node_cluster: Nodes) -> Kubectl:
    """kubectl as administrator, without a namespace."""
    program = find_binaries(os.environ).kubectl()
    return Kubectl(program=program, kubeconfig=node_cluster.kubeconfig())


@pytest.fixture
def node_namespace(node_kubectl: Kubectl) -> Iterator[str]:
    """A new namespace that enforces the restricted Pod Security; deleted after the test."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    meta = {"name": name, "labels": labels}
    node_kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": meta}))
    # Until the controller has made it, the API server refuses every pod.
    node_kubectl.wait("serviceaccount/default", "--for=create", f"--namespace={name}")
    yield name
    node_kubectl.run("delete", "namespace", name, "--wait=false")


def keep_logs(folder: Path, into: Path) -> None:
    """Copy the logs of a cluster's processes, in place of those of the run before."""
    shutil.rmtree(into, ignore_errors=True)
    for log in (*folder.glob("*.log"), *folder.glob("nodes/*/*.log")):
        target = into / log.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, target)
