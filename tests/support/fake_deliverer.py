"""A deliverer's intake for tests: the same answers, with the troubles that a test scripts.

Whoever publishes to it sees identity, duplicates, per-line refusals, back-pressure, restarts and
flushes as a real one gives them. Everything that it accepts is delivered at once, unless
``discards`` or ``pending_flushes`` say otherwise.
"""

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: its status, document and header fields."""

    status: int
    document: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came: path, query, header fields by lower-cased name, lines."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    lines: tuple[bytes, ...]


class HangUp(Exception):
    """Close the connection without an answer."""


#: One trouble, for one request of lines: gives the answer, raises HangUp, or processes as usual.
Step = Callable[["FakeDeliverer", Seen], Answer]


def status(code: int, *, retry_after: str | None = None, document: Any = None) -> Step:
    """Answer with a status, without looking at the lines."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return lambda deliverer, seen: Answer(code, document or {"reason": "scripted"}, headers)


def hang_up(deliverer: "FakeDeliverer", seen: Seen) -> Answer:
    """Close the connection before anything is accepted."""
    raise HangUp


def accept_and_hang_up(deliverer: "FakeDeliverer", seen: Seen) -> Answer:
    """Accept the lines, then close the connection instead of answering."""
    deliverer.accept(seen)
    raise HangUp


def restart(deliverer: "FakeDeliverer", seen: Seen) -> Answer:
    """Forget everything and close the connection: a restart without a disk."""
    deliverer.forget()
    raise HangUp


def full(*lines: int, destination: str = "busy", unread_from: int | None = None) -> Step:
    """Refuse some lines for now, and read no further than ``unread_from``."""

    def step(deliverer: "FakeDeliverer", seen: Seen) -> Answer:
        return deliverer.accept(
            seen, busy=dict.fromkeys(lines, destination), unread_from=unread_from
        )

    return step


