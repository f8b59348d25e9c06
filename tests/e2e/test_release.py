"""What a release publishes is made whole, and can be used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pillion_testbed.helm import find_helm
from support.house import ROOT

FOLDER = ROOT / "dist" / "0.1.0-snapshot"
FILES = {
    "NOTES.md",
    "SHA256SUMS",
    "pillion-0.1.0-py3-none-any.whl",
    "pillion-0.1.0.cdx.json",
    "pillion-0.1.0.oci.tar",
    "pillion-0.1.0.tar.gz",
    "pillion-0.1.0.tgz",
    "pillion-spark-0.1.0.oci.tar",
}


@pytest.mark.timeout(900)
def test_a_snapshot_has_every_artefact_with_its_digest(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "release.py"), "--snapshot"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert {path.name for path in FOLDER.iterdir()} == FILES
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=FOLDER, check=True)
    chart = find_helm(tmp_path).run("show", "chart", str(FOLDER / "pillion-0.1.0.tgz"))
    assert "appVersion: 0.1.0" in chart
    materials = json.loads((FOLDER / "pillion-0.1.0.cdx.json").read_text(encoding="utf-8"))
    assert materials["metadata"]["component"]["name"] == "pillion"
    names = {component["name"] for component in materials["components"]}
    assert {"aiohttp", "kopf", "msgspec", "rich"} <= names
    assert "pyspark" not in names
