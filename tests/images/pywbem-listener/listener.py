"""pywbem's WBEM listener in a container of its own, and what it was given, as JSON over HTTP.

CIM-XML arrives at port 5988, or at port 5989 over TLS where LISTENER_CERTIFICATE and LISTENER_KEY
name files. Port 8080 is for the tests: ``GET /record?after=N`` gives the indications after the
first N, a JSON object a line, in the order of the callback; ``GET /count`` how many there are;
``POST /forget`` begins anew; ``GET /healthz`` answers once it listens.

At most LISTENER_KEPT indications (1,000,000) are kept, as bytes; further ones are only counted.
"""

import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pywbem import WBEMListener  # type: ignore[import-untyped]

PORT, TLS_PORT, RECORD_PORT = 5988, 5989, 8080


def plain(value: Any) -> Any:
    """A CIM value as JSON has it."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, list):
        return [plain(element) for element in value]
    return int(value) if isinstance(value, int) else str(value)


class Record:
    """What arrived, a line each."""

    def __init__(self, *, kept: int) -> None:
        self._kept = kept
        self._lines: list[bytes] = []
        self._count = 0
        self._lock = threading.Lock()

    def received(self, instance: Any, host: str) -> None:
        """pywbem's callback."""
        properties = {name: plain(value) for name, value in instance.items()}
        line = json.dumps({"class": instance.classname, "host": host, "properties": properties})
        with self._lock:
            self._count += 1
            if len(self._lines) < self._kept:
                self._lines.append(line.encode() + b"\n")

    def count(self) -> int:
        with self._lock:
            return self._count

    def after(self, number: int) -> bytes:
        """The lines after the first ``number``."""
        with self._lock:
            lines = self._lines[number:]
        return b"".join(lines)

    def forget(self) -> None:
        with self._lock:
            self._lines.clear()
            self._count = 0


def handler(record: Record) -> type[BaseHTTPRequestHandler]:
    """The tests' side."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            if asked.path == "/record":
                after = int(parse_qs(asked.query).get("after", ["0"])[0])
                self._answer(200, record.after(after), "application/x-ndjson")
            elif asked.path in ("/count", "/healthz"):
                self._answer(
                    200, json.dumps({"count": record.count()}).encode(), "application/json"
                )
            else:
                self._answer(404, b"/record, /count, /healthz\n", "text/plain")

        def do_POST(self) -> None:
            if self.path != "/forget":
                return self._answer(404, b"/forget\n", "text/plain")
            record.forget()
            return self._answer(200, b"{}", "application/json")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: each probe would be a line."""

    return Handler


def main() -> None:
    """Listen until SIGTERM."""
    record = Record(kept=int(os.environ.get("LISTENER_KEPT", "1000000")))
    certificate = os.environ.get("LISTENER_CERTIFICATE")
    listener = WBEMListener(
        "0.0.0.0",
        http_port=PORT,
        https_port=TLS_PORT if certificate else None,
        certfile=certificate,
        keyfile=os.environ.get("LISTENER_KEY"),
    )
    listener.add_callback(record.received)
    listener.start()
    server = ThreadingHTTPServer(("", RECORD_PORT), handler(record))
    server.daemon_threads = True
    # shutdown() waits until serve_forever() has ended, which the signal has interrupted.
    signal.signal(
        signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown, daemon=True).start()
    )
    print(f"listening on {PORT}{f' and {TLS_PORT}' if certificate else ''}", flush=True)
    server.serve_forever()
    listener.stop()


if __name__ == "__main__":
    main()
