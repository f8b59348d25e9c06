"""A plug-in's end of a link in threads of the test, with time moved by hand."""

import json
import queue
import threading
from collections.abc import Iterator
from typing import Any

from pillion_plugin import Delivery
from pillion_plugin.link import Deliver, Link, Plugin

#: Seconds; never decides.
PATIENCE = 10


class ManualClock:
    """Time of one link: one thread waits."""

    def __init__(self) -> None:
        self._now = 0.0
        self._moved = threading.Condition()
        self._read = threading.local()
        self._waiting: threading.Condition | None = None
        self._seconds: float | None = None

    def now(self) -> float:
        self._read.value = self._now
        return self._now

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        with self._moved:
            self._waiting, self._seconds = changed, seconds
            self._moved.notify_all()
            if self._read.value != self._now:
                return  # moved since the caller looked
        changed.wait()

    def advance(self, seconds: float) -> None:
        with self._moved:
            self._now += seconds
            waiting = self._waiting
        if waiting is not None:
            with waiting:
                waiting.notify_all()

    def is_waited_for(self, seconds: float) -> None:
        """Wait until somebody waits for so many seconds."""
        with self._moved:
            assert self._moved.wait_for(lambda: self._seconds == seconds, PATIENCE)


class Gates:
    """A plug-in's function that returns, or raises, when the test lets it."""

    def __init__(self) -> None:
        self._taken: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._results: dict[str, queue.SimpleQueue[Exception | None]] = {}
        self._lock = threading.Lock()
        self._is_open = False

    def __call__(self, delivery: Delivery) -> None:
        self._taken.put(delivery)
        result = self._of(delivery.identifier or "").get()
        if result is not None:
            raise result

    def taken(self) -> str | None:
        """Wait until a command is taken up; return its identifier."""
        return self._taken.get(timeout=PATIENCE).identifier

    def let(self, identifier: str, result: Exception | None = None) -> None:
        self._of(identifier).put(result)

    def open(self) -> None:
        """Let every command go, also those to come."""
        with self._lock:
            self._is_open = True
            for result in self._results.values():
                result.put(None)

    def _of(self, identifier: str) -> "queue.SimpleQueue[Exception | None]":
        with self._lock:
            if identifier not in self._results:
                self._results[identifier] = queue.SimpleQueue()
                if self._is_open:
                    self._results[identifier].put(None)
            return self._results[identifier]


def deliver_params(identifier: str = "1", *, timeout: float = 10.0, **more: Any) -> dict[str, Any]:
    indication = {"class": "CIM_AlertIndication", "properties": {"PerceivedSeverity": 6}}
    return {
        "timeout": timeout,
        "attempt": 1,
        "indication": indication,
        "filterName": "major",
        "identifier": identifier,
        **more,
    }


INITIALIZE = {
    "protocolVersions": [1],
    "destination": "pager",
    "url": "plugin://pager/team?x=1",
    "service": "default",
    "timeout": 10.0,
}


class Linked:
    """A link that is served while the context lasts."""

    def __init__(self, deliver: Deliver, *, in_flight: int = 1) -> None:
        self.clock = ManualClock()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.is_cut = False
        plugin = Plugin(deliver=deliver, name="example", version="1.2", in_flight=in_flight)
        self._link = Link(plugin, write=self._write, clock=self.clock)
        self._thread = threading.Thread(target=self._link.serve, args=(self._came(),), daemon=True)

    def __enter__(self) -> "Linked":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _came(self) -> Iterator[bytes]:
        while (line := self._lines.get()) is not None:
            yield line

    def _write(self, line: bytes) -> None:
        if self.is_cut:
            raise BrokenPipeError("cut")
        self._answers.put(line)

    def send_line(self, line: bytes) -> None:
        self._lines.put(line)

    def send(self, method: str, params: Any = None, *, id: int | str | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": {} if params is None else params}
        if id is not None:
            message["id"] = id
        self.send_line(json.dumps(message).encode() + b"\n")

    def initialize(self) -> dict[str, Any]:
        self.send("initialize", INITIALIZE, id=0)
        return self.answer()

    def deliver(self, id: int, **params: Any) -> None:
        """The identifier of the indication is the id."""
        self.send("deliver", deliver_params(str(id), **params), id=id)

    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._answers.get(timeout=PATIENCE))
        return found

    def has_answered(self) -> bool:
        """Whether there is an answer that was not taken yet, once all that came was read."""
        self.send("unknown", id="mark")
        answers = []
        while True:
            line = self._answers.get(timeout=PATIENCE)
            if json.loads(line)["id"] == "mark":
                break
            answers.append(line)
        for line in answers:
            self._answers.put(line)
        return bool(answers)

    def end(self) -> None:
        """The end of input; wait until the link has ended."""
        self._lines.put(None)
        self.ended()

    def ended(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
