"""``pillion why-not`` on a real API server."""

import json

import pytest

from pillion_cli.exits import CommandError, Exit
from pillion_cli.main import command_parser, load, main
from pillion_testbed.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds")]

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "app", "image": "registry.test/app:1"}]},
}


def test_the_rule_is_told_of_a_pod_as_it_is(
    kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["why-not", "web", "--namespace", kubectl.namespace, "--output", "json"]
    arguments += ["--kubeconfig", str(kubectl.kubeconfig)]

    def told() -> str:
        assert main(arguments) == Exit.OK
        return str(json.loads(capsys.readouterr().out)["rule"])

    kubectl.apply(json.dumps(POD))
    assert told() == "NotSelected"
    kubectl.run("label", "pod/web", "pillion.dev/inject=false")
    assert told() == "OptedOut"
    kubectl.run("label", "--overwrite", "pod/web", "pillion.dev/inject=true")
    # Another test may have a chart installed, whose webhook looks at its own namespaces only.
    assert told() in ("NoWebhook", "NamespaceNotSelected")


def test_a_pod_that_is_not_there_is_named(kubectl: Kubectl) -> None:
    command = load("why-not")
    arguments = ["none", "--namespace", kubectl.namespace, "--kubeconfig", str(kubectl.kubeconfig)]
    args = command_parser("why-not", command).parse_args(arguments)
    with pytest.raises(CommandError, match=f"no pod none in the namespace {kubectl.namespace}"):
        command.run(args)
