"""A Kubernetes with real nodes on this machine, in a folder: started, used and ended as one."""

import os
import platform
import sys
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pillion_testbed.binaries import Binaries
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.leftovers import (
    RECORDS,
    Record,
    locked_records,
    process,
    read_record,
    remove,
    remove_folder,
)
from pillion_testbed.machine import Home, Machine
from pillion_testbed.network import CLUSTERS, NODES, Addresses, Network
from pillion_testbed.node_files import (
    COREDNS_IMAGE,
    FIRST_NODE,
    PROBE_IMAGE,
    Object,
    dns_objects,
    storage_class,
)
from pillion_testbed.nodes import Node
from pillion_testbed.oci import write_image
from pillion_testbed.processes import Running
from pillion_testbed.tiers import NODE_CONTROL_PLANE, NODE_MONITOR_GRACE, Place
from pillion_testbed.users import MANAGER, PROXY

#: The first node's own ports: nobody else is in its namespace.
PORTS = (6443, 2379, 2380)
VOLUMES = "volume-provisioner"
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
DNS = "/apis/apps/v1/namespaces/kube-system/deployments?fieldSelector=metadata.name=coredns"


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
        self._nodes: dict[str, Node] = {}
        #: Until then it is this process's, so that what a kill leaves is known to be nobody's.
        self._started = False

    @property
    def host(self) -> str:
        """The address under which nodes and pods reach a server on this machine."""
        return self.addresses.host

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by their names; the first is ``node-1``."""
        return self._nodes

    def start(self) -> None:
        """Start everything; returns when the first node is Ready and names are found."""
        clean(self.addresses.index, self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._spawned()
        try:
            self._network.make()
            first = self._new_node(FIRST_NODE)
            first.machine.start_containerd()
            with ThreadPoolExecutor(1) as aside:
                importing = aside.submit(self._import_own)
                super().start()
                self._start_provisioner()
                importing.result()
            first.join()
            self._install((storage_class(), *dns_objects(self.addresses.dns)))
            first.watch(
                DNS,
                lambda found: bool(found.get("status", {}).get("readyReplicas")),
                what="start CoreDNS",
            )
            self._started = True
            self._spawned()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything and leave the machine as it was, but for the folder with its logs."""
        remove(self._record())
        for node in self._nodes.values():
            node.machine.reap()
        self._nodes.clear()
        super().stop()

    def detach(self) -> None:
        """Leave what ``outlives`` to itself."""
        for node in self._nodes.values():
            node.machine.detach()
        super().detach()

    def add_node(self, name: str, *, images: Collection[str] = ()) -> Node:
        """Add a node with these images of the first, or with all; returns when it is Ready."""
        added = self._new_node(name)
        added.machine.start_containerd()
        first = self._nodes[FIRST_NODE].machine
        archive = first.export_images(self.folder / "images.tar", names=images)
        added.machine.import_images(archive)
        archive.unlink()
        added.join()
        return added

    def import_image(self, archive: Path) -> None:
        """Take an image into every node, those that come later too: see ``Machine``."""
        for node in self._nodes.values():
            node.machine.import_image(archive)

    def has_image(self, name: str) -> bool:
        """Whether every node has an image, by its full name with its tag."""
        return all(name in node.machine.images() for node in self._nodes.values())

    def _import_own(self) -> None:
        programs = {PROBE_IMAGE: self._binaries.probe(), COREDNS_IMAGE: self._binaries.coredns()}
        for name, program in programs.items():
            self.import_image(write_own(name, program, self.folder))

    def _new_node(self, name: str) -> Node:
        taken = {node.number for node in self._nodes.values()}
        number = next(one for one in range(1, NODES + 2) if one not in taken)
        self._network.add_node(name, number)
        folder = self.folder / "nodes" / name
        folder.mkdir(parents=True, exist_ok=True)
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
        machine = Machine(home, self._spawner, self._spawned)
        self._nodes[name] = made = Node(
            machine, number, network=self._network, plane=self, nodes=self._nodes
        )
        return made

    def _start_provisioner(self) -> None:
        module = "pillion_testbed.provisioner"
        self._running[VOLUMES] = self._spawner.start(
            VOLUMES,
            (
                *(sys.executable, "-m", module),
                *(str(self.kubeconfig(MANAGER.name)), str(self.folder / "volumes")),
            ),
            log=self.folder / f"{VOLUMES}.log",
            environment={"PYTHONPATH": str(Path(__file__).parents[1])},
            outlives=self._outlives,
        )
        self._spawned()

    def _install(self, objects: tuple[Object, ...]) -> None:
        for one in objects:
            path = PATHS[one["kind"]].format(namespace=one["metadata"].get("namespace"))
            self.rest.request("POST", path, one)

    def _spawned(self) -> None:
        self._record().write()

    def _record(self) -> Record:
        running: dict[str, Running] = dict(self._running)
        for node in self._nodes.values():
            named = node.machine.running.items()
            running |= {f"{node.name}/{name}": one for name, one in named}
        found = {name: process(one.pid) for name, one in running.items()}
        return Record(
            index=self.addresses.index,
            folder=self.folder,
            owner=None if self._outlives and self._started else process(os.getpid()),
            processes={name: one for name, one in found.items() if one is not None},
        )


def write_own(name: str, program: Path, folder: Path) -> Path:
    """Write the image of a program of the test bed's own, and return its archive."""
    inside = f"/{program.name}"
    return write_image(
        folder / f"{program.name}.tar",
        name,
        {inside: program},
        entrypoint=[inside],
        machine=platform.machine(),
    )


def clean(index: int, folder: Path | None = None) -> None:
    """Remove what a cluster of this index left; IndexTaken where one runs.

    ``folder``: of a cluster that is about to start, for which this process took the index.
    """
    record = read_record(index)
    if record is None or (record.folder == folder and record.owner == process(os.getpid())):
        return
    if record.alive():
        raise IndexTaken(
            f"cluster {index} runs from {record.folder}: end it with "
            f"`python -m pillion_testbed node-down --index {index}`, or choose another --index"
        )
    remove(record)
    if record.folder.exists():
        remove_folder(record.folder)


def free_index(folder: Path) -> int:
    """Take an index that no cluster uses, for this process and folder.

    The first is left to people. Whatever was killed and left something gives its index.
    """
    with locked_records():
        for index in range(1, CLUSTERS):
            try:
                clean(index)
            except IndexTaken:
                continue
            Record(index=index, folder=folder, owner=process(os.getpid())).write()
            return index
    raise IndexTaken(f"{CLUSTERS - 1} clusters of tests run already; see {RECORDS}")
