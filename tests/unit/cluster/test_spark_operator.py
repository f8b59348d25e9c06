"""Kubeflow's Spark operator: what is built, and how its chart is installed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pillion_testbed.binaries import Binaries
from pillion_testbed.helm import Helm
from pillion_testbed.spark_operator import VERSION, SparkOperator, spark_operator


def module(folder: Path) -> Path:
    """A module as Go's cache has it: nothing in it can be written."""
    templates = folder / "charts" / "spark-operator-chart" / "templates"
    templates.mkdir(parents=True)
    (templates / "deployment.yaml").write_text("kind: Deployment\n")
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return folder


def test_it_is_built_once_of_its_own_module_with_its_chart_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = module(tmp_path / "module")
    built: list[tuple[str, Path]] = []

    def build(
        self: Binaries, package: str, target: Path, *, folder: Path, flags: Sequence[str]
    ) -> None:
        built.append((package, folder))
        target.write_text("program")

    downloaded: list[str] = []

    def download(self: Binaries, name: str) -> Path:
        downloaded.append(name)
        return source

    monkeypatch.setattr(Binaries, "build", build)
    monkeypatch.setattr(Binaries, "download", download)
    told: list[str] = []
    binaries = Binaries(cache=tmp_path / "cache", say=told.append)
    found = spark_operator(binaries)
    assert spark_operator(binaries) == found
    assert built == [("./cmd/operator", source)]
    assert downloaded == [f"github.com/kubeflow/spark-operator/v2@{VERSION}"]
    assert found.program.read_text() == "program"
    assert (found.chart / "templates" / "deployment.yaml").exists()
    # Whoever empties the cache can do so.
    folders = [path for path in (found.chart, *found.chart.rglob("*")) if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o755}
    assert len(told) == 1


def test_its_chart_runs_the_image_that_was_built_for_the_jobs_of_a_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[Sequence[str]] = []

    def run(self: Helm, *arguments: str) -> str:
        commands.append(arguments)
        return ""

    monkeypatch.setattr(Helm, "run", run)
    helm = Helm(program=tmp_path / "helm", folder=tmp_path)
    SparkOperator(folder=tmp_path).install(helm, jobs="weather")
    (command,) = commands
    assert str(tmp_path / "chart") in command
    assert {
        "image.registry=localhost",
        "image.repository=spark-operator",
        f"image.tag={VERSION}",
        'spark.jobNamespaces=["weather"]',
    } < set(command)
