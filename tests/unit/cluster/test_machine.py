"""A node's processes, without a node."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pillion_testbed.machine import PROXY, Home, Machine
from pillion_testbed.processes import ProcessFailed, Spawner
from pillion_testbed.rest import wait_until

SAYS_WHY = ("sh", "-c", "echo why; exit 3")


def home(folder: Path) -> Home:
    return Home(
        folder=folder,
        name="node-2",
        address="198.18.0.2",
        group="pillion-0-node-2",
        enter=(),
        dns="10.96.0.10",
        pods="10.244.0.0/16",
        lease=20,
        kubelet_kubeconfig=folder / "kubelet.kubeconfig",
        proxy_kubeconfig=folder / "proxy.kubeconfig",
        command=lambda _name: SAYS_WHY,
        outlives=False,
    )


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    with closing(Spawner()) as made:
        yield made


def test_a_process_that_ended_is_shown_with_the_end_of_its_log(
    tmp_path: Path, spawner: Spawner
) -> None:
    machine = Machine(home(tmp_path), spawner, lambda: None)
    machine.start_proxy()
    running = machine.running[PROXY]
    wait_until(lambda: running.exit_code() is not None, within=20, what="its end")
    with pytest.raises(ProcessFailed, match=r"kube-proxy of node-2 ended with 3[^$]*why"):
        machine.check()


def test_whoever_keeps_the_record_hears_of_each_start(tmp_path: Path, spawner: Spawner) -> None:
    seen: list[list[str]] = []
    machine = Machine(home(tmp_path), spawner, lambda: seen.append(list(machine.running)))
    machine.start_proxy()
    assert seen == [["kube-proxy"]]
    machine.reap()
    assert dict(machine.running) == {}


def test_pods_get_their_addresses_by_a_file_that_is_never_half_there(
    tmp_path: Path, spawner: Spawner
) -> None:
    (tmp_path / "cni").mkdir()
    Machine(home(tmp_path), spawner, lambda: None).connect_pods("10.244.1.0/24")
    (written,) = (tmp_path / "cni").iterdir()
    assert written.name == "10-pods.conflist"
    assert '"10.244.1.0/24"' in written.read_text()
