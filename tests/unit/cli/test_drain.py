"""``pillion drain``: what it says of each answer, and of none."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from pillion_cli.exits import Exit
from pillion_cli.main import main


class Deliverer(HTTPServer):
    """Answers ``POST /drain`` as it is told to."""

    status = 200
    body = b""
    asked: str | None = None


class _Answers(BaseHTTPRequestHandler):
    server: Deliverer

    def do_POST(self) -> None:
        self.server.asked = self.path
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def deliverer() -> Iterator[Deliverer]:
    with Deliverer(("127.0.0.1", 0), _Answers) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        yield server
        thread.join()


@pytest.mark.parametrize(
    ("status", "pending", "code", "why"),
    [(200, 0, Exit.OK, ""), (202, 7, Exit.PARTLY, ", which cannot be delivered now")],
)
def test_it_says_how_much_is_left(
    deliverer: Deliverer,
    capsys: pytest.CaptureFixture[str],
    status: int,
    pending: int,
    code: Exit,
    why: str,
) -> None:
    deliverer.status = status
    deliverer.body = json.dumps({"complete": not pending, "pending": pending}).encode()
    url = f"http://127.0.0.1:{deliverer.server_port}"
    assert main(["drain", "--to", url, "--timeout", "2.5"]) == code
    assert deliverer.asked == "/drain?timeout=2.5"
    assert capsys.readouterr().out == f"{pending} pending{why}\n"


@pytest.mark.parametrize(("status", "body"), [(404, b"not found"), (200, b"hello")])
def test_another_answer_is_a_failure(
    deliverer: Deliverer, capsys: pytest.CaptureFixture[str], status: int, body: bytes
) -> None:
    deliverer.status, deliverer.body = status, body
    assert main(["drain", "--to", f"http://127.0.0.1:{deliverer.server_port}"]) == Exit.FAILED
    assert f"HTTP {status}" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "body"), [(404, b"not found"), (202, b'{"pending": 7}')])
def test_what_is_only_tried_never_fails(deliverer: Deliverer, status: int, body: bytes) -> None:
    deliverer.status, deliverer.body = status, body
    url = f"http://127.0.0.1:{deliverer.server_port}"
    assert main(["drain", "--to", url, "--best-effort"]) == Exit.OK


@pytest.mark.parametrize(
    ("given", "code"),
    [([], Exit.FAILED), (["--gone-ok"], Exit.OK), (["--best-effort"], Exit.OK)],
)
def test_a_deliverer_that_is_gone_is_done_with_only_where_that_is_said(
    capsys: pytest.CaptureFixture[str], given: list[str], code: Exit
) -> None:
    with socket.socket() as held:
        # Bound and not listening: refused at once, and nobody else can take the port.
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        assert main(["drain", "--to", url, *given]) == code
    told = capsys.readouterr()
    assert "connection refused" in told.out + told.err
    assert ("nothing is left to do" in told.out) is ("--gone-ok" in given)


@pytest.mark.parametrize("seconds", ["-1", "nan", "3601", "soon"])
def test_a_wrong_time_is_a_wrong_command_line(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["drain", "--timeout", seconds])
    assert end.value.code == Exit.USAGE
    assert f"'{seconds}' is not a number of seconds" in capsys.readouterr().err


def test_it_starts_without_what_a_hook_would_wait_for() -> None:
    program = "import sys; import pillion_cli.commands.drain; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(loaded).isdisjoint({"aiohttp", "asyncio", "pillion_sidecar", "rich", "yaml"})
