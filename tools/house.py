"""Measure the house: its size, and the way of one indication through it.

    python tools/house.py

Prints one figure a line. The way of one indication is traced in a deliverer of this process with a
journal on disk: one line of NDJSON with ``ack=durable``, delivered as CIM-XML to a listener that
answers, after three others: once over a connection of its own, once over the connection of the
three. Counted are the calls of functions of this project, in all threads, from the request until
the delivery is settled; looking for changed files is left out.
"""

import ast
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import yaml

from pillion_sidecar.config.addresses import Address
from pillion_sidecar.embedded import EmbeddedDeliverer
from pillion_sidecar.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "cim": "pillion_cim",
    "sidecar": "pillion_sidecar",
    "spark": "pyspark_pillion",
    "operator": "pillion_operator",
    "cli": "pillion_cli",
    "plugin": "pillion_plugin",
}
WARMING = 3
#: Frames of these look for changes all the time.
_WATCHING = ("/config/loader.py", "/filewatch.py", "/supervision.py")
_WATCHING_FUNCTION = "_follow_changes"

_Function = tuple[str, str]


class Trace:
    """Counts calls of this project's functions in all threads, while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[_Function] = []
        self.deepest = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self.is_on:
            return
        own = [one for one in _frames(frame) if _is_own(one)]
        if not _is_own(frame) or any(_is_watching(one) for one in own):
            return
        name = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        self.calls.append((name, frame.f_code.co_qualname))
        self.deepest = max(self.deepest, len(own))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_watching(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.endswith(_WATCHING) or code.co_name == _WATCHING_FUNCTION


def _is_own(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return any(path.startswith(f"{ROOT}/{folder}/") for folder in PACKAGES)


class _Listener(BaseHTTPRequestHandler):
    """Answers each export with success."""

    protocol_version = "HTTP/1.1"
    answered: threading.Event

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        message = body.split('MESSAGE ID="')[1].split('"')[0]
        answer = (
            '<?xml version="1.0" encoding="utf-8"?><CIM CIMVERSION="2.0" DTDVERSION="2.4">'
            f'<MESSAGE ID="{message}" PROTOCOLVERSION="1.0"><SIMPLEEXPRSP>'
            '<EXPMETHODRESPONSE NAME="ExportIndication"/></SIMPLEEXPRSP></MESSAGE></CIM>'
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml; charset=utf-8")
        self.send_header("CIMExport", "MethodResponse")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        self.answered.set()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def trace_one_indication(*, keeps_connection: bool = False) -> Trace:
    """Return the trace of the fourth of four indications, each over a connection of its own unless
    the publisher keeps one."""
    trace, answered = Trace(), threading.Event()
    _Listener.answered = answered
    threading.setprofile(trace)
    with tempfile.TemporaryDirectory() as name, ThreadingHTTPServer(("", 0), _Listener) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        resources = Path(name) / "resources"
        resources.mkdir()
        (resources / "all.yaml").write_text(_resources(listener.server_port))
        anywhere = Address("127.0.0.1", 0)
        settings = Settings(
            resources=resources, journal=Path(name) / "journal", intake=anywhere, telemetry=anywhere
        )
        with EmbeddedDeliverer(settings) as deliverer:
            connection = HTTPConnection(urlsplit(deliverer.intake_url).netloc, timeout=30)
            for number in range(WARMING + 1):
                trace.is_on = number == WARMING
                answered.clear()
                _publish(connection, number, keeps_connection=keeps_connection)
                answered.wait(30)
                # What it leaves to be settled is done within some turns of the event loop.
                time.sleep(0.3)
            trace.is_on = False
            connection.close()
        listener.shutdown()
    threading.setprofile(None)
    return trace


def _resources(port: int) -> str:
    specs = {
        "ListenerDestination": {
            "destination": f"http://127.0.0.1:{port}/cimlistener",
            "protocol": "CIM-XML",
        },
        "IndicationFilter": {"query": "SELECT * FROM CIM_AlertIndication"},
        "IndicationSubscription": {"filterRef": {"name": "one"}, "destinationRef": {"name": "one"}},
    }
    return yaml.safe_dump_all(
        {
            "apiVersion": "pillion.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": "one"},
            "spec": spec,
        }
        for kind, spec in specs.items()
    )


def _publish(connection: HTTPConnection, number: int, *, keeps_connection: bool) -> None:
    properties = {
        "IndicationIdentifier": str(number),
        "AlertType": 6,
        "PerceivedSeverity": 5,
        "ProbableCause": 52,
        "Message": "Gust of 41.4 mph is above 40 mph",
    }
    line = json.dumps({"class": "CIM_AlertIndication", "properties": properties})
    headers = {"Content-Type": "application/x-ndjson"}
    if not keeps_connection:
        headers["Connection"] = "close"
    connection.request("POST", "/v1/indications?source=house&ack=durable", line, headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    answer.read()


# ---------------------------------------------------------------------- sizes


def product(folder: str) -> list[Path]:
    """The modules of one package."""
    return sorted((ROOT / folder / PACKAGES[folder]).rglob("*.py"))


def lines_of(paths: list[Path]) -> int:
    """Lines of all."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def function_lines(paths: list[Path]) -> list[int]:
    """Lines of each function, sorted."""
    return sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def arrows_within(folder: Path) -> tuple[int, int]:
    """How many modules a package has, and how many imports among them."""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    prefix = ".".join(folder.relative_to(folder.parents[1]).parts)
    arrows = {
        (path.stem, node.module.rpartition(".")[2])
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.rpartition(".")[0] == prefix
    }
    return len(modules), sum(1 for _, target in arrows if target in modules)


def count(text: str, paths: list[Path]) -> int:
    """How often a text occurs."""
    return sum(path.read_text(encoding="utf-8").count(text) for path in paths)


def main() -> int:
    for title, keeps_connection in (("one indication", False), ("over a kept connection", True)):
        trace = trace_one_indication(keeps_connection=keeps_connection)
        functions = set(trace.calls)
        print(f"{title}: modules", len({name for name, _ in functions}))
        print(f"{title}: functions", len(functions))
        print(f"{title}: calls", len(trace.calls))
        print(f"{title}: depth", trace.deepest)
    everything = [path for folder in PACKAGES for path in product(folder)]
    for folder in PACKAGES:
        print(f"{folder}: files {len(product(folder))}, lines {lines_of(product(folder))}")
    print(f"product: files {len(everything)}, lines {lines_of(everything)}")
    sizes = function_lines(everything)
    print(
        f"functions: median {median(sizes):g}, p90 {sizes[len(sizes) * 9 // 10]}, max {sizes[-1]}"
    )
    print("broad excepts", count("except Exception", everything) + count("except:", everything))
    print("type: ignore", count("type: ignore", everything))
    contracts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    print("wildcard exemptions of import-linter", contracts.count(".** -> "))
    delivery = ROOT / "sidecar/pillion_sidecar/delivery"
    print("delivery: modules {}, imports {}".format(*arrows_within(delivery)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
