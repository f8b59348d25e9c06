"""A server that answers what a test says, to any request."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from pillion_sidecar.wire.queues import (
    Moment,
    QueueDetails,
    QueuePage,
    QueueStatus,
    json_bytes,
    written,
)

QUEUE: dict[str, Any] = {
    "name": "siem",
    "depth": 20,
    "capacity": 100,
    "high_water": 20,
    "failing_since": Moment(1_800_000_000),
}
_DETAILS = written(QueueDetails(**QUEUE))
#: What a deliverer answers, by the begin of the path.
ANSWERS: dict[str, Any] = {
    "/drain": {"complete": False, "pending": 20, "destinations": {"siem": 20}},
    "/v1/queues/siem/purge": {"name": "siem", "discarded": 20},
    "/v1/queues/": _DETAILS,
    "/v1/queues": json.loads(json_bytes(QueuePage(queues=[QueueStatus(**QUEUE)]))),
    "/v1/status": {
        "version": "0.1.0",
        "time": "2027-01-15T08:00:00Z",
        "revision": "r1",
        "configurationProblem": None,
        "warnings": [],
        "resources": "/resources",
        "isRendered": False,
        "durability": "Disk",
        "journal": {
            "folder": "/journal",
            "totalBytes": 100,
            "pendingBytes": 10,
            "maximumPendingBytes": 100,
            "freeBytes": 50,
            "volumeBytes": 100,
            "isFull": False,
            "damaged": 0,
        },
        "history": {"isOnDisk": True, "last": 7, "unkeptDiscards": 0, "isBehind": False},
        "pending": 20,
    },
    "/v1/endpoints": {"endpoints": [], "next": None},
    "/v1/outcomes/redrive": {
        "redriven": 1,
        "skipped": {},
        "newer": 0,
        "next": 7,
        "through": 7,
        "more": False,
        "history": "h1",
    },
}


def answer_to(path: str) -> Any:
    """Return what a deliverer answers."""
    return next(answer for start, answer in ANSWERS.items() if path.startswith(start))


class OtherServer:
    """A context manager. ``answer`` returns the body of the answer to a path."""

    def __init__(self, answer: Callable[[str], bytes]) -> None:
        #: The paths of the requests, with their queries.
        self.paths: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                self.paths.append(handler.path)
                body = answer(handler.path)
                handler.send_response(200)
                handler.send_header("Content-Length", str(len(body)))
                handler.end_headers()
                handler.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
