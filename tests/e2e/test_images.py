"""The images as they are shipped: what they say of themselves, what they hold, how little they may.

They run by runc alone: with a read-only root, no capability, and as the user that they name.
"""

import json
import re
import shutil
import signal
import subprocess
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pillion_cli.main import COMMANDS
from pillion_testbed import images
from pillion_testbed.containers import Unpacked, unpack
from support.house import ROOT

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]

#: Bytes over its base that the deliverer's image may have.
LARGEST = 120e6
#: Share that our own code may have of the bytes over the base; a dependency that slips into its
#: layer makes it larger.
LARGEST_OWN = 0.15
TITLE = "org.opencontainers.image."
#: What compiles or installs, as files in a folder of programs.
TOOLS = re.compile(r"(gcc|g\+\+|cc|c\+\+|clang|ld|as|make|cmake|pip|uv|easy_install|conda)[-\d.]*$")
PILLION = "/opt/pillion/bin/pillion"
PYTHON = "/opt/pillion/bin/python"
SPARK_PYTHON = "/opt/spark/environment/bin/python3"
SBOMS = {
    "deliverer": "opt/pillion/share/sbom/pillion.cdx.json",
    "spark": "opt/spark/share/sbom/pillion-spark.cdx.json",
}
PYTHONS = {"deliverer": PYTHON, "spark": SPARK_PYTHON}

_IMPORT_ALL = """
import importlib, pkgutil
names = []
rooms = ("cim", "sidecar", "operator", "cli", "plugin", "rules")
for room in (f"pillion_{name}" for name in rooms):
    package = importlib.import_module(room)
    found = pkgutil.walk_packages(package.__path__, f"{room}.")
    names += [one.name for one in found if not one.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
_INSTALLED = """
import re
from importlib import metadata
for found in metadata.distributions():
    name = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
    print(f"pkg:pypi/{name}@{found.version}")
"""
_ABSENT = """
import importlib.util
for name in ("pip", "setuptools", "ensurepip", "wheel", "hatchling"):
    if importlib.util.find_spec(name):
        print(name)
