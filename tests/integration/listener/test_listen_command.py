"""``pillion listen`` as a process: its first line, its end, its exit codes."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pywbem  # type: ignore[import-untyped]
import trustme

COMMAND = [sys.executable, "-m", "pillion_cli.main", "listen"]


@contextmanager
def listening(*options: str) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def send(url: str, number: int) -> int:
    properties = {
        "IndicationIdentifier": f"i{number}",
        "SequenceContext": "A",
        "SequenceNumber": number,
    }
    event = {
        "specversion": "1.0",
        "id": str(number),
        "source": "/s",
        "type": "t",
        "data": {"class": "CIM_AlertIndication", "properties": properties},
    }
    request = urllib.request.Request(
        url,
        data=json.dumps(event).encode(),
        headers={"Content-Type": "application/cloudevents+json"},
    )
    with urllib.request.urlopen(request) as answer:
        return int(answer.status)


def test_it_tells_its_url_and_ends_after_so_many() -> None:
    with listening("--count", "2", "--output", "json") as process:
        url = json.loads(next_line(process))["listening"]
        assert send(url, 0) == 204
        assert json.loads(next_line(process))["identifier"] == "i0"
        assert send(url, 1) == 204
        assert json.loads(next_line(process))["number"] == 1
        assert json.loads(next_line(process))["summary"]["delivered"] == 2
        assert process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_summary(number: signal.Signals) -> None:
    with listening() as process:
        url = next_line(process)
        assert url.startswith("http://127.0.0.1:")
        send(url, 0)
        assert next_line(process).startswith("delivered   CIM_AlertIndication  i0  A #0")
        os.kill(process.pid, number)
        assert next_line(process).startswith("received 1, delivered 1, duplicates 0")
        assert process.wait() == 0


def test_an_exporter_that_is_not_ours_is_satisfied() -> None:
    with listening("--output", "json") as process:
        url = json.loads(next_line(process))["listening"]
        alert = pywbem.CIMInstance(
            "CIM_AlertIndication",
            properties={"IndicationIdentifier": "x1", "AlertType": pywbem.Uint16(5)},
        )
        connection = pywbem.WBEMConnection(url)
        try:
            connection.ExportIndication(alert)
        finally:
            connection.close()
        told = json.loads(next_line(process))
        assert (told["identifier"], told["properties"]["AlertType"]) == ("x1", 5)


def test_it_ends_when_nobody_reads() -> None:
    with listening() as process:
        url = next_line(process)
        assert process.stdout is not None
        process.stdout.close()
        send(url, 0)
        assert process.wait() == 128 + signal.SIGPIPE


def test_https(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        tmp_path / "both.pem"
    )
    with listening("--tls-certificate", str(tmp_path / "both.pem")) as process:
        assert next_line(process).startswith("https://127.0.0.1:")


@pytest.mark.parametrize(
    ("options", "code", "part"),
    [
        (["--port", "70000"], 2, "'70000' is not a whole number from 0 to 65535"),
        (["--count", "0"], 2, "'0' is not a whole number from 1 to 1000000000"),
        (["--keep", "1000001"], 2, "'1000001' is not a whole number from 0 to 1000000"),
        (["--lifetime", "nan"], 2, "--lifetime: 'nan' is not a number of seconds from 0; write 5,"),
        (["--status", "99"], 2, "--status: 99 is not a status of HTTP"),
        (["--retry-after", "-1"], 2, "--retry-after: -1"),
        (["--tls-key", "x"], 2, "--tls-key needs --tls-certificate"),
        (
            ["--tls-certificate", "/nowhere.pem"],
            1,
            "--tls-certificate /nowhere.pem: cannot be read",
        ),
        (
            ["--tls-certificate", "/nowhere.pem", "--tls-key", "/key.pem"],
            1,
            "--tls-certificate /nowhere.pem and --tls-key /key.pem: cannot be read: ",
        ),
        (["--address", "192.0.2.1"], 1, "cannot listen on 192.0.2.1 port 0"),
        (["--address", "192.0.2.1"], 1, "choose another --address or --port, or --port 0 for any"),
    ],
)
def test_what_cannot_be_is_told(options: list[str], code: int, part: str) -> None:
    command = [*COMMAND, "--port", "0", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert part in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
