"""What the benchmarks share: nginx, wrk, a deliverer in a process of its own, and the results.

Each benchmark prints its own figures and leaves them, one JSON line each, in the file that the
environment variable PILLION_BENCH_RESULTS names; ``tests/benchmarks/run.py`` makes the table.
"""

import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import yaml

RESULTS = "PILLION_BENCH_RESULTS"
#: Set where a benchmark shall take its shorter form.
SHORT = "PILLION_BENCH_SHORT"

_NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen unix:{folder}/ready; listen 127.0.0.1:{port};
    location / {{ return 200 "ok"; }}
    location = /requests {{ stub_status; }}
  }}
}}
"""
_WRK = """
wrk.method = "POST"
wrk.body = string.rep("x", 2048)
wrk.headers["Content-Type"] = "application/cloudevents+json; charset=utf-8"
"""


#: The deliverer, made to tell about its inside at SIGUSR1.
_PROBE = """
import asyncio, gc, json, signal, sys
from pillion_cli.main import main
from pillion_sidecar.app import Deliverer

run = Deliverer.run

def tell():
    told = {"tasks": len(asyncio.all_tasks()), "objects": len(gc.get_objects())}
    print(json.dumps(told), flush=True)

async def run_and_tell(self, stop):
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
    await run(self, stop)

Deliverer.run = run_and_tell
sys.argv[0] = "pillion"
sys.exit(main())
"""


def interpreter() -> str:
    """The interpreter, and how it was built: an optimised one is a tenth to a third faster."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    if sysconfig.get_config_var("prefix") == "/usr":
        # Distributions optimise by their own makefiles, of which the interpreter does not know.
        return f"{version} of the distribution"
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    options = [
        f"{'with' if option in arguments else 'without'} {name}"
        for option, name in (("--enable-optimizations", "PGO"), ("--with-lto", "LTO"))
    ]
    return f"{version} {', '.join(options)}"


def report(*, goal: str, figure: str, met: bool | None, note: str = "") -> None:
    """Print one line of the table of goals, and keep it for the runner. ``met`` None: no goal."""
    verdict = {True: "met", False: "MISSED", None: ""}[met]
    print(f"{goal:<68} {figure:>12}  {verdict}{'  ' + note if note else ''}", flush=True)
    path = os.environ.get(RESULTS)
    if path:
        with open(path, "a", encoding="utf-8") as results:
            line = {"goal": goal, "figure": figure, "met": met, "note": note}
            results.write(json.dumps(line) + "\n")


def free_port() -> int:
    """A TCP port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def nginx(folder: Path) -> Iterator[int]:
    """Run nginx with one worker that answers 200 to everything; yield its port."""
    port = free_port()
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, port=port))
    process = subprocess.Popen(
        ["/usr/sbin/nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (folder / "ready").exists():
            if process.poll() is not None:
                raise RuntimeError((folder / "error.log").read_text())
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait()


def requests_answered(port: int) -> int:
    """Requests that nginx has answered so far; asking is one of them."""
    with urlopen(f"http://127.0.0.1:{port}/requests", timeout=60) as response:
        return int(response.read().split()[9])


def wrk(folder: Path, port: int, *, connections: int, seconds: float) -> float:
    """Requests of 2 KB per second that wrk gets answered, over so many connections."""
    (folder / "post.lua").write_text(_WRK)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s"]
    out = subprocess.run(
        [*command, "-s", str(folder / "post.lua"), f"http://127.0.0.1:{port}/"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = re.search(r"Requests/sec:\s+([\d.]+)", out)
    if found is None or "Non-2xx" in out:
        raise RuntimeError(out)
    return float(found.group(1))


def resource(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """A resource, as a document of YAML."""
    return {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def write_resources(folder: Path, documents: Sequence[Mapping[str, Any]]) -> Path:
    """Write a resource folder; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "resources.yaml").write_text(yaml.safe_dump_all(documents))
    return folder


@dataclass(frozen=True)
class Sidecar:
    """A deliverer that runs in a process of its own."""

    process: subprocess.Popen[str]
    intake_url: str
    telemetry_url: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self) -> dict[str, int]:
        """What the probe tells: ``tasks``, and ``objects`` that the collector walks."""
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGUSR1)
        answer: dict[str, int] = json.loads(self.process.stdout.readline())
        return answer

    def cpu_seconds(self) -> float:
        """CPU seconds used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Memory that it holds now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        """Descriptors that it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def request(
        self,
        path: str,
        *,
        body: bytes,
        content_type: str = "application/json",
        publisher: str | None = None,
    ) -> dict[str, Any]:
        """Post to its intake listener; return the JSON of the answer."""
        headers = {"Content-Type": content_type}
        if publisher is not None:
            headers["Pillion-Publisher"] = publisher
        request = Request(self.intake_url + path, data=body, headers=headers)
        with urlopen(request, timeout=600) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        with urlopen(f"{self.telemetry_url}/metrics", timeout=60) as response:
            text = response.read().decode()
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))


@contextmanager
def sidecar(
    resources: Path,
    *arguments: str,
    probe: bool = False,
    first: str = "",
    stderr: int = subprocess.DEVNULL,
) -> Iterator[Sidecar]:
    """Run ``pillion sidecar`` on a resource folder; its log goes to ``stderr``, by default nowhere.

    With ``probe`` it tells about its inside when asked to (:meth:`Sidecar.ask`). ``first``: Python
    that it runs before.
    """
    run = ["-c", first + _PROBE] if probe or first else ["-m", "pillion_cli.main"]
    command = [sys.executable, *run, "sidecar", "--resources", str(resources), *arguments]
    with subprocess.Popen(
        [*command, "--intake", "127.0.0.1:0", "--telemetry", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            if not first:
                raise RuntimeError(f"the deliverer did not start: {command}")
            urls = json.loads(first)
            yield Sidecar(process, urls["intake"], urls["telemetry"])
        finally:
            process.kill()
