"""A listener for pods, which tells in its answers whatever it was sent, as bad ones do.

Arguments: a folder with certificates (``a.crt``, ``a.key``, ``b.crt``, ``b.key``), the port of
HTTPS, and that of HTTP, for control. By HTTPS a POST to ``/401/…`` is answered so, and the
credentials told in reason, headers and body; ``/cim/…`` with a CIM error, and ``/garbage/…``
with what is no HTTP; ``/taken/…`` takes, of those whose credentials are known. By HTTP: POST of
``{"certificate": "a" | "b", "known": [digest of an Authorization field, …] | null}``; GET tells
how many were taken, by path and digest.
"""

import base64
import hashlib
import json
import re
import ssl
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

ERROR = """<?xml version="1.0" encoding="utf-8"?>
<CIM CIMVERSION="2.0" DTDVERSION="2.4"><MESSAGE ID="{id}" PROTOCOLVERSION="1.4"><SIMPLEEXPRSP>
<EXPMETHODRESPONSE NAME="ExportIndication"><ERROR CODE="1" DESCRIPTION="{said}"/>
</EXPMETHODRESPONSE></SIMPLEEXPRSP></MESSAGE></CIM>"""


class State:
    """What is known, and what was taken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.context.load_verify_locations(folder / "a.crt")
        self.known: list[str] | None = None
        self.taken: Counter[str] = Counter()
        self.behave({"certificate": "a", "known": None})

    def behave(self, told: dict[str, Any]) -> None:
        name = told["certificate"]
        self.context.load_cert_chain(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        self.known = told["known"]


class Server(ThreadingHTTPServer):
    """One of the two ports."""

    def __init__(self, port: str, handler: type[BaseHTTPRequestHandler], state: State) -> None:
        super().__init__(("0.0.0.0", int(port)), handler)
        self.state = state

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of a connection that failed."""


class Quiet(BaseHTTPRequestHandler):
    """Answers, and logs nothing: what it was sent is not for logs."""

    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def tell(self, status: int, body: str, reason: str | None = None, **also: str) -> None:
        sent = body.encode()
        self.send_response(status, reason)
        for name, value in also.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def body(self) -> str:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found.decode()


class Listener(Quiet):
    """By HTTPS."""

    def do_POST(self) -> None:
        body = self.body()
        sent = self.headers.get("Authorization") or "nothing"
        plain = sent
        if sent.startswith("Basic "):
            plain += " " + base64.b64decode(sent[6:]).decode()
        behaviour = self.path.split("/")[1]
        if behaviour == "taken":
            self.take(sent)
        elif behaviour == "cim":
            found = re.search('MESSAGE ID="([^"]*)"', body)
            said = ERROR.format(id=found and found[1], said=plain)
            self.tell(200, said, Content_Type="application/xml", CIMExport="MethodResponse")
        elif behaviour == "garbage":
            self.wfile.write(f"{plain}\r\n\r\n".encode())
        else:
            self.echo(int(behaviour), plain)

    def take(self, sent: str) -> None:
        state = self.server.state
        digest = hashlib.sha256(sent.encode()).hexdigest()
        if state.known is not None and digest not in state.known:
            self.echo(401, sent)
            return
        state.taken[f"{self.path} {digest}"] += 1
        self.tell(204, "")

    def echo(self, status: int, sent: str) -> None:
        also = {name: quote(sent) for name in ("CIMError", "PGErrorDetail")}
        also |= {"X_Sent": sent, "Location": f"https://elsewhere.example/?sent={quote(sent)}"}
        self.tell(status, json.dumps({"error": sent, "sent": str(self.headers)}), sent, **also)


class Control(Quiet):
    """By HTTP."""

    def do_GET(self) -> None:
        self.tell(200, json.dumps(self.server.state.taken))

    def do_POST(self) -> None:
        self.server.state.behave(json.loads(self.body()))
        self.tell(200, "{}")


def main(folder: str, tls_port: str, port: str) -> None:
    state = State(Path(folder))
    secure = Server(tls_port, Listener, state)
    # The handshake is each connection's own, in its thread.
    secure.socket = state.context.wrap_socket(
        secure.socket, server_side=True, do_handshake_on_connect=False
    )
    threading.Thread(target=secure.serve_forever, daemon=True).start()
    Server(port, Control, state).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
