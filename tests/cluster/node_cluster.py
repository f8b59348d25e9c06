"""A Kubernetes with real nodes on this machine, in a folder: started, used and ended as one."""

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cluster.binaries import Binaries
from cluster.control_plane import ControlPlane
from cluster.leftovers import Record, process, read_record, remove
from cluster.machine import Home, Machine
from cluster.network import NODES, Addresses, Network
from cluster.node_files import (
    COREDNS_IMAGE,
    FIRST_NODE,
    PROBE_IMAGE,
    Object,
    dns_objects,
    storage_class,
)
from cluster.oci import write_image
from cluster.processes import Running
from cluster.tiers import NODE_CONTROL_PLANE, NODE_MONITOR_GRACE, Place
from cluster.users import KUBELET, PROXY, kubeconfig, node_user, write_kubeconfig

#: The first node's own ports: nobody else is in its namespace.
PORTS = (6443, 2379, 2380)
#: Seconds for a node to be Ready, or NotReady, on a machine that is busy.
NODE_READY = 60.0
#: Where the API server takes objects of a kind.
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}


class IndexTaken(Exception):
    """A cluster of this index runs already."""


class NodeCluster(ControlPlane):
    """A control plane with nodes. Needs root; see ``requirements``. Its methods block."""

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        *,
        index: int,
        audit: bool = False,
        outlives: bool = False,
    ) -> None:
        """``index`` tells it from others on this machine: addresses and names are made from it."""
        self.addresses = Addresses(index)
        self._network = Network(self.addresses, folder / "network")
        address = self.addresses.node(1)
        super().__init__(
            folder,
            binaries,
            audit=audit,
            outlives=outlives,
            components=NODE_CONTROL_PLANE,
            ports=PORTS,
            place=Place(
                address=address,
                bind="0.0.0.0",
                advertised=address,
                serves_pods=True,
                services=self.addresses.services,
                pods=self.addresses.pods,
                enter=self._network.enter(FIRST_NODE),
            ),
        )
        self._machines: dict[int, Machine] = {}
        self._archives: list[Path] = []

    @property
    def host(self) -> str:
        """The address under which nodes and pods reach a server on this machine."""
        return self.addresses.host

    def start(self) -> None:
        """Start everything; returns when the first node is Ready and names are found."""
        clean(self.addresses.index)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._spawned()
        try:
            self._network.make()
            first = self._new_machine(FIRST_NODE)
            first.start_containerd()
            with ThreadPoolExecutor(1) as aside:
                importing = aside.submit(self._import_own)
                super().start()
                importing.result()
            self._join(1)
            self._install((storage_class(), *dns_objects(self.addresses.dns)))
            self._until_ready(
                "/apis/apps/v1/namespaces/kube-system/deployments?fieldSelector=metadata.name=coredns",
                "Available",
            )
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything and leave the machine as it was, but for the folder with its logs."""
        remove(self._record())
        for machine in self._machines.values():
            machine.reap()
        self._machines.clear()
        super().stop()

    def detach(self) -> None:
        """Leave what ``outlives`` to itself."""
        for machine in self._machines.values():
            machine.detach()
        super().detach()

    def import_image(self, archive: Path) -> None:
        """Take an image into every node, those that come later too: see ``Machine``."""
        for machine in self._machines.values():
            machine.import_image(archive)
        self._archives.append(archive)

    def has_image(self, name: str) -> bool:
        """Whether every node has an image, by its full name with its tag."""
        return all(name in machine.images() for machine in self._machines.values())

    def _import_own(self) -> None:
        programs = {PROBE_IMAGE: self._binaries.probe(), COREDNS_IMAGE: self._binaries.coredns()}
        for name, program in programs.items():
            archive = self.folder / f"{program.name}.tar"
            inside = f"/{program.name}"
            write_image(
                archive, name, {inside: program}, entrypoint=[inside], machine=platform.machine()
            )
            self.import_image(archive)

    def _new_machine(self, name: str) -> Machine:
        number = next(one for one in range(1, NODES + 1) if one not in self._machines)
        self._network.add_node(name, number)
        folder = self.folder / "nodes" / name
        folder.mkdir(parents=True)
        home = Home(
            folder=folder,
            name=name,
            address=self.addresses.node(number),
            group=f"{self._record().cgroup}{name}",
            enter=self._network.enter(name),
            dns=self.addresses.dns,
            pods=self.addresses.pods,
            lease=NODE_MONITOR_GRACE,
            kubelet_kubeconfig=folder / "kubelet.kubeconfig",
            proxy_kubeconfig=self.folder / f"{PROXY.name}.kubeconfig",
            command=self._binaries.command,
            outlives=self._outlives,
        )
        self._machines[number] = made = Machine(home, self._spawner, self._spawned)
        return made

    def _join(self, number: int) -> None:
        """Make a machine a node: the control plane must run, and containerd."""
        machine = self._machines[number]
        name = machine.name
        content = kubeconfig(
            server=self.url,
            ca=self.ca,
            user=KUBELET.name,
            token=self.token(KUBELET.name),
            acting_as=node_user(name),
        )
        write_kubeconfig(machine.home.kubelet_kubeconfig, content)
        machine.start_kubelet()
        machine.start_proxy()
        pods = self._until_node(name, lambda node: node["spec"].get("podCIDR"))["spec"]["podCIDR"]
        self._network.route(pods, number, among=self._others(number))
        machine.connect_pods(pods)
        self._until_ready(_node_path(name), "Ready")

    def _others(self, number: int) -> list[str]:
        return [one.name for other, one in self._machines.items() if other != number]

    def _until_node(self, name: str, condition: Any) -> Any:
        return self.rest.until(_node_path(name), condition)

    def _until_ready(self, path: str, condition: str, status: str = "True") -> None:
        def holds(found: Object) -> bool:
            known = found.get("status", {}).get("conditions", [])
            return any((one["type"], one["status"]) == (condition, status) for one in known)

        try:
            self.rest.until(path, holds)
        except TimeoutError:
            for machine in self._machines.values():
                machine.check()
            raise

    def _install(self, objects: tuple[Object, ...]) -> None:
        for one in objects:
            path = PATHS[one["kind"]].format(namespace=one["metadata"].get("namespace"))
            self.rest.request("POST", path, one)

    def _spawned(self) -> None:
        self._record().write()

    def _record(self) -> Record:
        running: dict[str, Running] = dict(self._running)
        for machine in self._machines.values():
            running |= {f"{machine.name}/{name}": one for name, one in machine.running.items()}
        found = {name: process(one.pid) for name, one in running.items()}
        return Record(
            index=self.addresses.index,
            folder=self.folder,
            owner=None if self._outlives else process(os.getpid()),
            processes={name: one for name, one in found.items() if one is not None},
        )


def clean(index: int) -> None:
    """Remove what a cluster of this index left; IndexTaken where one runs."""
    record = read_record(index)
    if record is None:
        return
    if record.alive():
        raise IndexTaken(
            f"cluster {index} runs from {record.folder}: end it with "
            f"`python -m cluster node-down --index {index}`, or choose another --index"
        )
    remove(record)


def _node_path(name: str) -> str:
    return f"/api/v1/nodes?fieldSelector=metadata.name={name}"
