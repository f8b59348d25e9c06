"""The helper in real processes and on real sockets."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pillion_cli.plugin.checks import Plan, run_checks
from pillion_cli.plugin.peer import SocketPeer
from pillion_plugin import link, serving
from pillion_plugin.clock import Clock, SystemClock
from pillion_plugin.link import Deliver, Plugin
from pillion_plugin.log import FULL_TEXT
from pillion_plugin.serving import SocketServer
from support.plugin_link import INITIALIZE, Gates, deliver_params

PRINTING = """
import os, subprocess, sys
from pillion_plugin import Delivery, run
print("before")

def deliver(delivery: Delivery) -> None:
    print("printed")
    os.write(1, b"written\\n")
    subprocess.run(["sh", "-c", "echo by a child; cat"], check=True)

run(deliver, name="printing")
print("afterwards")
"""


def line(method: str, params: Any, id: int) -> bytes:
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


def run_program(source: str, given: bytes) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-W", "error", "-c", source]
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return subprocess.run(
        command, input=given, capture_output=True, check=True, timeout=30, env=environment
    )


def test_what_a_plug_in_prints_goes_to_standard_error() -> None:
    given = line("initialize", INITIALIZE, 1) + line("deliver", deliver_params(), 2)
    ended = run_program(PRINTING, given)
    answers = [json.loads(one) for one in ended.stdout.splitlines()]
    assert [one["id"] for one in answers] == [1, 2]
    assert answers[1]["result"] == {"outcome": "success"}
    said = ended.stderr.decode().splitlines()
    assert said == ["before", "printed", "written", "by a child", "afterwards"]


def test_a_function_that_blocks_is_answered_for_and_the_process_ends() -> None:
    source = (
        "import threading\nfrom pillion_plugin import run\n"
        "run(lambda delivery: threading.Event().wait(), name='blocking')"
    )
    given = line("initialize", INITIALIZE, 1) + line("deliver", deliver_params(timeout=0.2), 2)
    ended = run_program(source, given)
    assert json.loads(ended.stdout.splitlines()[1])["result"] == {
        "outcome": "error",
        "detail": "timed out: no result within 0.2 s",
    }


FLOODING = """
from pillion_plugin import Delivery, run

def deliver(delivery: Delivery) -> None:
    if delivery.identifier == "raises":
        raise ValueError("x" * 4000)
    while True:
        print("x" * 200)

