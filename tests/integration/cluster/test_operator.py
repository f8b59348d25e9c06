"""The operator, from the outside: resources become a configuration, and status tells of it."""

import base64
from pathlib import Path

import pytest

from cluster.kubectl import Kubectl
from cluster.operators import Operators
from pillion_sidecar.config.loader import load_folder

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
    secret = kubectl.json("get", "secret", "pillion-default-0")
    folder = tmp_path / "configuration"
    folder.mkdir()
    for name, data in secret["data"].items():
        (folder / name).write_bytes(base64.b64decode(data))
    configuration = load_folder(folder)
    service = kubectl.json("get", "indicationservice", "default")
    assert service["status"]["revision"] == configuration.revision
    assert set(configuration.subscriptions) == {
        "all-alerts-to-operations",
        "major-alerts-to-on-call",
    }
