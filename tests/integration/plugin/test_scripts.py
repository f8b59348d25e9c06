"""``pillion plugin exec``: one process a command, its outcome, its environment and its end."""

import errno
import json
import os
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pillion_cli.plugin import scripts
from pillion_cli.plugin.processes import kill_group
from pillion_cli.plugin.scripts import SHARE, VALUE_LIMIT, Scripts
from pillion_plugin import Delivery, Refused, Retry
from pillion_plugin.delivery import Peer, delivery_from
from pillion_plugin.log import LINE_LIMIT, Log
from support.full_pipe import Full, full_pipe
from support.plugin_link import INITIALIZE, deliver_params

PEER = Peer(destination="pager", url="plugin://pager/team?x=1", service="default")
PILLION = [sys.executable, "-m", "pillion_cli.main"]


def delivery(**params: Any) -> Delivery:
    return delivery_from(deliver_params(**params), PEER)


def shell(text: str) -> Scripts:
    return Scripts(["sh", "-c", text])


def test_a_script_gets_the_parameters_and_what_a_shell_needs_of_them(tmp_path: Path) -> None:
    shell(f"cat >{tmp_path}/params; env >{tmp_path}/env").deliver(delivery())
    assert json.loads((tmp_path / "params").read_text()) == deliver_params()
    lines = (tmp_path / "env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line.startswith("PILLION_"))
    assert given == {
        "PILLION_CLASS": "CIM_AlertIndication",
        "PILLION_IDENTIFIER": "1",
        "PILLION_ATTEMPT": "1",
        "PILLION_FILTER": "major",
        "PILLION_DESTINATION": "pager",
        "PILLION_URL": "plugin://pager/team?x=1",
    }


def test_values_of_the_environment_are_bounded_and_can_be_passed(tmp_path: Path) -> None:
    hostile = f"a\0b\ud800ü{'x' * VALUE_LIMIT}"
    shell(f'printf %s "$PILLION_IDENTIFIER" >{tmp_path}/value').deliver(
        delivery(identifier=hostile)
    )
    value = (tmp_path / "value").read_text()
    assert value.startswith("ab?üxx")
    assert len(value) == VALUE_LIMIT - 1
    shell(f'printf %s "$PILLION_IDENTIFIER" >{tmp_path}/value').deliver(delivery(identifier=None))
    assert (tmp_path / "value").read_text() == ""


def test_a_script_that_reads_nothing_succeeds() -> None:
    shell("exit 0").deliver(delivery(large="x" * 1_000_000))


@pytest.mark.parametrize(
    ("script", "outcome", "detail"),
    [
        ("echo first >&2; echo 'no such team' >&2; exit 65", Refused, "no such team"),
        ("exit 65", Refused, "exit code 65"),
        ("echo busy >&2; exit 75", Retry, "busy"),
        ("printf 'no line end' >&2; exit 75", Retry, "no line end"),
        ("printf 'last\\n\\n  \\n' >&2; exit 75", Retry, "last"),
        ("exit 1", Retry, "exit code 1"),
        ("kill -9 $$", Retry, "ended by SIGKILL"),
        ("kill -40 $$", Retry, "ended by signal 40"),
        ("echo bad >&2; kill -11 $$", Retry, "ended by SIGSEGV: bad"),
        ("printf '\\377' >&2; exit 1", Retry, "\ufffd"),
        ("printf '10%%\\r20%%\\r' >&2; exit 75", Retry, "20%"),
        ("printf ' \\n \\n' >&2; exit 75", Retry, "exit code 75"),
        ("echo out; exit 1", Retry, "exit code 1"),
    ],
)
def test_the_exit_code_is_the_outcome_and_the_last_line_of_standard_error_the_detail(
    script: str, outcome: type[Exception], detail: str
) -> None:
    with pytest.raises(outcome) as caught:
        shell(script).deliver(delivery())
    assert str(caught.value) == detail


def test_a_script_that_floods_standard_error_is_read_to_its_last_line() -> None:
    flood = "yes 'a line of some length' | head -n 20000 >&2; echo the last >&2; exit 75"
    with pytest.raises(Retry, match=r"^the last$"):
        shell(flood).deliver(delivery())


class Chunks:
    """The reading end of a pipe; each chunk that is written is read alone."""

    def __enter__(self) -> "Chunks":
        reading, self._writing = os.pipe()
        self._stream = open(reading, "rb", buffering=0)
        self._output = scripts._Output(self._stream)
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        os.close(self._writing)

    def last_line(self, *chunks: bytes) -> str:
        for chunk in chunks:
            os.write(self._writing, chunk)
            assert self._output.read()
        return self._output.last_line


@pytest.mark.parametrize(
    ("chunks", "last"),
    [
        ([b"one ", b"two"], "one two"),
        ([b"one\n", b" ", b"two"], "two"),
        ([b"one", b"\n", b"\n \r\n"], "one"),
        ([b"one\r", b"\ntw", b"o\n "], "two"),
        ([b"a" * 3000, b"b" * 3000, b"c"], "a" * 3000 + "b" * 1096),
        ([b"a" * 5000 + b"\n", b" "], "a" * 4096),
        ([b"a\n", b"b" * 5000, b"\nc"], "c"),
    ],
)
def test_the_last_line_is_found_however_it_comes(chunks: list[bytes], last: str) -> None:
    with Chunks() as read:
        assert read.last_line(*chunks) == last


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[Full]:
    """Our standard error, which is full until the test reads it."""
    with full_pipe() as found:
        monkeypatch.setattr(scripts, "STANDARD_ERROR", found.log)
        yield found


@pytest.mark.parametrize("stream", [1, 2])
def test_a_script_never_waits_for_our_standard_error(full: Full, stream: int) -> None:
    shell(f"yes out | head -n 100000 >&{stream}; printf last >&{stream}").deliver(delivery())
    full.read()
    full.log.tell()
    assert full.read() == b"pillion_plugin: 100001 lines left out\n"


@pytest.mark.parametrize("stream", [1, 2])
def test_a_script_that_floods_is_ended_in_time(tmp_path: Path, full: Full, stream: int) -> None:
    held = held_by(tmp_path / "fifo")
    with pytest.raises(Retry, match=f"^timed out: ended after {SHARE:g} s"):
        shell(f"trap '' TERM; exec 9>{tmp_path}/fifo; yes flood >&{stream}").deliver(
            delivery(timeout=1.0)
        )
    assert wait_for_end(held) == b""


def test_the_lines_of_a_script_are_passed_on_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "printf one >&2; printf ' two\\nthree' >&2; echo out; head -c 9000 /dev/zero"
    with (tmp_path / "log").open("wb") as file:
        monkeypatch.setattr(scripts, "STANDARD_ERROR", Log(file.fileno()))
        shell(script).deliver(delivery())
    lines = (tmp_path / "log").read_bytes().splitlines()
    assert sorted(lines) == [bytes(LINE_LIMIT - 1), b"one two", b"out", b"three"]


def test_a_line_that_is_too_long_is_cut() -> None:
    with pytest.raises(Retry) as caught:
        shell("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 75").deliver(delivery())
    assert set(str(caught.value)) == {"x"}
    assert len(str(caught.value)) <= 4096


def test_a_program_that_cannot_be_run_is_an_error_with_the_cause(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(Retry, match=f"^cannot run {gone}: No such file or directory$"):
        Scripts([str(gone)]).deliver(delivery())


def held_by(fifo: Path) -> int:
    """A descriptor whose end of input comes when no process holds the other end any more."""
    os.mkfifo(fifo)
    return os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)


def wait_for_end(descriptor: int) -> bytes:
    os.set_blocking(descriptor, True)
    with open(descriptor, "rb") as pipe:
        return pipe.read()


@pytest.mark.parametrize("ignoring", ["", "trap '' TERM;"])
def test_a_script_that_takes_too_long_is_ended_with_its_process_group(
    tmp_path: Path, ignoring: str
) -> None:
    held = held_by(tmp_path / "fifo")
    script = f"{ignoring} exec 9>{tmp_path}/fifo; sleep 60 & echo working >&2; sleep 60"
    with pytest.raises(Retry, match=f"^timed out: ended after {SHARE:g} s: working$"):
        shell(script).deliver(delivery(timeout=1.0))
    assert wait_for_end(held) == b""


def test_what_a_script_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    held = held_by(tmp_path / "fifo")
    shell(f"exec 9>{tmp_path}/fifo; sleep 60 & exit 0").deliver(delivery())
    assert wait_for_end(held) == b""


def test_a_child_that_left_the_group_and_keeps_standard_error_holds_nothing_up(
    tmp_path: Path,
) -> None:
    told = tmp_path / "child"
    child = f"echo $$ >{told}.new; mv {told}.new {told}; exec sleep 60"
    shell(f"setsid sh -c '{child}' & while [ ! -e {told} ]; do :; done").deliver(delivery())
    os.kill(int(told.read_text()), signal.SIGKILL)


def test_a_process_that_cannot_be_ended_holds_no_other_delivery_and_no_signal_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs in the kernel, as on a file system that is not reached."""
    os.mkfifo(tmp_path / "fifo")
    unkilled: queue.SimpleQueue[int] = queue.SimpleQueue()
    failures = [OSError(errno.EMFILE, "Too many open files")]

    def open_pidfd(pid: int, open_it: Callable[[int], int] = os.pidfd_open) -> int:
        if failures:
            raise failures.pop()
        return open_it(pid)

    monkeypatch.setattr(os, "pidfd_open", open_pidfd)
    monkeypatch.setattr(scripts, "kill_group", unkilled.put)
    hanging = shell(f'[ "$PILLION_IDENTIFIER" = 2 ] || read line <{tmp_path}/fifo')
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(hanging.deliver, delivery(identifier="1"))
        group = unkilled.get(timeout=20)
        try:
            threads.submit(hanging.deliver, delivery(identifier="2")).result(20)
            threads.submit(hanging.end_all).result(20)
        finally:
            kill_group(group)
        with pytest.raises(OSError, match="Too many open files"):
            first.result(20)


def test_nothing_is_started_after_the_end() -> None:
    scripts = shell("exit 0")
    scripts.end_all()
    with pytest.raises(Retry, match="the plug-in is ending"):
        scripts.deliver(delivery())


def line(method: str, params: Any, id: int) -> bytes:
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


def test_sigterm_ends_the_plug_in_and_its_scripts(tmp_path: Path) -> None:
    held = held_by(tmp_path / "fifo")
    script = f"exec 9>{tmp_path}/fifo; echo started >&9; sleep 60"
    command = [*PILLION, "plugin", "exec", "--", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(
            line("initialize", INITIALIZE, 1) + line("deliver", deliver_params(), 2)
        )
        process.stdin.flush()
        with (tmp_path / "fifo").open() as started:
            assert started.readline() == "started\n"
        process.terminate()
        assert process.wait(20) == 0
    assert wait_for_end(held) == b""


def test_the_end_by_a_signal_removes_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "plug.sock"
    command = [*PILLION, "plugin", "exec", "--socket", str(path), "--", "sh", "-c", "exit 0"]
    with subprocess.Popen(command) as process, socket.socket(socket.AF_UNIX) as link:
        while link.connect_ex(str(path)):
            assert process.poll() is None
        process.terminate()
        assert process.wait(20) == 0
    assert not path.exists()


#: The main thread gets no signal, as if each came just before its read.
MISSED = """
import os, signal
from pillion_cli.plugin.ending import ended_at_once
with ended_at_once(lambda: print("ended", flush=True)):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print("started", flush=True)
    os.read(0, 1)
    print("read", flush=True)
"""


def test_a_signal_just_before_a_read_ends_the_plug_in() -> None:
    command = [sys.executable, "-c", MISSED]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.terminate()
        assert process.wait(20) == 0
        assert process.stdout.read() == "ended\n"
    # Without a signal it goes on, and the thread that waits for one ends.
    ended = subprocess.run(command, input="x", capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stdout) == (0, "started\nread\n")


def test_the_link_is_served_on_standard_input_and_output(tmp_path: Path) -> None:
    command = [*PILLION, "plugin", "exec", "--", "sh", "-c", "echo out; echo busy >&2; exit 75"]
    given = line("initialize", INITIALIZE, 1) + line("deliver", deliver_params(), 2)
    ended = subprocess.run(command, input=given, capture_output=True, check=True, timeout=30)
    first, second = map(json.loads, ended.stdout.splitlines())
    assert first["result"]["name"] == "pillion plugin exec sh"
    assert second["result"] == {"outcome": "error", "detail": "busy"}
    assert set(ended.stderr.splitlines()) == {b"out", b"busy"}
