"""The operator, from the outside: resources become a configuration, and status tells of it."""

import base64
import gzip
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.deliverer_pod import PILLION
from cluster.operators import Operators
from cluster.scenes import publish
from pillion_sidecar.config.loader import load_folder
from pillion_testbed.kubectl import Kubectl
from support.cluster_resources import destination, filter_, service, subscription, together
from support.processes import listener_process

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[3] / "examples" / "kubernetes"
OURS = "indicationservices,listenerdestinations,indicationfilters,indicationsubscriptions"


def test_the_examples_are_accepted_and_ready_in_whatever_order_they_come(
    operators: Operators, kubectl: Kubectl, tmp_path: Path
) -> None:
    operators.start("--no-webhook")
    for path in sorted(EXAMPLES.glob("*.yaml"), reverse=True):
        kubectl.apply(path)
    for condition in ("Accepted", "Ready"):
        kubectl.wait(f"--for=condition={condition}", OURS, "--all")
    folder = tmp_path / "configuration"
    folder.mkdir()
    for name, data in rendered(kubectl).items():
        (folder / name).write_bytes(data)
    configuration = load_folder(folder)
    service = kubectl.json("get", "indicationservice", "default")
    assert service["status"]["revision"] == configuration.revision
    assert set(configuration.subscriptions) == {
        "all-alerts-to-operations",
        "major-alerts-to-on-call",
    }


def test_the_rendered_configuration_runs_a_deliverer_without_any_cluster(
    operators: Operators, kubectl: Kubectl, tmp_path: Path
) -> None:
    operators.start("--no-webhook")
    with listener_process(tmp_path) as listener:
        resources = together(service(), filter_(), destination(listener.url), subscription())
        kubectl.apply(json.dumps(resources))
        kubectl.wait("indicationsubscription/alerts-to-operations", "--for=condition=Ready")
        parts = [data for name, data in sorted(rendered(kubectl).items()) if ".part-" in name]
        folder = tmp_path / "configuration"
        folder.mkdir()
        (folder / "configuration.json").write_bytes(gzip.decompress(b"".join(parts)))
        with deliverer(folder) as intake:
            publish(intake)
        assert len(listener.record()) == 1


def rendered(kubectl: Kubectl) -> dict[str, bytes]:
    """The files that the Secret of the service ``default`` holds."""
    secret = kubectl.json("get", "secret", "pillion-default-0")
    return {name: base64.b64decode(data) for name, data in secret["data"].items()}


@contextmanager
def deliverer(folder: Path) -> Iterator[str]:
    """Run ``pillion sidecar`` on a folder while the context lasts; yields its intake's URL."""
    command = [*PILLION, "sidecar", "--resources", str(folder)]
    command += ["--intake", "127.0.0.1:0", "--telemetry", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["intake"]
        finally:
            process.terminate()
