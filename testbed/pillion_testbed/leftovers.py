"""What a cluster with nodes leaves on the machine, and how that is removed.

A record of each cluster is kept at a place that its index tells, written as its processes start. By
it alone everything can be ended and removed, so a stop and the cleaning after a ``kill -9`` are the
same.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pillion_testbed.network import Addresses
from pillion_testbed.rest import wait_until

RECORDS = Path("/run/pillion-test")
CGROUPS = Path("/sys/fs/cgroup")
#: Seconds that a process has to end by itself; until one that was killed is gone.
GRACE = 5.0
GONE = 20.0
#: Who is ended before the containers, which they would start again.
KEEPERS = ("kubelet", "kube-proxy")
SHIM = "containerd-shim"
SHIM_SOCKETS = Path("/run/containerd/s")
POD_LOG_LINKS = Path("/var/log/containers")
#: Of a node: where the sockets of its containers' keepers are told, and its pods by their ids.
SHIM_ADDRESSES = "run/state/io.containerd.runtime.v2.task/k8s.io/*/address"
SANDBOXES = "containerd/io.containerd.grpc.v1.cri/sandboxes/*"
CNI_RESULTS = Path("/var/lib/cni/results")
#: What containerd, CNI and a kubelet make wherever their own folders are.
EMPTIED = (
    SHIM_SOCKETS,
    Path("/run/containerd"),
    POD_LOG_LINKS,
    CNI_RESULTS,
    Path("/var/lib/cni"),
    Path("/var/lib/kubelet/device-plugins"),
    Path("/var/lib/kubelet"),
)


@dataclass(frozen=True, slots=True)
class Process:
    """One process. Ids are used again, so its start belongs to it: in clock ticks since boot."""

    pid: int
    started: int

    def runs(self) -> bool:
        return process(self.pid) == self


def process(pid: int) -> Process | None:
    """Return a process that runs; one that has ended and was not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold anything.
    fields = status.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A cluster as the machine knows it."""

    index: int
    folder: Path
    #: Whose end it does not outlive; None: nobody's.
    owner: Process | None
    #: In the order in which they started, by ``NODE/NAME``.
    processes: Mapping[str, Process] = field(default_factory=dict)

    @property
    def cgroup(self) -> str:
        """What begins the name of each node's control group."""
        return f"pillion-{self.index}-"

    def alive(self) -> bool:
        """Whether somebody still uses it."""
        if self.owner is not None:
            return self.owner.runs()
        return bool(self.processes) and not self.ended()

    def ended(self) -> list[str]:
        """The names of its processes that do not run any more."""
        return [name for name, one in self.processes.items() if not one.runs()]

    def write(self, records: Path = RECORDS) -> None:
        """Keep it."""
        records.mkdir(parents=True, exist_ok=True)
        owner = self.owner and [self.owner.pid, self.owner.started]
        processes = {name: [one.pid, one.started] for name, one in self.processes.items()}
        content = {"folder": str(self.folder), "owner": owner, "processes": processes}
        path = records / f"{self.index}.json"
        half = path.with_suffix(".new")
        half.write_text(json.dumps(content))
        half.rename(path)


def read_record(index: int, records: Path = RECORDS) -> Record | None:
    """Return the record of a cluster, if there is one."""
    try:
        content = json.loads((records / f"{index}.json").read_text())
    except FileNotFoundError:
        return None
    owner = content["owner"]
    return Record(
        index=index,
        folder=Path(content["folder"]),
        owner=Process(*owner) if owner else None,
        processes={name: Process(*one) for name, one in content["processes"].items()},
    )