class FakeDeliverer:
    """A context manager; listens on a port of its own on loopback while it is entered."""

    def __init__(self) -> None:
        self.script: deque[Step] = deque()
        self.flush_script: deque[Answer] = deque()
        self.requests: list[Seen] = []
        #: Every accepted line, parsed, in the order of acceptance.
        self.accepted: list[dict[str, Any]] = []
        self.duplicates = 0
        #: Flushes answered 202 before the others.
        self.pending_flushes = 0
        #: What each flush reports as discarded, by destination and reason.
        self.discards: dict[str, dict[str, int]] = {}
        self.longest_body = 64 * 1024 * 1024
        self.lock = threading.Lock()
        #: What each publisher was the first to publish: identities, however often they came.
        self._publishers: dict[str, set[tuple[str, str]]] = {}
        self._known: set[tuple[str, str]] = set()
        #: Its name for what it knows; None as with deliverers of the first release.
        self.instance: str | None = "run-1"
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """Where to publish to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

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
        self._server.hang_up()
        self._server.server_close()

    @property
    def published(self) -> list[Seen]:
        """The requests of lines, in order."""
        return [seen for seen in self.requests if seen.path == "/v1/indications"]

    @property
    def flushed(self) -> list[Seen]:
        """The flushes, in order."""
        return [seen for seen in self.requests if seen.path == "/v1/flush"]

    def forget(self) -> None:
        """Lose identities and publishers, as a restart without a disk does."""
        self._known.clear()
        self._publishers.clear()
        if self.instance is not None:
            self.instance = f"run-{int(self.instance.removeprefix('run-')) + 1}"

    def reset(self) -> None:
        """Start anew for the next test, on the same port."""
        with self.lock:
            self.instance = "run-0"
            self.forget()
            self.script.clear()
            self.flush_script.clear()
            self.requests.clear()
            self.accepted.clear()
            self.duplicates = self.pending_flushes = 0
            self.discards = {}

    def answer(self, seen: Seen) -> Answer:
        """Answer one request."""
        with self.lock:
            self.requests.append(seen)
            if self.instance is not None and seen.query.get("instance", self.instance) != (
                self.instance
            ):
                return Answer(409, {"reason": "restarted", "instance": self.instance})
            if seen.path == "/v1/flush":
                return self._flush(seen)
            step = self.script.popleft() if self.script else None
            return step(self, seen) if step else self.accept(seen)

    def accept(
        self, seen: Seen, *, busy: dict[int, str] | None = None, unread_from: int | None = None
    ) -> Answer:
        """Accept what can be accepted, and answer for each line."""
        read = seen.lines[:unread_from]
        refused: list[dict[str, Any]] = []
        accepted = duplicate = 0
        taken = self._publishers.setdefault(seen.headers.get("pillion-publisher", ""), set())
        for number, line in enumerate(read):
            trouble = self._trouble(number, line, busy or {})
            if trouble is not None:
                refused.append(trouble)
                continue
            key, new = self._take(line, seen.query.get("source", ""))
            if new:
                taken.add(key)
            accepted, duplicate = accepted + new, duplicate + (not new)
        self.duplicates += duplicate
        document: dict[str, Any] = {
            "accepted": accepted,
            "duplicate": duplicate,
            "refused": refused,
        }
        if self.instance is not None:
            document["instance"] = self.instance
        if unread_from is not None:
            document["unreadFrom"] = unread_from
        return Answer(_status(refused, lines=len(seen.lines)), document)

    def _trouble(self, number: int, line: bytes, busy: dict[int, str]) -> dict[str, Any] | None:
        if number in busy:
            where = busy[number]
            return {"line": number, "status": 429, "reason": "queue full", "destination": where}
        try:
            found = json.loads(line)
        except ValueError:
            return {"line": number, "status": 400, "reason": "not JSON"}
        if not isinstance(found, dict) or not isinstance(found.get("properties"), dict):
            reason = "properties are missing"
            return {"line": number, "status": 400, "reason": reason, "field": "properties"}
        if found["properties"].get("PerceivedSeverity") == 99:
            field = "properties.PerceivedSeverity"
            reason = f"{field}: 99 is no uint16 that CIM knows"
            return {"line": number, "status": 400, "reason": reason, "field": field}
        return None

    def _take(self, line: bytes, source: str) -> tuple[tuple[str, str], bool]:
        """Return the line's identity, and whether it is a new one."""
        found = json.loads(line)
        identifier = found["properties"].get("IndicationIdentifier")
        if isinstance(identifier, dict):
            # Of a class that gives it no type.
            identifier = identifier["value"]
        if identifier is None:
            # Never a duplicate: its place among the accepted stands for it.
            key = ("", str(len(self.accepted)))
        else:
            key = (found.get("source", source), identifier)
        new = key not in self._known
        if new:
            self._known.add(key)
            self.accepted.append(found)
        return key, new

    def _flush(self, seen: Seen) -> Answer:
        if self.flush_script:
            return self.flush_script.popleft()
        publisher = seen.query["publisher"]
        if publisher not in self._publishers:
            return Answer(404, {"reason": "unknown publisher"})
        count = len(self._publishers[publisher])
        known = {} if self.instance is None else {"accepted": count}
        if self.pending_flushes and seen.query["level"] == "delivered":
            self.pending_flushes -= 1
            waiting = {"sink": {"delivered": 0, "discarded": {}, "pending": count}}
            return Answer(202, {"complete": False, "destinations": waiting, **known})
        destinations: dict[str, Any] = {"sink": {"delivered": count, "discarded": {}, "pending": 0}}
        for name, reasons in self.discards.items():
            destinations[name] = {"delivered": 0, "discarded": reasons, "pending": 0}
        return Answer(200, {"complete": True, "destinations": destinations, **known})


def _status(refused: Sequence[dict[str, Any]], *, lines: int) -> int:
    statuses = {item["status"] for item in refused}
    if not refused:
        return 200
    if len(refused) < lines or len(statuses) > 1:
        return 207
    code: int = statuses.pop()
    return code


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, deliverer: FakeDeliverer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.deliverer = deliverer
        self._open: set[socket.socket] = set()

    def hang_up(self) -> None:
        """Close the connections that clients still hold."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; tests see what came of it at the client."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is written in two parts, and the second would wait for the first to be acknowledged.
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        deliverer = self.server.deliverer
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        if length > deliverer.longest_body:
            self._send(Answer(413, {"reason": f"more than {deliverer.longest_body} bytes"}))
            return
        target = urlsplit(self.path)
        seen = Seen(
            path=target.path,
            query=dict(parse_qsl(target.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            lines=tuple(content.split(b"\n")) if content else (),
        )
        try:
            self._send(deliverer.answer(seen))
        except HangUp:
            self.close_connection = True

    def _send(self, answer: Answer) -> None:
        content = b"" if answer.document is None else json.dumps(answer.document).encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read what came from ``requests``."""
