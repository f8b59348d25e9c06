"""``pillion operator`` as a process: probes, metrics, its end, and what it says where it cannot."""

import os
import re
import socket
import subprocess
import urllib.error
from pathlib import Path

import pytest

from cluster.convergence import World
from cluster.deliverer_pod import PILLION
from cluster.operators import IMAGE, OperatorProcess, Operators, ProcessFailed
from cluster.scenes import injecting
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.helm import alert_groups
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until
from support.cluster_resources import pod, service

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

CHART = Path(__file__).parents[3] / "charts" / "pillion" / "files"
METRIC = re.compile(r"\bpillion_operator_[a-z_]+")


def documented() -> set[str]:
    """The operator's metrics that the chart's alerts and dashboard ask for."""
    texts = [rule["expr"] for group in alert_groups() for rule in group["rules"]]
    texts.append((CHART / "dashboard.json").read_text())
    return {name for text in texts for name in METRIC.findall(text)}


def answers(operator: OperatorProcess, probe: str) -> bool:
    """Whether a probe passes."""
    try:
        return operator.read(probe) == "ok\n"
    except urllib.error.HTTPError as error:
        error.close()
        return False


def there(operator: OperatorProcess) -> set[str]:
    """The metrics that the operator has, samples or not."""
    families = re.findall(r"^# TYPE (\S+) (\S+)$", operator.read("/metrics"), flags=re.MULTILINE)
    suffixes = {"histogram": ("_bucket", "_count", "_sum")}
    return {name + suffix for name, kind in families for suffix in ("", *suffixes.get(kind, ()))}


def test_it_answers_probes_and_has_the_metrics_that_the_chart_asks_for(
    operators: Operators,
) -> None:
    operator = operators.start()
    for probe in ("/livez", "/readyz", "/startupz"):
        # It is ready once it has a certificate for its webhook.
        wait_until(lambda path=probe: answers(operator, path), within=30, what=probe)  # type: ignore[misc]
    assert len(documented()) >= 10
    assert documented() <= there(operator)


def test_it_ends_in_order_while_the_api_server_is_connected_to_its_webhook(
    world: World, operators: Operators, admin_kubectl: Kubectl
) -> None:
    operator = operators.start()
    injecting(operator, admin_kubectl, namespace=world.namespace)
    world.apply(service(), pod())
    assert operator.metrics()['pillion_operator_webhook_answers_total{outcome="injected"}'] >= 1
    assert operator.stop() == 0
    levels = {record.get("level") for record in operator.records()}
    assert levels <= {None, "INFO"}


def test_it_runs_without_a_webhook(operators: Operators) -> None:
    operator = operators.start("--no-webhook")
    assert operator.webhook == ""
    assert operator.read("/readyz") == "ok\n"
    assert operator.stop() == 0


def complaint(arguments: list[str]) -> str:
    """What an operator prints that ends by itself with exit code 1."""
    ran = subprocess.run(
        [*PILLION, "operator", "--deliverer-image", IMAGE, "--no-webhook", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={key: value for key, value in os.environ.items() if key != "KUBECONFIG"},
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


@pytest.mark.parametrize("content", [None, "", "{", "kind: Config"])
def test_a_kubeconfig_that_leads_nowhere_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    told = complaint(["--kubeconfig", str(path), "--telemetry", "127.0.0.1:0"])
    assert "no way to an API server" in told
    assert str(path) in told


def test_a_context_that_is_not_there_is_named(control_plane: ControlPlane) -> None:
    kubeconfig = str(control_plane.kubeconfig())
    told = complaint(["--kubeconfig", kubeconfig, "--context", "elsewhere"])
    assert "elsewhere" in told


@pytest.mark.parametrize("option", ["--telemetry", "--webhook"])
def test_a_taken_address_is_named(operators: Operators, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ProcessFailed) as failed:
            operators.start(option, address)
    assert f"cannot listen on {address}: address already in use" in str(failed.value).lower()
    assert "Traceback" not in str(failed.value)
