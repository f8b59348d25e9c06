"""A listener that takes CloudEvents with one bearer token and no other; it runs in a pod.

``guarded_listener.py CERTIFICATE TOKEN`` listens with TLS on port 8443; ``CERTIFICATE`` is a file
with the chain and the key. On port 8080 it is asked and told:

- ``POST /-/token``: from now on it takes the token that is the body;
- ``GET /-/taken``: what it took, a JSON list of address, token and id.
"""

import http.server
import json
import ssl
import sys
import threading
from typing import ClassVar

PORT, CONTROL_PORT = 8443, 8080


class Listener(http.server.BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    token: ClassVar[str] = ""
    taken: ClassVar[list[tuple[str, str, str]]] = []

    def do_GET(self) -> None:
        """Say what was taken."""
        self._answer(200, json.dumps(self.taken[:]).encode())

    def do_POST(self) -> None:
        """Take an event, or another token."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        token = Listener.token
        if self.path == "/-/token":
            Listener.token = body.decode()
            self._answer(200)
        elif self.headers.get("Authorization") != f"Bearer {token}":
            self._answer(401)
        else:
            self.taken.append((self.client_address[0], token, json.loads(body)["id"]))
            self._answer(200)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Listen, for ever."""
    certificate, Listener.token = sys.argv[1:]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    listener, control = (
        http.server.ThreadingHTTPServer(("0.0.0.0", port), Listener)
        for port in (PORT, CONTROL_PORT)
    )
    listener.socket = context.wrap_socket(
        listener.socket, server_side=True, do_handshake_on_connect=False
    )
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    control.serve_forever()


if __name__ == "__main__":
    main()
