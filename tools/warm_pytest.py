"""Run pytest many times in one place: import what all tests need once, and fork for each run.

Reads a run from each line of standard input, as ``{"arguments": […], "seconds": 60}``, and answers
with a line: ``{"status": 1, "outcomes": {NODE_ID: "passed"}, "output": …}``. Nothing of this
project is imported before a run, so each one sees its files as they are then.
"""

import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from typing import Any, TextIO

import pytest

#: What takes long to import. None of it starts a thread, which a fork would not have.
WARM = (
    "aiohttp.test_utils",
    "aiohttp.web",
    "blockbuster",
    "cryptography.x509",
    "hypothesis.strategies",
    "kopf",
    "lxml.etree",
    "msgspec.json",
    "prometheus_client",
    "trustme",
    "yaml",
)

#: A run that did not end in time, or ended without a word, has no status of pytest's.
NO_STATUS = -1


class Reporter:
    """Tells the outcome of each test as soon as it is there.

    A failure on the way to a test, or after it, is an error and not a failure.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def tell(self, **what: object) -> None:
        print(json.dumps(what), file=self._stream, flush=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            is_error = report.outcome == "failed" and report.when != "call"
            self.tell(test=report.nodeid, outcome="error" if is_error else report.outcome)


def run(arguments: list[str], seconds: float) -> dict[str, Any]:
    """Run pytest in a child; kill it with all that it started when it takes longer."""
    with tempfile.TemporaryFile("w+") as output:
        answer, child_answer = os.pipe()
        child = os.fork()
        if child == 0:
            _run_in_child(arguments, output.fileno(), child_answer)
        os.close(child_answer)
        told = [json.loads(line) for line in _read(answer, seconds).splitlines()]
        os.close(answer)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        output.seek(0)
        tail = output.read()[-20_000:]
    outcomes: dict[str, str] = {}
    for one in told:
        if "test" in one:
            outcomes.setdefault(one["test"], one["outcome"])
    statuses = [one["status"] for one in told if "status" in one]
    return {"status": (statuses or [NO_STATUS])[0], "outcomes": outcomes, "output": tail}


def _run_in_child(arguments: list[str], output: int, answer: int) -> None:
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        with os.fdopen(answer, "w") as stream:
            reporter = Reporter(stream)
            reporter.tell(status=int(pytest.main(arguments, plugins=[reporter])))
    except BaseException:  # noqa: BLE001 - it is a process of its own, and its output is read
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _read(descriptor: int, seconds: float) -> bytes:
    """The whole lines that come until the end, or until the time is over."""
    deadline = time.monotonic() + seconds
    told = b""
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(descriptor, 1 << 16)
        if not part:
            break
        told += part
    return told[: told.rfind(b"\n") + 1]


def main() -> None:
    for name in WARM:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
