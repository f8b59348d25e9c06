"""``helm test`` passes where Pillion works, leaves nothing, and else says what is wrong."""

import pytest

from cluster.story import SYSTEM, Installation
from pillion_operator.cluster.types import OURS
from pillion_testbed.helm import HelmFailed
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

RESOURCES = ",".join(kind.plural for kind in OURS)


def left(pillion: Installation) -> str:
    """What a test has left: of its pod, its rights, its namespace and its resources."""
    kinds = f"pod,serviceaccount,role,rolebinding,networkpolicy,{RESOURCES}"
    found = pillion.kubectl.run(
        "get", kinds, "--all-namespaces", "-lapp.kubernetes.io/component in (test, check)", "-oname"
    )
    namespaces = pillion.kubectl.run("get", "namespace", "-oname").split()
    return found + "".join(name for name in namespaces if name.endswith("-test"))


def test_it_passes_and_leaves_nothing(pillion: Installation, report: Report) -> None:
    with report.step("helm test"):
        said = pillion.helm.run("test", "pillion", f"--namespace={SYSTEM}", "--timeout=180s")
    assert "Phase:          Succeeded" in said
    # A namespace goes by and by.
    wait_until(lambda: not left(pillion), within=60, what="nothing is left")


def test_it_says_what_is_wrong_where_no_operator_runs(
    pillion: Installation, report: Report
) -> None:
    pillion.install("replicas=0", "test.timeoutSeconds=5")
    try:
        pillion.kubectl.wait(
            "pods",
            "--selector=app.kubernetes.io/component=operator",
            f"--namespace={SYSTEM}",
            "--for=delete",
            within=90,
        )
        with report.step("helm test without an operator"), pytest.raises(HelmFailed):
            pillion.helm.run("test", "pillion", f"--namespace={SYSTEM}", "--timeout=120s")
        logs = pillion.kubectl.run("logs", "pillion-test", f"--namespace={SYSTEM}")
        assert "FAILED  the operator accepts them: after 5 s no operator has judged" in logs
        assert "ok      the resources are removed" in logs
        assert pillion.kubectl.run("get", RESOURCES, "--all-namespaces", "-oname") == ""
    finally:
        pillion.kubectl.run("delete", "pod", "pillion-test", f"--namespace={SYSTEM}")
        pillion.install()
