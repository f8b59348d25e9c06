"""One node: a namespace with containerd, kubelet and kube-proxy of its own."""

import contextlib
import socket
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pillion_testbed import image_archive
from pillion_testbed.leftovers import hierarchies
from pillion_testbed.network import NetworkFailed, run
from pillion_testbed.node_files import (
    containerd_config,
    kubelet_config,
    network_config,
    plain_registry,
    proxy_config,
    write_json,
)
from pillion_testbed.processes import Running, Spawner
from pillion_testbed.rest import wait_until

CONTAINERD, KUBELET, PROXY = "containerd", "kubelet", "kube-proxy"
#: Seconds until containerd answers, on a machine that is busy.
CONTAINERD_START = 30.0
#: Seconds that a kubelet has to end by itself.
KUBELET_GRACE = 10.0
CNI_PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


class ImportFailed(Exception):
    """containerd did not take an image, or does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """What a node has to know of its cluster."""

    #: Keeps all that the node writes.
    folder: Path
    name: str
    address: str
    #: Its name among the control groups, and of its pods' network.
    group: str
    #: What begins a command that is to run on the node.
    enter: tuple[str, ...]
    dns: str
    #: The addresses of the pods of all nodes.
    pods: str
    #: Seconds within which the control plane wants a sign of life.
    lease: int
    kubelet_kubeconfig: Path
    proxy_kubeconfig: Path
    #: How the components are called: see ``Binaries.command``.
    command: Callable[[str], tuple[str, ...]]
    outlives: bool


class Machine:
    """Starts and ends a node's processes. The network and the control plane are others'."""

    def __init__(self, home: Home, spawner: Spawner, spawned: Callable[[], None]) -> None:
        """``spawned`` is called whenever a process has started."""
        self.home = home
        self._spawner = spawner
        self._spawned = spawned
        self._running: dict[str, Running] = {}

    @property
    def name(self) -> str:
        return self.home.name

    @property
    def running(self) -> Mapping[str, Running]:
        """Its processes, in the order in which they started."""
        return self._running

    @property
    def socket(self) -> Path:
        """containerd's."""
        return self.home.folder / "run" / "containerd.sock"

    @property
    def _registries(self) -> Path:
        return self.home.folder / "registries"

    def start_containerd(self) -> None:
        """Start it; returns when it answers."""
        home = self.home
        for name in ("run", "cni", "kubelet", "pod-logs"):
            (home.folder / name).mkdir(parents=True, exist_ok=True)
        (home.folder / "resolv.conf").write_text(f"nameserver {home.dns}\n")
        config = home.folder / "containerd.toml"
        plugins = next((path for path in CNI_PLUGINS if path.is_dir()), CNI_PLUGINS[0])
        config.write_text(
            containerd_config(
                root=home.folder / "containerd",
                run=home.folder / "run",
                cni=home.folder / "cni",
                plugins=plugins,
                registries=self._registries,
            )
        )
        started = self._start(CONTAINERD, (CONTAINERD, "--config", str(config)))
        self._until(started, lambda: _listens(self.socket))

    def pull_plainly(self, address: str) -> None:
        """Have images of a registry, ``host:port``, pulled over HTTP."""
        folder = self._registries / address
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts.toml").write_text(plain_registry(address))

    def import_image(self, archive: Path) -> None:
        """Take an image from an OCI archive; layers that are there need not be in it."""
        import_image(self.socket, archive)

    def import_images(self, archive: Path) -> None:
        """Take all images of an archive that another node exported."""
        ctr(self.socket, "images", "import", str(archive))

    def images(self) -> set[str]:
        """The names of the images that are there."""
        return set(ctr(self.socket, "images", "list", "--quiet").split())

    def export_images(self, archive: Path, *, names: Collection[str] = ()) -> Path:
        """Write these images, or all that are there, into an archive, and return it."""
        # What the CRI plug-in adds are other names of the same, by digest.
        wanted = names or [name for name in self.images() if not name.startswith("sha256:")]
        ctr(self.socket, "images", "export", str(archive), *sorted(wanted))
        return archive

    def start_kubelet(self) -> None:
        """Start it, and make its control group where it is not there."""
        home = self.home
        make_control_groups(home.group)
        config = kubelet_config(
            folder=home.folder,
            socket=self.socket,
            cgroup=f"/{home.group}",
            dns=home.dns,
            lease=home.lease,
        )
        flags = (
            f"--config={write_json(home.folder / 'kubelet.json', config)}",
            f"--kubeconfig={home.kubelet_kubeconfig}",
            f"--root-dir={home.folder / 'kubelet'}",
            f"--cert-dir={home.folder / 'kubelet' / 'pki'}",
            f"--hostname-override={home.name}",
            f"--node-ip={home.address}",
        )
        self._start(KUBELET, (*home.command(KUBELET), *flags))

    def connect_pods(self, pods: str) -> None:
        """Give the node the addresses of its pods, after which it is Ready."""
        home = self.home
        config = network_config(name=home.group, pods=pods, data=home.folder / "cni-data")
        # containerd must not see half a file, and looks for one only at a write or when a name in
        # the folder goes: a file that comes from elsewhere is not noticed.
        half = write_json(home.folder / "cni" / "half", config)
        half.rename(home.folder / "cni" / "10-pods.conflist")

    def start_proxy(self) -> None:
        """Start it."""
        home = self.home
        config = proxy_config(kubeconfig=home.proxy_kubeconfig, node=home.name, pods=home.pods)
        path = write_json(home.folder / "kube-proxy.json", config)
        self._start(PROXY, (*home.command(PROXY), f"--config={path}"))

    def restart_kubelet(self) -> None:
        """End the kubelet and start it again; containers go on meanwhile."""
        self._running.pop(KUBELET).stop(grace=KUBELET_GRACE)
        self.start_kubelet()

    def check(self) -> None:
        """Raise ProcessFailed, with the end of its log, where a process has ended."""
        for one in self._running.values():
            if one.exit_code() is not None:
                raise one.failed(f"of {self.name} ended with {one.exit_code()}")

    def reap(self) -> None:
        """Forget the processes, which were ended."""
        for one in self._running.values():
            one.stop()
        self._running.clear()

    def detach(self) -> None:
        """Leave the processes to themselves."""
        self._running.clear()

    def _start(self, name: str, command: tuple[str, ...]) -> Running:
        started = self._spawner.start(
            name,
            (*self.home.enter, *command),
            log=self.home.folder / f"{name}.log",
            outlives=self.home.outlives,
        )
        self._running[name] = started
        self._spawned()
        return started

    def _until(self, running: Running, condition: Callable[[], bool]) -> None:
        def held() -> bool:
            self.check()
            return condition()

        try:
            wait_until(held, within=CONTAINERD_START, what=running.name)
        except TimeoutError as error:
            raise running.failed("was not ready in time") from error


