"""Reaches a deliverer in a pod through kubectl, with the user's own kubeconfig and rights."""

import json
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pillion_cli.exits import CommandError
from pillion_sidecar.config.problems import escape_controls

#: Seconds for an answer of kubectl, until it forwards, and for its end.
TIMEOUT, FORWARD_SECONDS, END_SECONDS = 30.0, 30.0, 5.0
#: The container and its default port, as the operator names them: ``pillion_operator`` is not
#: installed with every command.
CONTAINER = "pillion-deliverer"
DEFAULT_PORT = 8288
#: Bytes of a line of kubectl, and characters of it in an error.
_MOST_LINE, _SHOWN = 4096, 500
_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ->")
_SIGTERM_EXIT = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    name: str
    #: None: the namespace of the kubeconfig's context.
    namespace: str | None = None
    kubeconfig: Path | None = None
    kube_context: str | None = None

    def __str__(self) -> str:
        return f"pod {self.name}" if self.namespace is None else f"pod {self.namespace}/{self.name}"

    def kubectl(self, *arguments: str) -> list[str]:
        given = {
            "--kubeconfig": self.kubeconfig,
            "--context": self.kube_context,
            "--namespace": self.namespace,
        }
        options = [f"{name}={value}" for name, value in given.items() if value is not None]
        return ["kubectl", *options, *arguments]


@contextmanager
def forwarded(pod: Pod) -> Iterator[str]:
    """Forward a free port of this machine to the deliverer's administration; yield its URL. Raises
    CommandError."""
    port = administration_port(_found(pod), pod)
    command = pod.kubectl("port-forward", "--address=127.0.0.1", f"pod/{pod.name}", f":{port}")
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise _no_kubectl(error) from error
    with _ended(process):
        yield f"http://127.0.0.1:{_port(process, pod)}"


def administration_port(found: dict[str, Any], pod: Pod) -> int:
    """Raises CommandError if the pod has no deliverer."""
    spec = found.get("spec") or {}
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    for container in containers:
        if container.get("name") == CONTAINER:
            return _port_of(container.get("args") or ())
    namespace = pod.namespace or (found.get("metadata") or {}).get("namespace", "default")
    raise CommandError(
        f"{pod} has no container {CONTAINER}; pillion why-not {pod.name} --namespace {namespace}"
        " says why"
    )


def _port_of(arguments: Sequence[str]) -> int:
    """Without --administration the intake is the administration address, too."""
    given = dict(pairwise(arguments))
    address = given.get("--administration") or given.get("--intake") or ""
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else DEFAULT_PORT


def _found(pod: Pod) -> dict[str, Any]:
    try:
        done = subprocess.run(
            pod.kubectl("get", "pod", pod.name, "--output=json"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"kubectl did not answer within {TIMEOUT:g} s") from None
    except OSError as error:
        raise _no_kubectl(error) from error
    if done.returncode:
        raise CommandError(f"kubectl get pod {pod.name}: {_text(done.stderr)}")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CommandError(f"kubectl get pod {pod.name}: its answer is no JSON object")
    return found


def _no_kubectl(error: OSError) -> CommandError:
    return CommandError(
        f"--pod needs kubectl in PATH: {error.strerror}; install it, or name the deliverer with"
        " --server"
    )


def _text(said: bytes) -> str:
    text = said.decode(errors="replace").strip()
    return escape_controls(text.splitlines()[-1][:_SHOWN]) if text else "it failed without a word"


def _port(process: "subprocess.Popen[bytes]", pod: Pod) -> int:
    """Wait until kubectl forwards. Raises CommandError."""
    first: queue.SimpleQueue[int | str] = queue.SimpleQueue()
    # Ends with the process: its output must be read, or it would wait for room.
    threading.Thread(target=_read, args=(process, first), daemon=True).start()
    try:
        found = first.get(timeout=FORWARD_SECONDS)
    except queue.Empty:
        raise CommandError(
            f"kubectl port-forward to {pod}: not within {FORWARD_SECONDS:g} s"
        ) from None
    if isinstance(found, str):
        raise CommandError(f"kubectl port-forward to {pod}: {found}")
    return found


def _read(process: "subprocess.Popen[bytes]", first: "queue.SimpleQueue[int | str]") -> None:
    assert process.stdout is not None
    last = b""
    with process.stdout as lines:
        while line := lines.readline(_MOST_LINE):
            if begun := _FORWARDING.match(line):
                first.put(int(begun[1]))
            last = line
    first.put(_text(last))


@contextmanager
def _ended(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """End the process with this block, also where a signal ends the command."""

    def end(_number: int, _frame: object) -> None:
        sys.exit(_SIGTERM_EXIT)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
