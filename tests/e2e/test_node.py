"""The node itself, as the rest of these tests take it for granted."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.probes import DATA, Probes, claim, container, pod, server, service
from cluster.story_fixtures import in_namespace
from pillion_testbed.binaries import find_binaries
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.leftovers import (
    CNI_RESULTS,
    POD_LOG_LINKS,
    Process,
    control_groups,
    mounts_below,
    read_record,
)
from pillion_testbed.network import CLUSTERS, Addresses
from pillion_testbed.node_cluster import IndexTaken, NodeCluster, clean, free_index
from pillion_testbed.node_files import PROBE_IMAGE
from pillion_testbed.nodes import Node
from pillion_testbed.report import Report

pytestmark = pytest.mark.node


@pytest.fixture
def probes(node_kubectl: Kubectl, node_namespace: str) -> Probes:
    """Pods in this test's namespace."""
    return Probes(in_namespace(node_kubectl, node_namespace))


@pytest.fixture(scope="module")
def second(own_nodes: NodeCluster, report: Report) -> Iterator[Node]:
    """A second node."""
    with report.step("add a second node"):
        added = own_nodes.add_node("node-2", images=(PROBE_IMAGE,))
    yield added
    with report.step("remove it"):
        added.remove()


def test_a_restricted_pod_with_a_native_sidecar_runs(probes: Probes, report: Report) -> None:
    side = server("side", port=8081, restartPolicy="Always")
    with report.step("a pod with a native sidecar, until it is ready"):
        probes.apply(pod("a", initContainers=[side]))
    assert probes.get("a", "http://127.0.0.1:8081") == "side"
    assert probes.kubectl.run("logs", "a", "-c", "side") == "serving :8081\n"


def test_the_namespace_refuses_a_pod_that_is_not_restricted(probes: Probes) -> None:
    with pytest.raises(KubectlFailed, match='violates PodSecurity "restricted:latest"'):
        probes.apply(pod("a", hostNetwork=True))


def test_services_are_found_by_name_and_reached_by_address(probes: Probes) -> None:
    probes.apply(pod("a"), service("front", "a"))
    address = probes.kubectl.json("get", "service", "front")["spec"]["clusterIP"]
    assert probes.do("a", "lookup", "front") == address
    probes.until_got("a", "http://front", "a")
    assert probes.get("a", f"http://front.{probes.kubectl.namespace}.svc.cluster.local") == "a"


def test_a_name_of_elsewhere_is_not_found(probes: Probes, own_nodes: NodeCluster) -> None:
    probes.apply(pod("a"))
    with pytest.raises(KubectlFailed, match="no such host"):
        probes.do("a", "lookup", "example.com")


def test_a_job_runs_to_its_end(probes: Probes) -> None:
    done = container("once", "lookup", "kubernetes.default")
    probes.kubectl.apply(json.dumps(pod("once", restartPolicy="Never", containers=[done])))
    probes.kubectl.wait("pod/once", "--for=jsonpath={.status.phase}=Succeeded")


def test_what_is_on_a_volume_outlives_the_pod(probes: Probes) -> None:
    probes.apply(claim("kept"), pod("writer", claim="kept"))
    probes.do("writer", "write", f"{DATA}/file", "text")
    probes.kubectl.run("delete", "pod", "writer")
    probes.apply(pod("reader", claim="kept"))
    assert probes.do("reader", "read", f"{DATA}/file") == "text"


def test_a_volume_goes_with_its_claim(probes: Probes, own_nodes: NodeCluster) -> None:
    probes.apply(claim("gone"), pod("a", claim="gone"))
    volume = probes.kubectl.json("get", "pvc", "gone")["spec"]["volumeName"]
    place = own_nodes.folder / "volumes" / volume
    assert place.is_dir()
    probes.kubectl.run("delete", "pod/a", "pvc/gone")
    probes.kubectl.wait(f"pv/{volume}", "--for=delete")
    assert not place.exists()


def test_an_image_is_known_by_its_name(own_nodes: NodeCluster) -> None:
    assert own_nodes.has_image(PROBE_IMAGE)
    assert not own_nodes.has_image("localhost/pillion-test/other:1")


def test_pods_of_two_nodes_reach_each_other(probes: Probes, second: Node, report: Report) -> None:
    with report.step("a pod on each of two nodes"):
        probes.apply(
            pod("a", node="node-1"),
            pod("b", node=second.name),
            service("front-a", "a"),
            service("front-b", "b"),
        )
    for here, there in (("a", "b"), ("b", "a")):
        assert probes.get(here, f"http://{probes.address(there)}:8080") == there
        probes.until_got(here, f"http://front-{there}", there)


def test_a_node_that_is_cut_off_is_not_ready_until_it_is_back(
    probes: Probes, second: Node, report: Report
) -> None:
    probes.apply(pod("a", node="node-1"), pod("b", node=second.name))
    before = probes.address("b")
    second.cut_off()
    try:
        with report.step("a node that is cut off, until it is NotReady"):
            second.wait_not_ready()
        with pytest.raises(KubectlFailed, match=r"Timeout|deadline"):
            probes.get("a", f"http://{before}:8080")
    finally:
        second.rejoin()
    with report.step("the same joined again, until it is Ready"):
        second.wait_ready()
    probes.kubectl.wait("pod/b", "--for=condition=Ready", within=90)
    assert probes.get("a", f"http://{before}:8080") == "b"
    assert probes.restarts("b") == 0


