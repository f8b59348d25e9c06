"""Kubeflow's Spark operator, built once from its own source for all checkouts of this user."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pillion_testbed import image_archive
from pillion_testbed.binaries import SMALL, Binaries, link_flags, source_digest
from pillion_testbed.helm import Helm, settings
from pillion_testbed.images import Image

VERSION = "v2.5.1"
_MODULE = f"github.com/kubeflow/spark-operator/v2@{VERSION}"
#: Where the operator's own image has the program.
_PATH = "/usr/bin/spark-operator"
_REGISTRY = "localhost"
_REPOSITORY = "spark-operator"
NAMESPACE = "spark-operator"
RELEASE = "spark-operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOperator:
    """What was built: the program and its chart, in one folder."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / "spark-operator"

    @property
    def chart(self) -> Path:
        return self.folder / "chart"

    def image(self, spark: Image, *, into: Path) -> Path:
        """Write the archive of the operator's image, for nodes that have the image of Spark: the
        operator runs ``spark-submit`` in its own container."""
        name = f"{_REGISTRY}/{_REPOSITORY}:{VERSION}"
        image_archive.add_program(spark.archive, self.program, path=_PATH, into=into, name=name)
        return into

    def install(self, helm: Helm, *values: str, jobs: str) -> str:
        """Install its chart, for the jobs of a namespace, and wait."""
        given = (
            f"image.registry={_REGISTRY}",
            f"image.repository={_REPOSITORY}",
            f"image.tag={VERSION}",
            "image.pullPolicy=Never",
            f'spark.jobNamespaces=["{jobs}"]',
            *values,
        )
        options = (f"--namespace={NAMESPACE}", "--wait", "--timeout=120s", *settings(given))
        return helm.run("upgrade", "--install", RELEASE, str(self.chart), *options)

    def uninstall(self, helm: Helm) -> None:
        """Uninstall it, until everything of the release is gone; its kinds stay."""
        helm.run("uninstall", RELEASE, f"--namespace={NAMESPACE}", "--wait")


def spark_operator(binaries: Binaries) -> SparkOperator:
    """Return it, built if it is not there. Raises BinariesUnavailable."""

    def build(target: Path) -> None:
        source = binaries.download(_MODULE)
        made = SparkOperator(folder=target)
        # Go's cache is read-only.
        shutil.copytree(
            source / "charts" / "spark-operator-chart", made.chart, copy_function=shutil.copyfile
        )
        for folder in (made.chart, *made.chart.rglob("*/")):
            folder.chmod(0o755)
        # Its module has replace lines, which "go install" refuses.
        binaries.build("./cmd/operator", made.program, folder=source, flags=link_flags(SMALL))

    folder = binaries.cache / source_digest({}, (_MODULE, *SMALL)) / "spark-operator"
    told = f"building Kubeflow's Spark operator {VERSION} once; some 3 minutes"
    return SparkOperator(folder=binaries.made(folder, told, build))
