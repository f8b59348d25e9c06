"""The command against a deliverer that runs: what its help shows works, and what it says is so."""

import json
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pillion_cli.commands import publish
from pillion_cli.exits import Exit
from pillion_cli.main import main

RESOURCES = """\
apiVersion: pillion.dev/v1alpha1
kind: IndicationService
metadata: {{name: default}}
spec: {{shutdownGracePeriodSeconds: 0}}
---
apiVersion: pillion.dev/v1alpha1
kind: ListenerDestination
metadata: {{name: siem}}
spec: {{destination: "http://127.0.0.1:{port}/", protocol: CIM-XML}}
---
apiVersion: pillion.dev/v1alpha1
kind: IndicationFilter
metadata: {{name: alerts}}
spec: {{query: SELECT * FROM CIM_AlertIndication}}
---
apiVersion: pillion.dev/v1alpha1
kind: IndicationSubscription
metadata: {{name: alerts-to-siem}}
spec: {{filterRef: {{name: alerts}}, destinationRef: {{name: siem}}}}
"""


@dataclass(frozen=True)
class Running:
    """A deliverer whose only listener refuses connections."""

    intake: str
    telemetry: str
    log: Path

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        with urllib.request.urlopen(f"{self.telemetry}/metrics") as answer:
            text = answer.read().decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture
def deliverer(tmp_path: Path) -> Iterator[Running]:
    folder = tmp_path / "resources"
    folder.mkdir()
    log = tmp_path / "log"
    command = [sys.executable, "-m", "pillion_cli.main", "sidecar", "--resources", str(folder)]
    command += ["--intake", "127.0.0.1:0", "--telemetry", "127.0.0.1:0"]
    with socket.socket() as refusing, log.open("wb") as errors:
        # Bound and not listening: nobody else gets the port, and whoever connects is refused.
        refusing.bind(("127.0.0.1", 0))
        (folder / "all.yaml").write_text(RESOURCES.format(port=refusing.getsockname()[1]))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
                assert line, log.read_text()
                where = json.loads(line)
                yield Running(where["intake"], where["telemetry"], log)
            finally:
                process.terminate()


@pytest.fixture
def alerts(tmp_path: Path) -> Path:
    """The line that the help of ``pillion publish`` shows, three times with other identifiers."""
    found = re.search(r'\{"class".*?\}\}', publish.HELP, re.DOTALL)
    assert found is not None
    line = json.dumps(json.loads(found[0]))
    path = tmp_path / "alerts.ndjson"
    path.write_text("".join(line.replace("a-1", f"a-{number}") + "\n" for number in (1, 2, 3)))
    return path


def _say(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(arguments)
    return code, capsys.readouterr().out


def test_publish_then_look_then_give_up(
    deliverer: Running, alerts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to, at = ("--to", deliverer.intake), ("--at", deliverer.intake)
    accepted = _say(capsys, "publish", str(alerts), *to, "--source", "s")
    assert accepted == (Exit.OK, "3 accepted, 0 duplicate, 0 refused\n")
    repeated = _say(capsys, "publish", str(alerts), *to, "--source", "s")
    assert repeated == (Exit.OK, "0 accepted, 3 duplicate, 0 refused\n")

    code, shown = _say(capsys, "queues", *at, "--output", "json")
    assert code == Exit.OK
    (queue,) = json.loads(shown)["queues"]
    assert (queue["name"], queue["depth"], queue["highWater"]) == ("siem", 3, 3)

    code, said = _say(capsys, "queues", *at, "--purge", "siem", "--yes")
    assert code == Exit.OK
    discarded = frozenset({"destination": "siem", "reason": "purged"}.items())
    samples = deliverer.metrics()
    # One that is in flight at the moment is let finish, and only then given up.
    given_up = re.fullmatch(
        r"siem: ([23]) discarded; `pillion discarded list --destination siem` lists them\n", said
    )
    assert given_up is not None
    assert int(given_up[1]) <= samples["pillion_indications_discarded_total", discarded] <= 3
    duplicates = frozenset({"kind": "ndjson", "outcome": "duplicate"}.items())
    assert samples["pillion_intake_indications_total", duplicates] == 3


def test_a_flush_that_cannot_be_is_partial_and_names_the_destination(
    deliverer: Running, alerts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = ("--to", deliverer.intake)
    code, said = _say(capsys, "publish", str(alerts), *to, "--flush", "--timeout", "0.1")
    assert code == Exit.PARTLY
    assert "  siem: 0 delivered, 3 pending\n" in said


def test_a_level_that_cannot_be_given_is_refused_in_the_deliverers_words(
    deliverer: Running, alerts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", str(alerts), "--to", deliverer.intake, "--ack", "stable"]) == 1
    assert "ack=stable needs stores" in capsys.readouterr().err
