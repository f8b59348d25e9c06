"""``python -m cluster.screens``: make the pictures of the manual anew, from a real run on a node.

It wants a cluster that ``make node-up`` has started, Chromium, and the pages of Prometheus' own UI,
which its Go module has as sources alone (docs/testing.md says how they are built). It runs
Pillion, publishers and listeners there, has Prometheus watch them by the chart's own
configuration, and photographs what a terminal, Prometheus and the dashboard show.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster import scenery
from cluster.story import SYSTEM, CloudEventsListener, Installation
from cluster.story_fixtures import restricted_namespace
from pillion_testbed import images
from pillion_testbed.binaries import find_binaries, say
from pillion_testbed.camera import Camera, find_camera
from pillion_testbed.helm import CHART, find_helm
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.machine import import_image
from pillion_testbed.monitoring import Prometheus, running_prometheus
from pillion_testbed.rest import wait_until

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
VALUES = ("monitoring.scrapeConfig.enabled=true", "monitoring.rules.enabled=true")
#: Opens what the page of alerts says about the alert that fires, and waits until it is open.
OPEN = """
[...document.querySelectorAll("button.mantine-Accordion-control")]
  .find(one => one.textContent.includes("PillionListenerUnreachable")).click()
"""


def main(arguments: Sequence[str]) -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(prog="python -m cluster.screens", description=__doc__)
    parser.add_argument("--cluster", type=Path, required=True, help="the folder of `node-up`")
    parser.add_argument("--ui", type=Path, required=True, help="Prometheus' pages: web/ui/static")
    parser.add_argument("--minutes", type=float, default=9.0, help="how long to watch first [9]")
    parser.add_argument("--into", type=Path, default=ASSETS, help="where pictures go [docs/assets]")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Prometheus runs in a folder of its own.
        kubectl = prepared(chosen.cluster.absolute(), folder)
        with watching(kubectl, chosen.ui, folder) as prometheus:
            shoot_all(
                kubectl, prometheus, find_camera(folder), minutes=chosen.minutes, to=chosen.into
            )
    kubectl.run("delete", "namespace", scenery.NAMESPACE, "--wait=false")


def prepared(cluster: Path, folder: Path) -> Kubectl:
    """Install Pillion, and have publishers publish; returns kubectl for their namespace."""
    admin = Kubectl(
        program=find_binaries(os.environ).kubectl(), kubeconfig=cluster / "admin.kubeconfig"
    )
    image = images.deliverer()
    import_image(cluster / "nodes" / "node-1" / "run" / "containerd.sock", image.archive)
    admin.apply(json.dumps(restricted_namespace(SYSTEM)))
    helm = find_helm(folder, kubeconfig=admin.kubeconfig)
    installation = Installation(helm=helm, kubectl=admin, image=image.name)
    installation.install(*VALUES)
    return scenery.set_up(installation, image.name)


@contextlib.contextmanager
def watching(kubectl: Kubectl, ui: Path, folder: Path) -> Iterator[Prometheus]:
    """Prometheus with the chart's own scrape configuration and rules, and with its pages."""

    def data(name: str, file: str) -> str:
        return str(kubectl.json("get", "configmap", name, f"--namespace={SYSTEM}")["data"][file])

    # Built without its pages it looks for them here, in a folder of this name.
    home = folder / "prometheus"
    shutil.copytree(ui, home / "web" / "ui" / "static")
    scrape = yaml.safe_load(data("pillion-scrape", "scrape.yaml"))
    for job in scrape["scrape_configs"]:
        job |= {"scrape_interval": "5s", "scrape_timeout": "5s"}
        for discovery in job["kubernetes_sd_configs"]:
            discovery["kubeconfig_file"] = str(kubectl.kubeconfig)
    (home / "rules.yaml").write_text(data("pillion-rules", "rules.yaml"))
    # A path of its own folder: the page of alerts shows it.
    configuration = {
        **scrape,
        "global": {"evaluation_interval": "5s"},
        "rule_files": ["rules.yaml"],
    }
    with running_prometheus(configuration, home) as prometheus:
        yield prometheus


def shoot_all(
    kubectl: Kubectl, prometheus: Prometheus, camera: Camera, *, minutes: float, to: Path
) -> None:
    """Wait until there is something to see, and photograph it."""
    began = time.monotonic()
    say(f"watching for {minutes:g} minutes")
    wait_until(
        lambda: time.monotonic() - began > minutes * 30, within=minutes * 60, what="half the time"
    )
    # For the second half the slow listener keeps up: its queue runs empty.
    CloudEventsListener(kubectl=kubectl, name="archive").behave()
    wait_until(lambda: bool(firing(prometheus)), within=900, what="an alert fires")
    wait_until(
        lambda: time.monotonic() - began > minutes * 60, within=minutes * 60, what="the other half"
    )
    terminals(kubectl, camera, to=to)
    alerts = f"{prometheus.url}/alerts?state=firing"
    camera.shoot(alerts, to=to / "alerts.png", width=1200, script=OPEN)
    dashboard(prometheus, camera, minutes=minutes, to=to)


def terminals(kubectl: Kubectl, camera: Camera, *, to: Path) -> None:
    """The pictures of what kubectl prints."""

    def told(*commands: str) -> list[tuple[str, str]]:
        return [(f"kubectl {command}", kubectl.run(*command.split())) for command in commands]

    camera.terminal(told("get pillion"), to=to / "get-pillion.png")
    wide = "get ldest -o wide"
    events = "events --for ldest/on-call"
    camera.terminal(told(wide, events), to=to / "dead-listener.png")


def firing(prometheus: Prometheus) -> list[Any]:
    """The alerts that fire."""
    return [found for found in prometheus.alerts() if found["state"] == "firing"]


def dashboard(prometheus: Prometheus, camera: Camera, *, minutes: float, to: Path) -> None:
    """The picture of the dashboard, drawn by tools/render_dashboard.py."""
    page = camera.folder / "dashboard.html"
    command = [
        *(sys.executable, str(ROOT / "tools" / "render_dashboard.py")),
        *(str(CHART / "files" / "dashboard.json"), prometheus.url, str(page)),
        *("--minutes", f"{minutes:g}", "--rows", "At a glance"),
    ]
    subprocess.run(command, check=True)
    camera.shoot(page.as_uri(), to=to / "dashboard.png", width=1400)


if __name__ == "__main__":
    main(sys.argv[1:])
