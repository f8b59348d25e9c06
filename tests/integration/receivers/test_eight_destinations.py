"""Eight destinations under load, five of them bad: the console, the command and one alert each name
the cause within a minute."""

import asyncio
import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import pytest
import trustme

from pillion_testbed.helm import CHART
from pillion_testbed.monitoring import Prometheus, running_prometheus
from pillion_testbed.rest import wait_until
from support.alertmanager import ALERTMANAGER, WITHOUT_ALERTMANAGER, alertmanager
from support.broker_programs import free_port
from support.browser import browser
from support.in_terminal import in_terminal
from support.processes import SidecarProcess, listener_process, sidecar_process
from support.resources import JSON, destination
from support.running import alert, resources

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(ALERTMANAGER is None, reason=WITHOUT_ALERTMANAGER),
]

INHIBITIONS = (CHART / "files" / "inhibitions.yaml").read_text()
#: The bad destinations: what the console and the command say of them.
CAUSES = {
    "nobody": "refused: ",
    "silent": "timeout: ",
    "stranger": "certificate: ",
    "picky": "cim-error: ",
    "tardy": "a second arrive, ",
}
GOOD = ("archive", "audit", "tickets")
UNREACHABLE, SLOW = "PillionListenerUnreachable", "PillionListenerSlow"
#: Seconds within which an alert has to follow on the trouble.
SOON = 60.0
#: Seconds for a process that has very little of the machine.
PATIENCE = 300.0
#: Alerts a second.
PACE = 5.0
CAUSES_SHOWN = """(() => {
  const rows = [...document.querySelectorAll("#queues tbody tr")];
  const pairs = rows.map((row) => [row.cells[0].innerText.trim(), row.innerText]);
  const found = Object.fromEntries(pairs);
  return Object.entries(CAUSES).every(([name, cause]) => found[name]?.includes(cause)) && found;
})()
"""


@contextmanager
def listeners(folder: Path) -> Iterator[list[JSON]]:
    """The destinations, good and bad."""
    authority = trustme.CA()
    pem = folder / "listener.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    faults = {
        "silent": ("--hang",),
        "picky": ("--cim-error", "1"),
        "tardy": ("--delay", "0.5"),
        # Nobody knows who has issued its certificate.
        "stranger": ("--tls-certificate", str(pem)),
    }
    with ExitStack() as stack:
        urls = {"nobody": f"http://127.0.0.1:{free_port()}/"}
        for name in (*faults, *GOOD):
            (folder / name).mkdir()
            running = listener_process(folder / name, *faults.get(name, ()))
            urls[name] = stack.enter_context(running).url
        yield [destination(name, destination=url) for name, url in urls.items()]


@contextmanager
def load(sidecar: SidecarProcess) -> Iterator[None]:
    """Publish alerts all the time."""
    ended = threading.Event()

    def publish() -> None:
        number = 0
        while not ended.wait(1 / PACE):
            number += 1
            sidecar.publish(alert(f"a-{number}"))

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def told_by_command(sidecar: SidecarProcess, *options: str) -> str:
    with in_terminal("queues", *options, PILLION_SERVER=sidecar.url) as terminal:
        assert terminal.end() == 0
        return terminal.shown


def names_all(table: str) -> bool:
    """Whether a table of the command has each bad destination with its cause below it."""
    return all(
        re.search(rf"^{name} .*\n.*{re.escape(cause)}", table, re.MULTILINE)
        for name, cause in CAUSES.items()
    )


def began(sidecar: SidecarProcess) -> dict[str, datetime]:
    """Since when each bad destination has trouble, by the deliverer."""
    queues = {name: sidecar.queue(name) for name in CAUSES}
    times = {name: one["failingSince"] or one["slowSince"] for name, one in queues.items()}
    return {name: datetime.fromisoformat(time) for name, time in times.items() if time}


def sent(url: str) -> list[JSON]:
    """The alerts that Alertmanager sends."""
    with urllib.request.urlopen(f"{url}?inhibited=false&silenced=false") as answer:
        found: list[JSON] = json.load(answer)
    return found


def look(folder: Path, alerts_url: str) -> None:
    port = int(alerts_url.split(":")[2].split("/")[0])
    (folder / "prometheus").mkdir()
    with (
        listeners(folder) as destinations,
        sidecar_process(
            folder, *resources(*destinations), options=("--journal", str(folder / "journal"))
        ) as sidecar,
        running_prometheus(watching(sidecar, port), folder / "prometheus") as prometheus,
        load(sidecar),
        browser() as page,
    ):
        page.resize(1280)
        page.driver.set_script_timeout(PATIENCE)
        page.open(f"{sidecar.url}/console")
        shown = page.until(CAUSES_SHOWN.replace("CAUSES", json.dumps(CAUSES)))
        assert [name for name in GOOD if "ok" not in shown[name].split()] == []
        wait_until(lambda: names_all(told_by_command(sidecar)), within=PATIENCE, what="the command")
        failing = told_by_command(sidecar, "--failing")
        assert [name for name in GOOD if name in failing] == []
        wait_until(lambda: len(sent(alerts_url)) >= len(CAUSES), within=PATIENCE, what="the alerts")
        found = sent(alerts_url)
        since = began(sidecar)
        seconds = judge(found, since)
        print("seconds from the trouble to its alert:", seconds)
        # The times are those of the evaluations. On a machine that skips some, they say nothing.
        if not missed(prometheus):
            assert {name: late for name, late in seconds.items() if not 0 < late <= SOON} == {}


def watching(sidecar: SidecarProcess, port: int) -> JSON:
    """The configuration of Prometheus."""
    host = sidecar.telemetry.removeprefix("http://")
    labels = {"namespace": "plant", "service": "default", "container": "pillion-deliverer"}
    scrape = {"job_name": "pillion", "static_configs": [{"targets": [host], "labels": labels}]}
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [str(CHART / "files" / "alerts.yaml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]},
        "scrape_configs": [scrape],
    }


def missed(prometheus: Prometheus) -> int:
    """How many evaluations of the rules Prometheus has skipped."""
    with urllib.request.urlopen(f"{prometheus.url}/metrics") as answer:
        text = answer.read().decode()
    counts = re.findall(r"^prometheus_rule_group_iterations_missed_total{.*} (\d+)", text, re.M)
    return sum(map(int, counts))


def judge(found: list[JSON], since: dict[str, datetime]) -> dict[str, float]:
    """There is one alert each, with its cause. Returns the seconds after which it fired."""
    names = {name: SLOW if name == "tardy" else UNREACHABLE for name in CAUSES}
    labels = [one["labels"] for one in found]
    assert sorted((one["destination"], one["alertname"]) for one in labels) == sorted(names.items())
    seconds = {}
    for one in found:
        name = one["labels"]["destination"]
        seconds[name] = (datetime.fromisoformat(one["startsAt"]) - since[name]).total_seconds()
        text = one["annotations"]["description"]
        cause = CAUSES[name].removesuffix(": ")
        assert f"is {cause}." in text if name != "tardy" else re.search(r"\d+ arrive", text), text
    return seconds


async def test_each_bad_one_is_named_with_its_cause_by_console_command_and_one_alert(
    tmp_path: Path,
) -> None:
    async with alertmanager(tmp_path, free_port(), rules=INHIBITIONS) as url:
        await asyncio.to_thread(look, tmp_path, url)