run(deliver, name="flooding")
"""


def test_a_function_that_floods_standard_error_is_answered_for() -> None:
    """Nobody reads it, as a deliverer that has read 64 KiB until the second is over."""
    command = [sys.executable, "-c", FLOODING]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]

        def answer(method: str, params: Any) -> Any:
            send(process.stdin, method, params, 1)
            return json.loads(process.stdout.readline())["result"]

        try:
            answer("initialize", INITIALIZE)
            # More than a pipe holds.
            for _ in range(30):
                said = answer("deliver", deliver_params("raises"))["detail"]
                assert said.startswith("ValueError: xxx")
            assert FULL_TEXT in answer("deliver", deliver_params(timeout=0.2))["detail"]
            assert "each of 1 in flight" in answer("deliver", deliver_params())["detail"]
        finally:
            process.kill()


def test_a_deliverer_that_has_gone_ends_the_process() -> None:
    source = "from pillion_plugin import run\nrun(print, name='x')"
    command = [sys.executable, "-c", source]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        process.stdout.close()
        process.stdin.write(line("initialize", INITIALIZE, 1))
        process.stdin.flush()
        said = process.stderr.read().decode()
        assert process.wait(20) == 0
    assert said == "pillion_plugin: the deliverer has gone: [Errno 32] Broken pipe\n"


# ---------------------------------------------------------------------- sockets


@contextmanager
def served(
    path: Path, deliver: Deliver, *, in_flight: int = 1, clock: Clock | None = None
) -> Iterator[SocketServer]:
    plugin = Plugin(deliver=deliver, name="socket", in_flight=in_flight)
    server = SocketServer(plugin, path, clock=clock or SystemClock())
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(20)
    assert not thread.is_alive()


@contextmanager
def linked(path: Path) -> Iterator[Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        with connection.makefile("rwb") as stream:
            yield stream


def ask(stream: Any, method: str, params: Any, id: int) -> Any:
    send(stream, method, params, id)
    return json.loads(stream.readline())


def send(stream: Any, method: str, params: Any, id: int) -> None:
    stream.write(line(method, params, id))
    stream.flush()


def test_a_plug_in_on_a_socket_passes_the_checks(tmp_path: Path) -> None:
    path = tmp_path / "plug.sock"
    with served(path, lambda delivery: None, in_flight=5):
        plan = Plan(connect=lambda: SocketPeer(path, within=20), timeout=20, url="plugin://x")
        results = list(run_checks(plan))
    assert [one.as_text() for one in results if not one.passed] == []
    assert len(results) == 11


def test_a_program_without_a_socket_of_its_own_serves_that_of_its_environment(
    tmp_path: Path,
) -> None:
    missing = tmp_path / "none" / "plug.sock"
    ended = subprocess.run(
        [sys.executable, "-c", "from pillion_plugin import run\nrun(print, name='x')"],
        env=os.environ | {"PILLION_PLUGIN_SOCKET": str(missing)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ended.returncode == 1
    assert ended.stderr == f"x: cannot listen on the socket {missing}: No such file or directory\n"


@pytest.mark.parametrize("is_shared", [False, True])
def test_any_user_may_connect_to_the_socket_of_a_pod_alone(tmp_path: Path, is_shared: bool) -> None:
    path, plugin = tmp_path / "plug.sock", Plugin(deliver=print, name="x")
    before = os.umask(0o022)
    try:
        server = SocketServer(plugin, path, clock=SystemClock(), is_shared=is_shared)
    finally:
        os.umask(before)
    with server:
        assert path.stat().st_mode & 0o777 == (0o666 if is_shared else 0o755)


def test_links_of_a_socket_are_served_beside_each_other(tmp_path: Path) -> None:
    path, gates = tmp_path / "plug.sock", Gates()
    with served(path, gates), linked(path) as one, linked(path) as other:
        for name, stream in (("one", one), ("other", other)):
            assert ask(stream, "initialize", {**INITIALIZE, "destination": name}, 1)["id"] == 1
            send(stream, "deliver", deliver_params(name), 2)
        assert {gates.taken(), gates.taken()} == {"one", "other"}
        for name, stream in (("other", other), ("one", one)):
            gates.let(name)
            assert json.loads(stream.readline())["result"] == {"outcome": "success"}


def test_the_end_of_a_server_answers_what_is_under_way_and_removes_the_socket(
    tmp_path: Path,
) -> None:
    path, gates = tmp_path / "plug.sock", Gates()
    with linked_after(path, gates) as (server, stream):
        send(stream, "deliver", deliver_params("1"), 2)
        gates.taken()
        closing = threading.Thread(target=server.close)
        closing.start()
        gates.let("1")
        assert json.loads(stream.readline())["result"] == {"outcome": "success"}
        assert stream.readline() == b""
        closing.join(20)
        assert not path.exists()


@contextmanager
def linked_after(path: Path, gates: Gates) -> Iterator[tuple[SocketServer, Any]]:
    with served(path, gates) as server, linked(path) as stream:
        ask(stream, "initialize", INITIALIZE, 1)
        yield server, stream


def test_more_links_than_the_bound_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_LINKS", 1)
    path = tmp_path / "plug.sock"
    with served(path, print), linked(path) as one:
        ask(one, "initialize", INITIALIZE, 1)
        with linked(path) as other:
            assert other.readline() == b""
        assert ask(one, "initialize", INITIALIZE, 2)["id"] == 2


# ---------------------------------------------------------------------- shortages


def limited_threads(*, failing: int) -> type[threading.Thread]:
    """Threads of which this one, counted from 0, cannot be started."""
    numbers = count()

    class Limited(threading.Thread):
        def start(self) -> None:
            if next(numbers) == failing:
                raise RuntimeError("can't start new thread")
            super().start()

    return Limited


def test_a_link_whose_thread_cannot_be_started_is_refused_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving, "Thread", limited_threads(failing=0))
    monkeypatch.setattr(serving, "MOST_LINKS", 1)
    path = tmp_path / "plug.sock"
    with served(path, print):
        with linked(path) as refused:
            assert refused.readline() == b""
        with linked(path) as stream:
            assert ask(stream, "initialize", INITIALIZE, 1)["id"] == 1
    said = "pillion_plugin: a link is refused: can't start new thread\n"
    assert capfd.readouterr().err == said


@pytest.mark.parametrize("failing", [0, 2])
def test_a_link_that_lacks_a_thread_ends_and_its_place_is_free(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    failing: int,
) -> None:
    """The threads of a link are the timer and then the workers."""
    monkeypatch.setattr(link, "Thread", limited_threads(failing=failing))
    monkeypatch.setattr(serving, "MOST_LINKS", 1)
    path = tmp_path / "plug.sock"
    with served(path, print, in_flight=2):
        with linked(path) as ended:
            assert ended.readline() == b""
        assert is_served_in_the_end(path)
    assert "pillion_plugin: a link ends: can't start new thread\n" in capfd.readouterr().err


def is_served_in_the_end(path: Path) -> bool:
    """Connect until a link is served: the place of another is free some time after its end."""
    for _ in range(10_000):
        try:
            with linked(path) as stream:
                return bool(ask(stream, "initialize", INITIALIZE, 1)["id"] == 1)
        except (ConnectionError, json.JSONDecodeError):
            continue  # refused
    return False


class UnluckySocket(socket.socket):
    """Its first calls of accept() fail."""

    numbers: list[int]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.numbers:
            number = self.numbers.pop(0)
            raise OSError(number, os.strerror(number))
        return super().accept()


class PauseClock(SystemClock):
    """Does not wait in pauses of the server, and counts them."""

    def __init__(self) -> None:
        self.pauses = 0

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        if seconds == serving.PAUSE_SECONDS:
            self.pauses += 1
        else:
            super().wait(changed, seconds)


def test_links_are_accepted_again_after_a_shortage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving, "Socket", UnluckySocket)
    UnluckySocket.numbers = [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED]
    path, clock = tmp_path / "plug.sock", PauseClock()
    with served(path, print, clock=clock), linked(path) as stream:
        assert ask(stream, "initialize", INITIALIZE, 1)["id"] == 1
    assert clock.pauses == 3
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 3
    shown = "pillion_plugin: no link can be accepted for now: [Errno 24] Too many open files"
    assert said[0] == shown


def test_a_socket_that_is_of_no_further_use_ends_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "Socket", UnluckySocket)
    UnluckySocket.numbers = [errno.EINVAL]
    plugin = Plugin(deliver=print, name="x")
    with (
        SocketServer(plugin, tmp_path / "plug.sock", clock=SystemClock()) as server,
        pytest.raises(OSError, match="Invalid argument"),
    ):
        server.serve()


class TellingClock(SystemClock):
    def __init__(self) -> None:
        self.is_waiting = threading.Event()

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        self.is_waiting.set()
        super().wait(changed, seconds)


def test_the_end_of_a_server_does_not_wait_for_a_shortage_to_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "Socket", UnluckySocket)
    monkeypatch.setattr(serving, "PAUSE_SECONDS", 3600.0)
    UnluckySocket.numbers = [errno.EMFILE]
    clock = TellingClock()
    with served(tmp_path / "plug.sock", print, clock=clock):
        assert clock.is_waiting.wait(20)


def test_the_socket_of_a_process_that_has_ended_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "plug.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with served(path, print), linked(path) as stream:
        assert ask(stream, "initialize", INITIALIZE, 1)["id"] == 1


def test_a_socket_that_somebody_serves_and_another_file_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "plug.sock"
    plugin = Plugin(deliver=print, name="second")
    with served(path, print):
        with pytest.raises(OSError, match=f"socket {path}: another process listens there"):
            SocketServer(plugin, path, clock=SystemClock())
        with linked(path) as stream:
            assert ask(stream, "initialize", INITIALIZE, 1)["id"] == 1
    other = tmp_path / "file"
    other.write_text("precious")
    with pytest.raises(OSError, match="there is a file of this name that is no socket"):
        SocketServer(plugin, other, clock=SystemClock())
    assert other.read_text() == "precious"


def test_a_socket_in_a_folder_that_is_not_there_is_refused_with_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "none" / "plug.sock"
    with pytest.raises(OSError, match=f"cannot listen on the socket {path}: No such file"):
        SocketServer(Plugin(deliver=print, name="x"), path, clock=SystemClock())