@contextlib.contextmanager
def locked_records(records: Path = RECORDS) -> Iterator[None]:
    """Let no other process take an index meanwhile."""
    records.mkdir(parents=True, exist_ok=True)
    folder = os.open(records, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def remove(record: Record, records: Path = RECORDS) -> None:
    """End a cluster's processes and remove what it has outside of its folder."""
    end_nodes(
        list(record.folder.glob("nodes/*")), groups=f"{record.cgroup}*", processes=record.processes
    )
    unmount_below(record.folder)
    # The rest of the network went with its namespaces.
    link = Addresses(record.index).interface
    subprocess.run(("ip", "link", "delete", link), capture_output=True, check=False)
    (records / f"{record.index}.json").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others have theirs in it
        records.rmdir()


def end_nodes(folders: Sequence[Path], *, groups: str, processes: Mapping[str, Process]) -> None:
    """End nodes: who keeps containers, the containers, all other processes; then what they leave.

    ``folders`` are the nodes', ``groups`` the pattern of their control groups' names.
    """
    # containerd forgets them as the containers end.
    files = [path for folder in folders for path in _files_elsewhere(folder)]
    keepers = [name for name in processes if name.rpartition("/")[2] in KEEPERS]
    for name in reversed(keepers):
        end(processes[name])
    found = list(control_groups(groups))
    wait_until(lambda: not _kill_all(found), within=GONE, what="the end of the containers")
    for folder in folders:
        _end_shims(folder)
    others = [name for name in processes if name not in keepers]
    for name in reversed(others):
        # What they keep is removed: no need for them to put it in order.
        _signal(processes[name], signal.SIGKILL, within=GONE)
    for folder in folders:
        unmount_below(folder)
    wait_until(
        lambda: all([_removed(group) for group in found]),
        within=GONE,
        what=f"the removal of the control groups {groups}",
    )
    for path in files:
        path.unlink(missing_ok=True)
    for place in EMPTIED:
        with contextlib.suppress(OSError):  # somebody else's things are in it
            place.rmdir()


def end(one: Process) -> None:
    """End a process: by SIGTERM, a while later by SIGKILL."""
    try:
        _signal(one, signal.SIGTERM, within=GRACE)
    except TimeoutError:
        _signal(one, signal.SIGKILL, within=GONE)


def _signal(one: Process, number: signal.Signals, *, within: float) -> None:
    """Send a signal to a process that runs, and wait until it is gone."""
    if one.runs():
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, number)
        wait_until(lambda: not one.runs(), within=within, what=f"the end of {one.pid}")


def control_groups(pattern: str, root: Path = CGROUPS) -> Iterator[Path]:
    """The control groups of such names, in every hierarchy."""
    for hierarchy in hierarchies(root):
        yield from hierarchy.glob(pattern)


def hierarchies(root: Path = CGROUPS) -> list[Path]:
    """The hierarchies of control groups: one of version 2, or those of version 1."""
    if (root / "cgroup.controllers").exists():
        return [root]
    # Some are links to others (cpu to cpu,cpuacct).
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())


def mounts_below(folder: Path, table: str) -> list[str]:
    """The mount points below a folder in a ``mountinfo``, the last mounted first."""
    points = [line.split(" ")[4] for line in table.splitlines()]
    decoded = [point.encode().decode("unicode_escape") for point in points]
    return [point for point in reversed(decoded) if point.startswith(f"{folder}/")]


def unmount_below(folder: Path) -> None:
    """Unmount everything below a folder."""
    for point in mounts_below(folder, Path("/proc/self/mountinfo").read_text()):
        # Lazily: what nobody uses any more goes at once, and nothing keeps the rest from going.
        subprocess.run(("umount", "--lazy", point), capture_output=True, check=False)


def _kill_all(groups: Iterable[Path]) -> bool:
    """Kill every process in the groups; whether there was one."""
    found = False
    for group in groups:
        for folder, _below, _files in os.walk(group):  # which overlooks what goes meanwhile
            with contextlib.suppress(OSError):
                for pid in Path(folder, "cgroup.procs").read_text().split():
                    if process(int(pid)) is not None:
                        found = True
                        os.kill(int(pid), signal.SIGKILL)
    return found


def _end_shims(folder: Path) -> None:
    """End those who kept the containers of this cluster: they name its containerd's socket."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and _is_shim(entry, folder):
            shim = process(int(entry.name))
            if shim is not None:
                _signal(shim, signal.SIGKILL, within=GONE)


def _is_shim(entry: Path, folder: Path) -> bool:
    try:
        command = (entry / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    below = os.fsencode(folder) + b"/"
    return SHIM.encode() in command[0] and any(part.startswith(below) for part in command[1:])


def _removed(group: Path) -> bool:
    """Remove a control group and those below it; False: something of it is still there."""
    for folder, _below, _files in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):  # its last process is on its way out
            Path(folder).rmdir()
    return not group.exists()


def _files_elsewhere(folder: Path) -> Iterator[Path]:
    """The files that a node's containerd, CNI and kubelet have at places of their own."""
    for told in folder.glob(SHIM_ADDRESSES):
        yield Path(told.read_text().removeprefix("unix://"))
    for pod in folder.glob(SANDBOXES):
        yield from CNI_RESULTS.glob(f"*-{pod.name}-*")
    for link in POD_LOG_LINKS.glob("*.log"):
        if link.is_symlink() and link.readlink().is_relative_to(folder):
            yield link


def remove_folder(folder: Path) -> None:
    """Remove a cluster's folder, of which nothing is mounted any more."""
    if mounts_below(folder, Path("/proc/self/mountinfo").read_text()):
        raise OSError(f"{folder}: something is still mounted below it; see /proc/self/mountinfo")
    shutil.rmtree(folder)
