"""Plain requests to an API server, for the harness itself: no client library, no event loop."""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Seconds until a request is given up, a watch too.
TIMEOUT = 30.0
#: Seconds between two looks at what gives no event.
LOOK_INTERVAL = 0.05


class Refused(Exception):
    """The API server answered with an error status."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body[:500]}")
        self.status = status
        self.body = body


class Rest:
    """An API server, on the loopback interface unless told otherwise, as one user."""

    def __init__(self, port: int, *, ca: Path, token: str, host: str = "127.0.0.1") -> None:
        self._host = host
        self._port = port
        self._ca = ca
        self._token = token

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON, or the text, that the server answers; Refused for an error status."""
        with self._answer(method, path, body) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text

    def until(self, path: str, condition: Callable[[Any], bool]) -> Any:
        """Watch a list until one of its objects fulfils a condition, and return that object."""
        join = "&" if "?" in path else "?"
        watch = f"{path}{join}watch=1&timeoutSeconds={int(TIMEOUT)}"
        with self._answer("GET", watch) as answer:
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] != "DELETED" and condition(event["object"]):
                    return event["object"]
        raise TimeoutError(f"{path}: nothing fulfilled the condition within {TIMEOUT} s")

    def ready(self) -> bool:
        """Whether the server is there and ready to serve."""
        try:
            return bool(self.request("GET", "/readyz") == "ok")
        except (OSError, http.client.HTTPException, Refused):
            return False

    @contextmanager
    def _answer(
        self, method: str, path: str, body: Any = None
    ) -> Iterator[http.client.HTTPResponse]:
        context = ssl.create_default_context(cafile=self._ca)
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=TIMEOUT, context=context
        )
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise Refused(answer.status, answer.read().decode(errors="replace"))
            yield answer
        finally:
            connection.close()


def wait_until(condition: Callable[[], bool], *, within: float, what: str) -> None:
    """Look again and again until a condition holds, at most ``within`` seconds."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {within:g} s")
        time.sleep(LOOK_INTERVAL)