def test_containers_run_on_while_a_kubelet_is_restarted(
    probes: Probes, own_nodes: NodeCluster, report: Report
) -> None:
    probes.apply(pod("a"))
    with report.step("a restart of the kubelet"):
        own_nodes.nodes["node-1"].restart_kubelet()
    probes.kubectl.wait("pod/a", "--for=condition=Ready")
    assert probes.restarts("a") == 0
    assert probes.kubectl.run("logs", "a") == "serving :8080\n"


def test_containers_run_on_while_the_api_server_is_away(
    probes: Probes, own_nodes: NodeCluster, report: Report
) -> None:
    probes.apply(pod("a"), pod("b"))
    own_nodes.stop_api_server()
    with report.step("a start of the API server"):
        own_nodes.start_api_server()
    assert probes.get("a", f"http://{probes.address('b')}:8080") == "b"
    assert probes.restarts("a") == 0


@pytest.fixture
def short_path(own_nodes: NodeCluster) -> Iterator[Path]:
    """A folder for another cluster: the paths of sockets are at most 107 characters long."""
    with tempfile.TemporaryDirectory(prefix="pillion-node-") as folder:
        yield Path(folder) / "cluster"


def test_nothing_is_left_of_a_cluster_that_was_ended(short_path: Path, report: Report) -> None:
    cluster = NodeCluster(short_path, find_binaries(os.environ), index=free_index(short_path))
    with report.step("start another cluster beside the first"):
        cluster.start()
    cluster.add_node("far").cut_off()
    processes = processes_of(cluster.addresses.index, nodes=2)
    with report.step("end it, with its pods"):
        cluster.stop()
    assert [one for one in processes if one.runs()] == []
    assert left_of(cluster.addresses.index, short_path) == []


#: Starts a cluster, says so, and waits to be killed.
STARTS = """
import os, sys
from pathlib import Path
from pillion_testbed.binaries import find_binaries
from pillion_testbed.network import CLUSTERS, Addresses
from pillion_testbed.node_cluster import IndexTaken, NodeCluster, clean, free_index
folder = Path(sys.argv[1])
NodeCluster(folder, find_binaries(os.environ), index=(index := free_index(folder))).start()
print(index, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_session_leaves_is_removed_by_the_next_start(short_path: Path) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", STARTS, str(short_path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as session:
        assert session.stdout is not None
        index = int(session.stdout.readline())
        processes = processes_of(index)
        session.send_signal(signal.SIGKILL)
    assert left_of(index, short_path) != []
    clean(index)
    assert [one for one in processes if one.runs()] == []
    assert left_of(index, short_path) == []
    assert not short_path.exists()


def test_a_cluster_in_the_background_is_for_whoever_asks_for_it(short_path: Path) -> None:
    index = CLUSTERS - 1
    up = command_line("node-up", f"--index={index}", f"--folder={short_path}")
    try:
        kubeconfig = Path(up.removeprefix("export KUBECONFIG=").strip())
        kubectl = Kubectl(program=find_binaries(os.environ).kubectl(), kubeconfig=kubeconfig)
        kubectl.wait("node/node-1", "--for=condition=Ready")
        # It runs already.
        assert command_line("node-up", f"--index={index}") == up
        with pytest.raises(IndexTaken, match=f"cluster {index} runs from {short_path}"):
            clean(index)
    finally:
        processes = processes_of(index)
        command_line("node-down", f"--index={index}")
    assert [one for one in processes if one.runs()] == []
    assert left_of(index, short_path) == []
    assert not short_path.exists()


def command_line(*arguments: str) -> str:
    """Run ``python -m pillion_testbed`` and return what it prints for a shell."""
    ran = subprocess.run(
        [sys.executable, "-m", "pillion_testbed", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def processes_of(index: int, *, nodes: int = 1) -> list[Process]:
    """The processes of a cluster that runs: control plane, volumes, and three of each node."""
    record = read_record(index)
    assert record is not None
    assert len(record.processes) == 5 + 3 * nodes
    return list(record.processes.values())


def left_of(index: int, folder: Path) -> list[str]:
    """What is there of a cluster outside of its folder."""
    found = [f"record {index}"] if read_record(index) is not None else []
    found += mounts_below(folder, Path("/proc/self/mountinfo").read_text())
    found += [str(group) for group in control_groups(f"pillion-{index}-*")]
    found += [str(result) for result in CNI_RESULTS.glob(f"pillion-{index}-*")]
    links = [link for link in POD_LOG_LINKS.glob("*.log") if link.is_symlink()]
    found += [str(link) for link in links if link.readlink().is_relative_to(folder)]
    link = Path("/sys/class/net", Addresses(index).interface)
    return found + ([str(link)] if link.exists() else []) + named_by(folder)


def named_by(folder: Path) -> list[str]:
    """The processes whose command names a folder: containers' keepers do."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{folder}/" in command:
            found.append(command)
    return found
