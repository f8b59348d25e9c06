"""A node of a cluster, as tests use it: cut off, joined again, its kubelet restarted, removed."""

from collections.abc import Callable
from typing import Any

from cluster.control_plane import ControlPlane
from cluster.leftovers import end_nodes, process
from cluster.machine import KUBELET, Machine
from cluster.network import Network
from cluster.node_files import FIRST_NODE, Object
from cluster.rest import TIMEOUT
from cluster.users import KUBELET as KUBELET_USER
from cluster.users import kubeconfig, node_user, write_kubeconfig

#: Seconds for a node to be Ready or NotReady, on a machine that is busy.
WITHIN = 90.0


class Node:
    """One node. The first one has the control plane in it, and cannot be cut off or removed."""

    def __init__(
        self,
        machine: Machine,
        number: int,
        *,
        network: Network,
        plane: ControlPlane,
        nodes: "dict[str, Node]",
    ) -> None:
        """``nodes`` are the cluster's, by their names; what is removed leaves it."""
        self.machine = machine
        self.number = number
        self._network = network
        self._plane = plane
        self._nodes = nodes
        #: Its pods' addresses, once it has joined.
        self.pods: str | None = None

    @property
    def name(self) -> str:
        return self.machine.name

    def join(self) -> None:
        """Make the machine a node of the cluster; containerd must run. Returns when it is Ready."""
        plane, home = self._plane, self.machine.home
        content = kubeconfig(
            server=plane.url,
            ca=plane.ca,
            user=KUBELET_USER.name,
            token=plane.token(KUBELET_USER.name),
            acting_as=node_user(self.name),
        )
        write_kubeconfig(home.kubelet_kubeconfig, content)
        self.machine.start_kubelet()
        self.machine.start_proxy()
        known = self._until(lambda node: bool(node["spec"].get("podCIDR")))
        self.pods = str(known["spec"]["podCIDR"])
        others = self._others()
        self._network.route(self.pods, self.number, among=[one.name for one in others])
        for other in others:
            if other.pods is not None:
                self._network.route_on(self.name, other.pods, other.number)
        self.machine.connect_pods(self.pods)
        self.wait_ready()

    def cut_off(self) -> None:
        """Draw its cable: nothing reaches it or comes from it. Its containers run on."""
        self._refuse_first("cut off")
        self._network.plug(self.number, connected=False)

    def rejoin(self) -> None:
        """Put its cable back."""
        self._network.plug(self.number, connected=True)

    def restart_kubelet(self) -> None:
        """End its kubelet and start it again; containers run on. Returns when it was heard of."""
        before = self._heartbeat(self._until(lambda _node: True))
        self.machine.restart_kubelet()
        self._until(lambda node: self._heartbeat(node) != before and _status(node) == "True")

    def wait_ready(self) -> None:
        """Wait until the control plane calls it Ready."""
        self._until(lambda node: _status(node) == "True")

    def wait_not_ready(self) -> None:
        """Wait until the control plane has not heard of it for too long."""
        self._until(lambda node: _status(node) != "True")

    def remove(self) -> None:
        """End it, and its pods with it, and make the cluster forget it."""
        self._refuse_first("removed")
        running = self.machine.running
        found = {name: process(one.pid) for name, one in running.items()}
        end_nodes(
            [self.machine.home.folder],
            groups=self.machine.home.group,
            processes={name: one for name, one in found.items() if one is not None},
        )
        self.machine.reap()
        self._plane.rest.request("DELETE", f"/api/v1/nodes/{self.name}")
        if self.pods is not None:
            names = [one.name for one in self._others()]
            self._network.route(self.pods, self.number, among=names, verb="delete")
        self._network.remove_node(self.name, self.number)
        del self._nodes[self.name]

    def _others(self) -> "list[Node]":
        return [one for one in self._nodes.values() if one is not self]

    def _refuse_first(self, what: str) -> None:
        if self.name == FIRST_NODE:
            raise ValueError(f"{FIRST_NODE} has the control plane in it and cannot be {what}")

    def _heartbeat(self, node: Object) -> Any:
        return _ready_condition(node).get("lastHeartbeatTime")

    def _until(self, condition: Callable[[Object], bool]) -> Any:
        """Watch the node until a condition holds, and all processes meanwhile."""
        path = f"/api/v1/nodes?fieldSelector=metadata.name={self.name}"
        for _try in range(int(WITHIN / TIMEOUT)):
            try:
                return self._plane.rest.until(path, condition)
            except TimeoutError:
                self._plane.check()
                self.machine.check()
        raise self.machine.running[KUBELET].failed(
            f"of {self.name} did not bring the node to where it was waited for in {WITHIN:g} s"
        )


def _ready_condition(node: Object) -> Object:
    known = node.get("status", {}).get("conditions", [])
    return next((one for one in known if one["type"] == "Ready"), {})


def _status(node: Object) -> str:
    return str(_ready_condition(node).get("status", "Unknown"))
