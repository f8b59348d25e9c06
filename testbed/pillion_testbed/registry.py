"""A registry of one image that asks for a password, as the OCI's distribution specification has it:
manifests and blobs are read from an image archive; nothing can be pushed."""

import base64
import http.server
import json
import shutil
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pillion_testbed.images import Image
from pillion_testbed.oci import MANIFEST

USER, PASSWORD = "cluster", "let-me-pull"
AUTH = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
REPOSITORY = "pillion"
#: Bytes that are written at once.
PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A registry that runs."""

    #: ``host:port``, as images name it.
    address: str
    tag: str
    #: The paths that were asked for with the right password, and those that were refused.
    pulled: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def image(self) -> str:
        """The name of its image."""
        return f"{self.address}/{REPOSITORY}:{self.tag}"

    def secret(self, name: str) -> dict[str, Any]:
        """A pull secret for it."""
        auths = {self.address: {"auth": AUTH}}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": json.dumps({"auths": auths})},
        }


@contextmanager
def registry(image: Image, *, host: str) -> Iterator[Registry]:
    """A registry with an image on an address of this machine, while the context lasts."""
    server = _Server(host, image)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, image: Image) -> None:
        super().__init__((host, 0), _Handler)
        self.archive = image.archive
        self.registry = Registry(address=f"{host}:{self.server_address[1]}", tag=image.tag)

    def manifest(self) -> str:
        """The digest of the image's manifest."""
        with tarfile.open(self.archive) as archive:
            index = archive.extractfile("index.json")
            assert index is not None
            (top,) = json.load(index)["manifests"]
        return str(top["digest"])


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_arguments: object) -> None:
        """The registry's own lists say it."""

    def _answer(self) -> None:
        known = self.server.registry
        if self.headers.get("Authorization") != f"Basic {AUTH}":
            known.refused.append(self.path)
            self._begin(HTTPStatus.UNAUTHORIZED, "text/plain", 0)
            return
        known.pulled.append(self.path)
        kind, _, reference = self.path.removeprefix(f"/v2/{REPOSITORY}/").partition("/")
        if kind == "manifests":
            is_tag = reference == known.tag
            self._send(self.server.manifest() if is_tag else reference, MANIFEST)
        else:
            self._send(reference, "application/octet-stream")

    def _send(self, digest: str, kind: str) -> None:
        with tarfile.open(self.server.archive) as archive:
            try:
                member = archive.getmember(f"blobs/{digest.replace(':', '/')}")
            except KeyError:
                self._begin(HTTPStatus.NOT_FOUND, "text/plain", 0)
                return
            self._begin(HTTPStatus.OK, kind, member.size, digest)
            if self.command == "HEAD":
                return
            content = archive.extractfile(member)
            assert content is not None
            shutil.copyfileobj(content, self.wfile, PIECE)

    def _begin(self, status: HTTPStatus, kind: str, length: int, digest: str = "") -> None:
        self.send_response(status)
        self.send_header("Connection", "close")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="registry"')
        self.end_headers()
