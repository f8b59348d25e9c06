"""``pillion wait``: what counts as started, and for how long it looks."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from pillion_cli.client import DelivererClient
from pillion_cli.commands.wait import PACE, wait_until_started
from pillion_cli.exits import CommandError, Exit
from pillion_cli.main import main


class Telemetry(HTTPServer):
    """Answers ``GET`` as it is told to. It has its port, and listens once it is started."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers, bind_and_activate=False)
        self.server_bind()
        self.statuses = [200]
        self.asked: list[str] = []
        self._thread = Thread(target=self.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def start(self) -> None:
        self.server_activate()
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()


class _Answers(BaseHTTPRequestHandler):
    server: Telemetry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = b"intake: it does not listen yet\n"
        self.send_response(self.server.statuses.pop(0))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    server = Telemetry()
    yield server
    server.stop()


class Passing:
    """Time that passes while one sleeps, and what happens then."""

    def __init__(self, *happens: Callable[[], None] | None) -> None:
        self.seconds = 0.0
        self._happens = list(happens)

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        if self._happens and (one := self._happens.pop(0)) is not None:
            one()


def waited(telemetry: Telemetry, time: Passing, *, within: float = 1.0) -> None:
    with DelivererClient(telemetry.url, timeout=10) as client:
        wait_until_started(client, within=within, now=time.now, sleep=time.sleep)


def test_one_that_has_started_is_not_waited_for(telemetry: Telemetry) -> None:
    telemetry.start()
    time = Passing()
    waited(telemetry, time)
    assert (time.seconds, telemetry.asked) == (0, ["/startupz"])


def test_it_looks_again_where_nobody_listens(telemetry: Telemetry) -> None:
    time = Passing(None, None, telemetry.start)
    waited(telemetry, time)
    assert time.seconds == pytest.approx(3 * PACE)


def test_it_looks_again_while_intake_does_not_listen(telemetry: Telemetry) -> None:
    telemetry.statuses = [503, 503, 200]
    telemetry.start()
    time = Passing()
    waited(telemetry, time)
    assert time.seconds == pytest.approx(2 * PACE)


def test_it_gives_up_in_time_and_says_what_it_saw(telemetry: Telemetry) -> None:
    time = Passing()
    with pytest.raises(
        CommandError,
        match=r"not started within 1 s: no .* http://127",
    ):
        waited(telemetry, time)
    assert 1 <= time.seconds < 1 + 2 * PACE


def test_without_time_it_looks_once(
    telemetry: Telemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.statuses = [503, 200]
    telemetry.start()
    command = ["wait", "--to", telemetry.url, "--timeout", "0"]
    assert main(command) == Exit.FAILED
    assert "HTTP 503: intake: it does not listen yet" in capsys.readouterr().err
    assert main(command) == Exit.OK
    assert capsys.readouterr() == ("", "")


def test_json_says_whether_it_has_started(
    telemetry: Telemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.statuses = [503, 200]
    telemetry.start()
    command = ["wait", "--to", telemetry.url, "--timeout", "0", "--output", "json"]
    assert main(command) == Exit.FAILED
    told = json.loads(capsys.readouterr().out)
    assert told["started"] is False
    assert "it does not listen yet" in told["failure"]
    assert main(command) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {"started": True}


def test_a_wrong_time_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["wait", "--timeout", "soon"])
    assert end.value.code == Exit.USAGE
    assert "'soon' is not a number of seconds" in capsys.readouterr().err


def test_it_starts_without_what_would_slow_the_start_that_it_waits_for() -> None:
    program = "import sys; import pillion_cli.commands.wait; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(loaded).isdisjoint({"aiohttp", "asyncio", "pillion_sidecar", "rich", "yaml"})
