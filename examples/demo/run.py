"""The demo: weather records, a Spark job, a deliverer and two real listeners, one of which fails.

    make demo

A PySpark job reads 26,115 weather records, and publishes 514 indications to a deliverer that runs
on the resource files beside this one. Half-way, pywbem's listener is stopped. It starts again when
two retries have failed. Exits 0 only if each listener has every indication, in order, and nothing
was discarded.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
JOB = HERE.parent / "spark-weather" / "weather_alerts.py"
EXPECTED = 514
#: Nothing here takes longer, on a slow machine too.
PATIENCE_SECONDS = 120.0
#: Between two lines that say what is waited for.
PROGRESS_SECONDS = 10.0


class DemoFailed(Exception):
    """The demo did not show what it is meant to show."""


@dataclass(frozen=True)
class Arrival:
    """One indication, as a listener wrote it down."""

    identifier: str
    context: str
    number: int


@dataclass(frozen=True)
class Verdict:
    """What a listener's record says."""

    distinct: int
    repeated: int
    in_order: bool


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


@contextmanager
def process(*command: str, output: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a program that writes to a file; give it and its first line. It is ended at the end."""
    errors = output.with_suffix(".log")
    with output.open("w") as out, errors.open("a") as log:
        running = subprocess.Popen(command, stdout=out, stderr=log)
    try:
        until(
            f"the start of {' '.join(command[:4])} (see {errors})",
            lambda: "\n" in output.read_text() or running.poll() is not None,
        )
        if running.poll() is not None:
            raise DemoFailed(f"{' '.join(command[:4])} failed:\n{errors.read_text()[-2000:]}")
        yield running, output.read_text().splitlines()[0]
    finally:
        running.terminate()
        running.wait(timeout=30)


def pillion(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pillion_cli.main", *arguments)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def queue(intake: str, name: str) -> dict[str, Any]:
    """What the deliverer says of one destination queue."""
    found: dict[str, Any] = get(f"{intake}/v1/queues/{name}")
    return found


def failures(state: dict[str, Any]) -> int:
    """How many attempts have failed so far."""
    return sum(n for result, n in state["attemptsByResult"].items() if result != "success")


def until(what: str, condition: Any) -> None:
    """Wait until a condition holds."""
    started = told = time.monotonic()
    while not condition():
        now = time.monotonic()
        if now > started + PATIENCE_SECONDS:
            raise DemoFailed(f"{what} did not happen within {PATIENCE_SECONDS:g} s")
        if now > told + PROGRESS_SECONDS:
            told = now
            say(f"… {now - started:.0f} s: still waiting for {what}")
        time.sleep(0.02)


def resources(folder: Path, *, pywbem_port: str, webhook_url: str) -> Path:
    """Copy the resource files, with the ports that the listeners got."""
    made = folder / "resources"
    made.mkdir()
    for file in (HERE / "resources").glob("*.yaml"):
        text = file.read_text()
        text = text.replace("127.0.0.1:5988/", f"127.0.0.1:{pywbem_port}/")
        text = text.replace("http://127.0.0.1:5990/", f"{webhook_url.rstrip('/')}/")
        (made / file.name).write_text(text)
    return made


def arrivals(lines: list[str]) -> list[Arrival]:
    return [
        Arrival(entry["identifier"], entry["context"], entry["number"])
        for entry in map(json.loads, lines)
        if entry.get("identifier")
    ]


def verdict(record: list[Arrival]) -> Verdict:
    """Judge a record: a number may repeat, after an uncertain attempt, but never go back."""
    distinct = {arrival.identifier for arrival in record}
    numbers = [arrival.number for arrival in record]
    return Verdict(
        distinct=len(distinct),
        repeated=len(record) - len(distinct),
        in_order=numbers == sorted(numbers) and len({arrival.context for arrival in record}) == 1,
    )


def run_job(intake: str, log: Path) -> subprocess.Popen[str]:
    environment = dict(os.environ, PYSPARK_PYTHON=sys.executable)
    with log.open("a") as errors:
        return subprocess.Popen(
            [sys.executable, str(JOB), "--url", intake],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )


def interrupt_pywbem(
    stack: ExitStack, listener: subprocess.Popen[bytes], *, port: str, record: Path, intake: str
) -> None:
    """Stop pywbem's listener half-way, and bring it back when two retries have failed."""
    until(
        "half of the indications at pywbem",
        lambda: record.exists() and len(record.read_text().splitlines()) >= EXPECTED // 2,
    )
    listener.terminate()
    listener.wait(timeout=30)
    before = queue(intake, "pywbem")
    say(
        f"pywbem's listener is stopped with {before['delivered']} delivered;"
        " the webhook's deliveries go on"
    )
    tried = failures(before)
    until("two failed retries", lambda: failures(queue(intake, "pywbem")) >= tried + 2)
    waiting = queue(intake, "pywbem")
    say(f"two retries have failed, {waiting['depth']} wait for pywbem; it comes back")
    command = (sys.executable, str(HERE / "pywbem_listener.py"), port, str(record))
    stack.enter_context(process(*command, output=record.with_name("pywbem-again.out")))


def demonstrate(folder: Path) -> bool:
    """Run it all; return whether the counts are exact."""
    record = folder / "pywbem.jsonl"
    with ExitStack() as stack:
        start = (sys.executable, str(HERE / "pywbem_listener.py"), "0", str(record))
        pywbem, port = stack.enter_context(process(*start, output=folder / "pywbem.out"))
        listen = pillion("listen", "--port", "0", "--output", "json")
        _, first = stack.enter_context(process(*listen, output=folder / "webhook.jsonl"))
        url = json.loads(first)["listening"]
        say(f"listeners: pywbem (CIM-XML) on port {port}, pillion listen (CloudEvents) at {url}")
        made = resources(folder, pywbem_port=port, webhook_url=url)
        sidecar = pillion(
            *("sidecar", "--resources", str(made), "--intake", "127.0.0.1:0"),
            *("--telemetry", "127.0.0.1:0"),
        )
        _, first = stack.enter_context(process(*sidecar, output=folder / "sidecar.out"))
        addresses = json.loads(first)
        intake = addresses["intake"]
        say(f"deliverer: intake at {intake}, metrics at {addresses['telemetry']}/metrics")
        say("the Spark job starts: 26,115 weather records, an indication for gusts and fog")
        job = run_job(intake, folder / "spark.log")
        interrupt_pywbem(stack, pywbem, port=port, record=record, intake=intake)
        assert job.stdout is not None
        told = job.stdout.read().strip()
        if job.wait(timeout=PATIENCE_SECONDS):
            raise DemoFailed(f"the Spark job failed:\n{(folder / 'spark.log').read_text()[-4000:]}")
        say(f"the Spark job has ended: {told}")
        queues = {name: queue(intake, name) for name in ("pywbem", "webhook")}
    # All are ended, so all is written.
    records = {
        name: arrivals((folder / f"{name}.jsonl").read_text().splitlines()) for name in queues
    }
    return report(queues, records)


def report(queues: dict[str, dict[str, Any]], records: dict[str, list[Arrival]]) -> bool:
    """Print what happened; return whether it is exactly what should have."""
    row = "{:<10} {:>10} {:>10} {:>9} {:>9} {:>10} {:>9}"
    print(
        "\n"
        + row.format(
            "listener", "published", "delivered", "distinct", "failed", "discarded", "in order"
        )
    )
    exact = True
    for name, state in queues.items():
        judged = verdict(records[name])
        discarded = sum(state["discarded"].values())
        print(
            row.format(
                name,
                EXPECTED,
                state["delivered"],
                judged.distinct,
                failures(state),
                discarded,
                "yes" if judged.in_order else "NO",
            )
        )
        exact &= (
            state["delivered"] == judged.distinct == EXPECTED and not discarded and judged.in_order
        )
    print()
    return exact


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pillion-demo-") as folder:
        try:
            exact = demonstrate(Path(folder))
        except DemoFailed as failure:
            say(f"FAILED: {failure}")
            return 1
    say(
        "every indication arrived, in order, nothing lost"
        if exact
        else "FAILED: counts are not exact"
    )
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
