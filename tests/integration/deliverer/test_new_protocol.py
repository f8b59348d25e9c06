"""A protocol is one file in ``protocols/`` and the module of its handler."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pillion_sidecar.protocols
from support.resources import write
from support.running import alerts, listener, resources

TOOLS = Path(__file__).resolve().parents[3] / "tools"
DECLARATION = """
from pillion_sidecar.fields import declared, resource, text_matching
from pillion_sidecar.protocols.declaration import Protocol, Scheme

COLOR = text_matching("[a-z]+", max_length=9, message="is no color", remedy="Write black.")


@resource
class MemoOptions:
    ink: str = declared(default="blue", type=COLOR, description="The color of the line.")


PROTOCOL = Protocol(
    name="Memo",
    summary="one line in memory",
    manual="For tests.",
    schemes=(Scheme("memo", 7, is_secure=False), Scheme("note", None, is_secure=False)),
    handler="memo_handler:create_handler",
    credentials=(),
    level=3,
    options=MemoOptions,
)
"""
HANDLER = """
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.handlers.transport.exchange import later

RECEIVED = []


class MemoHandler:
    def __init__(self, destination):
        self.place = destination.destination, destination.options.ink

    def deliver(self, delivery, done):
        RECEIVED.append((*self.place, delivery.indication.identifier))
        later(done, DeliveryResult.SUCCESS, "")

    def prepare(self, indication, selection):
        pass

    def close(self):
        pass


def create_handler(destination, context):
    return MemoHandler(destination)
"""
PROGRAM = """
import json, sys, urllib.request
from pathlib import Path

import pillion_sidecar

pillion_sidecar.__path__.insert(0, sys.argv[1])
sys.path[:0] = [sys.argv[1], sys.argv[4]]

import memo_handler
import generate_definitions as crd
import generate_resource_reference as reference
from pillion_sidecar.config.schema import LISTENER_DESTINATION
from pillion_sidecar.embedded import EmbeddedDeliverer
from pillion_sidecar.protocols import PROTOCOLS
from pillion_sidecar.config.addresses import Address
from pillion_sidecar.settings import Settings

anywhere = Address("127.0.0.1", 0)
settings = Settings(resources=Path(sys.argv[2]), intake=anywhere, telemetry=anywhere)
with EmbeddedDeliverer(settings) as deliverer:
    url = f"{deliverer.intake_url}/v1/indications?ack=delivered"
    request = urllib.request.Request(url, data=sys.argv[3].encode(), method="POST")
    request.add_header("Content-Type", "application/x-ndjson")
    urllib.request.urlopen(request).close()
    with urllib.request.urlopen(f"{deliverer.telemetry_url}/metrics") as metrics:
        measured = metrics.read().decode()
definition = crd.definition(LISTENER_DESTINATION)["spec"]["versions"][0]["schema"]
print(json.dumps({
    "received": memo_handler.RECEIVED,
    "spec": definition["openAPIV3Schema"]["properties"]["spec"],
    "page": reference.render_protocols(PROTOCOLS.values()),
    "is_measured": 'protocol="Memo"' in measured,
}))
"""


def test_a_new_protocol_delivers_and_is_in_the_schema_the_metrics_and_the_manual(
    tmp_path: Path,
) -> None:
    overlay, config = tmp_path / "overlay", tmp_path / "config"
    declared = Path(pillion_sidecar.protocols.__file__).parent
    shutil.copytree(declared, overlay / "protocols", ignore=shutil.ignore_patterns("__pycache__"))
    (overlay / "protocols" / "memo.py").write_text(DECLARATION, encoding="utf-8")
    (overlay / "memo_handler.py").write_text(HANDLER, encoding="utf-8")
    config.mkdir()
    write(
        config,
        *resources(
            listener("ops", "memo://box/a", protocol="Memo"),
            listener("desk", "note://localhost/b", protocol="Memo", memo={"ink": "black"}),
        ),
    )
    body = "".join(json.dumps(line) + "\n" for line in alerts(0, 2))
    command = [sys.executable, "-c", PROGRAM, str(overlay), str(config), body, str(TOOLS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)

    assert sorted(told["received"]) == [
        ["memo://box/a", "blue", "0"],
        ["memo://box/a", "blue", "1"],
        ["note://localhost/b", "black", "0"],
        ["note://localhost/b", "black", "1"],
    ]
    protocol = told["spec"]["properties"]["protocol"]
    assert {"CIM-XML", "CloudEvents", "Memo"} <= set(protocol["enum"])
    assert "Memo: one line in memory." in protocol["description"]
    refused = [rule["rule"] for rule in told["spec"]["x-kubernetes-validations"]]
    assert any('self.protocol != "Memo" || !has(self.destination)' in rule for rule in refused)
    assert any("!has(self.credentials.basic)" in rule for rule in refused)
    assert told["spec"]["properties"]["memo"]["properties"]["ink"]["default"] == "blue"
    assert any('self.protocol == "Memo" || !has(self.memo)' in rule for rule in refused)
    assert "| `Memo` | `memo://`, `note://` | 7, none | none | one line in memory |" in told["page"]
    assert told["is_measured"]
