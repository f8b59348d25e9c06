"""``python -m cluster``: the test cluster for people, and its programs for ``make``."""

import argparse
import os
import sys
from pathlib import Path

from cluster.background import BackgroundCluster
from cluster.binaries import BinariesUnavailable, find_binaries, say
from cluster.control_plane import ControlPlane
from cluster.fixtures import CRDS
from cluster.kubectl import Kubectl, KubectlFailed
from cluster.processes import ProcessFailed
from cluster.tiers import CONTROL_PLANE


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    parser.add_argument("command", choices=("build", "up", "down"))
    parser.add_argument("--folder", type=Path, default=Path(".cache/cluster"))
    chosen = parser.parse_args(arguments)
    cluster = BackgroundCluster(chosen.folder.absolute())
    try:
        if chosen.command == "build":
            binaries = find_binaries(os.environ)
            binaries.prepare([one.name for one in CONTROL_PLANE])
            binaries.helm()
        elif chosen.command == "up":
            up(cluster)
        else:
            say("ended" if cluster.down() else f"nothing runs from {cluster.folder}")
    except (BinariesUnavailable, ProcessFailed, KubectlFailed) as error:
        say(str(error))
        return 1
    return 0


def up(cluster: BackgroundCluster) -> None:
    """Start it unless it runs, install our kinds, and print how to use it."""
    binaries = find_binaries(os.environ)
    if not cluster.alive():
        cluster.down()
        plane = ControlPlane(cluster.folder, binaries, audit=True, outlives=True)
        plane.start()
        cluster.remember(plane.pids())
        say(f"ready: {plane.url}; logs are in {cluster.folder}")
        plane.detach()
    kubeconfig = cluster.folder / "admin.kubeconfig"
    kubectl = Kubectl(program=binaries.kubectl(), kubeconfig=kubeconfig)
    say(kubectl.apply(CRDS, "--server-side", "--force-conflicts").rstrip())
    kubectl.wait("-f", str(CRDS), "--for=condition=Established")
    print(f"export KUBECONFIG={kubeconfig}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
