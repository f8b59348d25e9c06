"""pywbem's WBEM listener in a process of its own, told over pipes to start, stop and hand over what
its callback was given. Run as a program, this file is that process; it has pywbem to itself, so
neither its threads nor its processor time are the deliverer's.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: The least that a test is given; without an end its thread would outlive a test that fails.
WAIT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Received:
    """One indication, as pywbem's callback was given it."""

    class_name: str
    properties: dict[str, Any]

    @property
    def identifier(self) -> str:
        found: str = self.properties["IndicationIdentifier"]
        return found

    @property
    def filter_name(self) -> str:
        found: str = self.properties["IndicationFilterName"]
        return found

    @property
    def sequence(self) -> tuple[str | None, int | None]:
        """SequenceContext and SequenceNumber; None where they were not sent."""
        return self.properties.get("SequenceContext"), self.properties.get("SequenceNumber")


class PywbemPeer:
    """The process, seen from a test."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        """Listen, on the same port as before."""
        self.port = (await self._ask("start"))["port"]

    async def stop(self) -> None:
        """Refuse connections; all that was answered is in the record."""
        await self._ask("stop")

    async def received(self, count: int) -> None:
        """Wait until the callback has been given so many."""
        answer = await self._ask("wait", count=count)
        assert answer["count"] >= count, f"{answer['count']} indications, not {count}"

    async def record(self) -> list[Received]:
        """All that was answered, as the callback was given it, in order."""
        return [Received(*given) for given in (await self._ask("record"))["record"]]

    async def forget(self) -> None:
        """Begin a new record."""
        await self._ask("forget")

    async def _ask(self, what: str, **given: int) -> dict[str, Any]:
        return await asyncio.to_thread(self._exchange, {"do": what, **given})

    def _exchange(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process of pywbem's listener has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def pywbem_peer() -> Iterator[PywbemPeer]:
    """Run the process while the context lasts."""
    command = [sys.executable, __file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        # Leaving the context closes its standard input, which ends it.
        yield PywbemPeer(process)


# ---------------------------------------------------------------------- the process itself


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return int(value) if isinstance(value, int) else str(value)


class _Program:
    def __init__(self) -> None:
        self._port = 0
        self._listener: Any = None
        self._record: list[tuple[str, dict[str, Any]]] = []
        self._grown = threading.Condition()

    def received(self, instance: Any, host: str) -> None:
        properties = {name: _plain(value) for name, value in instance.items()}
        with self._grown:
            self._record.append((instance.classname, properties))
            self._grown.notify_all()

    def start(self) -> dict[str, Any]:
        from pywbem import ListenerPortError, WBEMListener  # type: ignore[import-untyped]

        while self._listener is None:
            port = self._port or _free_port()
            listener = WBEMListener("127.0.0.1", http_port=port)
            # Its stop() waits until the callback thread has looked whether it is to end.
            listener.queue_get_timeout = 0.05
            listener.add_callback(self.received)
            with contextlib.suppress(ListenerPortError):
                listener.start()
                self._listener, self._port = listener, port
        return {"port": self._port}

    def stop(self) -> dict[str, Any]:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener._stop_listener_threads()
            # Its own stop() fails where a callback still runs.
            listener._ind_queue.join()
            listener.stop()
        return {}

    def wait(self, count: int) -> dict[str, Any]:
        with self._grown:
            self._grown.wait_for(lambda: len(self._record) >= count, WAIT_SECONDS)
            return {"count": len(self._record)}

    def record(self) -> dict[str, Any]:
        if self._listener is not None:
            # It answers before its callback has been called.
            self._listener._ind_queue.join()
        with self._grown:
            return {"record": list(self._record)}

    def forget(self) -> dict[str, Any]:
        with self._grown:
            self._record.clear()
        return {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        done: dict[str, Any] = getattr(self, question.pop("do"))(**question)
        return done


def _free_port() -> int:
    # pywbem cannot be asked to choose a port itself.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _main() -> None:
    program = _Program()
    for line in sys.stdin:
        print(json.dumps(program.answer(json.loads(line))), flush=True)
    program.stop()


if __name__ == "__main__":
    _main()
