"""Images that are written without any tool for images."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pillion_testbed.oci import write_image


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF")
    return path


def written(program: Path, archive: Path, name: str = "localhost/a:1") -> dict[str, bytes]:
    programs = {"/bin/tool": program}
    write_image(archive, name, programs, entrypoint=["/bin/tool", "-x"], machine="x86_64")
    with tarfile.open(archive) as read:
        return {one.name: read.extractfile(one).read() for one in read}  # type: ignore[union-attr]


def blob(files: dict[str, bytes], described: dict[str, Any]) -> bytes:
    """What a descriptor describes, if it does so rightly."""
    kind, digest = described["digest"].split(":")
    content = files[f"blobs/{kind}/{digest}"]
    assert hashlib.sha256(content).hexdigest() == digest
    assert len(content) == described["size"]
    return content


def test_each_part_leads_to_the_next(program: Path, tmp_path: Path) -> None:
    files = written(program, tmp_path / "a.tar")
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (top,) = json.loads(files["index.json"])["manifests"]
    assert top["annotations"] == {"io.containerd.image.name": "localhost/a:1"}
    manifest = json.loads(blob(files, top))
    config = json.loads(blob(files, manifest["config"]))
    assert config["config"]["Entrypoint"] == ["/bin/tool", "-x"]
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    (layer,) = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    with tarfile.open(fileobj=io.BytesIO(blob(files, layer))) as root:
        tool = root.getmember("bin/tool")
        assert (tool.mode, tool.size, root.getmember("tmp").mode) == (0o755, 4, 0o1777)


def test_it_runs_as_somebody_who_is_not_root(program: Path, tmp_path: Path) -> None:
    files = written(program, tmp_path / "a.tar")
    (top,) = json.loads(files["index.json"])["manifests"]
    config = json.loads(blob(files, json.loads(blob(files, top))["config"]))
    assert config["config"]["User"] == "65532:65532"


def test_the_same_program_makes_the_same_archive(program: Path, tmp_path: Path) -> None:
    written(program, tmp_path / "a.tar")
    written(program, tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    program.write_bytes(b"other")
    written(program, tmp_path / "c.tar")
    assert (tmp_path / "a.tar").read_bytes() != (tmp_path / "c.tar").read_bytes()