def _listens(path: Path) -> bool:
    """Whether a process takes connections at a socket; it may be bound before it listens."""
    with socket.socket(socket.AF_UNIX) as tried:
        try:
            tried.connect(str(path))
        except OSError:
            return False
    return True


def import_image(socket: Path, archive: Path) -> str:
    """Have a containerd take an image, without the layers that it has where these are most of it.

    To leave layers out is to copy the others, which takes about as long as to read them.
    """
    having = set(ctr(socket, "content", "list", "--quiet").split())
    contents = image_archive.contents(archive)
    sizes = dict(zip(contents.layers, contents.sizes, strict=True))
    there = sum(size for layer, size in sizes.items() if layer in having)
    if there < sum(sizes.values()) / 2:
        return ctr(socket, "images", "import", str(archive))
    with tempfile.TemporaryDirectory(prefix="pillion-image-") as folder:
        lacking = Path(folder) / "image.tar"
        image_archive.thin(archive, into=lacking, having=having)
        return ctr(socket, "images", "import", str(lacking))


def ctr(socket: Path, *arguments: str) -> str:
    """Run containerd's own command among the kubelet's containers and images."""
    try:
        return run(("ctr", "--address", str(socket), "--namespace", "k8s.io", *arguments))
    except NetworkFailed as error:
        raise ImportFailed(str(error)) from error


def make_control_groups(name: str) -> None:
    """Make the group below which a kubelet keeps its pods, in every hierarchy."""
    for hierarchy in hierarchies():
        if (hierarchy / "cgroup.controllers").exists():
            _delegate(hierarchy)
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        # A new cpuset of version 1 allows nothing until it is told.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (group / setting).exists() and not (group / "cgroup.controllers").exists():
                (group / setting).write_text((hierarchy / setting).read_text())


def _delegate(root: Path) -> None:
    """Let the groups of version 2 below the root have its controllers: a kubelet asks for them."""
    for controller in (root / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # the kernel keeps some to itself
            (root / "cgroup.subtree_control").write_text(f"+{controller}")
