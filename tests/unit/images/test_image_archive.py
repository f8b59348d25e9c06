"""Image archives: from Docker's form to the OCI's, thinned, and laid out as files."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from pillion_testbed import image_archive

NAME = "localhost/thing:1"


def tar(**files: bytes | None) -> bytes:
    """An archive of files, by their paths with ``_`` for ``/``; None is a folder."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for key, content in files.items():
            member = tarfile.TarInfo(key.replace("_", "/"))
            if content is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            else:
                member.size = len(content)
            archive.addfile(member, None if content is None else io.BytesIO(content))
    return held.getvalue()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


BASE = tar(etc=None, etc_a=b"base", lib=None, lib_pip=None, lib_pip_x=b"x", bin=b"program")
TOP = tar(**{"etc_a": b"changed", "lib_.wh.pip": b"", "opt": None, "opt_b": b"new"})


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An image of a base, a layer, and that layer again, as :func:`image_archive.repack` has it."""
    config = json.dumps({"config": {"User": "185"}, "rootfs": {"type": "layers"}}).encode()
    listed = [{"Config": "c.json", "RepoTags": [NAME], "Layers": ["0.tar", "1.tar", "1.tar"]}]
    docker = tmp_path / "docker.tar"
    with tarfile.open(docker, "w") as written:
        held = {"0.tar": BASE, "1.tar": TOP, "c.json": config}
        for name, content in {**held, "manifest.json": json.dumps(listed).encode()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            written.addfile(member, io.BytesIO(content))
    image_archive.repack(docker, into=tmp_path / "oci.tar", name=NAME)
    return tmp_path / "oci.tar"


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as given:
        found = {}
        for member in given.getmembers():
            opened = given.extractfile(member)
            assert opened is not None
            assert member.name not in found
            found[member.name] = opened.read()
    return found


def test_an_archive_is_a_layout_whose_every_blob_has_its_digest_for_a_name(archive: Path) -> None:
    found = members(archive)
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (top,) = json.loads(found["index.json"])["manifests"]
    assert top["annotations"] == {"io.containerd.image.name": NAME}
    manifest = json.loads(found[f"blobs/{top['digest'].replace(':', '/')}"])
    named = [manifest["config"], *manifest["layers"]]
    for one in [top, *named]:
        blob = found[f"blobs/{one['digest'].replace(':', '/')}"]
        assert digest(blob) == one["digest"]
        assert len(blob) == one["size"]
    kinds = {one["mediaType"] for one in manifest["layers"]}
    assert kinds == {"application/vnd.oci.image.layer.v1.tar"}


def test_an_archive_tells_its_configuration_and_its_layers(archive: Path) -> None:
    found = image_archive.contents(archive)
    assert found.config["config"] == {"User": "185"}
    assert found.layers == (digest(BASE), digest(TOP), digest(TOP))
    assert found.sizes == (len(BASE), len(TOP), len(TOP))


def test_a_thin_archive_lacks_the_layers_that_are_known_and_still_names_them(
    archive: Path, tmp_path: Path
) -> None:
    thin = tmp_path / "thin.tar"
    image_archive.thin(archive, into=thin, having={digest(BASE), "sha256:other"})
    left_out = set(members(archive)) - set(members(thin))
    assert left_out == {f"blobs/{digest(BASE).replace(':', '/')}"}
    assert image_archive.contents(thin) == image_archive.contents(archive)


def test_layers_lie_over_one_another(archive: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    image_archive.unpack(archive, into=root)
    files = {str(one.relative_to(root)): one for one in root.rglob("*") if one.is_file()}
    assert set(files) == {"bin", "etc/a", "opt/b"}
    assert files["etc/a"].read_bytes() == b"changed"
    assert (root / "lib").is_dir()


def test_what_is_missing_from_an_archive_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.tar"
    with tarfile.open(empty, "w"):
        pass
    with pytest.raises(KeyError, match=r"manifest\.json"):
        image_archive.repack(empty, into=tmp_path / "oci.tar", name=NAME)


def test_an_image_with_a_program_more_runs_that_on_the_layers_of_the_other(
    archive: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    more = tmp_path / "more.tar"
    image_archive.add_program(
        archive, program, path="/bin/tool", into=more, name="localhost/more:1"
    )
    found = image_archive.contents(more)
    below = image_archive.contents(archive)
    added = found.layers[-1]
    assert found.layers == (*below.layers, added)
    assert found.sizes[:-1] == below.sizes
    assert found.config["rootfs"]["diff_ids"] == list(found.layers)
    assert found.config["config"] == {"User": "185", "Entrypoint": ["/bin/tool"], "Cmd": []}
    held = members(more)
    (top,) = json.loads(held["index.json"])["manifests"]
    assert top["annotations"] == {"io.containerd.image.name": "localhost/more:1"}
    assert not {f"blobs/{one.replace(':', '/')}" for one in below.layers} & set(held)
    with tarfile.open(fileobj=io.BytesIO(held[f"blobs/{added.replace(':', '/')}"])) as layer:
        assert layer.getmember("bin/tool").mode == 0o755
