"""Image archives as the OCI's image layout has them, written without any tool for images.

containerd takes an archive whose manifest names layers that it already has and that the archive
leaves out, so a changed program is imported in a part of a second.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(
    archive: Path,
    name: str,
    programs: Mapping[str, Path],
    *,
    entrypoint: Sequence[str],
    machine: str,
    user: str = "65532:65532",
) -> Path:
    """Write an image of static programs, by their paths in it, and nothing else.

    ``machine`` is what ``platform.machine()`` says. The same programs make the same image.
    """
    layer = program_layer(programs)
    config = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "User": user, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    blobs: list[bytes] = [layer]
    described = _descriptor(CONFIG, _json(config), blobs)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described,
        "layers": [_descriptor(LAYER, layer, [])],
    }
    top = _descriptor(MANIFEST, _json(manifest), blobs)
    top["annotations"] = {"io.containerd.image.name": name}
    with tarfile.open(archive, "w") as written:
        _add(written, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(written, "index.json", _json({"schemaVersion": 2, "manifests": [top]}))
        for blob in blobs:
            _add(written, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)
    return archive


def program_layer(programs: Mapping[str, Path]) -> bytes:
    """Return the layer of static programs, by their paths."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as layer:
        # Some programs, and some mounts, need it.
        _add(layer, "tmp", None, mode=0o1777)
        for path in sorted(programs):
            _add(layer, path.lstrip("/"), programs[path].read_bytes(), mode=0o755)
    return held.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes | None, mode: int = 0o644) -> None:
    """Add a file, or a folder where there is no content."""
    member = tarfile.TarInfo(name)
    member.mode = mode
    if content is None:
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    else:
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def _descriptor(kind: str, content: bytes, blobs: list[bytes]) -> dict[str, Any]:
    blobs.append(content)
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
