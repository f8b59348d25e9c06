"""kubectl, for tests that do what a user does."""

import asyncio
import json as json_format
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Seconds that ``wait`` waits unless told otherwise.
WAIT = 30


class KubectlFailed(AssertionError):
    """kubectl ended with an error; the message is what it printed."""

    def __init__(self, command: str, printed: str) -> None:
        super().__init__(f"{command}: {printed}")
        self.printed = printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """kubectl against one cluster as one user. In a coroutine: ``await asyncio.to_thread(...)``."""

    program: Path
    kubeconfig: Path
    #: The namespace of every command that does not name one.
    namespace: str | None = None

    def run(self, *arguments: str, input: str | None = None) -> str:
        """Run a command and return what it prints; KubectlFailed where it fails."""
        _refuse_the_loop()
        command = [str(self.program), f"--kubeconfig={self.kubeconfig}", "--request-timeout=30s"]
        # What it learns of the server's kinds stays with this cluster, which ends with the tests.
        command.append(f"--cache-dir={self.kubeconfig.parent / 'kubectl-cache'}")
        if self.namespace is not None:
            command.append(f"--namespace={self.namespace}")
        ran = subprocess.run(
            [*command, *arguments],
            input=input,
            capture_output=True,
            text=True,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            check=False,
        )
        if ran.returncode != 0:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}", ran.stderr.strip())
        return ran.stdout

    def apply(self, what: "str | Path", *options: str) -> str:
        """Apply a file or folder (a Path), or YAML text."""
        if isinstance(what, Path):
            return self.run("apply", "-f", str(what), *options)
        return self.run("apply", "-f", "-", *options, input=what)

    def json(self, *arguments: str) -> Any:
        """Run a command with ``-o json`` and return what it prints, read."""
        return json_format.loads(self.run(*arguments, "-o", "json"))

    def wait(self, *arguments: str, within: int = WAIT) -> str:
        """``kubectl wait``, for example ``wait("pod/x", "--for=condition=Ready")``."""
        # The watch may last as long as the wait.
        return self.run("wait", *arguments, f"--timeout={within}s", "--request-timeout=0")


def _refuse_the_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise AssertionError(
        "kubectl would block the event loop, which may be serving the webhook that it waits for: "
        "use await asyncio.to_thread(kubectl.run, ...)"
    )
