"""The network of a cluster with nodes: namespaces of its own, and one link to this machine.

Each node is a network namespace, the first one with the control plane in it. A further namespace is
the switch between them. So two clusters on a machine, and their nodes, never meet: each has its
loopback, its ports, its iptables rules, and all of it is gone with the namespaces. This machine
gets one interface, and routes over it to pods and Services.
"""

import ipaddress
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: Clusters on one machine at a time, and nodes in one.
CLUSTERS = 10
NODES = 9


class NetworkFailed(Exception):
    """A command that makes the network failed; the message is what it printed."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses and names of a cluster, all of them from its index.

    Nodes are in the range for benchmarks (RFC 2544), which nobody else uses.
    """

    index: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < CLUSTERS:
            raise NetworkFailed(f"index {self.index}: choose one from 0 to {CLUSTERS - 1}")

    @property
    def interface(self) -> str:
        """This machine's end of the link."""
        return f"pillion{self.index}"

    @property
    def host(self) -> str:
        """This machine, as nodes and pods reach it."""
        return f"198.18.{self.index}.254"

    @property
    def services(self) -> str:
        return f"10.{96 + self.index}.0.0/16"

    @property
    def dns(self) -> str:
        return str(ipaddress.ip_network(self.services)[10])

    @property
    def pods(self) -> str:
        """The pods of all nodes; each node has a /24 of it."""
        return f"10.{244 + self.index}.0.0/16"

    def node(self, number: int) -> str:
        """The address of a node, which are counted from 1."""
        if not 1 <= number <= NODES:
            raise NetworkFailed(f"node {number}: a cluster has at most {NODES}")
        return f"198.18.{self.index}.{number}"


class Network:
    """Makes the namespaces. ``remove`` needs no knowledge of what was made."""

    def __init__(self, addresses: Addresses, folder: Path) -> None:
        """``folder`` keeps the files by which the namespaces are entered."""
        self.addresses = addresses
        self._folder = folder

    def namespace(self, name: str) -> Path:
        return self._folder / name

    def enter(self, name: str) -> tuple[str, ...]:
        """What begins a command that is to run in a namespace.

        Not ``ip netns exec``: that mounts another /sys, which has no cgroups.
        """
        return ("nsenter", f"--net={self.namespace(name)}")

    def make(self) -> None:
        """Make the switch and this machine's link to it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make_namespace(SWITCH)
        interface, switch = self.addresses.interface, self.namespace(SWITCH)
        self._ip(
            f"link add {interface} type veth peer name host netns {switch}",
            f"address add {self.addresses.host}/24 dev {interface}",
            f"link set {interface} up",
        )
        self._ip(
            "link add name bridge type bridge",
            "link set bridge up",
            "link set host master bridge up",
            namespace=SWITCH,
        )
        first = self.addresses.node(1)
        self._ip(f"route add {self.addresses.services} via {first} src {self.addresses.host}")

    def add_node(self, name: str, number: int) -> None:
        """Make a node's namespace, which reaches the switch."""
        self._make_namespace(name)
        self._ip(
            f"link add node-{number} type veth peer name eth0 netns {self.namespace(name)}",
            f"link set node-{number} master bridge up",
            namespace=SWITCH,
        )
        self._ip(
            f"address add {self.addresses.node(number)}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {self.addresses.host}",
            namespace=name,
        )
        # What is below /proc/sys/net is that of the process which looks.
        run((*self.enter(name), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"))

    def remove_node(self, name: str, number: int) -> None:
        self._ip(f"link delete node-{number}", namespace=SWITCH)
        run(("umount", str(self.namespace(name))))
        self.namespace(name).unlink()

    def route(self, pods: str, number: int, *, among: Sequence[str], verb: str = "add") -> None:
        """Lead to a node's pods from this machine and from the nodes named ``among``."""
        to = f"route {verb} {pods} via {self.addresses.node(number)}"
        self._ip(f"{to} src {self.addresses.host}")
        for name in among:
            self._ip(to, namespace=name)

    def route_on(self, name: str, pods: str, number: int) -> None:
        """Lead to a node's pods from the node called ``name`` alone."""
        self._ip(f"route add {pods} via {self.addresses.node(number)}", namespace=name)

    def plug(self, number: int, *, connected: bool) -> None:
        """Draw a node's cable out of the switch, or put it back."""
        self._ip(f"link set node-{number} {'up' if connected else 'down'}", namespace=SWITCH)

    def _make_namespace(self, name: str) -> None:
        path = self.namespace(name)
        path.touch()
        run(("unshare", f"--net={path}", "true"))
        self._ip("link set lo up", namespace=name)

    def _ip(self, *lines: str, namespace: str | None = None) -> None:
        enter = self.enter(namespace) if namespace is not None else ()
        run((*enter, "ip", "-batch", "-"), given="".join(f"{line}\n" for line in lines))


SWITCH = "switch"


def run(command: Sequence[str], *, given: str | None = None) -> str:
    """Run a short command of the system's and return what it prints."""
    ran = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        told = f"{' '.join(command)}\n{given or ''}"
        raise NetworkFailed(f"{told}ended with {ran.returncode}: {ran.stderr.strip()}")
    return ran.stdout
