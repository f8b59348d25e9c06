"""The wheel with its command line alone runs what compose.yaml runs, without Spark and kopf."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.house import ROOT

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
EXAMPLE = ROOT / "examples" / "first-subscription"
ALERT = {
    "class": "CIM_AlertIndication",
    "properties": {"AlertType": 5, "PerceivedSeverity": 6, "ProbableCause": 94},
}


def run(*command: Any, **options: Any) -> str:
    arguments = [str(part) for part in command]
    done = subprocess.run(
        arguments, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, **options
    )
    return str(done.stdout)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a fresh environment that has the wheel with `[cli]`."""
    folder = tmp_path_factory.mktemp("quick-start")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    (wheel,) = folder.glob("pillion-*.whl")
    run(sys.executable, "-m", "venv", folder / "venv")
    pip = folder / "venv/bin/pip"
    run(pip, "install", "--quiet", "-c", "requirements/constraints.txt", f"{wheel}[cli]")
    return folder / "venv/bin"


@contextmanager
def started(*command: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running process, and the first line that it prints."""
    arguments = [str(part) for part in command]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.mark.timeout(300)
def test_the_wheel_needs_neither_spark_nor_kopf(programs: Path) -> None:
    installed = json.loads(run(programs / "pip", "list", "--format", "json"))
    names = {package["name"].lower() for package in installed}
    assert "pillion" in names
    assert not names & {"pyspark", "pyarrow", "kopf", "kubernetes"}


@pytest.mark.timeout(300)
def test_the_commands_of_compose_deliver_an_indication(programs: Path, tmp_path: Path) -> None:
    pillion = programs / "pillion"
    listen = [part.replace("5990", "0") for part in COMPOSE["listener"]["command"]]
    serve = [part.replace("/resources", str(tmp_path)) for part in COMPOSE["deliverer"]["command"]]
    anywhere = ("--intake", "127.0.0.1:0", "--telemetry", "127.0.0.1:0")
    with started(pillion, *listen) as (listener, url):
        for file in EXAMPLE.glob("*.yaml"):
            text = file.read_text().replace("http://127.0.0.1:5990", url)
            (tmp_path / file.name).write_text(text)
        with started(pillion, *serve, *anywhere) as (_, addresses):
            to = json.loads(addresses)["intake"]
            publish = (pillion, "publish", "-", "--to", to, "--ack", "delivered")
            assert "1 delivered" in run(*publish, input=json.dumps(ALERT))
        assert listener.stdout is not None
        assert "CIM_AlertIndication" in listener.stdout.readline()


def test_compose_uses_the_image_of_this_version_and_the_folder_of_the_example() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for service in COMPOSE.values():
        assert service["image"] == f"pillion:{version}"
        dockerfile = (ROOT / service["build"]["dockerfile"]).read_text()
        assert 'ENTRYPOINT ["/opt/pillion/bin/pillion"]' in dockerfile
    (mount,) = COMPOSE["deliverer"]["volumes"]
    assert (ROOT / mount.split(":")[0]).resolve() == EXAMPLE
