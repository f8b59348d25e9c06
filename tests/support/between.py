"""Stands between publishers and a deliverer that is real: hands requests on, writes down what was
asked and answered, and spoils what a test's script says. The steps are those of the fake deliverer.
"""

import http.client
import json
import threading
from collections import deque
from urllib.parse import urlencode, urlsplit

from support.fake_deliverer import Answer, FakeDeliverer, HangUp, Seen, Step


def lose_answer(between: FakeDeliverer, seen: Seen) -> Answer:
    """Hand the request on, and close the connection instead of answering."""
    between.accept(seen)
    raise HangUp


def spoil_answer(between: FakeDeliverer, seen: Seen) -> Answer:
    """Hand the request on, and answer 404, which fails the task."""
    between.accept(seen)
    return Answer(404, {"reason": "spoiled"})


class Between(FakeDeliverer):
    """A context manager, as the fake deliverer is."""

    def __init__(self, url: str) -> None:
        super().__init__()
        #: For flushes, as ``script`` is for requests of lines.
        self.flush_steps: deque[Step] = deque()
        #: What the deliverer answered, in the order of its answers.
        self.answered: list[tuple[Seen, Answer]] = []
        self._deliverer = urlsplit(url).netloc
        self._writing = threading.Lock()

    def lead_to(self, url: str) -> None:
        """Stand before another deliverer from now on."""
        self._deliverer = urlsplit(url).netloc

    def answer(self, seen: Seen) -> Answer:
        """Answer one request: a flush waits, so nothing else waits for it."""
        with self._writing:
            self.requests.append(seen)
            script = self.flush_steps if seen.path == "/v1/flush" else self.script
            step = script.popleft() if script else None
        return step(self, seen) if step else self.accept(seen)

    def accept(
        self, seen: Seen, *, busy: dict[int, str] | None = None, unread_from: int | None = None
    ) -> Answer:
        """Hand a request on."""
        connection = http.client.HTTPConnection(self._deliverer)
        try:
            target = f"{seen.path}?{urlencode(seen.query)}"
            connection.request("POST", target, body=b"\n".join(seen.lines), headers=_kept(seen))
            given = connection.getresponse()
            document = json.loads(given.read())
            retry_after = given.getheader("Retry-After")
            headers = {} if retry_after is None else {"Retry-After": retry_after}
        finally:
            connection.close()
        answer = Answer(given.status, document, headers)
        with self._writing:
            self.answered.append((seen, answer))
        return answer

    def told(self) -> list[Answer]:
        """What was answered to requests of lines."""
        return [answer for seen, answer in self.answered if seen.path == "/v1/indications"]


def _kept(seen: Seen) -> dict[str, str]:
    names = ("content-type", "pillion-publisher")
    return {name: seen.headers[name] for name in names if name in seen.headers}