"""


@pytest.fixture(scope="module")
def deliverer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unpacked]:
    yield from _unpacked(images.deliverer(), tmp_path_factory.mktemp("deliverer"))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unpacked]:
    yield from _unpacked(images.spark(), tmp_path_factory.mktemp("spark"))


def _unpacked(image: images.Image, folder: Path) -> Iterator[Unpacked]:
    yield unpack(image, folder)
    # pytest keeps the folders of its last runs, and these are large.
    shutil.rmtree(folder)


@pytest.fixture(params=["deliverer", "spark"])
def shipped(request: pytest.FixtureRequest) -> tuple[str, Unpacked]:
    """Each image that users get, after the other."""
    unpacked: Unpacked = request.getfixturevalue(request.param)
    return request.param, unpacked


def test_an_image_says_what_it_is(shipped: tuple[str, Unpacked]) -> None:
    _name, image = shipped
    labels = image.config["Labels"]
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert labels[f"{TITLE}version"] == project["version"]
    assert labels[f"{TITLE}licenses"] == project["license"]
    assert labels[f"{TITLE}revision"] == images.REVISION
    assert labels[f"{TITLE}created"] == images.CREATED
    assert {labels[f"{TITLE}{key}"] for key in ("title", "description", "source")} - {""}


def test_an_image_runs_as_a_numeric_user_that_has_a_name(shipped: tuple[str, Unpacked]) -> None:
    name, image = shipped
    user, group = image.config["User"].split(":")
    assert int(user) >= 100
    assert int(group) >= 100
    said = image.run(PYTHONS[name], "-c", "import os, pwd; print(pwd.getpwuid(os.getuid()).pw_uid)")
    assert said.strip() == user


def test_nothing_in_an_image_compiles_or_installs(shipped: tuple[str, Unpacked]) -> None:
    name, image = shipped
    folders = ("usr/bin", "usr/sbin", "usr/local/bin", "opt/pillion/bin", "opt/spark/bin")
    programs = [path for folder in folders for path in (image.root / folder).glob("*")]
    assert [path.name for path in programs if TOOLS.match(path.name)] == []
    assert image.run(PYTHONS[name], "-c", _ABSENT) == ""


def test_an_image_keeps_no_trace_of_how_packages_were_reached(
    shipped: tuple[str, Unpacked],
) -> None:
    _name, image = shipped
    for path in ("etc/pip.conf", "root/.config", "root/.cache", "root/.pip", "run/secrets/ca.pem"):
        assert not (image.root / path).exists(), path
    assert list(image.root.glob("opt/**/direct_url.json")) == []
    told = json.dumps(image.image.contents().config).lower()
    for word in ("index-url", "index_url", "proxy", "secret", "pip_", "token", "https://"):
        assert word not in told, word


def test_the_bill_of_materials_lists_exactly_what_is_installed(
    shipped: tuple[str, Unpacked],
) -> None:
    name, image = shipped
    bill = _bill(image, name)
    installed = set(image.run(PYTHONS[name], "-c", _INSTALLED).split())
    assert _urls(bill, "pkg:pypi/") == installed
    query = "${Package} ${Version} ${db:Status-Status}\n"
    printed = image.run("/usr/bin/dpkg-query", "--show", f"--showformat={query}")
    debian = {
        tuple(line.split()[:2]) for line in printed.splitlines() if line.endswith(" installed")
    }
    components = _components(bill)
    assert {(one["name"], one["version"]) for one in components if _is(one, "pkg:deb/")} == debian
    jars = {path.name for path in image.root.glob("opt/**/pyspark/jars/*.jar")}
    assert {_jar(one) for one in components if "jar" in one["purl"] or _is(one, "pkg:maven/")} == (
        jars
    )


def test_nothing_is_compiled_at_a_start(deliverer: Unpacked) -> None:
    # A root that cannot be written would have it compiled anew each time: half a second.
    script = "import pillion_sidecar.app, pillion_operator.app, pillion_cli.commands.operator"
    command = (PYTHON, "-v", "-c", script)
    with deliverer.started(*command, writable=["/tmp"]) as process:
        _said, wrong = process.communicate(timeout=60)
    assert process.returncode == 0, wrong[-2000:]
    assert "import 'pillion_operator.app'" in wrong
    assert re.findall(r"^# code object from ([^'\n]*\.py)$", wrong, re.MULTILINE) == []


def test_every_module_can_be_imported_with_what_is_left_of_the_packages(
    deliverer: Unpacked,
) -> None:
    printed = deliverer.run(PYTHON, "-c", _IMPORT_ALL, writable=["/tmp"])
    assert int(printed) > 200


def test_each_command_runs_with_a_root_that_cannot_be_written(deliverer: Unpacked) -> None:
    for command in COMMANDS:
        assert f"usage: pillion {command}" in deliverer.run(PILLION, command, "--help")
    assert deliverer.entrypoint == [PILLION]


def test_a_table_is_drawn_though_no_lexer_is_there(deliverer: Unpacked) -> None:
    script = (
        "from rich.console import Console; from rich.table import Table; "
        "table = Table('queue'); table.add_row('billing'); Console().print(table)"
    )
    assert "billing" in deliverer.run(PYTHON, "-c", script)


def test_a_deliverer_becomes_ready_in_a_container_that_may_do_nothing(deliverer: Unpacked) -> None:
    with _sidecar(deliverer) as (url, process):
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_the_deliverers_image_is_small(deliverer: Unpacked) -> None:
    _base, *added = deliverer.image.contents().sizes
    assert sum(added) <= LARGEST


def test_our_own_code_is_the_last_layer_and_the_smallest_that_matters(
    shipped: tuple[str, Unpacked],
) -> None:
    _name, image = shipped
    _base, *added = image.image.contents().sizes
    assert added[-1] <= LARGEST_OWN * sum(added)


def test_spark_reads_and_writes_with_what_is_left_of_it(spark: Unpacked, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(_JOB)
    tmp_path.chmod(0o755)
    command = ("/opt/entrypoint.sh", "spark-submit", "--master", "local[1]", "/jobs/job.py")
    writable = ("/tmp", "/opt/spark/work-dir")
    with spark.started(*command, writable=writable, folders={"/jobs": tmp_path}) as process:
        said, wrong = process.communicate(timeout=300)
    assert process.returncode == 0, wrong[-4000:]
    assert "done: 90 10 pillion" in said, wrong[-4000:]


_JOB = """
from pyspark.sql import SparkSession
from pyspark_pillion.source import DefaultSource

session = SparkSession.builder.getOrCreate()
session.range(10).write.parquet("/tmp/numbers")
numbers = session.read.parquet("/tmp/numbers")
total = numbers.rdd.map(lambda row: row.id * 2).sum()
session.dataSource.register(DefaultSource)
print("done:", total, numbers.count(), DefaultSource.name())
"""


@contextmanager
def _sidecar(image: Unpacked) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A deliverer in a container: the URL of its telemetry, and the process."""
    doors = ("--intake", "127.0.0.1:0", "--telemetry", "127.0.0.1:0")
    command = (PILLION, "sidecar", "--resources", "/resources", *doors)
    folders = {"/resources": ROOT / "examples" / "first-subscription"}
    with image.started(*command, folders=folders) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["telemetry"], process


def _bill(image: Unpacked, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((image.root / SBOMS[name]).read_text(encoding="utf-8"))
    return found


def _components(bill: dict[str, Any]) -> list[dict[str, Any]]:
    return [bill["metadata"]["component"], *bill["components"]]


def _urls(bill: dict[str, Any], beginning: str) -> set[str]:
    return {one["purl"] for one in _components(bill) if _is(one, beginning)}


def _is(component: dict[str, Any], beginning: str) -> bool:
    found: bool = component["purl"].startswith(beginning)
    return found


def _jar(component: dict[str, Any]) -> str:
    if not _is(component, "pkg:maven/"):
        return str(component["purl"].rpartition("/")[2])
    classifier = component["purl"].partition("classifier=")[2]
    suffix = f"-{classifier}" if classifier else ""
    return f"{component['name']}-{component['version']}{suffix}.jar"
