"""A program that publishes alerts and keeps what it was told of each; it runs in a pod.

``told_publisher.py NAME URL [TOKEN CA]``: a token for gateways and their authorities are files. Two
threads publish one alert after the other, one with ``ack=durable``, one with ``ack=delivered``, and
publish one again, under the same identifier, until it is told to be so. Asked over HTTP, on port
8000, it says what it was told:

- ``GET /told?after=N``: what was told, a JSON object, from the N-th on;
- ``POST /burst?count=N&event=E``: publish so many at once, with ``ack=durable``;
- ``POST /pace?seconds=S``: seconds between two alerts of a thread; 0 holds them, and is answered
  once none is under way.
"""

import http.client
import http.server
import itertools
import json
import os
import signal
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path

PORT = 8000
DURABLE, DELIVERED = "durable", "delivered"
#: Seconds between two alerts of a thread, and before a refused one is published again.
PACE = 0.05
AGAIN = 0.2
#: Seconds for a level to be reached, and for an answer; then the alert is published again.
REACHED = 5
ANSWERED = 8


class Deliverer:
    """Where the alerts go."""

    def __init__(self, url: str, *, source: str, token: str | None, ca: str | None) -> None:
        self._url = url
        self._source = source
        self._token = None if token is None else Path(token)
        self._context = None if ca is None else ssl.create_default_context(cafile=ca)

    def publish(self, identifiers: list[str], *, level: str, event: str) -> str | None:
        """Publish alerts in one request; returns None once all have reached the level, else why
        not."""
        query = urllib.parse.urlencode({"source": self._source, "ack": level, "timeout": REACHED})
        body = b"".join(alert(identifier, event=event) for identifier in identifiers)
        request = urllib.request.Request(f"{self._url}/v1/indications?{query}", data=body)
        request.add_header("Content-Type", "application/x-ndjson")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token.read_text()}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWERED, context=self._context) as answer:
                status, document = answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return str(error.code)
        except (OSError, ValueError, http.client.HTTPException) as error:
            # A URLError says nothing itself.
            return repr(getattr(error, "reason", error))
        if status != 200 or document["accepted"] + document["duplicate"] != len(identifiers):
            return str(status)
        if level == DURABLE and document["durable"] is not True:
            return "not durable"
        if level == DELIVERED and (document["discarded"] or document["pending"]):
            return "discarded" if document["discarded"] else "pending"
        return None


def alert(identifier: str, *, event: str) -> bytes:
    """An alert, as a line."""
    properties = {
        "IndicationIdentifier": identifier,
        "AlertType": 5,
        "PerceivedSeverity": 6,
        "ProbableCause": 94,
        "EventID": event,
    }
    return json.dumps({"class": "CIM_AlertIndication", "properties": properties}).encode() + b"\n"


class Publisher:
    """Publishes, and keeps what it is told."""

    def __init__(self, name: str, deliverer: Deliverer) -> None:
        self._name = name
        self._deliverer = deliverer
        self._bursts = itertools.count()
        self._pace = PACE
        self._lock = threading.Lock()
        self._turns = {level: threading.Lock() for level in (DURABLE, DELIVERED)}
        #: Level and identifier, in the order in which it was told.
        self.told: list[tuple[str, str]] = []
        self.otherwise: Counter[str] = Counter()

    def run(self, level: str) -> None:
        """Publish one alert after the other, for as long as the process lives."""
        for number in itertools.count():
            identifier = f"{self._name}.{level}.{number:06d}"
            while not self._turn(level, identifier):
                time.sleep(AGAIN)
            time.sleep(self._pace or AGAIN)

    def burst(self, count: int, *, event: str) -> None:
        """Publish so many in one request, again and again until they are all durable."""
        burst = next(self._bursts)
        identifiers = [f"{self._name}.burst{burst}.{number:06d}" for number in range(count)]
        while not self._publish(identifiers, level=DURABLE, event=event):
            time.sleep(AGAIN)

    def set_pace(self, seconds: float) -> None:
        """Change the pace; with 0 none is under way when this returns."""
        self._pace = seconds
        if not seconds:
            for turn in self._turns.values():
                with turn:
                    pass

    def document(self, after: int) -> bytes:
        """What was told from there on, and how often something else was."""
        with self._lock:
            found = {"told": self.told[after:], "otherwise": dict(self.otherwise)}
        return json.dumps(found).encode()

    def _turn(self, level: str, identifier: str) -> bool:
        with self._turns[level]:
            if not self._pace:
                return False
            return self._publish([identifier], level=level, event="steady")

    def _publish(self, identifiers: list[str], *, level: str, event: str) -> bool:
        why = self._deliverer.publish(identifiers, level=level, event=event)
        with self._lock:
            if why is None:
                self.told += [(level, identifier) for identifier in identifiers]
            else:
                self.otherwise[f"{level}: {why}"] += 1
        return why is None


def handler(publisher: Publisher) -> type[http.server.BaseHTTPRequestHandler]:
    """What answers over HTTP."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(publisher.document(int(self._parameters().get("after", "0"))))

        def do_POST(self) -> None:
            given = self._parameters()
            if self.path.startswith("/burst"):
                publisher.burst(int(given["count"]), event=given["event"])
            else:
                publisher.set_pace(float(given["seconds"]))
            self._answer(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: what was told is asked for."""

        def _parameters(self) -> dict[str, str]:
            return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main(name: str, url: str, token: str | None = None, ca: str | None = None) -> None:
    # The first process of a container is not ended by a signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: os._exit(0))
    publisher = Publisher(name, Deliverer(url, source=name, token=token, ca=ca))
    for level in (DURABLE, DELIVERED):
        threading.Thread(target=publisher.run, args=(level,), daemon=True).start()
    http.server.ThreadingHTTPServer(("0.0.0.0", PORT), handler(publisher)).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
