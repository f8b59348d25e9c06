"""A token endpoint of OAuth 2.0 inside a test, and a listener that takes its newest token only."""

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, unquote_plus

from support.http_listener import Peer, listening

CLIENT = {"clientId": "pillion", "clientSecret": "planted-s3cret:+"}


class TokenEndpoint:
    """Issues ``token-1``, ``token-2`` … to the client that knows the secret (RFC 6749)."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.secret = CLIENT["clientSecret"]
        self.lifetime = 3600
        #: The forms that were sent.
        self.asked: list[dict[str, list[str]]] = []
        self.issued = 0
        #: What is accepted of a listener; None: none.
        self.valid: str | None = None

    async def serve(self, peer: Peer) -> None:
        self.connections += 1
        while True:
            head, body = await peer.request()
            status, document = self._answer(head, body)
            text = json.dumps(document).encode()
            await peer.send(
                b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (status, len(text), text)
            )

    def _answer(self, head: bytes, body: bytes) -> tuple[int, dict[str, object]]:
        form = parse_qs(body.decode("ascii"), strict_parsing=True)
        self.asked.append(form)
        if self._client(head, form) != (CLIENT["clientId"], self.secret):
            return 401, {"error": "invalid_client", "error_description": "who is it?"}
        if form["grant_type"] != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        self.issued += 1
        self.valid = f"token-{self.issued}-planted"
        return 200, {
            "access_token": self.valid,
            "token_type": "Bearer",
            "expires_in": self.lifetime,
        }

    def _client(self, head: bytes, form: dict[str, list[str]]) -> tuple[str, str]:
        for line in head.split(b"\r\n"):
            if line.startswith(b"Authorization: Basic "):
                pair = base64.b64decode(line.rpartition(b" ")[2]).decode("ascii")
                name, _, secret = pair.partition(":")
                return unquote_plus(name), unquote_plus(secret)
        return form.get("client_id", [""])[0], form.get("client_secret", [""])[0]


class Guarded:
    """A listener that asks for the newest token."""

    def __init__(self, endpoint: TokenEndpoint) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        self.refused = 0
        self._endpoint = endpoint

    async def serve(self, peer: Peer) -> None:
        while True:
            head, body = await peer.request()
            if b"Authorization: Bearer %b\r\n" % str(self._endpoint.valid).encode() in head:
                self.bodies.append(body)
                await peer.send(b"HTTP/1.1 204 X\r\n\r\n")
            else:
                self.refused += 1
                await peer.send(b"HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n")


@asynccontextmanager
async def guarded(
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[TokenEndpoint, Guarded]]:
    """Both, on ports of loopback; ``tls``: of the endpoint."""
    endpoint = TokenEndpoint()
    listener = Guarded(endpoint)
    async with listening(endpoint.serve, tls) as asked, listening(listener.serve) as posted_to:
        endpoint.url, listener.url = f"{asked.url}token", posted_to.url
        yield endpoint, listener
