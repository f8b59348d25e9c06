"""Prometheus and its promtool, as programs that tests run."""

import contextlib
import json
import os
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pillion_testbed.binaries import find_binaries
from pillion_testbed.rest import wait_until

#: Seconds for Prometheus to start, or to have scraped twice.
WITHIN = 60.0


class PromtoolFailed(AssertionError):
    """promtool says that something is wrong; the message is what it says."""


def promtool(*arguments: str) -> str:
    """Run promtool and return what it prints; PromtoolFailed where it fails."""
    command = [str(find_binaries(os.environ).promtool()), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise PromtoolFailed(f"promtool {' '.join(arguments)}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def relabelled(
    job: Mapping[str, Any], found: Sequence[Mapping[str, str]], folder: Path
) -> list[dict[str, str] | None]:
    """The labels that a job gives each target of which discovery has ``found`` this; None for one
    that it drops. The job's own discovery is left out.
    """
    static = [
        {
            "targets": [labels["__address__"]],
            "labels": {**labels, "__meta_number": str(number)},
        }
        for number, labels in enumerate(found)
    ]
    kept = {key: value for key, value in job.items() if not key.endswith("_sd_configs")}
    path = folder / "relabelled.yaml"
    path.write_text(yaml.safe_dump({"scrape_configs": [{**kept, "static_configs": static}]}))
    # A static discovery tells all at once, and promtool waits for more as long as it may.
    said = promtool("check", "service-discovery", "--timeout=1s", str(path), str(job["job_name"]))
    given: list[dict[str, str] | None] = [None] * len(found)
    for target in json.loads(said):
        labels: dict[str, str] = target.get("labels") or {}
        seen = {name: value for name, value in labels.items() if not name.startswith("__")}
        given[int(target["discoveredLabels"]["__meta_number"])] = seen or None
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def query(self, expression: str) -> list[Any]:
        """The result of an instant query: a vector's elements."""
        result = self._ask("query", query=expression)["result"]
        assert isinstance(result, list)
        return result

    def series(self, match: str) -> list[dict[str, str]]:
        """The labels of the series that match."""
        found: list[dict[str, str]] = self._ask("series", **{"match[]": match})
        return found

    def alerts(self) -> list[Any]:
        """The alerts that are pending or fire."""
        found: list[Any] = self._ask("alerts")["alerts"]
        return found

    def targets(self) -> list[Any]:
        """The targets that it scrapes."""
        found: list[Any] = self._ask("targets", state="active")["activeTargets"]
        return found

    def until(self, expression: str, *, within: float = WITHIN) -> list[Any]:
        """Wait until a query returns something, and return that."""
        wait_until(lambda: bool(self.query(expression)), within=within, what=expression)
        return self.query(expression)

    def _ask(self, what: str, **parameters: str) -> Any:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{url}: {error.read().decode()}") from error


@contextlib.contextmanager
def running_prometheus(configuration: Mapping[str, Any], folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus while the context lasts; its data and its log go to ``folder``."""
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(dict(configuration)))
    promtool("check", "config", str(path))
    address = f"127.0.0.1:{_free_port()}"
    command: Sequence[str] = (
        str(find_binaries(os.environ).prometheus()),
        # Below its own folder, so that its pages name files as they are named here.
        f"--config.file={path.name}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    )
    with (
        (folder / "prometheus.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) as process,
    ):
        try:
            wait_until(
                lambda: process.poll() is not None or _ready(f"http://{address}"),
                within=WITHIN,
                what="Prometheus is ready",
            )
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            yield Prometheus(url=f"http://{address}")
        finally:
            process.terminate()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=10) as answer:
            return int(answer.status) == 200
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
