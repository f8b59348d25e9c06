"""A pod's volumes as the kubelet makes them: files behind a link that is swapped all at once."""

import asyncio
import base64
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pillion_operator.cluster.types import SECRET, SERVICE_ACCOUNT, Object
from pillion_testbed.client import Client
from pillion_testbed.rest import Refused

#: The link to the folder with the files that are in force.
DATA = "..data"
#: The source of a projected volume that is a token.
TOKEN = "serviceAccountToken"


class UnsupportedVolume(Exception):
    """A volume that the deliverer mounts and that this helper cannot make."""


class MissingSecret(Exception):
    """A Secret that is not optional is not there: the kubelet does not start the container."""


async def volume_files(
    client: Client, namespace: str, volume: Object, *, account: str
) -> dict[str, bytes]:
    """Return the files of a ``secret`` or ``projected`` volume; of two of one name the later.

    ``account`` is the pod's service account, whose tokens it may have projected.
    """
    found = await asyncio.gather(
        *(_files_of(client, namespace, source, account) for source in _sources(volume))
    )
    return {name: content for files in found for name, content in files.items()}


def write_volume(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Put these files into the folder in place of all others, at once; False where they are in it.

    Whoever follows a link finds the old files or the new ones, never some of each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if _read(folder) == files:
        return False
    version = folder / f"..{uuid.uuid4().hex}"
    version.mkdir()
    for name, content in files.items():
        (version / name).write_bytes(content)
    before = folder / DATA
    old = before.resolve() if before.is_symlink() else None
    fresh = folder / "..data_tmp"
    fresh.symlink_to(version.name)
    fresh.rename(before)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path(DATA) / name)
    for entry in os.listdir(folder):
        if not entry.startswith("..") and entry not in files:
            (folder / entry).unlink()
    if old is not None:
        shutil.rmtree(old)
    return True


def _read(folder: Path) -> dict[str, bytes] | None:
    data = folder / DATA
    if not data.is_symlink():
        return None
    return {path.name: path.read_bytes() for path in data.iterdir()}


def _sources(volume: Object) -> Sequence[Object]:
    if "secret" in volume:
        secret = volume["secret"]
        return [{"secret": {**secret, "name": secret["secretName"]}}]
    sources: list[Object] = volume["projected"].get("sources") or []
    unknown = {kind for source in sources for kind in source} - {"secret", TOKEN}
    if unknown:
        raise UnsupportedVolume(f"volume {volume['name']}: {', '.join(sorted(unknown))}")
    return sources


async def _files_of(
    client: Client, namespace: str, source: Object, account: str
) -> dict[str, bytes]:
    if TOKEN in source:
        return {source[TOKEN]["path"]: await _token(client, namespace, account, source[TOKEN])}
    return await _files_of_secret(client, namespace, source["secret"])


async def _token(client: Client, namespace: str, account: str, projection: Object) -> bytes:
    spec = {
        "audiences": [projection["audience"]],
        "expirationSeconds": projection["expirationSeconds"],
    }
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"{SERVICE_ACCOUNT.path(namespace, account)}/token"
    answer = await client.request("POST", path, request)
    token: str = answer["status"]["token"]
    return token.encode()


async def _files_of_secret(client: Client, namespace: str, source: Object) -> dict[str, bytes]:
    try:
        secret = await client.request("GET", SECRET.path(namespace, source["name"]))
    except Refused as error:
        if error.status != 404:
            raise
        if source.get("optional"):
            return {}
        raise MissingSecret(source["name"]) from error
    data: dict[str, Any] = secret.get("data") or {}
    wanted = {item["key"]: item["path"] for item in source.get("items") or ()} or {
        key: key for key in data
    }
    return {path: base64.b64decode(data[key]) for key, path in wanted.items() if key in data}
