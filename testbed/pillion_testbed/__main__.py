"""``python -m pillion_testbed``: the test clusters for people, and their programs for ``make``.

``build`` and ``build-node`` make the programs, ``receivers`` those that handlers deliver to in
tests; ``spark-versions`` fetches those that tests run; ``check-node`` says what a machine lacks for
a node.
``up`` and ``down`` are for a control plane in the background, ``node-up`` and ``node-down`` for a
cluster with a node, which takes images with ``node-import``.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from pillion_testbed import images, spark_versions
from pillion_testbed.background import BackgroundCluster
from pillion_testbed.binaries import BinariesUnavailable, find_binaries, say
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.helm import CRDS
from pillion_testbed.image_base import ImagesUnavailable
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.leftovers import read_record, remove, remove_folder
from pillion_testbed.machine import ImportFailed, import_image
from pillion_testbed.network import NetworkFailed
from pillion_testbed.node_cluster import IndexTaken, NodeCluster, clean
from pillion_testbed.processes import ProcessFailed
from pillion_testbed.receivers import Receivers
from pillion_testbed.requirements import RequirementsMissing, check_requirements
from pillion_testbed.spark_operator import spark_operator
from pillion_testbed.tiers import CONTROL_PLANE


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m pillion_testbed", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("archives", nargs="*", type=Path, help="OCI archives, for node-import")
    parser.add_argument("--check", action="store_true", help="make nothing, for receivers")
    parser.add_argument("--folder", type=Path, help="keys, data and logs [below .cache]")
    parser.add_argument("--index", type=int, default=0, help="tells clusters with a node apart [0]")
    chosen = parser.parse_args(arguments)
    try:
        COMMANDS[chosen.command](chosen)
    except FAILURES as error:
        say(str(error))
        return 1
    return 0


def build(_chosen: argparse.Namespace) -> None:
    binaries = find_binaries(os.environ)
    binaries.prepare([one.name for one in CONTROL_PLANE])
    binaries.helm()
    # Tests of rules and of scraping run them.
    binaries.prometheus()
    binaries.promtool()


def build_node(chosen: argparse.Namespace) -> None:
    """Make all that tests on a node run, outside of any test's time."""
    build(chosen)
    binaries = find_binaries(os.environ)
    binaries.prepare_node()
    spark_operator(binaries)
    for make in (images.deliverer, images.weather, images.pywbem_listener):
        make()


def receivers(chosen: argparse.Namespace) -> None:
    """Make those that Debian lacks; with ``--check``, fail if one is missing."""
    made = Receivers(find_binaries(os.environ))
    if not chosen.check:
        made.make()
    elif made.missing:
        raise BinariesUnavailable(f"missing: {', '.join(made.missing)}; make receivers")


def make_spark_versions(_chosen: argparse.Namespace) -> None:
    """Fetch the versions of Spark that are missing."""
    spark_versions.make(find_binaries(os.environ))


def check_node(_chosen: argparse.Namespace) -> None:
    """Say what this machine lacks."""
    check_requirements(images=True)


def up(chosen: argparse.Namespace) -> None:
    """Start it unless it runs, install our kinds, and print how to use it."""
    binaries = find_binaries(os.environ)
    cluster = _background(chosen)
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
    say(
        f"make cluster-down ends it and removes {cluster.folder}. What is left then, for the next "
        f"time: the programs in {binaries.cache}, and what Go has compiled and downloaded "
        "(some 4 GB; go clean -cache -modcache removes that)."
    )
    say("In each terminal that is to use it:")
    print(f"source {Path('.venv/bin/activate').absolute()}")
    if shutil.which("kubectl") is None:
        print(f"export PATH={binaries.kubectl().parent}:$PATH")
    print(f"export KUBECONFIG={kubeconfig}")


def down(chosen: argparse.Namespace) -> None:
    cluster = _background(chosen)
    say("ended" if cluster.down() else f"nothing runs from {cluster.folder}")


def node_up(chosen: argparse.Namespace) -> None:
    """Start it unless it runs, and print how to use it."""
    record = read_record(chosen.index)
    folder = (chosen.folder or Path(f".cache/node-{chosen.index}")).absolute()
    if record is None or not record.alive():
        check_requirements()
        clean(chosen.index)
        # Of one that ended by itself; its logs were there to be read until now.
        if folder.exists():
            remove_folder(folder)
        cluster = NodeCluster(folder, find_binaries(os.environ), index=chosen.index, outlives=True)
        cluster.start()
        say(f"ready: {cluster.url}; logs are in {folder}")
        cluster.detach()
    else:
        folder = record.folder
    print(f"export KUBECONFIG={folder / 'admin.kubeconfig'}")


def node_down(chosen: argparse.Namespace) -> None:
    record = read_record(chosen.index)
    if record is None:
        say(f"no cluster {chosen.index} runs")
        return
    if record.owner is not None and record.alive():
        raise IndexTaken(f"cluster {chosen.index} is that of process {record.owner.pid}")
    remove(record)
    remove_folder(record.folder)
    say("ended")


def node_import(chosen: argparse.Namespace) -> None:
    record = read_record(chosen.index)
    if record is None:
        raise ImportFailed(f"no cluster {chosen.index} runs; start it with node-up")
    if record.ended():
        ended = ", ".join(record.ended())
        raise ImportFailed(f"{ended} ended; see the logs in {record.folder}, then node-up")
    for archive in chosen.archives:
        for socket in sorted(record.folder.glob("nodes/*/run/containerd.sock")):
            say(import_image(socket, archive).rstrip())


def _background(chosen: argparse.Namespace) -> BackgroundCluster:
    return BackgroundCluster((chosen.folder or Path(".cache/cluster")).absolute())


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "build": build,
    "build-node": build_node,
    "check-node": check_node,
    "receivers": receivers,
    "spark-versions": make_spark_versions,
    "up": up,
    "down": down,
    "node-up": node_up,
    "node-down": node_down,
    "node-import": node_import,
}
FAILURES = (
    BinariesUnavailable,
    ProcessFailed,
    KubectlFailed,
    NetworkFailed,
    IndexTaken,
    ImportFailed,
    RequirementsMissing,
    ImagesUnavailable,
)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
