"""A node of a cluster, as tests use it: cut off, joined again, its kubelet restarted, removed."""

import re
from collections.abc import Callable
from typing import Any

from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.leftovers import end_nodes, process
from pillion_testbed.machine import KUBELET, Machine
from pillion_testbed.network import Network
from pillion_testbed.node_files import FIRST_NODE, Object
from pillion_testbed.rest import TIMEOUT, Refused, wait_until
from pillion_testbed.users import KUBELET as KUBELET_USER
from pillion_testbed.users import kubeconfig, node_user, write_kubeconfig

#: Seconds for a node to be Ready or NotReady, on a machine that is busy.
WITHIN = 90.0
#: A line of a kubelet's metrics: how often a container has passed its readiness probe.
_PASSED = re.compile(
    r'prober_probe_total\{container="([^"]*)",.*pod_uid="([^"]*)",probe_type="Readiness",'
    r'result="successful"\} (\d+)'
)


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
        """End its kubelet and start it again; containers run on. Returns when it was heard of, and
        what was ready is so again.

        A kubelet that starts calls no pod ready before it has probed it, and for that time Services
        do not lead to it. Were the API server to go meanwhile, they would not until it is back.
        """
        ready = {_uid(pod) for pod in self._pods() if _is_ready(pod)}
        self.machine.restart_kubelet()
        # Not before: the old one may say something yet while it ends.
        before = self._heartbeat(self._until(lambda _node: True))
        self._until(lambda node: self._heartbeat(node) != before and _status(node) == "True")
        wait_until(
            lambda: not self._not_ready_again(ready),
            within=WITHIN,
            what=f"the pods of {self.name} are ready again",
        )

    def wait_ready(self) -> None:
        """Wait until the control plane calls it Ready."""
        self._until(lambda node: _status(node) == "True")

    def wait_not_ready(self) -> None:
        """Wait until the control plane has not heard of it for too long."""
        self._until(lambda node: _status(node) != "True")

    def watch(self, path: str, condition: Callable[[Object], bool], *, what: str) -> Any:
        """Watch a list until a condition holds for one of it, and all processes meanwhile; return
        that object. ``what`` is what the kubelet failed to do where none comes to."""
        for _try in range(int(WITHIN / TIMEOUT)):
            try:
                return self._plane.rest.until(path, condition)
            except TimeoutError:
                self._plane.check()
                self.machine.check()
        raise self.machine.running[KUBELET].failed(f"of {self.name} did not {what} in {WITHIN:g} s")

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

    def _pods(self) -> list[Object]:
        path = f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}"
        found: list[Object] = self._plane.rest.request("GET", path)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def _not_ready_again(self, wanted: set[str]) -> set[str]:
        """Which of these pods are there, and not as ready as before the kubelet's start."""
        # Asked before the pods: what came of a probe was written before the next one passed, so
        # what was said before the start is said no more.
        try:
            path = f"/api/v1/nodes/{self.name}/proxy/metrics/probes"
            metrics = self._plane.rest.request("GET", path)
        except Refused:  # it does not serve yet
            return wanted
        passed = {(uid, name) for name, uid, count in _PASSED.findall(metrics) if int(count) > 1}
        return {
            _uid(pod)
            for pod in self._pods()
            if not (_is_ready(pod) and passed.issuperset(_probed(pod)))
        } & wanted

    def _heartbeat(self, node: Object) -> Any:
        return _ready_condition(node).get("lastHeartbeatTime")

    def _until(self, condition: Callable[[Object], bool]) -> Any:
        path = f"/api/v1/nodes?fieldSelector=metadata.name={self.name}"
        return self.watch(path, condition, what="bring the node to where it was waited for")


def _ready_condition(body: Object) -> Object:
    known = body.get("status", {}).get("conditions", [])
    return next((one for one in known if one["type"] == "Ready"), {})


def _status(body: Object) -> str:
    return str(_ready_condition(body).get("status", "Unknown"))


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _is_ready(pod: Object) -> bool:
    return _status(pod) == "True"


def _probed(pod: Object) -> set[tuple[str, str]]:
    """The pod's uid with the name of each container that is asked whether it is ready."""
    containers = pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
    return {(_uid(pod), one["name"]) for one in containers if "readinessProbe" in one}
