"""What a test cluster consists of, in the order in which it starts.

The control plane alone is the first tier, that of a cluster with nodes the second: each component
is a name that ``Binaries`` knows, its flags, and how one sees that it is ready. What runs once on
each node is in ``machine``.
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

#: In the range for benchmarks (RFC 2544): valid as the API server's own address, and nobody's.
ADVERTISED = "198.18.0.1"
SERVICES = "10.96.0.0/16"

#: Seconds without a sign of life after which a node is NotReady.
NODE_MONITOR_GRACE = 20

#: The controllers whose work tests see; others would only use memory.
CONTROLLERS = (
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "validatingadmissionpolicy-status-controller",
)

ETCD = "etcd"
API_SERVER = "kube-apiserver"
MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a control plane is on the network, by default on loopback for this machine alone."""

    #: Where it is reached, and what it listens on.
    address: str = "127.0.0.1"
    bind: str = "127.0.0.1"
    #: Its address for the Service ``kubernetes``, and whether that Service gets it.
    advertised: str = ADVERTISED
    serves_pods: bool = False
    services: str = SERVICES
    #: The pods' addresses; none where there is no node.
    pods: str = ""
    #: What begins the command of each of its processes, to put it there.
    enter: tuple[str, ...] = ()

    @property
    def service_address(self) -> str:
        """The address of the Service ``kubernetes``: the first of the range."""
        return str(ipaddress.ip_network(self.services)[1])


LOOPBACK = Place()


class Layout(Protocol):
    """Where a cluster keeps its files and listens."""

    @property
    def folder(self) -> Path: ...
    @property
    def api_port(self) -> int: ...
    @property
    def etcd_port(self) -> int: ...
    @property
    def etcd_peer_port(self) -> int: ...
    @property
    def audit(self) -> bool: ...
    @property
    def place(self) -> Place: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One process: its name, how its flags are made, and whether others wait until it is ready."""

    name: str
    flags: Callable[[Layout], tuple[str, ...]]
    #: The start goes on only when the API server says that it is ready.
    gates: bool = False


def _etcd(layout: Layout) -> tuple[str, ...]:
    client = f"http://127.0.0.1:{layout.etcd_port}"
    peer = f"http://127.0.0.1:{layout.etcd_peer_port}"
    return (
        f"--data-dir={layout.folder / 'etcd'}",
        # What a test writes need not live over a power failure.
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
    )


def _api_server(layout: Layout) -> tuple[str, ...]:
    folder, place = layout.folder, layout.place
    flags: tuple[str, ...] = (
        f"--etcd-servers=http://127.0.0.1:{layout.etcd_port}",
        f"--bind-address={place.bind}",
        f"--secure-port={layout.api_port}",
        # It refuses to advertise a loopback address. Without a node nothing uses the endpoint of
        # the Service, so nobody has to have that address.
        f"--advertise-address={place.advertised}",
        f"--endpoint-reconciler-type={'lease' if place.serves_pods else 'none'}",
        # Nobody resolves the names of nodes.
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-cluster-ip-range={place.services}",
        "--authorization-mode=Node,RBAC",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
        "--allow-privileged=true",
        "--profiling=false",
        "--event-ttl=10m",
    )
    if layout.audit:
        flags += (
            f"--audit-policy-file={folder / 'audit-policy.json'}",
            f"--audit-log-path={folder / 'audit.log'}",
        )
    return flags


def _manager(layout: Layout) -> tuple[str, ...]:
    return (*_any_manager(layout), f"--controllers={','.join(CONTROLLERS)}")


def _node_manager(layout: Layout) -> tuple[str, ...]:
    return (
        *_any_manager(layout),
        "--use-service-account-credentials",
        "--allocate-node-cidrs",
        f"--cluster-cidr={layout.place.pods}",
        f"--service-cluster-ip-range={layout.place.services}",
        # A node that is cut off is NotReady after this instead of 50 s; its kubelet renews its
        # lease some five times as often.
        f"--node-monitor-grace-period={NODE_MONITOR_GRACE}s",
    )


def _scheduler(layout: Layout) -> tuple[str, ...]:
    return (
        f"--kubeconfig={layout.folder / 'system:kube-scheduler.kubeconfig'}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
    )


def _any_manager(layout: Layout) -> tuple[str, ...]:
    folder = layout.folder
    return (
        f"--kubeconfig={folder / 'kube-controller-manager.kubeconfig'}",
        f"--root-ca-file={folder / 'ca.crt'}",
        f"--service-account-private-key-file={folder / 'service-accounts.key'}",
        "--leader-elect=false",
        # Serving no metrics: no port to find, no certificate to make.
        "--secure-port=0",
        "--profiling=false",
    )


CONTROL_PLANE = (
    Component(name=ETCD, flags=_etcd),
    Component(name=API_SERVER, flags=_api_server, gates=True),
    Component(name=MANAGER, flags=_manager),
)

#: The control plane of a cluster that has nodes.
NODE_CONTROL_PLANE = (
    Component(name=ETCD, flags=_etcd),
    Component(name=API_SERVER, flags=_api_server, gates=True),
    Component(name=MANAGER, flags=_node_manager),
    Component(name=SCHEDULER, flags=_scheduler),
)
