"""``pillion sidecar`` and ``pillion listen`` as processes, for tests that do not run on a loop.

What a process prints is read by a thread as it comes, so it never waits for a reader, and a test
waits for lines and not for time.
"""

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from support.resources import JSON, write


class Output:
    """The lines that a process prints, each a JSON object."""

    def __init__(self, stream: IO[str]) -> None:
        self.lines: list[JSON] = []
        self._grown = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read, args=(stream,))
        self._thread.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            with self._grown:
                self.lines.append(json.loads(line))
                self._grown.notify_all()
        with self._grown:
            self._ended = True
            self._grown.notify_all()

    def until(self, condition: Callable[[list[JSON]], bool]) -> None:
        """Wait until a condition of the lines so far holds."""
        with self._grown:
            self._grown.wait_for(lambda: self._ended or condition(self.lines))
            assert condition(self.lines), "the process has ended"

    def end(self) -> None:
        """Wait until the process prints no more."""
        self._thread.join()


@contextmanager
def _running(*arguments: str, log: Path) -> Iterator[tuple[Output, "subprocess.Popen[str]"]]:
    command = [sys.executable, "-m", "pillion_cli.main", *arguments]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        output = Output(process.stdout)
        try:
            output.until(lambda lines: bool(lines))
            yield output, process
        finally:
            process.terminate()
            output.end()


def _ask(url: str, body: bytes | None = None) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, data=body)) as answer:
        return json.load(answer)


class ListenerProcess:
    """A ``pillion listen``."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.url: str = output.lines[0]["listening"].rstrip("/") + "/"

    def behave(self, **behaviour: Any) -> None:
        """Behave otherwise from now on; without arguments, well."""
        _ask(f"{self.url}-/behaviour", json.dumps(behaviour).encode())

    def arrived(self, count: int) -> None:
        """Wait until so many indications have arrived, repeats among them."""
        self.output.until(lambda lines: len(lines) > count)

    def record(self) -> list[JSON]:
        """All that has arrived, in order: what it answers for, it has printed before."""
        count = _ask(f"{self.url}-/summary")["received"]
        self.arrived(count)
        return self.output.lines[1 : count + 1]


@contextmanager
def listener_process(folder: Path, *options: str) -> Iterator[ListenerProcess]:
    """Run a listener while the context lasts. Its errors go to a file of ``folder``."""
    arguments = ("listen", "--port", "0", "--output", "json", *options)
    with _running(*arguments, log=folder / "listener.log") as (output, _):
        yield ListenerProcess(output)


class SidecarProcess:
    """A ``pillion sidecar``."""

    def __init__(self, output: Output, process: "subprocess.Popen[str]") -> None:
        self.url: str = output.lines[0]["intake"]
        self.telemetry: str = output.lines[0]["telemetry"]
        self._process = process

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self._process.wait()

    def publish(self, *documents: JSON, query: str = "source=test") -> JSON:
        """Publish lines in one request."""
        body = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
        url = f"{self.url}/v1/indications?{query}"
        headers = {"Content-Type": "application/x-ndjson"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            found: JSON = json.load(answer)
        return found

    def queue(self, name: str) -> JSON:
        """What it says of one destination queue."""
        found: JSON = _ask(f"{self.url}/v1/queues/{name}")
        return found


@contextmanager
def sidecar_process(
    folder: Path, *documents: JSON, options: Sequence[str] = ()
) -> Iterator[SidecarProcess]:
    """Run a deliverer on these resources while the context lasts. It logs to a file beside them."""
    resources = folder / "resources"
    resources.mkdir()
    write(resources, *documents)
    arguments = ("sidecar", "--resources", str(resources))
    addresses = ("--intake", "127.0.0.1:0", "--telemetry", "127.0.0.1:0")
    with _running(*arguments, *addresses, *options, log=folder / "sidecar.log") as (
        output,
        process,
    ):
        yield SidecarProcess(output, process)
