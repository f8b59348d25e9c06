"""What the manual shows of kubectl is what kubectl prints.

Every command of the page's ``console`` blocks is run, in order, against a real operator and a real
deliverer. Ages, times, versions and column widths aside, it has to print what the page says. With
``PILLION_REWRITE_MANUAL=1`` the page is given what was printed.
"""

import asyncio
import json
import re
import shlex
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cluster.operators import OperatorProcess, Operators, webhook_configuration
from cluster.pods import PodRunner
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from support.house import ROOT
from support.manual import DOCS, Shown, blocks, keep, shown
from support.processes import listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PAGE = DOCS / "kubernetes.md"
FAILURES = DOCS / "failures.md"
#: The file that a page makes of a pod.
POD = "checkout.yaml"
EXAMPLES = "examples/kubernetes/"
OPERATIONS = "http://operations-listener.observability.svc:5990/"
ON_CALL = "https://on-call.example.com/events"
#: Where it is found, as a message says it.
ON_CALL_ADDRESS = "203.0.113.7 port 443"
ALERT = {
    "class": "CIM_AlertIndication",
    "properties": {"AlertType": 5, "PerceivedSeverity": 6, "ProbableCause": 94},
}

#: What differs from run to run, and what stands for it.
_DIFFERS = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"Resource Version: +\d+"), "Resource Version: N"),
    (re.compile(r"Revision: +[0-9a-f]{16}"), "Revision: REVISION"),
    (re.compile(r"(?<![\w.])(\d+[smhd])+(?![\w.])"), "AGE"),
    # Newer kubectls say where they have deleted something.
    (re.compile(r" from \S+ namespace"), ""),
    (re.compile(r"-{3,}"), "---"),
    (re.compile(r"\s+"), " "),
)


def told(printed: str) -> str:
    """What is left of an output when everything that may differ is taken out."""
    for pattern, stands_for in _DIFFERS:
        printed = pattern.sub(stands_for, printed)
    return printed.strip()


@contextmanager
def nobody() -> Iterator[str]:
    """An address of this machine at which nobody listens, kept from everybody else."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/events"


class Reader:
    """Somebody who follows the page."""

    def __init__(
        self, kubectl: Kubectl, plane: ControlPlane, runner: PodRunner, *, folder: Path
    ) -> None:
        self._kubectl = kubectl
        self._plane = plane
        self._runner = runner
        self._folder = folder
        #: What the page says, and what stands for it here.
        self._names: dict[str, str] = {"default": str(kubectl.namespace)}

    def prepare(self, addresses: dict[str, str]) -> None:
        """Make the files that the page names, with other addresses."""
        self._names |= addresses
        _, _, port = urlsplit(addresses[ON_CALL]).netloc.rpartition(":")
        self._names[ON_CALL_ADDRESS] = f"127.0.0.1 port {port}"
        self._folder.mkdir()
        for path in sorted((ROOT / EXAMPLES).glob("*.yaml")):
            text = path.read_text(encoding="utf-8")
            for address, here in addresses.items():
                text = text.replace(address, here)
            (self._folder / path.name).write_text(text, encoding="utf-8")
        (pod,) = (block for block in blocks(PAGE, "yaml") if "kind: Pod" in block)
        self._folder.with_name(POD).write_text(pod, encoding="utf-8")

    async def follow(self, step: Shown) -> str:
        """Do what a step says, and return what is printed."""
        await self._before(step.command)
        printed = await asyncio.to_thread(self._run, step.command)
        await self._after(step.command)
        for name, here in self._names.items():
            printed = printed.replace(here, name)
        return printed

    def _run(self, command: str) -> str:
        program, *arguments = shlex.split(command)
        assert program == "kubectl", f"the page's test runs kubectl alone: {command}"
        arguments = [self._here(argument) for argument in arguments]
        try:
            return self._kubectl.run(*arguments)
        except KubectlFailed as error:
            return error.printed

    def _here(self, argument: str) -> str:
        """Where a file that the page names is here."""
        if argument == POD:
            return str(self._folder.with_name(POD))
        if argument.startswith(EXAMPLES):
            return str(self._folder / argument.removeprefix(EXAMPLES))
        return argument

    async def _before(self, command: str) -> None:
        if "condition=Delivering" in command:
            await asyncio.to_thread(self._publish, (await self._runner.ready("checkout")).url(8288))
        if "describe ldest on-call" in command and "show-events" not in command:
            await asyncio.to_thread(self._told_of, "ListenerUnreachable")

    async def _after(self, command: str) -> None:
        if "apply -f checkout.yaml" in command:
            await self._runner.ready("checkout")

    def _publish(self, url: str) -> None:
        request = urllib.request.Request(
            f"{url}/v1/indications",
            data=json.dumps(ALERT).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200

    def _told_of(self, reason: str) -> None:
        path = f"/apis/events.k8s.io/v1/namespaces/{self._kubectl.namespace}/events"
        self._plane.rest.until(path, lambda event: event["reason"] == reason)


@pytest.mark.parametrize("page", [PAGE, FAILURES], ids=lambda page: page.stem)
async def test_every_command_of_the_page_prints_what_the_page_says(
    page: Path,
    operators: Operators,
    admin_kubectl: Kubectl,
    kubectl: Kubectl,
    namespace: str,
    control_plane: ControlPlane,
    pod_runner: PodRunner,
    tmp_path: Path,
) -> None:
    operator = await asyncio.to_thread(operators.start)
    await injecting(operator, admin_kubectl, namespace=namespace)
    reader = Reader(kubectl, control_plane, pod_runner, folder=tmp_path / "kubernetes")
    with listener_process(tmp_path) as listener, nobody() as address:
        reader.prepare({OPERATIONS: listener.url, ON_CALL: address})
        printed = [Shown(step.command, await reader.follow(step)) for step in shown(page)]
    keep(page, printed)
    assert [(one.command, told(one.prints)) for one in printed] == [
        (one.command, told(one.prints)) for one in shown(page)
    ]


async def injecting(operator: OperatorProcess, admin: Kubectl, *, namespace: str) -> None:
    """Have the API server ask the operator about this namespace's pods."""
    configuration = webhook_configuration(operator, namespace=namespace)
    await asyncio.to_thread(admin.apply, json.dumps(configuration))
    await asyncio.to_thread(
        admin.wait,
        f"mutatingwebhookconfiguration/pillion-{operator.namespace}",
        "--for=jsonpath={.webhooks[0].clientConfig.caBundle}",
    )
