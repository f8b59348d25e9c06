"""What a machine must have for real nodes on it, and what to do where it has not."""

import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pillion_testbed.machine import CNI_PLUGINS

#: Programs, and the Debian package of each.
PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
#: What images are built with besides.
IMAGE_PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap"}
PLUGINS_PACKAGE = "containernetworking-plugins"
PLUGINS = ("bridge", "host-local", "loopback", "portmap")
OTHERWISE = (
    "or use a cluster that runs: USE_EXISTING_CLUSTER=true KUBECONFIG=… (docs/testing.md has "
    "recipes for kind and k3d), or leave the tests on a node out: PILLION_SKIP_NODE=1"
)


class RequirementsMissing(Exception):
    """This machine cannot run a node; the message says why, and what helps."""


def check_requirements(*, images: bool = False) -> None:
    """Raise RequirementsMissing where a node cannot run here, or images cannot be built."""
    lacking = missing(
        PROGRAMS | (IMAGE_PROGRAMS if images else {}),
        system=platform.system(),
        user=os.geteuid(),
        which=shutil.which,
        plugins=CNI_PLUGINS,
    )
    if lacking:
        raise RequirementsMissing("\n".join(("no node can run here:", *lacking, OTHERWISE)))


def missing(
    programs: Mapping[str, str],
    *,
    system: str,
    user: int,
    which: Callable[[str], str | None],
    plugins: Sequence[Path],
) -> list[str]:
    """Return a line for each thing that is not as a node needs it.

    ``programs`` are by their names the Debian packages that have them.
    """
    if system != "Linux":
        return [f"it needs Linux, and this is {system}"]
    lines = [] if user == 0 else [f"it needs root, and this is user {user}"]
    packages = {package for program, package in programs.items() if which(program) is None}
    if not any(all((folder / one).exists() for one in PLUGINS) for folder in plugins):
        packages.add(PLUGINS_PACKAGE)
    if packages:
        lines.append(f"apt-get install --no-install-recommends {' '.join(sorted(packages))}")
    return lines
