"""A deliverer in a pod, through kubectl."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pillion_cli import main as entry
from pillion_cli import pods
from pillion_cli.exits import CommandError, Exit
from pillion_cli.kubectl import main as complete
from pillion_operator.injection import container
from pillion_operator.names import CONTAINER

#: Answers from files; forwards to the port in a file, until it is ended.
KUBECTL = """#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/asked"
case "$*" in
  *"get pod"*) cat "$here/pod" || { echo "Error from server (NotFound): no pod" >&2; exit 1; } ;;
  *) echo $$ > "$here/forwarding"; cat "$here/forward"; exec sleep 1000 ;;
esac
"""
EMPTY = {"revision": "r1", "durability": "Disk", "queues": [], "next": None}


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(EMPTY).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


class Cluster:
    """What the kubectl in PATH says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        program = folder / "kubectl"
        program.write_text(KUBECTL)
        program.chmod(0o755)

    def has(self, *arguments: str, name: str = CONTAINER) -> None:
        containers = [{"name": "app"}, {"name": name, "args": list(arguments)}]
        pod = {"metadata": {"namespace": "shop"}, "spec": {"containers": containers}}
        (self._folder / "pod").write_text(json.dumps(pod))

    def says(self, text: str) -> None:
        (self._folder / "forward").write_text(text)

    def forwards(self, port: int) -> None:
        self.says(f"Forwarding from 127.0.0.1:{port} -> 8288\n")

    @property
    def asked(self) -> list[str]:
        return (self._folder / "asked").read_text().splitlines()

    @property
    def is_forwarding(self) -> bool:
        """Whether the process that forwards is still there."""
        process = (self._folder / "forwarding").read_text().strip()
        return Path("/proc", process).exists()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Cluster(tmp_path)


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_command_asks_the_deliverer_of_a_pod(
    cluster: Cluster, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.has("sidecar", "--intake", "127.0.0.1:8288")
    cluster.forwards(port)
    given = ["queues", "--pod", "web-1", "-n", "shop", "--kube-context", "prod"]
    assert entry.main([*given, "--output", "json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {
        name: value for name, value in EMPTY.items() if name != "next"
    }
    shared = "--context=prod --namespace=shop"
    assert cluster.asked == [
        f"{shared} get pod web-1 --output=json",
        f"{shared} port-forward --address=127.0.0.1 pod/web-1 :8288",
    ]
    assert not cluster.is_forwarding


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sidecar"], 8288),
        (["sidecar", "--intake", "127.0.0.1:9000"], 9000),
        (["sidecar", "--intake", "0.0.0.0:8288", "--administration", "127.0.0.1:8290"], 8290),
    ],
)
def test_the_port_is_that_of_the_administration(arguments: list[str], expected: int) -> None:
    found = {"spec": {"initContainers": [{"name": CONTAINER, "args": arguments}]}}
    assert pods.administration_port(found, pods.Pod(name="web")) == expected


def test_container_and_port_are_those_of_the_operator() -> None:
    assert (pods.CONTAINER, pods.DEFAULT_PORT) == (CONTAINER, container.INTAKE_PORT)


def test_a_pod_without_a_deliverer_is_told_with_what_says_why(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.has(name="other")
    assert entry.main(["queues", "--pod", "web-1"]) == Exit.FAILED
    assert capsys.readouterr().err == (
        f"pillion queues: pod web-1 has no container {CONTAINER}; pillion why-not web-1"
        " --namespace shop says why\n"
    )


def test_what_kubectl_says_is_told(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told() -> str:
        assert entry.main(["queues", "--pod", "web-1"]) == Exit.FAILED
        return capsys.readouterr().err

    assert "kubectl get pod web-1: Error from server (NotFound): no pod" in told()
    (tmp_path / "pod").write_text("[]")
    assert "its answer is no JSON object" in told()
    cluster.has()
    (tmp_path / "kubectl").write_text(KUBECTL.replace("exec sleep 1000", "exit 1 # "))
    cluster.says("error: unable to forward port: pod is \x1b[1mnot running\n")
    assert "kubectl port-forward to pod web-1: error: unable to forward port" in told()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert "--pod needs kubectl in PATH: No such file or directory; install it" in told()


def test_a_kubectl_that_hangs_is_ended(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "FORWARD_SECONDS", 0.0)
    cluster.has()
    cluster.says("")
    with (
        pytest.raises(CommandError, match=r"port-forward to pod web-1: not within 0 s"),
        pods.forwarded(pods.Pod(name="web-1")),
    ):
        pass


def test_a_pod_that_answers_nothing_is_named_instead_of_the_port(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.has()
    cluster.forwards(1)
    assert entry.main(["queues", "--pod", "web-1", "-n", "shop"]) == Exit.FAILED
    told = capsys.readouterr().err
    assert "pod shop/web-1" in told
    assert "127.0.0.1" not in told


def test_a_signal_that_ends_the_command_ends_kubectl(cluster: Cluster) -> None:
    cluster.has()
    cluster.forwards(1)
    program = (
        "import os, signal\n"
        "from pillion_cli.pods import Pod, forwarded\n"
        "with forwarded(Pod(name='web-1')):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert not cluster.is_forwarding


def test_options_of_a_pod_need_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["queues", "-n", "shop"]) == Exit.USAGE
    assert "--namespace: only with --pod" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["que"], ["queues\tshow the queue of each destination; skip or purge one", ":4"]),
        (["queues", "--sort", "d"], ["depth", ":4"]),
        (["queues", "--fai"], ["--failing\tonly queues in trouble, from failing to behind", ":4"]),
        (["explain", "--file", ""], [":0"]),
        (["nonsense", "x"], [":0"]),
        (["journal", "ver"], ["verify", ":4"]),
    ],
)
def test_kubectl_is_told_what_may_follow(
    words: list[str], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(words) == Exit.OK
    assert capsys.readouterr().out.splitlines() == said
