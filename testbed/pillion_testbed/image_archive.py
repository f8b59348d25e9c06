"""Image archives: what buildah writes, as an archive of the OCI's image layout, uncompressed.

buildah compresses what it writes in the OCI's form, which takes longer than to import it; in
Docker's form it does not. Both hold the same configuration and the same layers.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from pillion_testbed.oci import CONFIG, LAYER, MANIFEST, program_layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What an archive of one image holds. ``layers`` are digests, the base's first."""

    config: dict[str, Any]
    layers: tuple[str, ...]
    sizes: tuple[int, ...]


def repack(docker: Path, *, into: Path, name: str) -> None:
    """Write the OCI's archive of an image from Docker's, under a name for containerd."""
    with tarfile.open(docker) as given, tarfile.open(into, "w") as written:
        (listed,) = json.loads(_content(given, "manifest.json"))
        config = _content(given, listed["Config"])
        layers = [_layer(given, path) for path in listed["Layers"]]
        _begin(written, name, config, [(digest, member.size) for digest, member in layers])
        # An image may have the same layer twice; an archive has a blob once.
        for digest, member in dict(layers).items():
            _copy(written, _blob(digest), member, given)


def add_program(base: Path, program: Path, *, path: str, into: Path, name: str) -> None:
    """Write the archive of another image with a static program more, which it runs. The layers of
    the other are left out."""
    below = contents(base)
    layer = program_layer({path: program})
    added = _digest(layer)
    config = {
        **below.config,
        "config": {**below.config["config"], "Entrypoint": [path], "Cmd": []},
        "rootfs": {"type": "layers", "diff_ids": [*below.layers, added]},
        # It would lack an entry for the layer.
        "history": [],
    }
    layers = zip((*below.layers, added), (*below.sizes, len(layer)), strict=True)
    with tarfile.open(into, "w") as written:
        _begin(written, name, _json(config), list(layers))
        _add(written, _blob(added), layer)


def thin(archive: Path, *, into: Path, having: Container[str]) -> None:
    """Copy an archive without the layers whose digests containerd already has: it takes that."""
    left_out = {_blob(digest) for digest in contents(archive).layers if digest in having}
    with tarfile.open(archive) as given, tarfile.open(into, "w") as written:
        for member in given.getmembers():
            if member.name not in left_out:
                _copy(written, member.name, member, given)


def contents(archive: Path) -> Contents:
    """Read configuration and layers of an archive that :func:`repack` wrote."""
    with tarfile.open(archive) as given:
        (top,) = json.loads(_content(given, "index.json"))["manifests"]
        manifest = json.loads(_content(given, _blob(top["digest"])))
        config = json.loads(_content(given, _blob(manifest["config"]["digest"])))
    layers = manifest["layers"]
    return Contents(
        config=config,
        layers=tuple(layer["digest"] for layer in layers),
        sizes=tuple(layer["size"] for layer in layers),
    )


def unpack(archive: Path, *, into: Path) -> None:
    """Lay the layers of an archive over one another below a folder, as a container sees them.

    Raises ValueError for a layer with an opaque folder, which nothing of ours makes.
    """
    with tarfile.open(archive) as given:
        for digest in contents(archive).layers:
            with tarfile.open(fileobj=_opened(given, given.getmember(_blob(digest)))) as layer:
                _lay_over(layer, into)


def _begin(
    written: tarfile.TarFile, name: str, config: bytes, layers: Sequence[tuple[str, int]]
) -> None:
    """Write all of an image but its layers, of which this is each one's digest and size."""
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _described(CONFIG, _digest(config), len(config)),
            "layers": [_described(LAYER, digest, size) for digest, size in layers],
        }
    )
    top = _described(MANIFEST, _digest(manifest), len(manifest))
    top["annotations"] = {"io.containerd.image.name": name}
    _add(written, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    _add(written, "index.json", _json({"schemaVersion": 2, "manifests": [top]}))
    _add(written, _blob(_digest(manifest)), manifest)
    _add(written, _blob(_digest(config)), config)


def _lay_over(layer: tarfile.TarFile, folder: Path) -> None:
    for member in layer.getmembers():
        path = folder / member.name
        if path.name == ".wh..wh..opq":
            raise ValueError(f"{member.name}: opaque folders are not unpacked")
        if path.name.startswith(".wh."):
            _remove(path.with_name(path.name.removeprefix(".wh.")))
            continue
        if not member.isdir():
            _remove(path)
        layer.extract(member, folder, filter="fully_trusted")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for child in path.iterdir():
            _remove(child)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _layer(archive: tarfile.TarFile, path: str) -> tuple[str, tarfile.TarInfo]:
    member = archive.getmember(path)
    with _opened(archive, member) as opened:
        return f"sha256:{hashlib.file_digest(cast(Any, opened), 'sha256').hexdigest()}", member


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    with _opened(archive, archive.getmember(name)) as opened:
        return opened.read()


def _opened(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    opened = archive.extractfile(member)
    if opened is None:
        raise ValueError(f"{member.name} is no file")
    return opened


def _copy(
    written: tarfile.TarFile, name: str, member: tarfile.TarInfo, given: tarfile.TarFile
) -> None:
    copied = tarfile.TarInfo(name)
    copied.size = member.size
    with _opened(given, member) as opened:
        written.addfile(copied, opened)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _described(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest, "size": size}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
